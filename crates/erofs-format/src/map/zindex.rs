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
use crate::{Coding, Extent, ExtentKind, Inode, Reader, Result};

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

fn load(inode: &Inode, index: &Index, window: &mut Window<'_>, lcn: u64) -> Result<Lcluster> {
    let lcluster = match index.full {
        true => zfull::load(index, window, lcn),
        false => zcompact::load(inode, index, window, lcn),
    }?;
    if lcluster.kind != Kind::NonHead && lcluster.clusterofs >> index.lcluster_bits != 0 {
        return corrupted!(
            "lcluster {lcn} of nid {:#x} has clusterofs {}, beyond its {} bytes",
            inode.own_nid(),
            lcluster.clusterofs,
            1u64 << index.lcluster_bits
        );
    }
    Ok(lcluster)
}

/// Finds the head of the extent that contains byte `offset`.
pub(super) fn find(image: Reader<'_>, inode: &Inode, index: &Index, offset: u64) -> Result<Found> {
    find_in(
        inode,
        index,
        &mut Window::new(image.meta_of(inode)?),
        offset,
    )
}

fn find_in(inode: &Inode, index: &Index, window: &mut Window<'_>, offset: u64) -> Result<Found> {
    let bits = index.lcluster_bits;
    let mut lcn = offset >> bits;
    let mut lcluster = load(inode, index, window, lcn)?;
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
                "lcluster {lcn} of nid {:#x} has its head {back} lclusters earlier",
                inode.own_nid()
            );
        }
        lcn -= back;
        lcluster = load(inode, index, window, lcn)?;
        back = if lcluster.kind == Kind::NonHead {
            lcluster.back.max(1)
        } else {
            0
        };
    }
    corrupted!(
        "no head before byte {offset} of nid {:#x} within {MAX_STEPS} steps",
        inode.own_nid()
    )
}

pub(super) fn map(image: Reader<'_>, inode: &Inode, index: &Index, offset: u64) -> Result<Extent> {
    // The tail may be the whole file, in which case no lcluster contains data of the file.
    if let Tail::Fragment { head: 0, offset } = index.tail {
        return fragment(image, inode, 0, offset);
    }
    let mut window = Window::new(image.meta_of(inode)?);
    let found = find_in(inode, index, &mut window, offset)?;
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
            let blocks = stored_blocks(inode, index, &mut window, &found)?;
            if blocks == 0 {
                return hole(inode, index, &mut window, &found, offset);
            }
            let most = found.logical + MAX_DECODED;
            let decoded_end = next_head(inode, index, &mut window, found.lcn + 1, most)?;
            let length = blocks * u64::from(image.superblock().block_size);
            let physical = image.block_address(found.head.block)?;
            (physical, length, decoded_end, false)
        }
    };
    // A tail after the index is never rotated, even if it fills a block.
    let rotated = index.advise & INTERLACED_PCLUSTER != 0 && !inline;
    let stored = plain(image, rotated, physical, length);
    let candidate = Candidate {
        logical: found.logical,
        decoded_end,
        physical,
        length,
        coding: coding(inode, index, &found.head, stored)?,
        partial: found.head.partial,
        inline,
    };
    compressed(image, inode, &candidate)
}

/// The coding of a pcluster; `stored` if it is not compressed.
fn coding(inode: &Inode, index: &Index, head: &Lcluster, stored: Coding) -> Result<Coding> {
    match head.kind {
        Kind::Head1 => algorithm(inode, index.algorithms[0]),
        Kind::Head2 => algorithm(inode, index.algorithms[1]),
        Kind::Plain | Kind::NonHead => Ok(stored),
    }
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
    let mut window = Window::new(image.meta_of(inode).ok()?);
    for lcn in 0..lclusters {
        let lcluster = load(inode, index, &mut window, lcn).ok()?;
        if lcluster.hole || lcluster.stored_blocks == Some(0) {
            return Some(true);
        }
    }
    Some(false)
}

/// A pcluster that is a hole. The extent covers the part around `offset`: it starts no earlier than
/// the lcluster of `offset`, since the head may be far away, and ends where the bounded search for
/// the next head ends.
fn hole(
    inode: &Inode,
    index: &Index,
    window: &mut Window<'_>,
    found: &Found,
    offset: u64,
) -> Result<Extent> {
    let lcn = offset >> index.lcluster_bits;
    let start = found.logical.max(lcn << index.lcluster_bits);
    let end = next_head(
        inode,
        index,
        window,
        lcn.max(found.lcn + 1),
        start + MAX_DECODED,
    )?;
    let length = end.min(inode.size) - start;
    Ok(Extent::new(start, length, ExtentKind::Hole))
}

/// Blocks in the pcluster. With big pclusters, the first non-head after the head stores the number.
/// A hole has no blocks.
fn stored_blocks(
    inode: &Inode,
    index: &Index,
    window: &mut Window<'_>,
    found: &Found,
) -> Result<u64> {
    if found.head.hole {
        return Ok(0);
    }
    let big = match found.head.kind {
        Kind::Head1 => BIG_PCLUSTER_1,
        _ => BIG_PCLUSTER_2,
    };
    let next = found.lcn + 1;
    if index.advise & big == 0 || next << index.lcluster_bits >= inode.size {
        return Ok(1);
    }
    let lcluster = load(inode, index, window, next)?;
    if lcluster.kind != Kind::NonHead {
        return Ok(1);
    }
    if lcluster.back != 1 {
        return corrupted!(
            "lcluster {next} of nid {:#x}, after a head, has its head {} lclusters earlier",
            inode.own_nid(),
            lcluster.back
        );
    }
    Ok(lcluster.stored_blocks.unwrap_or(1))
}

/// Where the data of the first head at or after an lcluster begins, or the end of the file. The
/// search stops beyond `most`: a pcluster that long is rejected, and a hole becomes several
/// extents.
fn next_head(
    inode: &Inode,
    index: &Index,
    window: &mut Window<'_>,
    mut lcn: u64,
    most: u64,
) -> Result<u64> {
    loop {
        let start = lcn << index.lcluster_bits;
        if start >= inode.size {
            return Ok(inode.size);
        }
        if start > most {
            return Ok(start);
        }
        let lcluster = load(inode, index, window, lcn)?;
        if lcluster.kind != Kind::NonHead {
            return Ok(start + lcluster.clusterofs);
        }
        lcn += lcluster.forward.max(1);
    }
}
