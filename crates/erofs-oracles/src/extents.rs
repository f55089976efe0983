//! The oracle of extent maps.

use crate::content::{check_extent, each_inode};
use crate::opening::one_line;
use erofs_format::{Extent, ExtentKind, Inode, Reader};

/// Maximum number of extents walked in each inode.
const STEPS: usize = 64;

/// For every inode in the first slots, whether or not a directory names it: an extent contains the
/// requested offset, is not empty, stays inside the file, is the same when looked up at its own
/// start, and is within the limits that the engine's memory relies on. Uncompressed bytes are
/// inside their device.
pub fn extents(data: &[u8]) {
    each_inode(data, |image, inode| check(image, inode, false));
}

/// Like [`extents`], and every offset inside an extent maps to that same extent. Indexes written by
/// mkfs keep this promise; in a hostile one, forward and backward distances may contradict each
/// other.
pub fn extents_of_sound_image(data: &[u8]) {
    each_inode(data, |image, inode| check(image, inode, true));
}

/// Checks the map of one inode, from its start and at a few places.
pub(crate) fn check(image: Reader<'_>, inode: &Inode, sound: bool) {
    let mut offset = 0;
    for _ in 0..STEPS {
        match offset < inode.size {
            true => offset = check_at(image, inode, offset, sound).unwrap_or(u64::MAX),
            false => break,
        }
    }
    for offset in [inode.size / 2, inode.size.saturating_sub(1), 4096, 65535] {
        if offset < inode.size {
            check_at(image, inode, offset, sound);
        }
    }
}

/// Checks the extent at `offset`, and returns its end if there is one.
fn check_at(image: Reader<'_>, inode: &Inode, offset: u64, sound: bool) -> Option<u64> {
    let extent = match image.map(inode, offset) {
        Ok(extent) => extent,
        Err(error) => {
            one_line(&error.to_string());
            return None;
        }
    };
    check_extent(&extent, offset, inode.size);
    check_place(image, &extent);
    check_from_inside(image, inode, &extent, sound);
    Some(extent.end())
}

fn check_from_inside(image: Reader<'_>, inode: &Inode, extent: &Extent, sound: bool) {
    if !matches!(extent.kind, ExtentKind::Compressed(_)) {
        return;
    }
    for inside in [
        extent.logical,
        extent.logical + extent.length / 2,
        extent.end() - 1,
    ] {
        let again = image.map(inode, inside);
        if sound || inside == extent.logical {
            assert_eq!(
                again.ok().as_ref(),
                Some(extent),
                "nid {:#x} at {inside}",
                inode.nid
            );
        } else if let Ok(again) = again {
            check_extent(&again, inside, inode.size);
        }
    }
}

fn check_place(image: Reader<'_>, extent: &Extent) {
    let (device, physical, length) = match &extent.kind {
        ExtentKind::Raw { device, physical } => (*device, *physical, extent.length),
        ExtentKind::Compressed(pcluster) if !pcluster.location.metabox => (
            pcluster.location.device,
            pcluster.location.physical,
            u64::from(pcluster.length),
        ),
        _ => return,
    };
    let size = image.device_size(device);
    let size = size.expect("a mapped device is there");
    let end = physical.checked_add(length);
    assert!(
        end.is_some_and(|end| end <= size),
        "{extent:?} outside of {size} bytes"
    );
}
