//! The entries of a tree in the order in which they are extracted.

use std::collections::HashMap;
use std::sync::Arc;

use erofs_engine::erofs_format::{FileType, Inode, Nid};

use super::job::Job;
use super::journal::Journal;
use super::paths::{PathId, Paths};
use crate::tools::tree;

/// An entry to create.
pub enum Step {
    /// A directory, followed by its contents. It has an ID unless too many paths are remembered.
    Directory(Vec<u8>, Arc<Inode>, Option<PathId>),
    /// A file, or anything else that has no entries.
    Leaf(Vec<u8>, Arc<Inode>),
    /// Another name of a leaf.
    Link {
        /// The name to create.
        path: PathId,
        /// The name found first.
        first: PathId,
        inode: Arc<Inode>,
    },
}

/// Whether to continue with the contents of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// Continue with the contents.
    Continue,
    /// Skip the contents, because the directory itself could not be extracted.
    SkipContent,
}

/// Calls `each` for every entry that can be reached; the journal records the others.
pub fn walk(
    job: &Job,
    journal: &Journal,
    paths: &mut Paths,
    each: &mut dyn FnMut(&mut Paths, Step) -> anyhow::Result<Then>,
) -> anyhow::Result<()> {
    let mut names: HashMap<Nid, PathId> = HashMap::new();
    let mut walk = tree::walk(&job.engine, &job.start);
    while let Some(visit) = walk.next() {
        let entry = match visit {
            Ok(entry) => entry,
            Err(fault) => {
                journal.failure(&fault.path, fault.error);
                continue;
            }
        };
        let (mut path, inode) = (entry.path, entry.inode);
        let is_directory = inode.file_type() == FileType::Directory;
        if entry.duplicate {
            journal.failure(&path, "its directory already has an entry with this name");
            if is_directory {
                walk.skip_entries();
            }
            continue;
        }
        if is_directory {
            let id = paths.add(&path, true);
            if each(paths, Step::Directory(path, inode, id))? == Then::SkipContent {
                walk.skip_entries();
            }
            continue;
        }
        if path.is_empty() {
            path = job.name.clone();
        }
        // A second name becomes a copy if the inode's link count is one, or if too many names are
        // remembered.
        let id = match inode.nlink > 1 {
            true => paths.add(&path, false),
            false => None,
        };
        let step = match (names.get(&inode.nid), id) {
            (Some(&first), Some(path)) => Step::Link { path, first, inode },
            (None, Some(id)) => {
                names.insert(inode.nid, id);
                Step::Leaf(path, inode)
            }
            (_, None) => Step::Leaf(path, inode),
        };
        each(paths, step)?;
    }
    Ok(())
}

/// Whether each component of a path is an ordinary name. The format allows no other names, but this
/// check does not rely on the format.
pub fn is_plain(path: &[u8]) -> bool {
    !path.contains(&0)
        && path
            .split(|&byte| byte == b'/')
            .all(|name| !matches!(name, b"" | b"." | b".."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_not_plain() {
        for path in [
            &b"a/../b"[..],
            b"..",
            b".",
            b"/etc",
            b"a//b",
            b"a/",
            b"",
            b"a\0b",
        ] {
            assert!(!is_plain(path), "{path:?}");
        }
        assert!(is_plain(b"a/..b/..."));
    }
}
