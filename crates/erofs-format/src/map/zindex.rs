//! The search in an index of lclusters.
//!
//! Every lcluster has an entry: the head of a pcluster that begins in it (at most one does), or a
//! non-head with its distances to the previous and next heads. A pcluster's data begins at
//! `clusterofs` of its head's lcluster and ends where the next one begins. A pcluster without
//! blocks is a hole of any length: nothing is decoded, so the limits of pclusters and the algorithm
//! do not matter. See `z_erofs_map_blocks_fo` and its helpers in fs/erofs/zmap.c.

use crate::compression::MAX_DECODED;
use crate::meta::Window;
use crate::zmap::{
    BIG_PCLUSTER_1, BIG_PCLUSTER_2, INTERLACED_PCLUSTER, Index, Kind, Lcluster, Tail,
};
use crate::{Extent, ExtentKind, Inode, Reader, Result};

use super::pcluster::{Candidate, algorithm, compressed, fragment, plain};
use super::{zcompact, zfull};

/// Maximum number of steps back to a head. A distance is at most 2047, so this suffices for a
/// fragment of 50 GB in the smallest lclusters; a pcluster decodes to at most 12 MiB.
const MAX_STEPS: u32 = 1 << 16;

/// The head of the extent that contains a byte.
pub(super) struct Found {
    pub lcn: u64,
    pub head: Lcluster,
    /// Where the data of the head's pcluster begins in the file.
    pub logical: u64,
    /// `index_end` of the requested lcluster.
    pub index_end: u64,
}

/// The index of an inode, with a window for the entries that a search reads.
pub(super) struct Search<'a> {
    inode: &'a Inode,
    index: &'a Index,
    window: Window<'a>,
}

impl<'a> Search<'a> {
    pub fn new(image: Reader<'a>, inode: &'a Inode, index: &'a Index) -> Result<Self> {
        Ok(Self {
            inode,
            index,
            window: Window::new(image.meta_of(inode)?),
        })
    }

    fn load(&mut self, lcn: u64) -> Result<Lcluster> {
        let bits = self.index.lcluster_bits;
        let lcluster = match self.index.full {
            true => zfull::load(self.index, &mut self.window, lcn),
            false => zcompact::load(self.inode, self.index, &mut self.window, lcn),
        }?;
        if lcluster.kind != Kind::NonHead && lcluster.clusterofs >> bits != 0 {
            return corrupted!(
                "lcluster {lcn} of nid {:#x} has clusterofs {}, beyond its {} bytes",
                self.inode.own_nid(),
                lcluster.clusterofs,
                1u64 << bits
            );
        }
        Ok(lcluster)
    }

    /// Finds the head of the extent that contains byte `offset`.
    pub fn find(&mut self, offset: u64) -> Result<Found> {
        let bits = self.index.lcluster_bits;
        let nid = self.inode.own_nid();
        let mut lcn = offset >> bits;
        let mut lcluster = self.load(lcn)?;
        let index_end = lcluster.index_end;
        let mut back = match lcluster.kind {
            Kind::NonHead => lcluster.back,
            _ if offset & ((1 << bits) - 1) >= lcluster.clusterofs => 0,
            _ => 1,
        };
        for _ in 0..MAX_STEPS {
            if back == 0 && lcluster.kind != Kind::NonHead {
                let logical = (lcn << bits) | lcluster.clusterofs;
                return Ok(Found {
                    lcn,
                    head: lcluster,
                    logical,
                    index_end,
                });
            }
            if back == 0 || back > lcn {
                return corrupted!(
                    "lcluster {lcn} of nid {nid:#x} has its head {back} lclusters earlier"
                );
            }
            lcn -= back;
            lcluster = self.load(lcn)?;
            back = match lcluster.kind {
                Kind::NonHead => lcluster.back.max(1),
                _ => 0,
            };
        }
        corrupted!("no head before byte {offset} of nid {nid:#x} within {MAX_STEPS} steps")
    }

    /// A pcluster that is a hole. The extent covers the part around `offset`: it starts no earlier
    /// than the lcluster of `offset`, since the head may be far away, and ends where the bounded
    /// search for the next head ends.
    fn hole(&mut self, found: &Found, offset: u64) -> Result<Extent> {
        let lcn = offset >> self.index.lcluster_bits;
        let start = found.logical.max(lcn << self.index.lcluster_bits);
        let end = self.next_head(lcn.max(found.lcn + 1), start + MAX_DECODED)?;
        let length = end.min(self.inode.size) - start;
        Ok(Extent::new(start, length, ExtentKind::Hole))
    }

