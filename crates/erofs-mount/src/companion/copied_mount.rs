//! The companion's view of the mount: a [detached copy](super::detached_copy), which is dropped
//! once the mount is gone from the table or the copy is no longer needed.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use look_ahead::Mount;
use rustix::event::PollFlags;

use super::errands::Errands;
use crate::mounting::{Mounted, read_table_from};
use erofs_fuse::error::Error;
use erofs_fuse::poll::first_ready;

const TABLE: &str = "/proc/self/mountinfo";

/// The mount of a companion.
pub(super) struct CopiedMount {
    mounted: Mounted,
    /// The mount table, kept open because the sandbox forbids opening it. poll(2) reports its
    /// changes.
    table: Arc<File>,
    errands: Arc<Errands>,
    /// Guarded by its own lock, which is held while a copy is made.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    root: Option<Arc<OwnedFd>>,
    /// Whether the mount is gone for good.
    is_gone: bool,
}

impl CopiedMount {
    pub(super) fn new(mounted: Mounted, errands: Arc<Errands>) -> Result<Self, Error> {
        Ok(Self {
            mounted,
            table: Arc::new(File::open(TABLE).map_err(Error::std_io(TABLE))?),
            errands,
            state: Mutex::default(),
        })
    }

    /// Keeps `root` as the first copy.
    pub(super) fn keep(&self, root: Option<OwnedFd>) {
        self.lock().root = root.map(Arc::new);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_listed(&self) -> bool {
        read_table_from(&self.table).is_ok_and(|table| self.mounted.id.find(&table).is_some())
    }

    fn has_changed(&self) -> bool {
        let changed = [(self.table.as_fd(), PollFlags::PRI)];
        first_ready(&changed, Some(Duration::ZERO)) != Ok(None)
    }
}

impl Mount for CopiedMount {
    fn root(&self) -> Option<Arc<OwnedFd>> {
        let mut state = self.lock();
        if !state.is_gone && (state.root.is_none() || self.has_changed()) {
            state.is_gone = !self.is_listed();
        }
        if state.is_gone {
            return None;
        }
        if state.root.is_none() {
            // The mount may be gone by now.
            let root = self.errands.copy().ok().filter(|_| self.is_listed());
            state.root = root.map(Arc::new);
        }
        state.root.clone()
    }

    fn kept(&self) -> Option<Arc<OwnedFd>> {
        self.lock().root.clone()
    }

    fn is_gone(&self, look: bool) -> bool {
        let mut state = self.lock();
        if look && !state.is_gone {
            state.is_gone = !self.is_listed();
        }
        state.is_gone
    }

    fn changes(&self) -> Option<Arc<File>> {
        let state = self.lock();
        state.root.as_ref().map(|_| Arc::clone(&self.table))
    }

    fn release(&self) {
        self.lock().root = None;
    }
}
