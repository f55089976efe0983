//! Inodes.

use std::sync::{Arc, OnceLock};

use crate::data_layout::{check_chunk_format, layout};
use crate::meta::{Meta, structure};
use crate::raw::{RawInodeCompact, RawInodeExtended};
use crate::zmap::ZMap;
use crate::{DataLayout, DeviceNumber, FileType, NID_IN_METABOX, Nid, Result, Superblock};

/// A decoded and checked inode.
#[derive(Clone, Debug)]
pub struct Inode {
    /// The inode's number, unless a reader of several images has [renumbered](Self::renumbered) it.
    pub nid: Nid,
    own_nid: Nid,
    /// Type and permissions, as in `st_mode`.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes, at most `i64::MAX`; not compared with the stored data until the data is
    /// mapped.
    pub size: u64,
    /// Hard links.
    pub nlink: u32,
    /// Modification time, seconds since 1970 (negative: before).
    pub mtime: i64,
    /// Nanoseconds of the modification time.
    pub mtime_nsec: u32,
    /// Device number of a device file, otherwise 0:0.
    pub rdev: DeviceNumber,
    /// Serial number for 32-bit stat, as on disk: only for display.
    pub ino: u32,
    /// Storage in units of 512 bytes, as on disk: 0 for files that are stored in the packed inode.
    pub blocks: u64,
    /// Whether this is a 64-byte inode on disk (otherwise 32 bytes).
    pub extended: bool,
    /// Whether the directory has no `.` entry (48-bit images); callers that list it supply the
    /// entry.
    pub dot_omitted: bool,
    /// `i_xattr_icount`: 0 if there are no xattrs at all.
    pub xattr_icount: u16,
    layout: DataLayout,
    /// Byte offset of the inode in the primary device or the metabox.
    pub(crate) position: u64,
    /// `i_u`, for the layouts that read it.
    pub(crate) union_bits: u32,
    /// First block of a flat inode; `None` if it has no blocks, so that its data is a hole.
    pub(crate) start_block: Option<u64>,
    /// Where compressed data is, read from the map header when the inode is first mapped.
    pub(crate) zmap: Arc<OnceLock<ZMap>>,
}

/// Bytes in an inode slot, the unit of nids.
const SLOT: u64 = 32;
/// `i_format`: extended inode.
const EXTENDED: u16 = 1;
/// `i_format`: nlink of a compact inode is 1 and `i_nb` has another meaning; for directories: `.`
/// is omitted.
const NLINK_1_OR_DOT_OMITTED: u16 = 1 << 4;
/// The longest target that readlink can return: a page without the byte for the terminating NUL.
const MAX_SYMLINK: u64 = 4095;

impl Inode {
    /// Reads the inode `nid` from `meta`, where nid 0 is at byte `base`.
    pub(crate) fn read(
        meta: &Meta<'_>,
        base: u64,
        nid: Nid,
        superblock: &Superblock,
    ) -> Result<Inode> {
        let position = position(base, nid, meta)?;
        let mut bytes = [0; size_of::<RawInodeExtended>()];
        let there = (meta.size - position).min(bytes.len() as u64) as usize;
        meta.read(&mut bytes[..there], position)?;
        let raw: RawInodeExtended = structure(&bytes);
        if raw.format.get() & EXTENDED != 0 {
            meta.check(position, bytes.len() as u64)?;
            return build(nid, position, &raw, Some(raw.nb.get()), superblock);
        }
        let compact: RawInodeCompact = structure(&bytes[..SLOT as usize]);
        let nb = compact.nb.get();
        let directory = FileType::from_mode(raw.mode.get()) == Some(FileType::Directory);
        let one_link = !directory && raw.format.get() & NLINK_1_OR_DOT_OMITTED != 0;
        // Seconds are relative to the epoch; older images store 0, which stands for the epoch
        // itself.
        let mtime = superblock.epoch.wrapping_add(compact.mtime.get().into());
        // The fields not listed here are at the same places in both forms.
        let raw = RawInodeExtended {
            size: compact.size.into(),
            uid: compact.uid.into(),
            gid: compact.gid.into(),
            mtime: mtime.cast_unsigned().into(),
            mtime_nsec: superblock.fixed_nsec.into(),
            nlink: if one_link {
                1.into()
            } else {
                compact.nb.into()
            },
            ..raw
        };
        build(nid, position, &raw, one_link.then_some(nb), superblock)
    }

    /// The inode's type.
    pub fn file_type(&self) -> FileType {
        match FileType::from_mode(self.mode) {
            Some(file_type) => file_type,
            None => unreachable!("mode {:o} was checked when the inode was read", self.mode),
        }
    }