    /// Blocks in the pcluster. With big pclusters, the first non-head after the head stores the
    /// number. A hole has no blocks.
    fn stored_blocks(&mut self, found: &Found) -> Result<u64> {
        if found.head.hole {
            return Ok(0);
        }
        let big = match found.head.kind {
            Kind::Head1 => BIG_PCLUSTER_1,
            _ => BIG_PCLUSTER_2,
        };
        let next = found.lcn + 1;
        let is_last = next << self.index.lcluster_bits >= self.inode.size;
        if self.index.advise & big == 0 || is_last {
            return Ok(1);
        }
        let lcluster = self.load(next)?;
        if lcluster.kind != Kind::NonHead {
            return Ok(1);
        }
        if lcluster.back != 1 {
            return corrupted!(
                "lcluster {next} of nid {:#x}, after a head, has its head {} lclusters earlier",
                self.inode.own_nid(),
                lcluster.back
            );
        }
        Ok(lcluster.stored_blocks.unwrap_or(1))
    }

    /// Where the data of the first head at or after an lcluster begins, or the end of the file. The
    /// search stops beyond `most`, because a pcluster that long is rejected, and a longer hole
    /// becomes several extents.
    fn next_head(&mut self, mut lcn: u64, most: u64) -> Result<u64> {
        loop {
            let start = lcn << self.index.lcluster_bits;
            if start >= self.inode.size {
                return Ok(self.inode.size);
            }
            if start > most {
                return Ok(start);
            }
            let lcluster = self.load(lcn)?;
            if lcluster.kind != Kind::NonHead {
                return Ok(start + lcluster.clusterofs);
            }
            lcn += lcluster.forward.max(1);
        }
    }
}

pub(super) fn map(image: Reader<'_>, inode: &Inode, index: &Index, offset: u64) -> Result<Extent> {
    // The tail may be the whole file, in which case no lcluster contains data of the file.
    if let Tail::Fragment { head: 0, offset } = index.tail {
        return fragment(image, inode, 0, offset);
    }
    let mut search = Search::new(image, inode, index)?;
    let found = search.find(offset)?;
    let (physical, length, decoded_end, inline) = match index.tail {
        Tail::Fragment { head, offset } if head == found.lcn => {
            return fragment(image, inode, found.logical, offset);
        }
        Tail::Inline {
            head,
            physical,
            length,
        } if head == found.lcn => (physical, length.into(), inode.size, true),
        _ => {
            let blocks = search.stored_blocks(&found)?;
            if blocks == 0 {
                return search.hole(&found, offset);
            }
            let decoded_end = search.next_head(found.lcn + 1, found.logical + MAX_DECODED)?;
            let length = blocks * u64::from(image.superblock().block_size);
            let physical = image.block_address(found.head.block)?;
            (physical, length, decoded_end, false)
        }
    };
    // A tail after the index is never rotated, even if it fills a block.
    let rotated = index.advise & INTERLACED_PCLUSTER != 0 && !inline;
    let candidate = Candidate {
        logical: found.logical,
        decoded_end,
        physical,
        length,
        coding: match found.head.kind {
            Kind::Head1 => algorithm(inode, index.algorithms[0])?,
            Kind::Head2 => algorithm(inode, index.algorithms[1])?,
            Kind::Plain | Kind::NonHead => plain(image, rotated, physical, length),
        },
        partial: found.head.partial,
        inline,
    };
    compressed(image, inode, &candidate)
}

/// See [`Reader::contradiction`].
pub(super) fn contradiction(image: Reader<'_>, inode: &Inode, index: &Index) -> Option<u64> {
    let mut at = 0;
    while at < inode.size {
        // A part that cannot be mapped is reported separately.
        let extent = map(image, inode, index, at).ok()?;
        let second = ((at >> index.lcluster_bits) + 1) << index.lcluster_bits;
        let mut middle = (second..extent.end()).step_by(1 << index.lcluster_bits);
        let is_same = |found: &Extent| match found.kind {
            // The extent of a hole covers only the part around the offset.
            ExtentKind::Hole => extent.kind == ExtentKind::Hole,
            _ => {
                (found.logical, found.end(), &found.kind)
                    == (extent.logical, extent.end(), &extent.kind)
            }
        };
        let differs = |at: &u64| !map(image, inode, index, *at).as_ref().is_ok_and(is_same);
        if let Some(offset) = middle.find(differs) {
            return Some(offset);
        }
        at = extent.end();
    }
    None
}

/// Whether an entry marks its pcluster as a hole; see [`Reader::has_holes`].
pub(super) fn has_holes(
    image: Reader<'_>,
    inode: &Inode,
    index: &Index,
    entries: &mut u64,
) -> Option<bool> {
    // Compact indexes without big pclusters have room for neither the bit nor a count.
    if !index.full && index.advise & (BIG_PCLUSTER_1 | BIG_PCLUSTER_2) == 0 {
        return Some(false);
    }
    // mkfs assigns no blocks to a tail that is stored elsewhere.
    let lclusters = match index.tail {
        Tail::Inline { head, .. } | Tail::Fragment { head, .. } => head,
        Tail::None => ((inode.size - 1) >> index.lcluster_bits) + 1,
    };
    *entries = entries.checked_sub(lclusters)?;
    let mut search = Search::new(image, inode, index).ok()?;
    for lcn in 0..lclusters {
        let lcluster = search.load(lcn).ok()?;
        if lcluster.hole || lcluster.stored_blocks == Some(0) {
            return Some(true);
        }
    }
    Some(false)
}
