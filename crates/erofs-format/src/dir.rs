//! Directories, read from their decoded content.

use std::ops::ControlFlow;

use crate::{Error, Nid, ReadAt, Result};

/// One entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirent<'a> {
    /// Name: 1 to 255 bytes without `/` and NUL; `.` and `..` are entries like others.
    pub name: &'a [u8],
    /// Inode it names.
    pub nid: Nid,
    /// Type as in the entry (see [`crate::FileType`]); a hint, the inode decides. 0 is unknown.
    pub file_type: u8,
    /// Where to go on behind this entry: an opaque cookie for [`read`], larger with every entry.
    pub next: u64,
}

/// What [`read`] came across.
#[derive(Debug)]
pub enum Item<'a> {
    /// An entry.
    Entry(Dirent<'a>),
    /// An entry or a whole block that is broken; the listing goes on behind it.
    Broken {
        /// What is wrong.
        error: Error,
        /// Cookie behind it.
        next: u64,
    },
}

/// Looks `name` up: `Some((nid, file_type))`, or `None` if there is no such entry.
///
/// `content` is the decoded content of the directory, exactly as long as its size.
pub fn lookup(content: &dyn ReadAt, block_size: u32, name: &[u8]) -> Result<Option<(Nid, u8)>> {
    let _ = (content, block_size, name);
    todo!()
}

/// Calls `each` for what is in the directory from the cookie `position` (0: the beginning) on, in
/// order, until it breaks or the directory ends.
///
/// `.` is not among the entries if [`crate::Inode::dot_omitted`]. An error is one of reading a block.
pub fn read(
    content: &dyn ReadAt,
    block_size: u32,
    position: u64,
    each: &mut dyn FnMut(Item<'_>) -> ControlFlow<()>,
) -> Result<()> {
    let _ = (content, block_size, position, each);
    todo!()
}
