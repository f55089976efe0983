//! Directories, read from their decoded content.
//!
//! A directory is a sequence of blocks. Each block consists of its entries (12 bytes each),
//! followed by their names in the same order. The offset of the first name determines the number of
//! entries; a name ends where the next one begins, and the last name at the end of the block or at
//! a NUL. Entries are sorted by name, across blocks too, so that a lookup needs few blocks. See
//! `erofs_dirent` in fs/erofs/erofs_fs.h, fs/erofs/namei.c and fs/erofs/dir.c.

mod block;
mod list;
mod lookup;

pub use list::{Item, read};
pub use lookup::{lookup, seek};

use crate::Nid;

/// One entry of a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dirent<'a> {
    /// Name: 1 to 255 bytes without `/` and NUL; `.` and `..` are ordinary entries.
    pub name: &'a [u8],
    /// Number of the inode that the entry refers to.
    pub nid: Nid,
    /// Type according to the entry (see [`crate::FileType`]); only a hint, since the inode's own
    /// type decides. 0 means unknown.
    pub file_type: u8,
    /// Where to continue after this entry: an opaque cookie for [`read`]. Cookies grow with every
    /// entry and never exceed the directory's size, so a caller that supplies an omitted `.` at the
    /// end can use a larger cookie for it.
    pub next: u64,
}
