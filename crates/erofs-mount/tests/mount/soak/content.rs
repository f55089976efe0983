//! An image, and the content of its files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use erofs_mount::{mount, umount};

use crate::place::Place;
use crate::request;

/// Maximum depth of directories whose files are read; deeper ones are left out, and so are
/// symlinks.
const DEPTH: usize = 3;

/// Files: their paths from the root, and their content.
pub type Files = Arc<Vec<(PathBuf, Vec<u8>)>>;

#[derive(Clone)]
pub struct Content {
    /// The bytes of the image. Its file may be removed.
    pub image: Arc<Vec<u8>>,
    pub files: Files,
}

impl Content {
    /// The content of an image that was made from `tree`.
    pub fn new(image: &Path, tree: &Path) -> Self {
        let mut files = Vec::new();
        collect(tree, Path::new(""), DEPTH, &mut files);
        assert!(!files.is_empty(), "{}", image.display());
        Self {
            image: Arc::new(fs::read(image).unwrap()),
            files: Arc::new(files),
        }
    }

    /// The content of an image whose tree exists only in the image.
    pub fn mounted(image: &Path) -> Self {
        let place = Place::new();
        mount(&request(image, &place, "restart=off")).unwrap();
        let content = Self::new(image, &place.path);
        umount(&place.path, false).unwrap();
        content
    }
}

fn collect(root: &Path, below: &Path, depth: usize, files: &mut Vec<(PathBuf, Vec<u8>)>) {
    let mut entries: Vec<_> = fs::read_dir(root.join(below))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (below.join(entry.file_name()), entry.file_type().unwrap());
        if kind.is_dir() && depth > 0 {
            collect(root, &path, depth - 1, files);
        } else if kind.is_file() && entry.metadata().unwrap().len() > 0 {
            files.push((path, fs::read(entry.path()).unwrap()));
        }
    }
}
