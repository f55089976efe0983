//! Entries of 8 bytes (`z_erofs_lcluster_index` of fs/erofs/erofs_fs.h).

use crate::Result;
use crate::meta::Window;
use crate::raw::RawLclusterIndex;
use crate::zmap::{BIG_PCLUSTER_1, BIG_PCLUSTER_2, BLOCK_COUNT, Index, Kind, Lcluster};

/// `Z_EROFS_LI_PARTIAL_REF`.
const PARTIAL: u16 = 1 << 15;
/// `Z_EROFS_LI_HOLE`.
const HOLE: u16 = 1 << 14;
const ENTRY: u64 = size_of::<RawLclusterIndex>() as u64;

pub(super) fn load(index: &Index, window: &mut Window<'_>, lcn: u64) -> Result<Lcluster> {
    // Cannot overflow: there are fewer than 2^63 / 512 entries of 8 bytes, and they follow an inode
    // inside the image.
    let offset = index.start + lcn * ENTRY;
    let raw: RawLclusterIndex = window.structure(offset)?;
    let advise = raw.advise.get();
    let kind = Kind::from_bits(advise.into());
    let mut lcluster = Lcluster {
        kind,
        clusterofs: raw.clusterofs.get().into(),
        block: raw.u.get().into(),
        partial: advise & PARTIAL != 0,
        hole: advise & HOLE != 0,
        index_end: offset + ENTRY,
        ..Lcluster::default()
    };
    if kind == Kind::NonHead {
        distances(index, lcn, raw.u.get(), &mut lcluster)?;
    }
    Ok(lcluster)
}

/// The lower half of the union is the backward distance, the upper one the forward distance.
fn distances(index: &Index, lcn: u64, bits: u32, lcluster: &mut Lcluster) -> Result<()> {
    let (back, forward) = (bits & 0xffff, bits >> 16);
    lcluster.back = back.into();
    lcluster.forward = forward.into();
    if back & BLOCK_COUNT != 0 {
        if index.advise & (BIG_PCLUSTER_1 | BIG_PCLUSTER_2) == 0 {
            return corrupted!(
                "lcluster {lcn} has a block count in an inode without big pclusters"
            );
        }
        lcluster.stored_blocks = Some((back & !BLOCK_COUNT).into());
        lcluster.back = 1;
    }
    Ok(())
}
