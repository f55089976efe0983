//! The structures of `erofast.h`, field by field.

use erofs_engine::erofs_format::{Coding, Extent, ExtentKind, FileType, Inode};

/// An inode's properties, `struct erofast_stat` in C.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Stat {
    pub nid: u64,
    pub size: u64,
    pub blocks: u64,
    pub mtime: i64,
    pub mtime_nsec: u32,
    pub mode: u32,
    pub nlink: u32,
    pub uid: u32,
    pub gid: u32,
    pub rdev_major: u32,
    pub rdev_minor: u32,
    pub padding: u32,
}

impl From<&Inode> for Stat {
    fn from(inode: &Inode) -> Self {
        Self {
            nid: inode.nid,
            size: inode.size,
            blocks: inode.stat_blocks(),
            mtime: inode.mtime,
            mtime_nsec: inode.mtime_nsec,
            mode: inode.mode.into(),
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev_major: inode.rdev.major,
            rdev_minor: inode.rdev.minor,
            padding: 0,
        }
    }
}

/// Where an extent's bytes are, `enum erofast_extent_kind` in C.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Kind {
    Hole = 0,
    Plain = 1,
    Metadata = 2,
    Compressed = 3,
    Fragment = 4,
}

/// The algorithm of uncompressed extents, `EROFAST_NONE` in C.
const NO_ALGORITHM: i32 = -1;
/// The flag `EROFAST_IN_METABOX`.
const IN_METABOX: u32 = 1;

/// An extent, `struct erofast_extent` in C.
#[repr(C)]
#[derive(Debug)]
pub struct ExtentRecord {
    pub logical: u64,
    pub length: u64,
    pub physical: u64,
    pub stored: u64,
    pub kind: Kind,
    pub algorithm: i32,
    pub device: u32,
    pub flags: u32,
}

impl From<&Extent> for ExtentRecord {
    fn from(extent: &Extent) -> Self {
        let place = extent.location();
        let (mut algorithm, mut stored) = (NO_ALGORITHM, extent.stored());
        let mut physical = place.map_or(0, |place| place.physical);
        let kind = match extent.kind {
            ExtentKind::Hole => Kind::Hole,
            ExtentKind::Raw { .. } => Kind::Plain,
            ExtentKind::Meta { .. } => Kind::Metadata,
            ExtentKind::Fragment { offset } => {
                (physical, stored) = (offset, extent.length);
                Kind::Fragment
            }
            ExtentKind::Compressed(pcluster) => {
                if let Coding::Compressed(codec) = pcluster.coding {
                    algorithm = codec as i32;
                }
                Kind::Compressed
            }
        };
        Self {
            logical: extent.logical,
            length: extent.length,
            physical,
            stored,
            kind,
            algorithm,
            device: place.map_or(0, |place| place.device.into()),
            flags: match place.is_some_and(|place| place.metabox) {
                true => IN_METABOX,
                false => 0,
            },
        }
    }
}

/// The `DT_` number of a file type that a directory of the image records. `DT_` numbers are the
/// file type bits of `st_mode`, shifted right by 12.
pub fn dirent_type(file_type: u8) -> u32 {
    const TYPES: [(FileType, u32); 7] = [
        (FileType::Regular, 8),
        (FileType::Directory, 4),
        (FileType::CharDevice, 2),
        (FileType::BlockDevice, 6),
        (FileType::Fifo, 1),
        (FileType::Socket, 12),
        (FileType::Symlink, 10),
    ];
    let known = TYPES.iter().find(|(own, _)| *own as u8 == file_type);
    known.map_or(0, |(_, number)| *number)
}

// The header promises these sizes on every machine.
const _: () = assert!(size_of::<Stat>() == 64);
const _: () = assert!(size_of::<ExtentRecord>() == 48);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_of_entries_are_those_of_modes() {
        for bits in 0..16 {
            if let Some(known) = FileType::from_mode(bits << 12) {
                assert_eq!(dirent_type(known as u8), u32::from(bits));
            }
        }
        assert_eq!(dirent_type(0), 0);
        assert_eq!(dirent_type(8), 0);
    }
}
