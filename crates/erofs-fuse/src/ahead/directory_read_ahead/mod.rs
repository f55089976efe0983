//! Read-ahead over directories: the companion lists the directories that a walk of the tree will
//! list next, so that the kernel already has their entries and attributes.
//!
//! Each directory costs a walk two requests, and the walk waits for both while other CPUs are idle.
//! No directory is listed ahead of a walk that also reads files: those files are [stored
//! ahead](super::file_read_ahead) in the order of their listing.

mod walk;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use erofs_engine::Engine;
use erofs_engine::erofs_format::Nid;
use look_ahead::{Events, joined};
use sys::pi_mutex::PiMutex;

use walk::Walk;

/// Maximum number of remembered directories that were looked up: a walk may begin at any of them.
const BEGINNINGS: usize = 64;

/// Number of listings that must follow the last read of a file before directories are listed ahead
/// again.
const LISTINGS_AFTER_READ: u32 = 64;

/// Read-ahead over the directories of one mount.
#[derive(Debug)]
pub(crate) struct DirectoryReadAhead {
    /// Guarded by its own lock: held during lookups and while one batch is passed to the companion.
    state: PiMutex<State>,
    events: Arc<Events>,
    listed: AtomicU64,
    /// Atomic: number of listings left until directories are listed ahead again.
    pause: AtomicU32,
}

#[derive(Debug, Default)]
struct State {
    walk: Walk,
    /// Directories found by name, with their paths.
    beginnings: VecDeque<(Nid, Vec<u8>)>,
    /// The companion's position after listing the batch before last, and after the last batch.
    batches: [u64; 2],
}

impl DirectoryReadAhead {
    pub(crate) fn new(root: Nid, events: Arc<Events>) -> Self {
        let state = State {
            beginnings: VecDeque::from([(root, Vec::new())]),
            ..State::default()
        };
        Self {
            state: PiMutex::new(state),
            events,
            listed: AtomicU64::new(0),
            pause: AtomicU32::new(0),
        }
    }

    /// Notes that a file was read from its beginning.
    pub(crate) fn file_was_read(&self) {
        if self.pause.load(Ordering::Relaxed) != LISTINGS_AFTER_READ {
            self.pause.store(LISTINGS_AFTER_READ, Ordering::Relaxed);
        }
    }

    /// Notes that a directory was found by its name.
    pub(crate) fn looked_up(&self, parent: Nid, name: &[u8], directory: Nid) {
        let mut state = self.state.lock();
        let Some(path) = state.path(parent) else {
            return;
        };
        let path = joined(path, name);
        if state.path(directory).is_none() {
            // The first entry is the root, which stays.
            if state.beginnings.len() >= BEGINNINGS {
                state.beginnings.remove(1);
            }
            state.beginnings.push_back((directory, path));
        }
    }

    /// Notes that entries of a directory were listed. `before` says whether other entries precede
    /// them; `children` are the directories among them.
    pub(crate) fn listed(
        &self,
        engine: &Engine,
        directory: Nid,
        before: bool,
        children: &[(Vec<u8>, Nid)],
    ) {
        let mut state = self.state.lock();
        let State {
            walk, beginnings, ..
        } = &mut *state;
        if before {
            return walk.continued(directory, children);
        }
        let beginning = beginnings.iter().find(|(nid, _)| *nid == directory);
        walk.listed(directory, beginning.map(|(_, path)| &path[..]), children);
        let pause = self.pause.load(Ordering::Relaxed);
        if pause > 0 {
            self.pause.store(pause - 1, Ordering::Relaxed);
            return;
        }
        if !engine.has_idle_cpus() || !self.events.has_read(state.batches[0]) {
            return;
        }
        let batch = state.walk.next_batch();
        let wanted = batch.iter().map_while(|path| self.events.wants(path));
        let places: Vec<u64> = wanted.collect();
        if let Some(last) = places.last() {
            state.batches = [state.batches[1], *last];
            self.listed
                .fetch_add(places.len() as u64, Ordering::Relaxed);
        }
    }

    /// Number of directories that the companion was asked to list.
    pub(crate) fn count(&self) -> u64 {
        self.listed.load(Ordering::Relaxed)
    }
}

impl State {
    fn path(&self, directory: Nid) -> Option<&[u8]> {
        let known = self.beginnings.iter().find(|(nid, _)| *nid == directory);
        known.map(|(_, path)| &path[..])
    }
}
