//! Decodes the map header of a compressed inode.
//!
//! See `z_erofs_map_header` and `Z_EROFS_ADVISE_*` in fs/erofs/erofs_fs.h, and `z_erofs_fill_inode`
//! in fs/erofs/zmap.c.

use crate::raw::{RawMapHeader, incompat};
use crate::zmap::{
    BIG_PCLUSTER_1, BIG_PCLUSTER_2, EXTENTS, Extents, FRAGMENT_PCLUSTER, INLINE_PCLUSTER, Index,
    Tail, ZMap,
};
use crate::{DataLayout, Extent, Inode, Reader, Result};

use super::pcluster::fragment;
use super::{zextents, zindex};

/// Bit 7 of `h_clusterbits`: the whole file is in the packed inode.
const WHOLE_FRAGMENT: u8 = 1 << 7;
/// Bits of `h_clusterbits`: binary logarithm of the ratio of lcluster size to block size.
const LCLUSTER_BITS: u8 = 0xf;

fn zmap<'a>(image: Reader<'_>, inode: &'a Inode) -> Result<&'a ZMap> {
    if let Some(zmap) = inode.zmap.get() {
        return Ok(zmap);
    }
    let zmap = read(image, inode)?;
    // Another thread may have stored the map first; its result is the same.
    Ok(inode.zmap.get_or_init(|| zmap))
}

/// See [`Reader::has_holes`].
pub(super) fn has_holes(image: Reader<'_>, inode: &Inode, entries: &mut u64) -> Option<bool> {
    match zmap(image, inode).ok()? {
        ZMap::Fragment(_) => Some(false),
        ZMap::Extents(_) => None,
        ZMap::Index(index) => zindex::has_holes(image, inode, index, entries),
    }
}

/// See [`Reader::contradiction`]. Encoded extents have one record each, which nothing can
/// contradict.
pub(super) fn contradiction(image: Reader<'_>, inode: &Inode) -> Option<u64> {
    match zmap(image, inode).ok()? {
        ZMap::Index(index) => zindex::contradiction(image, inode, index),
        ZMap::Fragment(_) | ZMap::Extents(_) => None,
    }
}

pub(super) fn map(image: Reader<'_>, inode: &Inode, offset: u64) -> Result<Extent> {
    match zmap(image, inode)? {
        ZMap::Fragment(start) => fragment(image, inode, 0, *start),
        ZMap::Extents(extents) => zextents::map(image, inode, extents, offset),
        ZMap::Index(index) => zindex::map(image, inode, index, offset),
    }
}

fn read(image: Reader<'_>, inode: &Inode) -> Result<ZMap> {
    let position = inode.body().next_multiple_of(8);
    let raw: RawMapHeader = image.meta_of(inode)?.get(position)?;
    let advise = raw.advise.get();
    let full = inode.layout() == DataLayout::CompressedFull;
    // Check this first: the bit is above all bits that a valid number of extents uses.
    if raw.cluster_bits & WHOLE_FRAGMENT != 0 {
        return Ok(ZMap::Fragment(fragment_start(&raw)));
    }
    let lcluster_bits = image.superblock().block_bits + (raw.cluster_bits & LCLUSTER_BITS);
    let header_end = position + size_of::<RawMapHeader>() as u64;
    if full && advise & EXTENTS != 0 {
        let high = u16::from_le_bytes([raw.algorithms, raw.cluster_bits]);
        let count = u64::from(raw.first.get()) | u64::from(high) << 32;
        return Ok(ZMap::Extents(Extents::new(
            header_end,
            advise,
            lcluster_bits,
            count,
        )));
    }
    check_big_pclusters(image, inode, advise, full)?;
    let mut index = Index {
        full,
        // Full indexes leave 8 bytes free after the header.
        start: header_end + if full { 8 } else { 0 },
        lcluster_bits,
        advise,
        algorithms: [raw.algorithms & 0xf, raw.algorithms >> 4],
        tail: Tail::None,
    };
    index.tail = find_tail(image, inode, &index, raw.first.get())?;
    Ok(ZMap::Index(index))
}

/// The fragment's offset: all 64 bits of the header except the topmost.
fn fragment_start(raw: &RawMapHeader) -> u64 {
    u64::from(raw.first.get())
        | u64::from(raw.advise.get()) << 32
        | u64::from(raw.algorithms) << 48
        | u64::from(raw.cluster_bits & !WHOLE_FRAGMENT) << 56
}

fn check_big_pclusters(image: Reader<'_>, inode: &Inode, advise: u16, full: bool) -> Result<()> {
    let (one, two) = (advise & BIG_PCLUSTER_1 != 0, advise & BIG_PCLUSTER_2 != 0);
    let nid = inode.own_nid();
    if (one || two) && !image.superblock().has(incompat::COMPR_CFGS) {
        return corrupted!("big pclusters in nid {nid:#x} of an image without that feature");
    }
    if !full && one != two {
        return corrupted!(
            "compact index of nid {nid:#x} with big pclusters for only one head type"
        );
    }
    Ok(())
}

/// Finds the extent with the file's last byte, which may be after the index or in the packed inode.
fn find_tail(image: Reader<'_>, inode: &Inode, index: &Index, first: u32) -> Result<Tail> {
    let length = first >> 16;
    let in_fragment = index.advise & FRAGMENT_PCLUSTER != 0;
    let inline = index.advise & INLINE_PCLUSTER != 0 && length != 0;
    if !in_fragment && !inline {
        return Ok(Tail::None);
    }
    let last = zindex::Search::new(image, inode, index)?.find(inode.size - 1)?;
    if in_fragment {
        // In full indexes the head's unused block address holds the upper half of the offset. A
        // hole's block address is meaningless, so the offset is set beyond every packed inode.
        let high = match index.full {
            true if last.head.hole => u64::MAX << 32,
            true => last.head.block << 32,
            false => 0,
        };
        return Ok(Tail::Fragment {
            head: last.lcn,
            offset: u64::from(first) | high,
        });
    }
    let physical = last.index_end;
    let block_size = u64::from(image.superblock().block_size);
    if physical % block_size + u64::from(length) > block_size {
        return corrupted!(
            "inline tail of nid {:#x}, {length} bytes at {physical:#x}, crosses a block boundary",
            inode.own_nid()
        );
    }
    Ok(Tail::Inline {
        head: last.lcn,
        physical,
        length,
    })
}
