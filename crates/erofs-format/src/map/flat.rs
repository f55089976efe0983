//! Flat inodes: consecutive blocks, and with `FlatInline` the last of them behind the inode.
//!
//! Facts: `erofs_map_blocks` of fs/erofs/data.c for the flat layouts.

use crate::{DataLayout, Extent, ExtentKind, Image, Inode, Result};

pub(super) fn map(image: &Image, inode: &Inode, offset: u64) -> Result<Extent> {
    let block_size = u64::from(image.superblock().block_size);
    // With an inline tail, the last block is the tail, however full it is.
    let in_blocks = match inode.layout() {
        DataLayout::FlatInline => (inode.size - 1) / block_size * block_size,
        _ => inode.size,
    };
    if offset >= in_blocks {
        return tail(image, inode, in_blocks, block_size);
    }
    let Some(block) = inode.start_block else {
        return Ok(Extent::new(0, in_blocks, ExtentKind::Hole));
    };
    let place = image.devices().resolve(0, image.block_address(block)?)?;
    let length = in_blocks.min(place.available);
    if offset >= length {
        return corrupted!(
            "byte {offset} of nid {:#x} is beyond the end of device {}: its {in_blocks} bytes start \
             at {:#x} and {} of them are there",
            inode.nid,
            place.device,
            place.physical,
            place.available
        );
    }
    let kind = ExtentKind::Raw {
        device: place.device,
        physical: place.physical,
    };
    Ok(Extent::new(0, length, kind))
}

fn tail(image: &Image, inode: &Inode, logical: u64, block_size: u64) -> Result<Extent> {
    let length = inode.size - logical;
    let physical = inode.body();
    let in_block = physical % block_size;
    if in_block + length > block_size {
        return corrupted!(
            "inline data of nid {:#x}, {length} bytes at {physical:#x}, crosses its block",
            inode.nid
        );
    }
    let meta = image.meta_of(inode)?;
    meta.check(physical, length)?;
    let kind = ExtentKind::Meta {
        metabox: meta.metabox,
        physical,
    };
    Ok(Extent::new(logical, length, kind))
}
