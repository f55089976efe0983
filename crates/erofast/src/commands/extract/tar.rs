//! Headers of tar members: ustar, with pax records for anything that does not fit into ustar.
//!
//! Sparse files use GNU tar's format 1.0, ACLs are text ([`acl`]). Formats: pax in POSIX.1-2017,
//! "pax Interchange Format"; the key of xattrs is star's, which GNU tar and libarchive read too.

use erofs_engine::erofs_format::{FileType, Inode, Xattr};

use super::acl;

/// Everything in a tar stream consists of blocks of this size.
pub const BLOCK: usize = 512;
/// Longest path or link target in a header.
const NAME_MAX: usize = 100;
/// Largest values of 7 and 11 octal digits.
const ID_MAX: u64 = 0o777_7777;
const SIZE_MAX: u64 = 0o777_7777_7777;

/// The type of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<'a> {
    /// A file with this many bytes of content.
    File(u64),
    /// A file of this many bytes, whose map and data take `stored` bytes.
    Sparse {
        size: u64,
        stored: u64,
    },
    /// Another name of the member with this path.
    HardLink(&'a [u8]),
    Symlink(&'a [u8]),
    Directory,
    CharDevice,
    BlockDevice,
    Fifo,
}

impl<'a> Kind<'a> {
    fn flag(self) -> u8 {
        match self {
            Self::File(_) | Self::Sparse { .. } => b'0',
            Self::HardLink(_) => b'1',
            Self::Symlink(_) => b'2',
            Self::CharDevice => b'3',
            Self::BlockDevice => b'4',
            Self::Directory => b'5',
            Self::Fifo => b'6',
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

    /// The kind of a member for an inode without content or link target; none if tar has no such
    /// kind.
    pub fn of(file_type: FileType) -> Option<Kind<'static>> {
        match file_type {
            FileType::Directory => Some(Kind::Directory),
            FileType::CharDevice => Some(Kind::CharDevice),
            FileType::BlockDevice => Some(Kind::BlockDevice),
            FileType::Fifo => Some(Kind::Fifo),
            _ => None,
        }
    }
}

/// The blocks that precede a member's content.
pub fn header(path: &[u8], kind: Kind<'_>, inode: &Inode, xattrs: &[Xattr]) -> Vec<u8> {
    let records = records(path, kind, inode, xattrs);
    let mut out = Vec::new();
    if !records.is_empty() {
        let plain = Fields {
            mode: 0o644,
            size: records.len() as u64,
            ..Fields::default()
        };
        out.extend(plain.block(b"././@PaxHeader", b'x', b""));
        out.extend(&records);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    let fields = Fields {
        mode: inode.mode & 0o7777,
        uid: inode.uid.into(),
        gid: inode.gid.into(),
        size: kind.stored(),
        mtime: inode.mtime.try_into().unwrap_or(0),
        device: (inode.rdev.major, inode.rdev.minor),
    };
    let shown = match kind {
        Kind::Sparse { .. } => sparse_name(path),
        _ => path.to_vec(),
    };
    out.extend(fields.block(&shown, kind.flag(), kind.link()));
    out
}

/// The path at which a tar that does not know the format extracts map and data.
fn sparse_name(path: &[u8]) -> Vec<u8> {
    let at = path.iter().rposition(|byte| *byte == b'/');
    let (directory, name) = path.split_at(at.map_or(0, |at| at + 1));
    [directory, b"GNUSparseFile.0/", name].concat()
}

/// The pax records, for everything that does not fit into the header.
fn records(path: &[u8], kind: Kind<'_>, inode: &Inode, xattrs: &[Xattr]) -> Vec<u8> {
    let mut out = Vec::new();
    if let Kind::Sparse { size, .. } = kind {
        record(&mut out, b"GNU.sparse.major", b"1");
        record(&mut out, b"GNU.sparse.minor", b"0");
        record(&mut out, b"GNU.sparse.name", path);
        record(
            &mut out,
            b"GNU.sparse.realsize",
            size.to_string().as_bytes(),
        );
    }
    for (key, name) in [("path", path), ("linkpath", kind.link())] {
        if name.len() > NAME_MAX {
            record(&mut out, key.as_bytes(), name);
        }
    }
    for (key, number, most) in [
        ("uid", inode.uid.into(), ID_MAX),
        ("gid", inode.gid.into(), ID_MAX),
        ("size", kind.stored(), SIZE_MAX),
    ] {
        if number > most {
            record(&mut out, key.as_bytes(), number.to_string().as_bytes());
        }
    }
    let fits = u64::try_from(inode.mtime).is_ok_and(|seconds| seconds <= SIZE_MAX);
    if inode.mtime_nsec != 0 || !fits {
        let text = decimal_time(inode.mtime, inode.mtime_nsec);
        record(&mut out, b"mtime", text.as_bytes());
    }
    for xattr in xattrs {
        if let Some((key, text)) = acl::record(&xattr.name, &xattr.value) {
            record(&mut out, key.as_bytes(), text.as_bytes());
            continue;
        }
        let key = [b"SCHILY.xattr.", &xattr_key(&xattr.name)[..]].concat();
        record(&mut out, &key, &xattr.value);
    }
    out
}

/// `LENGTH KEY=VALUE\n`; the length includes itself.
fn record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while rest + length.to_string().len() != length {
        length = rest + length.to_string().len();
    }
    out.extend(length.to_string().as_bytes());
    out.extend([b" ", key, b"=", value, b"\n"].concat());
}

/// A key ends at the first `=`, so GNU tar percent-encodes that character.
fn xattr_key(name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'=' => key.extend(b"%3D"),
            b'%' => key.extend(b"%25"),
            byte => key.push(byte),
        }
    }
    key
}

