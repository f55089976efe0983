//! Threads that store pages in the kernel's page cache.
//!
//! Storing a page waits until a pending read of it is answered, and that wait cannot be killed.
//! Therefore such a thread has a separate descriptor table: when the server is killed, the rings
//! and descriptors that the other threads share are closed although this thread still waits. The
//! mount helper notices the death and aborts the connection, which ends the read.
//!
//! The rings must be closed first: if the kernel was handing a request to a ring whose thread is
//! dead, the request cannot end before the ring is closed, not even by aborting the connection. A
//! storing thread that waits keeps the memory of the process alive, and a mapping of a ring's
//! descriptor would keep the ring open. Therefore no ring is mapped from its descriptor
//! ([`sys::fuse_ring`]). The first storing thread starts before any ring is opened, and starts the
//! others, which inherit its descriptor table.
//!
//! Where unshare(2) is refused, as in most containers, there are no storing threads: a killed
//! server could stay forever, along with the container.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use fuse_transport::{PageStore, Session};

use crate::error::Error;
use crate::protocol::MountHelper;
use crate::threads::{Demand, OnDemand, spawn};

/// A function for another thread to call.
pub(crate) type Call = Box<dyn FnOnce() + Send>;

/// Makes the first storing thread run a call.
pub(crate) type First = Arc<dyn Fn(Call) + Send + Sync>;

/// Starts the storing threads of one mount.
pub(crate) struct StoringThreads<'m> {
    pub(crate) session: &'m Arc<Session>,
    pub(crate) helper: &'m MountHelper,
    pub(crate) on_demand: &'m mut OnDemand,
    pub(crate) first: &'m First,
}

/// A notice if no thread may have its own descriptor table.
pub(crate) fn refused() -> Option<String> {
    let error = sys::inherited::may_unshare().err()?;
    Some(format!("files are not read ahead: unshare: {error}"))
}

impl StoringThreads<'_> {
    /// Adds the thread of `demand`, which is started when it is requested.
    pub(crate) fn add(
        &mut self,
        name: &'static str,
        demand: &Demand,
        work: impl FnOnce(&PageStore) + Send + 'static,
    ) {
        // Only the main thread, which starts all threads and ends last, keeps open the descriptors
        // that show that the server is alive.
        let signs = self.helper.signs_of_life();
        let session = Arc::clone(self.session);
        let first = Arc::clone(self.first);
        self.on_demand.starts(demand, move || {
            // If the thread cannot start, its pages are not stored.
            first(Box::new(move || drop(start(name, session, signs, work))));
        });
    }
}

/// Starts the thread; returns when it has its own descriptor table.
pub(crate) fn start(
    name: &str,
    session: Arc<Session>,
    signs_of_life: Vec<RawFd>,
    work: impl FnOnce(&PageStore) + Send + 'static,
) -> Result<(), Error> {
    let prepare = move || own_store(&session, signs_of_life);
    spawn(name, prepare, move |store| work(&store))
}

/// Opens a page store in a descriptor table private to the calling thread.
fn own_store(session: &Session, signs_of_life: Vec<RawFd>) -> io::Result<PageStore> {
    // The kernel ends the requests of a ring or device descriptor only when its last copy is
    // closed, so this thread must not hold one.
    let channels = session.channel_descriptors();
    sys::inherited::unshare_without(channels.into_iter().chain(signs_of_life))?;
    session.page_store()
}
