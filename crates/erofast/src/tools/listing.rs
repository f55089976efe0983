//! Lists one directory of an image, entry by entry, in a bounded amount of memory.

use std::collections::{HashSet, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::ops::ControlFlow;
use std::sync::Arc;

use erofs_engine::erofs_format::{Inode, Nid};
use erofs_engine::{Engine, Error};

/// Number of entries per batch.
const BATCH: usize = 1024;
/// Maximum number of names in one directory that may be out of order. mkfs.erofs sorts names; in a
/// directory that repeats one block forever, the names start again with each block.
const OUT_OF_ORDER: u64 = 1 << 12;

/// Maximum number of names of one directory that are compared with each other; beyond this number,
/// names out of order count as duplicates.
const NAMES: usize = 1 << 20;

/// A name in a directory.
pub struct Name {
    pub name: Vec<u8>,
    pub nid: Nid,
    /// The type according to the entry (0: unknown), which the inode may contradict.
    pub claimed_type: u8,
    /// Whether the name sorts after the previous one, as the format requires.
    pub in_order: bool,
    /// Whether this name already occurred in the directory.
    pub duplicate: bool,
    /// The position after this entry.
    next: u64,
}

/// An item of a listing: a name, or the error in its place.
pub type Item = Result<Name, String>;

/// A position in a directory.
#[derive(Clone, Debug, Default)]
struct Progress {
    position: u64,
    /// The name before this position.
    last: Vec<u8>,
    out_of_order: u64,
}

impl Progress {
    /// Moves past an entry. Returns whether its name sorts after the previous one.
    fn pass(&mut self, name: &[u8], next: u64) -> bool {
        let in_order = self.last.as_slice() < name;
        self.out_of_order += u64::from(!in_order);
        name.clone_into(&mut self.last);
        self.position = next;
        in_order
    }
}

/// Reads a directory without `.` and `..`.
pub struct Listing {
    directory: Arc<Inode>,
    batch: VecDeque<Item>,
    /// How far batches have been read.
    read: Progress,
    /// How far entries have been returned.
    taken: Progress,
    ended: bool,
    /// Hashes of the names so far, in a directory that is out of order.
    names: Option<HashSet<u64>>,
    hasher: RandomState,
}

impl Listing {
    /// Starts at the first entry.
    pub fn new(directory: Arc<Inode>) -> Self {
        Self {
            directory,
            batch: VecDeque::new(),
            read: Progress::default(),
            taken: Progress::default(),
            ended: false,
            names: None,
            hasher: RandomState::new(),
        }
    }

    /// The directory being listed.
    pub fn directory(&self) -> &Arc<Inode> {
        &self.directory
    }

    /// The next entry; `None` at the end.
    pub fn next(&mut self, engine: &Engine) -> Option<Item> {
        if self.batch.is_empty() && !self.ended {
            self.fill(engine);
        }
        let mut item = self.batch.pop_front()?;
        if let Ok(name) = &mut item {
            name.duplicate = self.is_duplicate(engine, name);
            self.taken.pass(&name.name, name.next);
        }
        Some(item)
    }

    /// Ascending names cannot repeat. Once one is out of order, all names are remembered.
    fn is_duplicate(&mut self, engine: &Engine, name: &Name) -> bool {
        if self.names.is_none() && (!name.in_order || self.taken.out_of_order > 0) {
            self.names = Some(self.names_before(engine));
        }
        match &mut self.names {
            Some(names) if names.len() >= NAMES => true,
            Some(names) => !names.insert(self.hasher.hash_one(&name.name)),
            None => false,
        }
    }

    /// Hashes of the names before the next entry to return.
    fn names_before(&self, engine: &Engine) -> HashSet<u64> {
        let mut names = HashSet::new();
        let end = self.taken.position;
        // An error was reported when these entries were first read.
        let _ = engine.read_dir(&self.directory, 0, &mut |name, _, _, next| {
            if next > end || names.len() >= NAMES {
                return ControlFlow::Break(());
            }
            names.insert(self.hasher.hash_one(name.to_vec()));
            ControlFlow::Continue(())
        });
        names
    }

    /// Drops the entries read ahead; they are read again when needed.
    pub fn shrink(&mut self) {
        if self.batch.iter().all(Result::is_ok) && !self.batch.is_empty() {
            self.batch = VecDeque::new();
            self.read = self.taken.clone();
            self.names = None;
            self.ended = false;
        }
    }

    /// Number of entries read ahead and of name hashes, which take memory.
    pub fn pending(&self) -> usize {
        self.batch.len() + self.names.as_ref().map_or(0, HashSet::len)
    }

    fn fill(&mut self, engine: &Engine) {
        let directory = self.directory.clone();
        let start = self.read.position;
        let outcome = engine.read_dir_strict(&directory, start, &mut |entry| {
            match entry {
                Ok(entry) if matches!(entry.name, b"." | b"..") => {}
                Ok(entry) => self.push(entry.name, entry.nid, entry.file_type, entry.next),
                // The listing continues after a broken entry, whatever the size of the batch,
                // because at most a few broken entries follow each other.
                Err(error) => {
                    self.batch.push_back(Err(error.to_string()));
                    return ControlFlow::Continue(());
                }
            }
            match self.batch.len() < BATCH && self.read.out_of_order <= OUT_OF_ORDER {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        });
        self.end(outcome);
    }

    fn push(&mut self, name: &[u8], nid: Nid, claimed_type: u8, next: u64) {
        let in_order = self.read.pass(name, next);
        self.batch.push_back(Ok(Name {
            name: name.to_vec(),
            nid,
            claimed_type,
            in_order,
            duplicate: false,
            next,
        }));
    }

    fn end(&mut self, outcome: Result<(), Error>) {
        // If the listing ends before the directory does, the reason becomes the last item.
        let broke_off = match outcome {
            Err(error) => Some(error.to_string()),
            Ok(()) if self.read.out_of_order > OUT_OF_ORDER => Some(format!(
                "nid {}: {} names are out of order: the listing ends here",
                self.directory.nid, self.read.out_of_order
            )),
            Ok(()) => None,
        };
        self.ended = broke_off.is_some() || self.batch.len() < BATCH;
        self.batch.extend(broke_off.map(Err));
    }
}