    /// Storage as in `st_blocks`: at least one unit if there is content, because tar assumes that a
    /// file without storage is a single hole. (ext4 does the same for inline data.)
    pub fn stat_blocks(&self) -> u64 {
        self.blocks.max(u64::from(self.size > 0))
    }

    /// How the inode's data is laid out.
    pub fn layout(&self) -> DataLayout {
        self.layout
    }

    /// Whether the inode's data is compressed (or a fragment).
    pub fn is_compressed(&self) -> bool {
        self.layout.is_compressed()
    }

    /// Whether the inode is stored in the metabox.
    pub fn in_metabox(&self) -> bool {
        self.own_nid & NID_IN_METABOX != 0
    }

    /// The inode's number in its own image.
    pub fn own_nid(&self) -> Nid {
        self.own_nid
    }

    /// The inode with the number that a reader of several images gives it.
    #[must_use]
    pub fn renumbered(self, nid: Nid) -> Self {
        Self { nid, ..self }
    }

    /// Bytes in the inline xattrs after the inode: a 12-byte header, and 4 bytes for each unit of
    /// `xattr_icount` beyond the first.
    pub(crate) fn xattr_size(&self) -> u64 {
        match self.xattr_icount {
            0 => 0,
            count => 12 + 4 * (u64::from(count) - 1),
        }
    }

    /// Where the inline xattrs start.
    pub(crate) fn xattr_position(&self) -> u64 {
        self.position + if self.extended { 2 * SLOT } else { SLOT }
    }

    /// Where the data after inode and xattrs starts: inline data, chunk table or map header.
    pub(crate) fn body(&self) -> u64 {
        self.xattr_position() + self.xattr_size()
    }
}

fn position(base: u64, nid: Nid, meta: &Meta<'_>) -> Result<u64> {
    let offset = (nid & !NID_IN_METABOX).checked_mul(SLOT);
    let position = offset.and_then(|offset| offset.checked_add(base));
    match position.filter(|position| meta.check(*position, SLOT).is_ok()) {
        Some(position) => Ok(position),
        None => corrupted!(
            "nid {nid:#x} is beyond the end of the {} ({} bytes)",
            meta.name(),
            meta.size
        ),
    }
}

/// Checks an inode. `high` is the upper part of its block count or address; `None` if `i_nb` is the
/// link count.
fn build(
    nid: Nid,
    position: u64,
    raw: &RawInodeExtended,
    high: Option<u16>,
    superblock: &Superblock,
) -> Result<Inode> {
    let (format, mode, size, union_bits) = (
        raw.format.get(),
        raw.mode.get(),
        raw.size.get(),
        raw.u.get(),
    );
    let layout = layout(format, nid)?;
    let Some(file_type) = FileType::from_mode(mode) else {
        return corrupted!("mode {mode:#o} of nid {nid:#x}");
    };
    let limit = match file_type {
        FileType::Symlink => MAX_SYMLINK,
        _ => i64::MAX as u64,
    };
    if size > limit {
        return corrupted!("{file_type:?} nid {nid:#x} of {size} bytes; the limit is {limit}");
    }
    if layout == DataLayout::ChunkBased && file_type.has_data() {
        check_chunk_format(nid, union_bits)?;
    }
    let flag = format & NLINK_1_OR_DOT_OMITTED != 0;
    let block = u64::from(union_bits) | u64::from(high.unwrap_or(0)) << 32;
    // An address with all bits set means that there are no blocks.
    let none = high.map_or(u64::from(u32::MAX), |_| (1 << 48) - 1);
    let blocks = match layout.is_compressed() {
        true => block,
        false => size.div_ceil(superblock.block_size.into()),
    };
    Ok(Inode {
        nid,
        own_nid: nid,
        mode,
        uid: raw.uid.get(),
        gid: raw.gid.get(),
        size,
        nlink: raw.nlink.get(),
        mtime: raw.mtime.get().cast_signed(),
        mtime_nsec: raw.mtime_nsec.get(),
        rdev: match file_type {
            FileType::CharDevice | FileType::BlockDevice => DeviceNumber::decode(union_bits),
            _ => DeviceNumber::default(),
        },
        ino: raw.ino.get(),
        blocks: blocks << (superblock.block_bits - 9),
        extended: format & EXTENDED != 0,
        dot_omitted: file_type == FileType::Directory && flag,
        xattr_icount: raw.xattr_icount.get(),
        layout,
        position,
        union_bits,
        start_block: (block != none).then_some(block),
        zmap: Arc::default(),
    })
}
