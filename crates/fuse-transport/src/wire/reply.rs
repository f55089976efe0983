//! Replies.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Precedes every reply.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct OutHeader {
    /// Bytes in the whole reply, including this header.
    pub len: u32,
    /// 0, or a negative error number.
    pub error: i32,
    /// The number of the request that the reply answers.
    pub unique: u64,
}

/// A message that is not an answer: bytes for the page cache (`FUSE_NOTIFY_STORE`). Its
/// [`OutHeader`] has [`StoreOut::CODE`] in place of an error and 0 in place of a request number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct StoreOut {
    /// The file.
    pub nodeid: u64,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes that follow.
    pub size: u32,
    /// Unused.
    pub padding: u32,
}

impl StoreOut {
    /// Number of the message.
    pub const CODE: i32 = 4;
}

const _: () = assert!(size_of::<StoreOut>() == 24);

/// Makes the kernel send bytes of a file from the page cache (`fuse_notify_retrieve_out`), as a
/// request of the kind NOTIFY_REPLY, which no program waits for. The [`OutHeader`] before it has
/// [`RetrieveOut::CODE`] in place of an error and 0 in place of a request number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct RetrieveOut {
    /// Number of the request.
    pub unique: u64,
    /// The file.
    pub nodeid: u64,
    /// First byte in the file.
    pub offset: u64,
    /// Bytes wanted.
    pub size: u32,
    /// Unused.
    pub padding: u32,
}

impl RetrieveOut {
    /// Number of the message.
    pub const CODE: i32 = 5;
}

const _: () = assert!(size_of::<RetrieveOut>() == 32);

/// Attributes of a node.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable,
)]
pub struct Attr {
    /// Inode number that programs see.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Size in units of 512 bytes.
    pub blocks: u64,
    /// Seconds since 1970; negative times in two's complement.
    pub atime: u64,
    /// In the same format as `atime`.
    pub mtime: u64,
    /// In the same format as `atime`.
    pub ctime: u64,
    /// Below 1,000,000,000.
    pub atimensec: u32,
    /// Below 1,000,000,000.
    pub mtimensec: u32,
    /// Below 1,000,000,000.
    pub ctimensec: u32,
    /// Type and permissions as in `st_mode`.
    pub mode: u32,
    /// Hard links.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node in the kernel's 32-bit form, see [`Attr::device`].
    pub rdev: u32,
    /// Preferred size of I/O; 0 lets the kernel choose.
    pub blksize: u32,
    /// Flags; none are used here.
    pub flags: u32,
}

impl Attr {
    /// The 32-bit form of a device number: 12 bits of major, 20 of minor, the minor's low byte
    /// first.
    pub const fn device(major: u32, minor: u32) -> u32 {
        (minor & 0xff) | (major << 8) | ((minor & !0xff) << 12)
    }
}

/// The reply to LOOKUP, and a part of the reply to READDIRPLUS.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[allow(missing_docs)]
pub struct EntryOut {
    pub nodeid: u64,
    pub generation: u64,
    pub entry_valid: u64,
    pub attr_valid: u64,
    pub entry_valid_nsec: u32,
    pub attr_valid_nsec: u32,
    pub attr: Attr,
}

impl EntryOut {
    /// The entry of a name that leads to `node`, valid for this many seconds.
    pub fn found(node: u64, attr: Attr, seconds: u64) -> Self {
        Self {
            nodeid: node,
            entry_valid: seconds,
            attr_valid: seconds,
            attr,
            ..Self::default()
        }
    }

    /// The entry of a name that does not exist. Node 0 with a time above 0 makes the kernel cache
    /// the absence of the name.
    pub fn absent(seconds: u64) -> Self {
        Self {
            entry_valid: seconds,
            ..Self::default()
        }
    }
}

/// The reply to GETATTR.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[allow(missing_docs)]
pub struct AttrOut {
    pub attr_valid: u64,
    pub attr_valid_nsec: u32,
    pub dummy: u32,
    pub attr: Attr,
}

/// The reply to STATFS.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct StatfsOut {
    /// Blocks of `frsize` bytes.
    pub blocks: u64,
    /// Free blocks.
    pub bfree: u64,
    /// Free blocks for unprivileged users.
    pub bavail: u64,
    /// Number of inodes.
    pub files: u64,
    /// Number of free inodes.
    pub ffree: u64,
    /// Preferred size of I/O.
    pub bsize: u32,
    /// Longest name.
    pub namelen: u32,
    /// Bytes in a block.
    pub frsize: u32,
    /// Unused.
    pub padding: u32,
    /// Unused.
    pub spare: [u32; 6],
}

/// The reply to IOCTL, before the bytes that the program gets.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[allow(missing_docs)]
pub struct IoctlOut {
    pub result: i32,
    pub flags: u32,
    pub in_iovs: u32,
    pub out_iovs: u32,
}

/// An entry in the reply to READDIR, before its name; also the end of an entry in the reply to
/// READDIRPLUS, after an [`EntryOut`].
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, KnownLayout, Immutable)]
pub struct Dirent {
    /// Inode number that programs see.
    pub ino: u64,
    /// Position of the entry after this one.
    pub off: u64,
    /// Bytes of the name that follows.
    pub namelen: u32,
    /// `DT_REG` and so on.
    pub kind: u32,
}

const _: () = assert!(size_of::<OutHeader>() == 16);
const _: () = assert!(size_of::<Attr>() == 88);
const _: () = assert!(size_of::<EntryOut>() == 128);
const _: () = assert!(size_of::<AttrOut>() == 104);
const _: () = assert!(size_of::<StatfsOut>() == 80);
const _: () = assert!(size_of::<IoctlOut>() == 16);
const _: () = assert!(size_of::<Dirent>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_numbers_take_the_kernels_32_bit_form() {
        assert_eq!(Attr::device(1, 3), 0x103);
        assert_eq!(Attr::device(8, 0x12345), 0x1230_0845);
    }

    #[test]
    fn an_absent_name_is_remembered() {
        let entry = EntryOut::absent(9);
        assert_eq!(entry.nodeid, 0);
        assert!(entry.entry_valid > 0);
    }
}
