//! Headers of tar members: ustar, with pax records for anything that does not fit into ustar.
//!
//! Sparse files use GNU tar's format 1.0, and ACLs are text ([`acl`]). POSIX.1-2017 specifies pax
//! ("pax Interchange Format"). The keys of xattrs are star's, which GNU tar and libarchive read
//! too.

use erofs_engine::erofs_format::{FileType, Inode, Xattr};
use tar_core::builder::{EntryBuilder, NAME_MAX_LEN};
use tar_core::{EntryType, HeaderError};

use super::acl;
use super::journal::Journal;

/// Everything in a tar stream consists of blocks of this size.
pub const BLOCK: usize = tar_core::HEADER_SIZE;
/// The latest time that fits in a header: the largest value of 11 octal digits.
const LATEST: u64 = 0o777_7777_7777;

/// The type of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A file with this many bytes of content.
    File(u64),
    /// A sparse file of `size` bytes, whose map and data take `stored` bytes.
    Sparse {
        size: u64,
        stored: u64,
    },
    /// Another name of the member with this path.
    HardLink(&'a [u8]),
    Symlink(&'a [u8]),
    /// A directory, a device or a FIFO, without content or link target.
    Other(FileType),
}

impl<'a> Kind<'a> {
    fn entry_type(self) -> EntryType {
        match self {
            Self::File(_) | Self::Sparse { .. } => EntryType::Regular,
            Self::HardLink(_) => EntryType::Link,
            Self::Symlink(_) => EntryType::Symlink,
            Self::Other(FileType::Directory) => EntryType::Directory,
            Self::Other(FileType::CharDevice) => EntryType::Char,
            Self::Other(FileType::BlockDevice) => EntryType::Block,
            Self::Other(_) => EntryType::Fifo,
        }
    }

    fn link(self) -> &'a [u8] {
        match self {
            Self::HardLink(target) | Self::Symlink(target) => target,
            _ => b"",
        }
    }

    /// Bytes that follow the header.
    pub fn stored(self) -> u64 {
        match self {
            Self::File(size) => size,
            Self::Sparse { stored, .. } => stored,
            _ => 0,
        }
    }
}

/// The blocks that precede a member's content. `path` is its path in the image, `name` the one in
/// the archive.
///
/// # Errors
/// A number does not fit into any header.
pub fn header(
    (path, name): (&[u8], &[u8]),
    kind: Kind<'_>,
    inode: &Inode,
    xattrs: &[Xattr],
    journal: &Journal,
) -> Result<Vec<u8>, HeaderError> {
    let mut builder = EntryBuilder::new_ustar();
    builder
        .link_name(kind.link())
        .entry_type(kind.entry_type())
        .mode(u32::from(inode.mode) & 0o7777)?
        .uid(inode.uid.into())?
        .gid(inode.gid.into())?
        .size(kind.stored())?
        .device(inode.rdev.major, inode.rdev.minor)?;
    match kind {
        Kind::Sparse { size, .. } => {
            let other = sparse_name(name);
            if other.len() > NAME_MAX_LEN {
                // Python takes `path` or `GNU.sparse.name`, whichever comes last, and the builder
                // would add `path` last.
                builder.add_pax("path", &other);
            }
            builder
                .path(&other[..other.len().min(NAME_MAX_LEN)])
                .add_pax("GNU.sparse.major", "1")
                .add_pax("GNU.sparse.minor", "0")
                .add_pax("GNU.sparse.name", name)
                .add_pax("GNU.sparse.realsize", size.to_string())
        }
        _ => builder.path(name),
    };
    // For a time that does not fit, the builder would add a record without the fraction.
    let seconds = u64::try_from(inode.mtime).ok();
    let fits = seconds.filter(|seconds| *seconds <= LATEST);
    builder.mtime(fits.unwrap_or(0))?;
    if inode.mtime_nsec != 0 || fits.is_none() {
        builder.add_pax("mtime", decimal_time(inode.mtime, inode.mtime_nsec));
    }
    for xattr in xattrs {
        let key = str::from_utf8(&xattr.name);
        match (acl::record(&xattr.name, &xattr.value), key) {
            (Some((key, text)), _) => builder.add_pax(key, text),
            (None, Ok(name)) => builder.add_pax(&xattr_key(name), &xattr.value),
            (None, Err(_)) => {
                journal.not_kept("xattrs", path, "tar cannot store names that are not UTF-8");
                continue;
            }
        };
    }
    Ok(builder.finish_bytes())
}

/// The name under which a tar program that does not support the format extracts the map and the
/// data.
fn sparse_name(path: &[u8]) -> Vec<u8> {
    let at = path.iter().rposition(|byte| *byte == b'/');
    let (directory, name) = path.split_at(at.map_or(0, |at| at + 1));
    [directory, b"GNUSparseFile.0/", name].concat()
}

/// A key ends at its first `=`, so GNU tar escapes an `=` in a name as in a URL.
fn xattr_key(name: &str) -> String {
    let name = name.replace('%', "%25").replace('=', "%3D");
    format!("SCHILY.xattr.{name}")
}

/// Formats seconds with their fraction. Before 1970 the sign applies to the fraction too, unlike in
/// an inode.
fn decimal_time(seconds: i64, nanoseconds: u32) -> String {
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let sign = if total < 0 { "-" } else { "" };
    let total = total.unsigned_abs();
    let (seconds, nanoseconds) = (total / 1_000_000_000, total % 1_000_000_000);
    format!("{sign}{seconds}.{nanoseconds:09}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_have_one_sign_for_both() {
        assert_eq!(decimal_time(1, 5), "1.000000005");
        assert_eq!(decimal_time(-2, 500_000_000), "-1.500000000");
        assert_eq!(decimal_time(-1, 999_999_999), "-0.000000001");
    }

    #[test]
    fn a_key_of_an_xattr_has_no_equals_sign() {
        assert_eq!(xattr_key("user.a=b%"), "SCHILY.xattr.user.a%3Db%25");
    }
}
