//! Inodes.

use crate::Nid;

/// A decoded and checked inode.
#[derive(Clone, Debug)]
pub struct Inode {
    /// Its number.
    pub nid: Nid,
    /// Type and permissions, as `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes; not backed by anything until mapped.
    pub size: u64,
    /// Hard links.
    pub nlink: u32,
    /// Modification time, seconds since 1970 (negative: before).
    pub mtime: i64,
    /// Its nanoseconds.
    pub mtime_nsec: u32,
    /// Device number of a device file, else 0:0.
    pub rdev: DeviceNumber,
    /// Serial number for 32-bit stat, as on disk: for display only.
    pub ino: u32,
    /// Blocks of storage, as `st_blocks`: in units of 512 bytes.
    pub blocks: u64,
    /// On-disk inode of 64 bytes (else 32).
    pub extended: bool,
    /// A directory without a `.` entry (48-bit images); the reader of directories supplies it.
    pub dot_omitted: bool,
    /// `i_xattr_icount`: 0 for no xattrs at all.
    pub xattr_icount: u16,
    layout: DataLayout,
}

/// How the data of an inode is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum DataLayout {
    /// Consecutive blocks.
    FlatPlain,
    /// Compressed, with 8-byte indexes or encoded extents.
    CompressedFull,
    /// Consecutive blocks, and the tail behind the inode.
    FlatInline,
    /// Compressed, with indexes of 4 and 2 bytes.
    CompressedCompact,
    /// Chunks of equal size anywhere.
    ChunkBased,
}

/// File types, by their numbers in directory entries.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum FileType {
    /// Regular file.
    Regular = 1,
    /// Directory.
    Directory = 2,
    /// Character device.
    CharDevice = 3,
    /// Block device.
    BlockDevice = 4,
    /// FIFO.
    Fifo = 5,
    /// Socket.
    Socket = 6,
    /// Symbolic link.
    Symlink = 7,
}

/// A device number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct DeviceNumber {
    /// Major number.
    pub major: u32,
    /// Minor number.
    pub minor: u32,
}

impl Inode {
    /// Its type.
    pub fn file_type(&self) -> FileType {
        todo!()
    }

    /// How its data is laid out.
    pub fn layout(&self) -> DataLayout {
        self.layout
    }

    /// Its data is compressed (or a fragment).
    pub fn is_compressed(&self) -> bool {
        matches!(self.layout, DataLayout::CompressedFull | DataLayout::CompressedCompact)
    }

    /// The inode lives inside of the metabox.
    pub fn in_metabox(&self) -> bool {
        self.nid & crate::NID_IN_METABOX != 0
    }
}
