//! Walks the tree of an image, with bounds for hostile directories.

use std::collections::HashSet;
use std::sync::Arc;

use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Inode, Nid};

use crate::tools::listing::{Listing, Name};

/// An entry found on the walk.
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

/// Something that cannot be reached.
pub struct Fault {
    /// The path of the entry, or of its directory.
    pub path: Vec<u8>,
    /// The inode of the entry, or of its directory.
    pub nid: Nid,
    /// Why it cannot be reached.
    pub error: String,
}

/// Maximum length of a path that is walked, in bytes: four times the limit of a system call.
const LONGEST_PATH: usize = 16 << 10;
/// Maximum number of inodes remembered. Beyond it, hard links count as separate files and
/// directories are not entered.
const INODES: usize = 7 << 20;
/// Maximum number of entries read ahead in all directories on the way down.
const READ_AHEAD: usize = 1 << 16;
/// Maximum number of entries whose inode was found before; beyond it, no directory is entered a
/// second time.
const REPEATED: usize = 1 << 20;

/// A directory on the way down.
struct Frame {
    listing: Listing,
    /// Length of the directory's path.
    path: usize,
}

/// A walk through a tree; see [`walk`].
pub struct Walk<'a> {
    engine: &'a Engine,
    /// Where the walk starts, until it has started.
    start: Option<Arc<Inode>>,
    seen: HashSet<Nid>,
    /// Number of entries whose inode was found before.
    repeated: usize,
    frames: Vec<Frame>,
    /// Path of the current entry.
    path: Vec<u8>,
}

/// Walks everything below `start`, which comes first. A directory is followed by its entries, in
/// their order on disk. Each directory is entered once, so a loop of directories ends. In a tree of
/// several images, overlayfs redirects may show a directory under several paths: it is entered
/// under each of them, until [`REPEATED`] is reached.
///
/// The walk takes a bounded amount of memory for any image: it remembers the path, the numbers of
/// the inodes found, and a limited number of entries read ahead.
pub fn walk<'a>(engine: &'a Engine, start: &Arc<Inode>) -> Walk<'a> {
    Walk {
        engine,
        start: Some(start.clone()),
        seen: HashSet::new(),
        repeated: 0,
        frames: Vec::new(),
        path: Vec::new(),
    }
}

impl Iterator for Walk<'_> {
    type Item = Result<Entry, Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(start) = self.start.take() {
            return Some(self.meet(start, 0, false));
        }
        while let Some(frame) = self.frames.last_mut() {
            self.path.truncate(frame.path);
            match frame.listing.next(self.engine) {
                Some(Ok(name)) => return Some(self.descend(&name)),
                Some(Err(error)) => {
                    let nid = frame.listing.directory().nid;
                    return Some(Err(self.fault(nid, error)));
                }
                None => drop(self.frames.pop()),
            }
        }
        None
    }
}

impl Walk<'_> {
    /// Skips the entries of the directory that the walk has just returned.
    pub fn skip_entries(&mut self) {
        self.frames.pop();
    }

    fn descend(&mut self, name: &Name) -> Result<Entry, Fault> {
        let parent = self.path.len();
        if parent > 0 {
            self.path.push(b'/');
        }
        self.path.extend_from_slice(&name.name);
        if self.path.len() > LONGEST_PATH {
            self.path.truncate(parent);
            let error = format!("its path is longer than {LONGEST_PATH} bytes; it is left out");
            return Err(self.fault(name.nid, error));
        }
        match self.engine.inode(name.nid) {
            Ok(inode) => self.meet(inode, name.claimed_type, name.duplicate),
            Err(error) => Err(self.fault(name.nid, error.to_string())),
        }
    }

    fn meet(
        &mut self,
        inode: Arc<Inode>,
        claimed_type: u8,
        duplicate: bool,
    ) -> Result<Entry, Fault> {
        let full = self.seen.len() >= INODES;
        let first = match full {
            true => !self.seen.contains(&inode.nid),
            false => self.seen.insert(inode.nid),
        };
        self.repeated += usize::from(!first);
        if inode.file_type() == FileType::Directory {
            let why = if !first && !self.may_repeat(inode.nid) {
                "this directory appears more than once in the tree".to_owned()
            } else if full {
                format!("left out: the tree has more than {INODES} inodes")
            } else {
                String::new()
            };
            if !why.is_empty() {
                let error = format!("nid {}: {why}", inode.own_nid());
                return Err(self.fault(inode.nid, error));
            }
            self.enter(inode.clone());
        }
        Ok(Entry {
            path: self.path.clone(),
            inode,
            claimed_type,
            first,
            duplicate,
        })
    }

    /// Whether a directory that was entered before may be entered again.
    fn may_repeat(&self, nid: Nid) -> bool {
        let mut above = self.frames.iter().map(|frame| frame.listing.directory());
        self.engine.image_count() > 1
            && self.repeated <= REPEATED
            && above.all(|directory| directory.nid != nid)
    }

    fn enter(&mut self, directory: Arc<Inode>) {
        if self.frames.len().is_multiple_of(16) {
            let pending = self.frames.iter().map(|frame| frame.listing.pending());
            if pending.sum::<usize>() > READ_AHEAD {
                let frames = self.frames.iter_mut();
                frames.for_each(|frame| frame.listing.shrink());
            }
        }
        self.frames.push(Frame {
            listing: Listing::new(directory),
            path: self.path.len(),
        });
    }

    fn fault(&self, nid: Nid, error: String) -> Fault {
        Fault {
            path: self.path.clone(),
            nid,
            error,
        }
    }
}

/// Total size in bytes of all reachable files below `start`.
pub fn total_bytes(engine: &Engine, start: &Arc<Inode>) -> u64 {
    let entries = walk(engine, start).flatten();
    let files = entries
        .filter(|entry| entry.first && entry.inode.file_type() == FileType::Regular)
        .map(|entry| entry.inode.size);
    files.fold(0, u64::saturating_add)
}

/// `directory/name`, or whichever of them is not empty.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match (directory, name) {
        (one, b"") | (b"", one) => one.to_vec(),
        _ => [directory, b"/", name].concat(),
    }
}
