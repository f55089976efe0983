//! FUSE nodes and EROFS nids: a mapping without state.
//!
//! The kernel fixes two numbers: 1 is the root, 0 is nothing. Every other nid moves up by two, so
//! that nid 0 and 1 keep a number of their own; nids have bit 63 set in the metabox, and the two
//! largest numbers stand for no inode in any image that fits on a disk.

use erofs_engine::erofs_format::Nid;
use fuse_transport::wire::ROOT_NODE;

const SHIFT: u64 = 2;

/// The mapping of one mount.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nodes {
    root: Nid,
}

impl Nodes {
    pub(crate) fn new(root: Nid) -> Self {
        Self { root }
    }

    /// The node of an inode; `None` for one that has none.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_nid_comes_back_as_itself() {
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
    fn numbers_that_mean_nothing_lead_nowhere() {
        let nodes = Nodes::new(36);
        assert_eq!(nodes.nid(0), None);
        assert_eq!(nodes.node(u64::MAX), None);
    }
}
