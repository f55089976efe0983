//! Inode numbers that programs see.

use erofs_engine::erofs_format::{NID_IN_METABOX, Nid};

/// Numbers of an inode that are below this one are the same for programs.
const LOW: u64 = 1 << 31;

/// The number that the kernel's EROFS (from 6.17) shows for a node: the bit of the metabox, the
/// highest one, comes behind the lowest 31, and those between move up by one. So the numbers of
/// most images fit into 32 bits, and overlayfs has the highest ones for itself (`xino`).
pub(super) fn inode_number(nid: Nid) -> u64 {
    let in_metabox = u64::from(nid & NID_IN_METABOX != 0);
    let nid = nid & !NID_IN_METABOX;
    (nid / LOW * 2 + in_metabox) * LOW + nid % LOW
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bit_of_the_metabox_follows_the_lowest_31() {
        for nid in [0, 1, 36, LOW - 1] {
            assert_eq!(inode_number(nid), nid);
            assert_eq!(inode_number(nid | NID_IN_METABOX), nid + LOW);
        }
        assert_eq!(inode_number(LOW + 5), 2 * LOW + 5);
        assert_eq!(inode_number(NID_IN_METABOX | (LOW + 5)), 3 * LOW + 5);
        assert_eq!(inode_number(u64::MAX), u64::MAX);
    }
}
