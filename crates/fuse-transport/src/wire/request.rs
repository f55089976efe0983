//! Fixed parts of requests.

use rustix::fs::OFlags;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Precedes every request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct InHeader {
    /// Bytes in the whole request, including this header.
    pub len: u32,
    /// The request's kind; see [`Opcode`](super::Opcode).
    pub opcode: u32,
    /// Identifies the request in its answer. Never 0.
    pub unique: u64,
    /// The node that the request concerns.
    pub nodeid: u64,
    /// User of the requesting process.
    pub uid: u32,
    /// Group of the requesting process.
    pub gid: u32,
    /// ID of the requesting process; 0 if it is in another PID namespace, or for read-ahead.
    pub pid: u32,
    /// Bytes of extensions, in units of eight (7.38).
    pub total_extlen: u16,
    /// Unused.
    pub padding: u16,
}

/// The fixed part of READ, READDIR and READDIRPLUS.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[allow(missing_docs)]
pub struct ReadIn {
    pub fh: u64,
    pub offset: u64,
    pub size: u32,
    pub read_flags: u32,
    pub lock_owner: u64,
    pub flags: u32,
    pub padding: u32,
}

impl ReadIn {
    /// `read_flags`: the lock owner is set, as it is for direct reads.
    pub const LOCK_OWNER: u32 = 1 << 1;

    /// Whether the request is for the page cache. The page cache hides an error from programs as
    /// long as it can request the bytes again; the error of a direct read goes to the program. The
    /// file's open flags do not identify all direct reads: loop devices read directly from files
    /// that were opened without O_DIRECT.
    pub fn is_for_page_cache(&self) -> bool {
        self.read_flags & Self::LOCK_OWNER == 0 && self.flags & OFlags::DIRECT.bits() == 0
    }
}

/// The fixed part of GETXATTR (the name follows) and LISTXATTR. A size of 0 requests only the
/// length of the answer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[allow(missing_docs)]
pub struct XattrIn {
    pub size: u32,
    pub padding: u32,
}

/// The fixed part of LSEEK, which is sent only for SEEK_DATA and SEEK_HOLE.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[allow(missing_docs)]
pub struct LseekIn {
    pub fh: u64,
    pub offset: u64,
    pub whence: u32,
    pub padding: u32,
}

/// The fixed part of IOCTL; the bytes that the program passes follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[allow(missing_docs)]
pub struct IoctlIn {
    pub fh: u64,
    pub flags: u32,
    pub cmd: u32,
    pub arg: u64,
    pub in_size: u32,
    /// Bytes that the program has room for.
    pub out_size: u32,
}

impl IoctlIn {
    /// In `flags`: the node is a directory (`FUSE_IOCTL_DIR`).
    pub const DIRECTORY: u32 = 1 << 4;
}

const _: () = assert!(size_of::<InHeader>() == 40);
const _: () = assert!(size_of::<ReadIn>() == 40);
const _: () = assert!(size_of::<XattrIn>() == 8);
const _: () = assert!(size_of::<LseekIn>() == 24);
const _: () = assert!(size_of::<IoctlIn>() == 32);

#[cfg(test)]
mod tests {
    use super::super::Opcode;
    use super::*;

    #[test]
    fn the_table_of_kinds_knows_the_sizes_of_these_structures() {
        assert_eq!(Opcode::Read.fixed_size(), size_of::<ReadIn>());
        assert_eq!(Opcode::Readdir.fixed_size(), size_of::<ReadIn>());
        assert_eq!(Opcode::Readdirplus.fixed_size(), size_of::<ReadIn>());
        assert_eq!(Opcode::Getxattr.fixed_size(), size_of::<XattrIn>());
        assert_eq!(Opcode::Listxattr.fixed_size(), size_of::<XattrIn>());
        assert_eq!(Opcode::Lseek.fixed_size(), size_of::<LseekIn>());
        assert_eq!(Opcode::Ioctl.fixed_size(), size_of::<IoctlIn>());
    }
}
