//! Layers of container images: rewrites a tar archive into one that has each name once, with what
//! containerd would have in the layer's directory after unpacking it.
//!
//! Programs that read archives differ in what they make of names that come twice, of directories
//! that an archive implies, of whiteouts and of sparse files. What comes out of here leaves them
//! nothing to differ in: directories before their contents, in the order of their names; regular
//! files with all of their bytes; hard links to names that came before; whiteouts and opaque
//! directories as overlayfs stores them; no attributes that containerd does not set.
//!
//! The archive is read once, from beginning to end. Names and attributes are in memory, up to a
//! limit; contents go to a file and come back from there, since a later entry may replace an
//! earlier one.
#![forbid(unsafe_code)]

mod error;
mod limits;
mod marks;
mod output;
mod path;
mod tree;
mod unpack;

use std::fs::File;
use std::io::{Read, Write};

pub use error::Error;
pub use limits::Limits;
pub use marks::{IMPLIED, IMPLIES};

/// Rewrites a layer. `contents` is an empty file, to be read and written. The archive may have
/// bytes after its end, which are left unread.
///
/// # Errors
/// One line: what is wrong with the archive, with which of its entries, or which file failed. An
/// error of `to` ends the rewriting, and so do the limits.
pub fn rewrite(
    archive: impl Read,
    contents: &File,
    to: impl Write,
    limits: Limits,
) -> Result<(), Error> {
    let tree = unpack::unpack(archive, contents, limits)?;
    output::write(&tree, contents, to)
}
