//! Requests that exceeded their budget. When repeated, they fail at once.

use std::sync::atomic::{AtomicBool, Ordering};

use erofs_format::Nid;

use cpu_workers::{PiMutex, PiMutexGuard};

use crate::budget::Exceeded;
use crate::cache::Cache;

/// Requests that are remembered.
const REMEMBERED: u64 = 4096;

/// Identity of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Request {
    /// An inode itself.
    Inode(Nid),
    /// Names of a directory.
    Lookup(Nid),
    /// The entries of a directory from a position on.
    List(Nid, u64),
    /// Content from a byte on.
    Read(Nid, u64),
    /// Extended attributes.
    Xattrs(Nid),
    /// The extent of a byte.
    Extent(Nid, u64),
}

impl Request {
    /// The inode it is about.
    pub(crate) fn nid(self) -> Nid {
        match self {
            Request::Inode(nid)
            | Request::Lookup(nid)
            | Request::List(nid, _)
            | Request::Read(nid, _)
            | Request::Extent(nid, _)
            | Request::Xattrs(nid) => nid,
        }
    }
}

/// Requests that exceeded their budget.
#[derive(Debug)]
pub(crate) struct ExceededRequests {
    /// A. There is one: others need not take the lock.
    any: AtomicBool,
    /// L: leaf lock.
    requests: PiMutex<Cache<Request, Exceeded>>,
}

impl ExceededRequests {
    pub(crate) fn new() -> Self {
        Self {
            any: AtomicBool::new(false),
            requests: PiMutex::new(Cache::new(REMEMBERED)),
        }
    }

    /// The budget that `request` exceeded before.
    pub(crate) fn find(&self, request: Request) -> Option<Exceeded> {
        match self.any.load(Ordering::Relaxed) {
            true => self.lock().get(&request).copied(),
            false => None,
        }
    }

    /// Remembers a request that would end like this every time.
    pub(crate) fn remember(&self, request: Request, exceeded: Exceeded) {
        if exceeded.lasts() {
            self.any.store(true, Ordering::Relaxed);
            self.lock().put(request, exceeded, 1);
        }
    }

    fn lock(&self) -> PiMutexGuard<'_, Cache<Request, Exceeded>> {
        self.requests.lock()
    }
}
