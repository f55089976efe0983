//! Threads that store pages in the kernel's page cache.
//!
//! Storing a page waits until a pending read of it is answered, and that wait cannot be killed. So
//! such a thread has a descriptor table of its own: when the server is killed, the rings and
//! descriptors that the other threads share are closed all the same, and the mount helper notices
//! the death and aborts the connection, which ends the read.
//!
//! The rings must end first: the kernel cannot end a request that it was handing to a ring whose
//! thread is dead before that ring is closed, not even by aborting the connection. Therefore they
//! are not mapped from their descriptors either ([`sys::fuse_ring`]): this thread keeps the memory
//! of the process, and a mapping would keep the ring.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::sync::{Arc, mpsc};
use std::thread;

use fuse_transport::{PageStore, Session};

use crate::error::Error;
use crate::helper::MountHelper;

/// Starts a thread, and returns when it has descriptors of its own. To be called before any ring is
/// opened, whose descriptor the thread must not have.
pub(super) fn spawn(
    name: &str,
    session: &Arc<Session>,
    helper: &MountHelper,
    work: impl FnOnce(&PageStore) + Send + 'static,
) -> Result<(), Error> {
    let (sender, started) = mpsc::channel();
    // Open until the thread has started, which this waits for.
    let socket = helper.as_fd().as_raw_fd();
    let session = Arc::clone(session);
    let body = move || {
        let store = own_store(&session, socket);
        drop(session);
        match store {
            Ok(store) => {
                let _ = sender.send(Ok(()));
                work(&store);
            }
            Err(error) => drop(sender.send(Err(error))),
        }
    };
    thread::Builder::new()
        .name(name.to_owned())
        .spawn(body)
        .map_err(Error::std_io(name))?;
    let ended = || Err(io::Error::other("the thread ended"));
    let outcome = started.recv().unwrap_or_else(|_| ended());
    outcome.map_err(Error::std_io(name))
}

/// In a descriptor table of the calling thread's own.
fn own_store(session: &Session, socket: RawFd) -> io::Result<PageStore> {
    // A ring ends its requests when its last descriptor is closed.
    let rings = session.ring_descriptors();
    sys::own_files::unshare_without(rings.into_iter().chain([socket]))?;
    session.page_store()
}
