//! Attributes for those who stack layers.

/// An attribute of directories that an archive implies and does not contain: a runtime gives them
/// the attributes of the same directory in the layers below, if there is one.
pub const IMPLIED: &str = "trusted.overlay.erofast.implied";

/// An attribute of the root of a layer with such directories: their decimal number.
pub const IMPLIES: &str = "trusted.overlay.erofast.implies";
