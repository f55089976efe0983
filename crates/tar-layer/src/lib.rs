//! Layers of container images: rewrites a tar archive into one that has each name once, with the
//! contents that containerd's directory of the layer would have after unpacking.
//!
//! Programs that read archives treat repeated names, implied directories, whiteouts and sparse
//! files differently. The rewritten archive is unambiguous: directories come before their contents,
//! in the order of their names; regular files have all of their bytes; hard links refer to earlier
//! names; whiteouts and opaque directories are stored as in overlayfs; attributes that containerd
//! does not set are dropped.
//!
//! The archive is read once, from beginning to end. Names and attributes are kept in memory, up to
//! a limit; contents are written to a file and read back, because a later entry may replace an
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

pub use error::{Error, Result};
pub use limits::Limits;
pub use marks::{ALL, EXTENDED, IMPLIED, IMPLIES, MADE_IN_IMPLIED, REWRITTEN};

/// Rewrites a layer. `contents` is an empty file, to be read and written. Bytes after the end of
/// the archive are ignored.
///
/// # Errors
/// One line: the fault of the archive or of an entry, or the file that failed. Errors of `to` and
/// exceeded limits also end the rewriting.
pub fn rewrite(archive: impl Read, contents: &File, to: impl Write, limits: Limits) -> Result<()> {
    let tree = unpack::unpack(archive, contents, limits)?;
    output::write(&tree, contents, to)
}
