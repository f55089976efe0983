//! Runs requests within their budgets, and refuses those that are known to exceed them.

pub mod budget;
pub(crate) mod control;
pub(crate) mod missing;

use std::sync::OnceLock;

use erofs_format::Nid;

use crate::Result;
use crate::cache::ReadCache;
use crate::layers::number::ImageNames;
use crate::request::control::Control;
use budget::{Exceeded, ReadContext, Request, Scope};

/// Maximum number of requests that are remembered because they exceeded their budget, and of inodes
/// that are remembered because they had heavy requests.
const REMEMBERED: u64 = 1024;

/// Identity of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestKey {
    /// Reading the inode itself.
    Inode(Nid),
    /// Looking up names in a directory.
    Lookup(Nid),
    /// Listing a directory from a position on.
    List(Nid, u64),
    /// Reading content from a byte on.
    Read(Nid, u64),
    /// Reading extended attributes.
    Xattrs(Nid),
    /// Finding the extent of a byte.
    Extent(Nid, u64),
}

impl RequestKey {
    /// The inode that the request concerns.
    pub(crate) fn nid(self) -> Nid {
        match self {
            RequestKey::Inode(nid)
            | RequestKey::Lookup(nid)
            | RequestKey::List(nid, _)
            | RequestKey::Read(nid, _)
            | RequestKey::Extent(nid, _)
            | RequestKey::Xattrs(nid) => nid,
        }
    }
}

/// Runs the requests of an engine.
#[derive(Debug)]
pub(crate) struct Requests {
    /// The images' paths, for messages.
    pub(crate) images: ImageNames,
    pub(crate) control: Control,
    /// Created by the first heavy request, which a valid image never causes.
    remembered: OnceLock<Remembered>,
}

/// Requests of a hostile image that took too much work.
#[derive(Debug)]
struct Remembered {
    /// Limits that requests exceeded, and would exceed again if repeated.
    exceeded: ReadCache<RequestKey, Exceeded>,
    /// Inodes that had a heavy request.
    heavy: ReadCache<Nid, ()>,
}

impl Requests {
    pub(crate) fn new(images: ImageNames) -> Self {
        Self {
            images,
            control: Control::default(),
            remembered: OnceLock::new(),
        }
    }

    fn remembered(&self) -> &Remembered {
        self.remembered.get_or_init(|| Remembered {
            exceeded: ReadCache::new(REMEMBERED, 1),
            heavy: ReadCache::new(REMEMBERED, 1),
        })
    }

    /// A request that waits for networks.
    pub(crate) fn request(&self, context: ReadContext) -> Request<'_> {
        Request::new(&self.control, context)
    }

    /// Runs a call for `length` bytes of content, or 0 for metadata. A call that exceeded its
    /// budget fails immediately when repeated. A call for an inode that had a heavy call fails
    /// while another heavy call is served.
    pub(crate) fn run<R>(
        &self,
        request: &Request<'_>,
        key: RequestKey,
        length: u64,
        work: impl FnOnce(&Scope<'_>) -> Result<R>,
    ) -> Result<R> {
        let nid = key.nid();
        let over_budget = |exceeded| self.images.error(nid, exceeded);
        let remembered = self.remembered.get();
        if let Some(exceeded) = remembered.and_then(|all| all.exceeded.get(&key)) {
            return Err(over_budget(*exceeded));
        }
        let scope = match remembered.and_then(|all| all.heavy.get(&nid)) {
            Some(_) => request.begin_heavy(length),
            None => request.begin(length),
        };
        let result = work(&scope);
        // A call inside another, such as for an inode of a listing, is not blamed for what the
        // whole request used.
        let is_whole = scope.is_outermost;
        if is_whole && request.is_heavy() {
            self.remembered().heavy.put(nid, (), 1);
        }
        result.map_err(|error| match request.exceeded() {
            Some(exceeded) => {
                if is_whole && exceeded.is_limit() {
                    self.remembered().exceeded.put(key, exceeded, 1);
                }
                over_budget(exceeded)
            }
            None => error,
        })
    }
}
