//! Pages of a window that are one behind the other.

use erofs_engine::erofs_format::Nid;
use launch_profile::Window;

/// Pages that a replay stores, of one file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stretch {
    pub(super) nid: Nid,
    pub(super) offset: u64,
    pub(super) length: usize,
}

/// The pages of a window of a file of `size` bytes.
pub(super) fn stretches(nid: Nid, window: Window, size: u64) -> impl Iterator<Item = Stretch> {
    window.stretches().map_while(move |(offset, length)| {
        let length = length.min(size.checked_sub(offset)?) as usize;
        (length > 0).then_some(Stretch {
            nid,
            offset,
            length,
        })
    })
}
