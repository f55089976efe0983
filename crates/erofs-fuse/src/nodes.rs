//! Converts numbers in EROFS to those that the kernel and programs see: node IDs, inode numbers,
//! types of directory entries.
//!
//! The mapping between FUSE node IDs and EROFS nids is stateless. The kernel fixes two node IDs: 1
//! is the root, 0 is invalid. All other nids are increased by two, so that nids 0 and 1 also get a
//! node ID. That does not overflow: nids in the metabox have bit 63 set, but no image that fits on
//! a disk has an inode with one of the two largest numbers.

use erofs_engine::Numbers;
use erofs_engine::erofs_format::{NID_IN_METABOX, Nid};
use fuse_transport::wire::ROOT_NODE;

const SHIFT: u64 = 2;

/// The node IDs of one mount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes {
    root: Nid,
}

impl Nodes {
    pub(crate) fn new(root: Nid) -> Self {
        Self { root }
    }

    /// The inode of the mount's root.
    pub(crate) fn root(self) -> Nid {
        self.root
    }

    /// The node of an inode; `None` if it has no node.
    pub(crate) fn node(self, nid: Nid) -> Option<u64> {
        if nid == self.root {
            Some(ROOT_NODE)
        } else {
            nid.checked_add(SHIFT)
        }
    }

    /// The inode of a node; `None` for node 0.
    pub(crate) fn nid(self, node: u64) -> Option<Nid> {
        if node == ROOT_NODE {
            Some(self.root)
        } else {
            node.checked_sub(SHIFT)
        }
    }
}

/// Inode numbers below this limit are shown to programs unchanged.
const LOW: u64 = 1 << 31;

/// The number that the kernel's EROFS (since 6.17) shows for a node: the metabox bit, which is the
/// highest, moves to just above the lowest 31 bits, and the bits between move up by one. So the
/// numbers of most images fit into 32 bits, and overlayfs can use the highest bits itself (`xino`).
fn inode_number(nid: Nid) -> u64 {
    let in_metabox = u64::from(nid & NID_IN_METABOX != 0);
    let nid = nid & !NID_IN_METABOX;
    (nid / LOW * 2 + in_metabox) * LOW + nid % LOW
}

/// Inode numbers as programs see them. In a mount of several images, the number is the one that the
/// inode has when its image is mounted alone, times the number of images, plus the index of the
/// image. The same images get the same numbers whenever they are mounted, and the numbers are as
/// small as the largest image allows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InodeNumbers(pub(crate) Numbers);

impl InodeNumbers {
    /// The number of an inode.
    pub(crate) fn number(self, nid: Nid) -> u64 {
        let number = inode_number(self.0.own(nid));
        number.wrapping_mul(self.0.count()) + self.0.image(nid) as u64
    }

    /// The inode that programs see with this number.
    pub(crate) fn nid(self, number: u64) -> Nid {
        let own = nid_of_inode_number(number / self.0.count());
        let image = (number % self.0.count()) as usize;
        self.0.number(image, own).unwrap_or(own)
    }
}

/// Converts an EROFS file type to that of readdir(3) (`DT_REG` and so on).
pub(crate) fn directory_type(file_type: u8) -> u8 {
    // FT_REG_FILE, FT_DIR, FT_CHRDEV, FT_BLKDEV, FT_FIFO, FT_SOCK, FT_SYMLINK begin at 1.
    *[0, 8, 4, 2, 6, 1, 12, 10]
        .get(usize::from(file_type))
        .unwrap_or(&0)
}

/// The nid of the inode that programs see with this number.
fn nid_of_inode_number(number: u64) -> Nid {
    let (above, low) = (number / LOW, number % LOW);
    let nid = above / 2 * LOW + low;
    match above % 2 {
        0 => nid,
        _ => nid | NID_IN_METABOX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nid_maps_to_a_node_and_back() {
        let nodes = Nodes::new(36);
        for nid in [
            0,
            1,
            2,
            35,
            36,
            37,
            1 << 32,
            1 << 63,
            (1 << 63) | 1,
            u64::MAX - 2,
        ] {
            let node = nodes.node(nid).unwrap();
            assert_ne!(node, 0);
            assert_eq!(nodes.nid(node), Some(nid));
        }
    }

    #[test]
    fn the_root_is_node_1_and_nothing_else_is() {
        let nodes = Nodes::new(36);
        assert_eq!(nodes.node(36), Some(1));
        assert_eq!(nodes.nid(1), Some(36));
        assert_ne!(nodes.node(u64::MAX), Some(1));
        assert_eq!(Nodes::new(u64::MAX).node(u64::MAX), Some(1));
    }

    #[test]
    fn invalid_numbers_map_to_nothing() {
        let nodes = Nodes::new(36);
        assert_eq!(nodes.nid(0), None);
        assert_eq!(nodes.node(u64::MAX), None);
    }

    #[test]
    fn the_bit_of_the_metabox_follows_the_lowest_31() {
        for nid in [0, 1, 36, LOW - 1] {
            assert_eq!(inode_number(nid), nid);
            assert_eq!(inode_number(nid | NID_IN_METABOX), nid + LOW);
        }
        assert_eq!(inode_number(LOW + 5), 2 * LOW + 5);
        assert_eq!(inode_number(NID_IN_METABOX | (LOW + 5)), 3 * LOW + 5);
        assert_eq!(inode_number(u64::MAX), u64::MAX);
        for nid in [0, LOW - 1, LOW + 5, NID_IN_METABOX | (LOW + 5), u64::MAX] {
            assert_eq!(nid_of_inode_number(inode_number(nid)), nid);
        }
    }

    #[test]
    fn inodes_of_several_images_have_numbers_of_their_own() {
        let (numbers, mut seen) = (Numbers::of_images(3), std::collections::HashSet::new());
        for image in 0..3 {
            for own in [0, 1, 36, LOW, NID_IN_METABOX, (1 << 56) - 1] {
                let nid = numbers.number(image, own).unwrap();
                let number = InodeNumbers(numbers).number(nid);
                assert!(seen.insert(number));
                assert_eq!(InodeNumbers(numbers).nid(number), nid);
            }
        }
        let alone = InodeNumbers(Numbers::of_images(1));
        for nid in [0, 36, NID_IN_METABOX | 36, u64::MAX] {
            assert_eq!(alone.number(nid), inode_number(nid));
            assert_eq!(alone.nid(alone.number(nid)), nid);
        }
    }

    #[test]
    fn file_types_map_to_the_numbers_of_readdir() {
        assert_eq!(
            (1..=7).map(directory_type).collect::<Vec<_>>(),
            [8, 4, 2, 6, 1, 12, 10]
        );
        assert_eq!((directory_type(0), directory_type(99)), (0, 0));
    }
}
