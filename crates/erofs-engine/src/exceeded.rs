//! Requests that exceeded their budget. When repeated, they fail at once.

use erofs_format::Nid;

use cpu_workers::{PiMutex, PiMutexGuard};

use crate::budget::Exceeded;
use crate::cache::Cache;

/// Requests that are remembered.
const REMEMBERED: u64 = 4096;

/// Identity of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    /// Names of a directory.
    Lookup(Nid),
    /// The entries of a directory from a position on.
    List(Nid, u64),
}

/// Requests that exceeded their budget. L: leaf lock.
#[derive(Debug)]
pub(crate) struct ExceededRequests(PiMutex<Cache<Request, Exceeded>>);

impl ExceededRequests {
    pub(crate) fn new() -> Self {
        Self(PiMutex::new(Cache::new(REMEMBERED)))
    }

    /// The budget that `request` exceeded before.
    pub(crate) fn find(&self, request: Request) -> Option<Exceeded> {
        self.lock().get(&request).copied()
    }

    /// Remembers a request, unless it was interrupted.
    pub(crate) fn remember(&self, request: Request, exceeded: Exceeded) {
        if exceeded != Exceeded::Closed {
            self.lock().put(request, exceeded, 1);
        }
    }

    fn lock(&self) -> PiMutexGuard<'_, Cache<Request, Exceeded>> {
        self.0.lock()
    }
}
