//! Directories in a tree of several images.

use std::sync::Arc;

use erofs_format::{Inode, Nid};

use crate::cache::ReadCache;

/// Number of image directories whose position in the tree is cached. A directory that is not cached
/// is found again by its path.
const PARTS_KEPT: u64 = 8192;

/// Length of a path, in bytes, that weighs as much as a part.
const PATH: usize = 128;

/// A directory of the tree: the images' directories that it consists of, the top one first. At
/// least one exists, and the top one's number and attributes are those of the whole.
#[derive(Debug)]
pub(crate) struct MergedDirectory {
    /// The directory's parent in the tree, not in an image; the root's parent is the root.
    pub parent: Nid,
    pub parts: Box<[Part]>,
    /// The directory's path in the tree; `None` if the directory is below a redirect.
    pub path: Option<Box<[u8]>>,
    /// Directories of lower images from which it takes attributes, in order of precedence; they may
    /// be hidden.
    pub lenders: Box<[Arc<Inode>]>,
}

/// A directory of one image.
#[derive(Clone, Debug)]
pub(crate) struct Part {
    /// The directory's inode, with its number in the tree.
    pub inode: Arc<Inode>,
    /// Whether the directory has names that are whiteouts of a tar archive.
    pub has_tar_marks: bool,
    /// Whether empty files in the directory may be whiteouts.
    pub has_marked_files: bool,
}

impl MergedDirectory {
    /// The directory's number in the tree.
    pub(crate) fn nid(&self) -> Nid {
        self.parts[0].inode.nid
    }

    /// Whether the directory exists in more than one image.
    pub(crate) fn is_merged(&self) -> bool {
        self.parts.len() > 1
    }
}

/// The root of a tree of several images, and recently used directories.
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

    /// The directory with this number, if cached.
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
