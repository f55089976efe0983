//! The stored bytes of a range of a file, asked for at once.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use erofs_format::{ExtentKind, Image, Inode, Location};

use crate::read::DataPath;
use crate::{Error, FileFault};

/// Ranges of stored bytes, by the number of their device.
pub(crate) type Stored = BTreeMap<usize, Vec<Range<u64>>>;

/// Waits until the stored bytes of `range` of a file are cached, or remembers which are not. Those
/// of structures and of other inodes are left to their own reads.
///
/// # Errors
/// Those of the map and of the network; any error where something is missing.
pub(crate) fn fetch(
    path: &DataPath,
    image: &Image,
    inode: &Inode,
    range: Range<u64>,
) -> Result<(), Error> {
    let length = range.end - range.start;
    for (device, ranges) in stored(path, image, inode, range)? {
        let needed = path.devices[device].need(&ranges);
        needed.map_err(|source| {
            let location = Location {
                device: device as u16,
                metabox: false,
                physical: ranges[0].start,
            };
            let source = Arc::new(source);
            let fault = FileFault::Fetch {
                location,
                length,
                source,
            };
            Error::file(&path.name, inode.nid, fault)
        })?;
    }
    Ok(())
}

/// Where the stored bytes of `range` of a file are: ranges of devices, in the order of the file.
pub(crate) fn stored(
    path: &DataPath,
    image: &Image,
    inode: &Inode,
    range: Range<u64>,
) -> Result<Stored, Error> {
    let mut stored = Stored::new();
    let mut position = range.start;
    while position < range.end {
        let extent = image.map(inode, position);
        let extent = extent.map_err(|error| Error::file(&path.name, inode.nid, error))?;
        let end = extent.end().min(range.end);
        let place = match extent.kind {
            ExtentKind::Raw { device, physical } => {
                let start = physical + (position - extent.logical);
                Some((device, start, end - position))
            }
            ExtentKind::Compressed(pcluster) if !pcluster.location.metabox => {
                let location = pcluster.location;
                Some((location.device, location.physical, pcluster.length.into()))
            }
            _ => None,
        };
        if let Some((device, start, length)) = place
            && usize::from(device) < path.devices.len()
        {
            let ranges = stored.entry(device.into()).or_default();
            ranges.push(start..start.saturating_add(length));
        }
        position = end;
    }
    Ok(stored)
}
