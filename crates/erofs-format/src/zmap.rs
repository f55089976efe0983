//! The decoded map header of a compressed inode, which is kept with the inode and read by
//! [`crate::map`].

use std::sync::{Mutex, PoisonError, RwLock};

/// `h_advise` of compact indexes: some packs have 2 bytes per entry.
pub(crate) const COMPACTED_2B: u16 = 1 << 0;
/// `h_advise` of full indexes: there are encoded extents instead of an index.
pub(crate) const EXTENTS: u16 = 1 << 0;
/// Pclusters of HEAD1 may have more than one block.
pub(crate) const BIG_PCLUSTER_1: u16 = 1 << 1;
/// Pclusters of HEAD2, and uncompressed ones, may have more than one block.
pub(crate) const BIG_PCLUSTER_2: u16 = 1 << 2;
/// The last pcluster is stored after the index.
pub(crate) const INLINE_PCLUSTER: u16 = 1 << 3;
/// Uncompressed pclusters are rotated within their block.
pub(crate) const INTERLACED_PCLUSTER: u16 = 1 << 4;
/// The last extent is in the packed inode.
pub(crate) const FRAGMENT_PCLUSTER: u16 = 1 << 5;

/// Where the data of a compressed inode is, according to its map header.
#[derive(Debug)]
pub(crate) enum ZMap {
    /// All of it is in the packed inode, starting at this byte.
    Fragment(u64),
    /// In pclusters described by encoded extents.
    Extents(Extents),
    /// In pclusters found through an index of lclusters.
    Index(Index),
}

/// The index of an inode, as its header describes it.
#[derive(Debug)]
pub(crate) struct Index {
    /// Whether entries have 8 bytes; otherwise they are packed.
    pub full: bool,
    /// Where the entries start.
    pub start: u64,
    pub lcluster_bits: u8,
    /// `h_advise`.
    pub advise: u16,
    /// The algorithms of HEAD1 and HEAD2.
    pub algorithms: [u8; 2],
    pub tail: Tail,
}

/// Where the extent with the file's last byte is stored, if not in blocks. `head` identifies the
/// extent.
#[derive(Debug)]
pub(crate) enum Tail {
    None,
    Inline {
        head: u64,
        physical: u64,
        length: u32,
    },
    Fragment {
        head: u64,
        offset: u64,
    },
}

/// Types of lclusters, as numbered on disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Kind {
    #[default]
    Plain,
    Head1,
    NonHead,
    Head2,
}

impl Kind {
    pub fn from_bits(bits: u32) -> Kind {
        [Kind::Plain, Kind::Head1, Kind::NonHead, Kind::Head2][(bits & 3) as usize]
    }
}

/// An entry of either index.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lcluster {
    pub kind: Kind,
    /// For heads: where the pcluster's data begins in the lcluster; below the lcluster's size.
    pub clusterofs: u64,
    /// For heads: first block of the pcluster.
    pub block: u64,
    /// For heads: whether the stream contains more than this extent uses.
    pub partial: bool,
    /// For heads: whether the pcluster is a hole, in which case nothing is stored and `block` is
    /// meaningless.
    pub hole: bool,
    /// For non-heads: distance to the previous head.
    pub back: u64,
    /// For non-heads: distance to the next head, or 0 if an old mkfs did not record it.
    pub forward: u64,
    /// For non-heads directly after a head: blocks in the pcluster; a hole has none.
    pub stored_blocks: Option<u64>,
    /// First byte after the entry, or after the pack that it is in.
    pub index_end: u64,
}

/// `Z_EROFS_LI_D0_CBLKCNT`: the value is a count of blocks instead of a distance.
pub(crate) const BLOCK_COUNT: u32 = 1 << 11;

/// Number of 4-byte records between two checkpoints.
const CHECKPOINT: u64 = 1024;

/// The records of an inode, as its header describes them.
#[derive(Debug)]
pub(crate) struct Extents {
    pub start: u64,
    pub record: u64,
    pub interlaced: bool,
    pub fragment: bool,
    pub lcluster_bits: u8,
    /// Number of records. Used only if they have 16 or 32 bytes; the number of shorter records
    /// follows from the file's size.
    pub count: u64,
    /// Guarded by its own lock: leaf lock. For records of 4 bytes: where extents 0, 1024, 2048...
    /// start, up to the last one that lookups have reached. Without checkpoints, every lookup would
    /// add up all preceding lengths.
    checkpoints: RwLock<Vec<u64>>,
    /// Guarded by its own lock: leaf lock. The record that was looked up last, and where its extent
    /// starts. The next lookup is usually close to it.
    last: Mutex<(u64, u64)>,
}

impl Extents {
    pub(crate) fn new(header_end: u64, advise: u16, lcluster_bits: u8, count: u64) -> Extents {
        let record = 4 << ((advise >> 1) & 3);
        Extents {
            start: header_end.next_multiple_of(record),
            record,
            interlaced: advise & INTERLACED_PCLUSTER != 0,
            fragment: advise & FRAGMENT_PCLUSTER != 0,
            lcluster_bits,
            count,
            checkpoints: RwLock::default(),
            last: Mutex::default(),
        }
    }

    /// The nearest known checkpoint at or before record `number`: its record number, and the
    /// address at which the extent of that record starts.
    pub(crate) fn nearest_checkpoint(&self, number: u64) -> Option<(u64, u64)> {
        // Only a hint: an urgent thread must not wait for a lock holder that has no CPU.
        let last = self.last.try_lock().map_or((0, 0), |last| *last);
        if last != (0, 0) && last.0 <= number && number - last.0 < CHECKPOINT {
            return Some(last);
        }
        let known = self.checkpoints.read();
        let known = known.unwrap_or_else(PoisonError::into_inner);
        let nearest = (number / CHECKPOINT).min((known.len() as u64).saturating_sub(1));
        known
            .get(nearest as usize)
            .map(|&physical| (nearest * CHECKPOINT, physical))
    }

    /// Remembers the record that was looked up.
    pub(crate) fn found(&self, number: u64, physical: u64) {
        if let Ok(mut last) = self.last.try_lock() {
            *last = (number, physical);
        }
    }

    /// Remembers where the extent of record `number` starts, if that record is the next checkpoint,
    /// so that the list has no gaps.
    pub(crate) fn remember(&self, number: u64, physical: u64) {
        if !number.is_multiple_of(CHECKPOINT) {
            return;
        }
        let known = self.checkpoints.write();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        if known.len() as u64 == number / CHECKPOINT {
            known.push(physical);
        }
    }
}
