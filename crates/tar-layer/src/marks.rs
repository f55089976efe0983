//! Attributes for programs that stack layers.

/// An attribute of directories that an archive implies before it states them, if ever: a runtime
/// gives them attributes of the same directory in the layers below, if there is one. With [`ALL`]
/// and [`MADE_IN_IMPLIED`] all are from there, with [`EXTENDED`] the extended ones that the
/// directory lacks.
pub const IMPLIED: &str = "trusted.overlay.erofast.implied";

/// A value of [`IMPLIED`]: the archive does not contain the directory.
pub const ALL: &[u8] = b"y";

/// A value of [`IMPLIED`]: as [`ALL`]; and so it was with the directory above when this one was
/// made. If there is none below, its group may be that of the directory above.
pub const MADE_IN_IMPLIED: &[u8] = b"p";

/// A value of [`IMPLIED`]: the archive contains the directory, after files in it.
pub const EXTENDED: &[u8] = b"x";

/// An attribute of the root of a layer with such directories: their decimal number.
pub const IMPLIES: &str = "trusted.overlay.erofast.implies";

/// An attribute of the root of every layer that was rewritten: no name in it is a mark, even one
/// that begins with `.wh.`.
pub const REWRITTEN: &str = "trusted.overlay.erofast.rewritten";
