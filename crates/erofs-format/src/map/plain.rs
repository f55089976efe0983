//! Uncompressed bytes, in consecutive blocks of a device.

use std::ops::Range;

use crate::{Extent, ExtentKind, Inode, Reader, Result};

/// The extent for bytes `range` of the file, which start at the given block of a device. The extent
/// ends at the end of the device at the latest; byte `offset` must be in it.
pub(super) fn extent(
    image: Reader<'_>,
    inode: &Inode,
    offset: u64,
    range: Range<u64>,
    (device, block): (u16, u64),
) -> Result<Extent> {
    let address = image.block_address(block)?;
    let place = image.devices.resolve(device, address)?;
    let (device, physical, available) = (place.device, place.physical, place.available);
    let length = (range.end - range.start).min(available);
    if offset - range.start >= length {
        return corrupted!(
            "byte {offset} of nid {:#x} is beyond the end of device {device}: bytes {} to {} \
             start at {physical:#x}, only {available} bytes before the end",
            inode.own_nid(),
            range.start,
            range.end
        );
    }
    let kind = ExtentKind::Raw { device, physical };
    Ok(Extent::new(range.start, length, kind))
}
