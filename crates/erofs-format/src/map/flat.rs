//! Flat inodes: consecutive blocks. `FlatInline` stores the last of them after the inode.
//!
//! See `erofs_map_blocks` in fs/erofs/data.c for the flat layouts.

use super::plain;
use crate::{DataLayout, Extent, ExtentKind, Inode, Reader, Result};

pub(super) fn map(image: Reader<'_>, inode: &Inode, offset: u64) -> Result<Extent> {
    let block_size = u64::from(image.superblock().block_size);
    // With an inline tail, the last block is the tail, however full it is.
    let in_blocks = match inode.layout() {
        DataLayout::FlatInline => (inode.size - 1) / block_size * block_size,
        _ => inode.size,
    };
    if offset >= in_blocks {
        return tail(image, inode, in_blocks, block_size);
    }
    match inode.start_block {
        Some(block) => plain::extent(image, inode, offset, 0..in_blocks, (0, block)),
        None => Ok(Extent::new(0, in_blocks, ExtentKind::Hole)),
    }
}

fn tail(image: Reader<'_>, inode: &Inode, logical: u64, block_size: u64) -> Result<Extent> {
    let length = inode.size - logical;
    let physical = inode.body();
    let in_block = physical % block_size;
    if in_block + length > block_size {
        return corrupted!(
            "inline data of nid {:#x}, {length} bytes at {physical:#x}, crosses a block boundary",
            inode.own_nid()
        );
    }
    let meta = image.meta_of(inode)?;
    meta.check(physical, length)?;
    let kind = ExtentKind::Meta {
        metabox: meta.is_metabox(),
        physical,
    };
    Ok(Extent::new(logical, length, kind))
}
