//! Walks the tree of an image, with bounds for hostile directories.

use std::collections::HashSet;
use std::sync::Arc;

use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Inode, Nid};

use crate::listing::{Listing, Name};

/// An entry found on the walk.
#[derive(Debug)]
pub struct Entry {
    /// Path from the start of the walk, without a leading slash; empty for the start itself.
    pub path: Vec<u8>,
    /// The inode of the entry.
    pub inode: Arc<Inode>,
    /// The type that the directory entry claims (0: unknown), which the inode may contradict.
    pub claimed_type: u8,
    /// Whether this inode was found for the first time; further names are hard links.
    pub first: bool,
    /// Whether this name already occurred in the directory.
    pub duplicate: bool,
}

/// What a walk reports.
#[derive(Debug)]
pub enum Visit {
    /// An entry that can be reached.
    Entry(Entry),
    /// Something that cannot be reached.
    Fault {
        /// The path of the entry, or of its directory.
        path: Vec<u8>,
        /// The inode of the entry, or of its directory.
        nid: Nid,
        /// Why it cannot be reached.
        error: String,
    },
}

/// Maximum length of a path that is walked, in bytes: four times the limit of a system call.
const LONGEST_PATH: usize = 16 << 10;
/// Maximum number of inodes remembered. Beyond it, hard links count as separate files and
/// directories are not entered.
const INODES: usize = 7 << 20;
/// Maximum number of entries read ahead in all directories on the way down.
const READ_AHEAD: usize = 1 << 16;

/// Walks everything below `start`, which is visited first. A directory is followed by its entries,
/// in their order on disk. Each directory is entered once, so a loop of directories ends.
///
/// Memory is bounded for any image: it holds the path, the numbers of the inodes found, and a
/// limited number of entries read ahead.
pub fn walk(
    engine: &Engine,
    start: &Arc<Inode>,
    visit: &mut dyn FnMut(Visit) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut walk = Walk {
        engine,
        seen: HashSet::new(),
        frames: Vec::new(),
        path: Vec::new(),
        visit,
    };
    walk.meet(start.clone(), 0, false)?;
    while let Some(frame) = walk.frames.last_mut() {
        walk.path.truncate(frame.path);
        match frame.listing.next(engine) {
            Some(Ok(name)) => walk.descend(&name)?,
            Some(Err(error)) => {
                let nid = frame.listing.directory().nid;
                walk.fault(nid, error)?;
            }
            None => drop(walk.frames.pop()),
        }
    }
    Ok(())
}

/// A directory on the way down.
struct Frame {
    listing: Listing,
    /// Length of the directory's path.
    path: usize,
}

struct Walk<'a> {
    engine: &'a Engine,
    seen: HashSet<Nid>,
    frames: Vec<Frame>,
    /// Path of the current entry.
    path: Vec<u8>,
    visit: &'a mut dyn FnMut(Visit) -> anyhow::Result<()>,
}

impl Walk<'_> {
    fn descend(&mut self, name: &Name) -> anyhow::Result<()> {
        if !self.path.is_empty() {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(&name.name);
        if self.path.len() > LONGEST_PATH {
            self.path
                .truncate(self.frames.last().map_or(0, |frame| frame.path));
            let error = format!("its path is longer than {LONGEST_PATH} bytes; it is left out");
            return self.fault(name.nid, error);
        }
        match self.engine.inode(name.nid) {
            Ok(inode) => self.meet(inode, name.claimed_type, name.duplicate),
            Err(error) => self.fault(name.nid, error.to_string()),
        }
    }

    fn meet(&mut self, inode: Arc<Inode>, claimed_type: u8, duplicate: bool) -> anyhow::Result<()> {
        let full = self.seen.len() >= INODES;
        let first = if full {
            !self.seen.contains(&inode.nid)
        } else {
            self.seen.insert(inode.nid)
        };
        let directory = inode.file_type() == FileType::Directory;
        if directory && !first {
            let error = format!(
                "nid {}: this directory appears more than once in the tree",
                inode.own_nid()
            );
            return self.fault(inode.nid, error);
        }
        if directory && full {
            let error = format!(
                "nid {}: left out: the tree has more than {INODES} inodes",
                inode.own_nid()
            );
            return self.fault(inode.nid, error);
        }
        (self.visit)(Visit::Entry(Entry {
            path: self.path.clone(),
            inode: inode.clone(),
            claimed_type,
            first,
            duplicate,
        }))?;
        if directory {
            self.enter(inode);
        }
        Ok(())
    }

    fn enter(&mut self, directory: Arc<Inode>) {
        let pending: usize = match self.frames.len() % 16 {
            0 => self
                .frames
                .iter()
                .map(|frame| frame.listing.pending())
                .sum(),
            _ => 0,
        };
        if pending > READ_AHEAD {
            self.frames
                .iter_mut()
                .for_each(|frame| frame.listing.shrink());
        }
        self.frames.push(Frame {
            listing: Listing::new(directory),
            path: self.path.len(),
        });
    }

    fn fault(&mut self, nid: Nid, error: String) -> anyhow::Result<()> {
        (self.visit)(Visit::Fault {
            path: self.path.clone(),
            nid,
            error,
        })
    }
}

/// Total size in bytes of all reachable files below `start`.
pub fn total_bytes(engine: &Engine, start: &Arc<Inode>) -> anyhow::Result<u64> {
    let mut total = 0_u64;
    walk(engine, start, &mut |visit| {
        if let Visit::Entry(entry) = visit
            && entry.first
            && entry.inode.file_type() == FileType::Regular
        {
            total = total.saturating_add(entry.inode.size);
        }
        Ok(())
    })?;
    Ok(total)
}

/// `directory/name`, or whichever of them is not empty.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match (directory, name) {
        (one, b"") | (b"", one) => one.to_vec(),
        _ => [directory, b"/", name].concat(),
    }
}