/// Seconds with their fraction. Before 1970 the sign applies to both, unlike in an inode.
fn decimal_time(seconds: i64, nanoseconds: u32) -> String {
    let total = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
    let sign = if total < 0 { "-" } else { "" };
    let total = total.unsigned_abs();
    let (seconds, nanoseconds) = (total / 1_000_000_000, total % 1_000_000_000);
    format!("{sign}{seconds}.{nanoseconds:09}")
}

/// Numeric fields of a header.
#[derive(Debug, Default)]
struct Fields {
    mode: u16,
    uid: u64,
    gid: u64,
    size: u64,
    mtime: u64,
    device: (u32, u32),
}

impl Fields {
    /// One header block. Names that are too long are truncated, and numbers that are too big are 0:
    /// both have a pax record.
    fn block(&self, path: &[u8], flag: u8, link: &[u8]) -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        let short = |name: &[u8]| name[..name.len().min(NAME_MAX)].to_vec();
        let id = |number: u64| format!("{:07o}", if number > ID_MAX { 0 } else { number });
        let long = |number: u64| format!("{:011o}", if number > SIZE_MAX { 0 } else { number });
        put(0, &short(path));
        put(100, id(self.mode.into()).as_bytes());
        put(108, id(self.uid).as_bytes());
        put(116, id(self.gid).as_bytes());
        put(124, long(self.size).as_bytes());
        put(136, long(self.mtime).as_bytes());
        // The checksum is computed with blanks in its place.
        put(148, b"        ");
        put(156, &[flag]);
        put(157, &short(link));
        put(257, b"ustar\x0000");
        put(329, id(self.device.0.into()).as_bytes());
        put(337, id(self.device.1.into()).as_bytes());
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_of_a_record_counts_its_own_digits() {
        let text = |key: &str, value: &str| {
            let mut out = Vec::new();
            record(&mut out, key.as_bytes(), value.as_bytes());
            String::from_utf8(out).expect("text")
        };
        assert_eq!(text("k", ""), "5 k=\n");
        assert_eq!(text("path", "abc"), "12 path=abc\n");
        // The record has 8 bytes without the length; one digit makes 9, which is still one digit.
        assert_eq!(text("ab", "xyz"), "9 ab=xyz\n");
        // With one digit the record would have 10 bytes, which takes two digits.
        assert_eq!(text("ab", "wxyz"), "11 ab=wxyz\n");
        for size in 0..2000 {
            let record = text("key", &"v".repeat(size));
            let length = record.split(' ').next().and_then(|n| n.parse().ok());
            assert_eq!(length, Some(record.len()));
        }
    }

    #[test]
    fn times_before_1970_have_one_sign_for_both() {
        assert_eq!(decimal_time(1, 5), "1.000000005");
        assert_eq!(decimal_time(-2, 500_000_000), "-1.500000000");
        assert_eq!(decimal_time(-1, 999_999_999), "-0.000000001");
    }

    #[test]
    fn a_header_block_has_its_fields_in_place() {
        let fields = Fields {
            mode: 0o755,
            uid: ID_MAX + 1,
            size: 8,
            ..Fields::default()
        };
        let block = fields.block(&[b'n'; 300], b'0', b"");
        assert_eq!(&block[..101], [&[b'n'; 100][..], b"0"].concat());
        assert_eq!(&block[100..116], b"0000755\x000000000\0");
        assert_eq!(&block[124..136], b"00000000010\0");
        assert_eq!(&block[257..265], b"ustar\x0000");
    }
}
