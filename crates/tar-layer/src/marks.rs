//! Attributes for programs that stack layers.

/// An attribute of directories for which the archive has no entry before the files in them. If the
/// layers below have the same directory, a runtime copies attributes from there: if the value is
/// [`ALL`] or [`MADE_IN_IMPLIED`], all attributes; if it is [`EXTENDED`], only the extended
/// attributes that the directory lacks.
pub const IMPLIED: &str = "trusted.overlay.erofast.implied";

/// A value of [`IMPLIED`]: the archive does not contain the directory.
pub const ALL: &[u8] = b"y";

/// A value of [`IMPLIED`]: like [`ALL`], and when this directory was created, its parent had no
/// entry either. If no lower layer has the directory, its group may be that of the parent.
pub const MADE_IN_IMPLIED: &[u8] = b"p";

/// A value of [`IMPLIED`]: the archive contains the directory, but only after files in it.
pub const EXTENDED: &[u8] = b"x";

/// An attribute of a layer's root: the number of directories with [`IMPLIED`], in decimal. A layer
/// without such directories lacks the attribute.
pub const IMPLIES: &str = "trusted.overlay.erofast.implies";

/// An attribute of the root of every rewritten layer. It says that all names in the layer are
/// ordinary names, even those that begin with `.wh.`.
pub const REWRITTEN: &str = "trusted.overlay.erofast.rewritten";
