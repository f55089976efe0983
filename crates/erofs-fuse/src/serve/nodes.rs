//! The stateless mapping between FUSE node ids and EROFS nids.
//!
//! The kernel fixes two node ids: 1 is the root, 0 is invalid. Every other nid is shifted up by
//! two, so that nids 0 and 1 get a node id of their own; nids in the metabox have bit 63 set, and
//! the two largest numbers are no inode in any image that fits on a disk.

use erofs_engine::erofs_format::Nid;
use fuse_transport::wire::ROOT_NODE;

const SHIFT: u64 = 2;

/// The mapping of one mount.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nodes {
    root: Nid,
}

impl Nodes {
    pub(super) fn new(root: Nid) -> Self {
        Self { root }
    }

    /// The inode of the mount's root.
    pub(super) fn root(self) -> Nid {
        self.root
    }

    /// The node of an inode; `None` for one that has none.
    pub(super) fn node(self, nid: Nid) -> Option<u64> {
        if nid == self.root {
            Some(ROOT_NODE)
        } else {
            nid.checked_add(SHIFT)
        }
    }

    /// The inode of a node; `None` for node 0.
    pub(super) fn nid(self, node: u64) -> Option<Nid> {
        if node == ROOT_NODE {
            Some(self.root)
        } else {
            node.checked_sub(SHIFT)
        }
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
}
