//! Attributes for programs that stack layers.

/// An attribute of directories that have files in the archive but no entry before these files. A
/// runtime copies attributes to them from the same directory in the layers below, if there is one:
/// all attributes with [`ALL`] and [`MADE_IN_IMPLIED`]; with [`EXTENDED`] only the extended
/// attributes that the directory lacks.
pub const IMPLIED: &str = "trusted.overlay.erofast.implied";

/// A value of [`IMPLIED`]: the archive does not contain the directory.
pub const ALL: &[u8] = b"y";

/// A value of [`IMPLIED`]: like [`ALL`], and when this directory was created, its parent had no
/// entry either. If no lower layer has the directory, its group may be that of the parent.
pub const MADE_IN_IMPLIED: &[u8] = b"p";

/// A value of [`IMPLIED`]: the archive contains the directory, but only after files in it.
pub const EXTENDED: &[u8] = b"x";

/// An attribute of the root of a layer that has directories with [`IMPLIED`]: their number, in
/// decimal.
pub const IMPLIES: &str = "trusted.overlay.erofast.implies";

/// An attribute of the root of every rewritten layer: its names are not marks, even if they begin
/// with `.wh.`.
pub const REWRITTEN: &str = "trusted.overlay.erofast.rewritten";
