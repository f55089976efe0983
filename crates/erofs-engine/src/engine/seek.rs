//! The next data or hole of a file.

use erofs_format::{ExtentKind, Image, Inode};

use crate::request::budget;

/// Extents that are examined: 4 GiB of chunks of 64 KiB. Beyond, everything counts as data, which
/// is always allowed.
const MOST_EXTENTS: usize = 1 << 16;

/// The first byte from `offset` on, which is inside of the file, that is a hole or data; `None`:
/// there is none. The end of a file is a hole.
pub(crate) fn seek(
    image: &Image,
    inode: &Inode,
    offset: u64,
    hole: bool,
) -> erofs_format::Result<Option<u64>> {
    let end = hole.then_some(inode.size);
    let mut at = offset;
    for _ in 0..MOST_EXTENTS {
        let extent = match image.map(inode, at) {
            Ok(extent) => extent,
            // As many extents as a request may examine.
            Err(_) if budget::exceeded().is_some_and(|exceeded| exceeded.is_limit()) => break,
            Err(error) => return Err(error),
        };
        if matches!(extent.kind, ExtentKind::Hole) == hole {
            return Ok(Some(at));
        }
        at = extent.logical.saturating_add(extent.length).max(at + 1);
        if at >= inode.size {
            return Ok(end);
        }
    }
    Ok(end.or(Some(at)))
}
