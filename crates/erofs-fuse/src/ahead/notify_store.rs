//! Stores remainders in the page cache (FUSE_NOTIFY_STORE): the decoded bytes of a pcluster that a
//! small read did not request.
//!
//! A dedicated thread does this: storing a page waits until a pending read of that page is
//! answered, so a thread that answers reads must not do it. The thread has the priority of the
//! workers and is not pinned. If it gets little CPU time, its queue fills up, and reads decode no
//! more than they need. It has a separate descriptor table (see
//! [`storing_threads`](super::storing_threads)).

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};

use erofs_engine::erofs_format::Nid;
use erofs_engine::{Engine, PageCacheWriter, Remainder};
use fuse_transport::{PageStore, Session};
use sys::pi_condvar::PiCondvar;
use sys::pi_mutex::PiMutex;

use super::random_faults::RandomFaults;
use super::storing_threads::{self, Call, First};
use crate::error::Error;
use crate::nodes::Nodes;
use crate::protocol::MountHelper;
use crate::threads::with_that_of_workers;

/// Maximum memory, in bytes, of remainders that are queued or being stored; a single remainder may
/// exceed it.
const ROOM: usize = 2 << 20;

/// Assumed page size. If the kernel's pages are larger, a part that does not fill a page is copied
/// for nothing.
const PAGE: u64 = 4096;

/// Size in bytes of the largest pcluster that is decoded whole for a small read.
const LONGEST: usize = 4 << 20;

/// Writes to the page cache of one mount.
pub(crate) struct NotifyStoreWriter {
    queue: Arc<Queue>,
    /// Files with random faults, for which nothing is stored: pages around a random fault are not
    /// read soon, and a hit there makes the kernel read around faults again.
    random: Option<Arc<RandomFaults>>,
}

#[derive(Default)]
struct Queue {
    /// Guarded by its own lock, which is held only for a push or a pop.
    state: PiMutex<State>,
    changed: PiCondvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Remainder>,
    calls: Vec<Call>,
    /// Memory of `waiting` and of the remainder being stored.
    bytes: usize,
    closed: bool,
}

impl NotifyStoreWriter {
    /// Starts the thread. It ends when the writer is dropped, or with the engine. It is started
    /// early because most mounts need it, and under load the main thread would start it late.
    pub(crate) fn start(
        engine: &Arc<Engine>,
        nodes: Nodes,
        session: &Arc<Session>,
        helper: &MountHelper,
        random: Option<Arc<RandomFaults>>,
    ) -> Result<Self, Error> {
        let queue = Arc::<Queue>::default();
        let ours = Arc::clone(&queue);
        // Weak: the engine owns the writer.
        let engine = Arc::downgrade(engine);
        let name = "erofs_pagecache";
        let signs = helper.signs_of_life();
        storing_threads::start(name, Arc::clone(session), signs, move |store| {
            with_that_of_workers(&engine, || store_all(&ours, store, &engine, nodes));
        })?;
        Ok(Self { queue, random })
    }

    /// A function that makes the thread run a call between two remainders.
    pub(crate) fn caller(&self) -> First {
        let queue = Arc::clone(&self.queue);
        Arc::new(move |call| {
            queue.state.lock().calls.push(call);
            queue.changed.notify_one();
        })
    }
}

impl fmt::Debug for NotifyStoreWriter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NotifyStoreWriter").finish_non_exhaustive()
    }
}

impl Drop for NotifyStoreWriter {
    fn drop(&mut self) {
        self.queue.state.lock().closed = true;
        self.queue.changed.notify_all();
    }
}

impl PageCacheWriter for NotifyStoreWriter {
    fn has_room(&self, file: Nid, bytes: usize) -> bool {
        if self.is_random(file) {
            return false;
        }
        let taken = self.queue.state.lock().bytes;
        bytes <= LONGEST && (taken == 0 || taken + bytes <= ROOM)
    }

    fn is_random(&self, file: Nid) -> bool {
        self.random.as_ref().is_some_and(|it| it.is_random(file))
    }

    fn store(&self, remainder: Remainder) {
        let mut state = self.queue.state.lock();
        state.bytes += remainder.memory();
        state.waiting.push_back(remainder);
        drop(state);
        self.queue.changed.notify_one();
    }
}

impl Queue {
    /// Waits for the next remainder, and runs calls in the meantime; `None` when closed.
    fn next(&self) -> Option<Remainder> {
        let mut state = self.state.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(call) = state.calls.pop() {
                drop(state);
                call();
                state = self.state.lock();
                continue;
            }
            if let Some(remainder) = state.waiting.pop_front() {
                return Some(remainder);
            }
            state = self.changed.wait(state);
        }
    }

    /// Releases the memory of a remainder that was stored.
    fn done(&self, remainder: Remainder) {
        let memory = remainder.memory();
        drop(remainder);
        self.state.lock().bytes -= memory;
    }
}

fn store_all(queue: &Queue, store: &PageStore, engine: &Weak<Engine>, nodes: Nodes) {
    while let Some(remainder) = queue.next() {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let _busy = engine.busy();
        if let Some(node) = nodes.node(remainder.nid()) {
            store_parts(store, node, &remainder);
        }
        queue.done(remainder);
    }
}

fn store_parts(store: &PageStore, node: u64, remainder: &Remainder) {
    let [before, behind] = remainder.parts();
    for ((offset, bytes), ends_file) in [(before, false), (behind, remainder.reaches_end())] {
        if let Some((offset, bytes)) = whole_pages(offset, bytes, ends_file) {
            // The kernel refuses this if it has forgotten the node or is out of memory; a read will
            // then request the bytes.
            let _ = store.store(node, offset, bytes);
        }
    }
}

/// The part of a range that fills whole pages; the last page of a file need not be full.
fn whole_pages(offset: u64, bytes: &[u8], reaches_end: bool) -> Option<(u64, &[u8])> {
    let end = offset + bytes.len() as u64;
    let start = offset.next_multiple_of(PAGE);
    let stop = if reaches_end { end } else { end - end % PAGE };
    let part = bytes.get((start - offset) as usize..)?;
    let length = stop.checked_sub(start).filter(|&length| length > 0)?;
    Some((start, &part[..length as usize]))
}

#[cfg(test)]
mod tests {
    use super::whole_pages;

    fn pages(offset: u64, length: usize, reaches_end: bool) -> Option<(u64, usize)> {
        let bytes = vec![0; length];
        whole_pages(offset, &bytes, reaches_end).map(|(offset, bytes)| (offset, bytes.len()))
    }

    #[test]
    fn only_whole_pages_are_stored() {
        assert_eq!(pages(0, 8192, false), Some((0, 8192)));
        assert_eq!(pages(1, 8192, false), Some((4096, 4096)));
        assert_eq!(pages(4096, 5000, false), Some((4096, 4096)));
        assert_eq!(pages(100, 4000, false), None);
        assert_eq!(pages(1, 4095, false), None);
        assert_eq!(pages(0, 0, false), None);
        assert_eq!(pages(4000, 50, false), None);
    }

    #[test]
    fn the_last_page_of_a_file_need_not_be_full() {
        assert_eq!(pages(1, 5000, true), Some((4096, 905)));
        assert_eq!(pages(8192, 10, true), Some((8192, 10)));
        assert_eq!(pages(8191, 1, true), None);
    }
}
