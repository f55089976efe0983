//! The names of inodes, taken from the lookups by which the kernel found the inodes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;

use crate::client;
use crate::events::Inode;
use crate::learning::joined;

/// Maximum number of names remembered: fewer than a walk of a large tree looks up.
const MOST: usize = 1 << 15;

/// Maximum number of levels of parent directories that are followed.
const DEPTH: usize = 256;

/// An inode and the name that led to it.
#[derive(Debug)]
pub(crate) struct Known {
    parent: u64,
    name: Box<[u8]>,
    pub(crate) size: u64,
    pub(crate) mode: u32,
}

/// Names by inode numbers.
#[derive(Debug)]
pub(crate) struct Names {
    root: u64,
    known: HashMap<u64, Known>,
}

impl Names {
    pub(crate) fn new(root: u64) -> Self {
        Self {
            root,
            known: HashMap::new(),
        }
    }

    pub(crate) fn add(&mut self, parent: u64, name: &[u8], inode: Inode) {
        let is_new = self.known.len() < MOST && !self.known.contains_key(&inode.ino);
        if is_new && inode.ino != self.root && !matches!(name, b"" | b"." | b"..") {
            let known = Known {
                parent,
                name: name.into(),
                size: inode.size,
                mode: inode.mode,
            };
            self.known.insert(inode.ino, known);
        }
    }

    /// Adds the inode at a path of the mount, and the directories above it.
    pub(crate) fn find(&mut self, root: &OwnedFd, path: &[u8]) {
        let (mut parent, mut so_far) = (self.root, Vec::new());
        for name in path.split(|byte| *byte == b'/') {
            so_far = joined(&so_far, name);
            let Ok(inode) = client::status(root, &so_far) else {
                return;
            };
            self.add(parent, name, inode);
            parent = inode.ino;
        }
    }

    pub(crate) fn get(&self, ino: u64) -> Option<&Known> {
        self.known.get(&ino)
    }

    /// The inode whose name is missing from this one's path: this inode itself, or a directory
    /// above it.
    pub(crate) fn missing(&self, ino: u64) -> Option<u64> {
        let mut at = ino;
        for _ in 0..=DEPTH {
            if at == self.root {
                return None;
            }
            match self.known.get(&at) {
                Some(known) => at = known.parent,
                None => return Some(at),
            }
        }
        None
    }

    /// The path of an inode from the root of the mount, if it is known.
    pub(crate) fn path(&self, ino: u64) -> Option<Vec<u8>> {
        let (mut at, mut names) = (ino, Vec::new());
        while at != self.root {
            let known = self.known.get(&at)?;
            names.push(&known.name[..]);
            if names.len() > DEPTH {
                return None;
            }
            at = known.parent;
        }
        names.reverse();
        Some(names.join(&b'/'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_follow_the_lookups_and_circles_end() {
        let mut names = Names::new(1);
        let inode = |ino| Inode {
            ino,
            mode: 0,
            size: 0,
        };
        names.add(1, b"usr", inode(2));
        names.add(2, b"bin", inode(3));
        names.add(2, b"..", inode(1));
        names.add(5, b"a", inode(4));
        names.add(4, b"b", inode(5));
        let path = |ino| names.path(ino);
        assert_eq!(path(3).unwrap(), b"usr/bin");
        assert_eq!(path(1).unwrap(), b"");
        assert_eq!([path(4), path(7)], [None, None]);
        names.add(9, b"below", inode(10));
        let missing = [3, 4, 7, 10].map(|ino| names.missing(ino));
        assert_eq!(missing, [None, None, Some(7), Some(9)]);
    }
}
