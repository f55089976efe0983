//! The structures of `erofast.h`, field by field.

use erofs_engine::erofs_format::{Coding, Extent, ExtentKind, FileType, Inode, Pcluster};

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
            blocks: inode.blocks,
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
        let plain = Self {
            logical: extent.logical,
            length: extent.length,
            physical: 0,
            stored: extent.length,
            kind: Kind::Hole,
            algorithm: NO_ALGORITHM,
            device: 0,
            flags: 0,
        };
        match extent.kind {
            ExtentKind::Hole => Self { stored: 0, ..plain },
            ExtentKind::Raw { device, physical } => Self {
                kind: Kind::Plain,
                physical,
                device: device.into(),
                ..plain
            },
            ExtentKind::Meta { metabox, physical } => Self {
                kind: Kind::Metadata,
                physical,
                flags: flags(metabox),
                ..plain
            },
            ExtentKind::Fragment { offset } => Self {
                kind: Kind::Fragment,
                physical: offset,
                ..plain
            },
            ExtentKind::Compressed(pcluster) => compressed(plain, pcluster),
        }
    }
}

fn compressed(extent: ExtentRecord, pcluster: Pcluster) -> ExtentRecord {
    ExtentRecord {
        physical: pcluster.location.physical,
        stored: pcluster.length.into(),
        kind: Kind::Compressed,
        algorithm: match pcluster.coding {
            Coding::Compressed(algorithm) => algorithm as i32,
            Coding::Shifted | Coding::Interlaced => NO_ALGORITHM,
        },
        device: pcluster.location.device.into(),
        flags: flags(pcluster.location.metabox),
        ..extent
    }
}

fn flags(metabox: bool) -> u32 {
    if metabox { IN_METABOX } else { 0 }
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
