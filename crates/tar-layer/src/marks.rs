//! Attributes for programs that stack layers.

/// Marks directories that an archive implies but does not contain: a runtime gives them the
/// attributes of the same directory in the layers below, if there is one.
pub const IMPLIED: &str = "trusted.overlay.erofast.implied";

/// An attribute of a layer's root: the decimal number of such directories in the layer.
pub const IMPLIES: &str = "trusted.overlay.erofast.implies";
