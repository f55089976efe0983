//! Directories in a tree of several images.

use std::sync::Arc;

use erofs_format::{Inode, Nid};

use crate::cache::ReadCache;

/// The number of image directories whose place in the tree is kept. The kernel's directories are
/// requested most; any other is found again by its path.
const PARTS_KEPT: u64 = 8192;

/// Bytes of a path that weigh as much as a part.
const PATH: usize = 128;

/// A directory of the tree: the images' directories that it consists of, the top one first. There
/// is at least one, whose number and attributes are those of the whole.
#[derive(Debug)]
pub(crate) struct MergedDirectory {
    /// Its parent in the tree, not in an image; the root's parent is the root.
    pub parent: Nid,
    pub parts: Box<[Part]>,
    /// Its path in the tree; none below a redirect.
    pub path: Option<Box<[u8]>>,
    /// Directories of images below from which it has attributes, the first one first; they may be
    /// hidden.
    pub lenders: Box<[Arc<Inode>]>,
}

/// A directory of one image.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// Its inode, with the number in the tree.
    pub inode: Arc<Inode>,
    /// Whether names in it are whiteouts of a tar archive.
    pub has_tar_marks: bool,
    /// Whether empty files in it may be whiteouts.
    pub has_marked_files: bool,
}

impl MergedDirectory {
    /// Its number.
    pub(crate) fn nid(&self) -> Nid {
        self.parts[0].inode.nid
    }

    /// Whether it exists in more than one image.
    pub(crate) fn is_merged(&self) -> bool {
        self.parts.len() > 1
    }
}

/// The root of a tree of several images, and recently encountered directories.
#[derive(Debug)]
pub(crate) struct MergedDirectories {
    pub(crate) root: Arc<MergedDirectory>,
    met: ReadCache<Nid, Arc<MergedDirectory>>,
}

impl MergedDirectories {
    pub(crate) fn new(root: MergedDirectory) -> Self {
        Self {
            root: Arc::new(root),
            met: ReadCache::new(PARTS_KEPT, 1),
        }
    }

    /// The directory with this number, if it is kept.
    pub(crate) fn get(&self, nid: Nid) -> Option<Arc<MergedDirectory>> {
        if nid == self.root.nid() {
            return Some(Arc::clone(&self.root));
        }
        self.met.get(&nid).map(|met| Arc::clone(&met))
    }

    pub(crate) fn keep(&self, directory: &Arc<MergedDirectory>) {
        let path = directory.path.as_ref().map_or(0, |path| path.len());
        let weight = (directory.parts.len() + path / PATH) as u64;
        self.met.put(directory.nid(), Arc::clone(directory), weight);
    }
}
