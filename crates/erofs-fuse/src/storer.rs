//! Puts what small reads decoded beyond their bytes into the page cache.
//!
//! A thread of its own does it: storing a page waits for a read of that page to be answered, and
//! whoever answers reads must not wait for that. It has the priority of the workers and no CPU of its
//! own: where it gets little time its room is full, and then reads decode no more than they need.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread;

use erofs_engine::cpu_workers::Mode;
use erofs_engine::{Engine, PageCacheWriter, Remainder};
use fuse_transport::Session;

use crate::Error;
use crate::nodes::Nodes;

/// Memory of what waits to be stored or is being stored, at most; one remainder alone may be more.
const ROOM: usize = 2 << 20;

/// Unit of the page cache that this counts in. Where pages are larger, what does not fill one is
/// copied for nothing.
const PAGE: u64 = 4096;

/// Longest pcluster that is decoded whole for a small read.
const LONGEST: usize = 4 << 20;

/// The way into the page cache of one mount.
#[derive(Debug)]
pub(crate) struct Storer(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    /// L: held for a push or a pop only.
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Remainder>,
    /// Memory that `waiting` holds, and what is being stored.
    bytes: usize,
    closed: bool,
}

impl Storer {
    /// Starts the thread. It ends when this is dropped, or with the session or the engine.
    pub(crate) fn start(
        session: &Arc<Session>,
        engine: &Arc<Engine>,
        nodes: Nodes,
    ) -> Result<Self, Error> {
        let queue = Arc::new(Queue::default());
        let (ours, session) = (Arc::clone(&queue), Arc::downgrade(session));
        // The engine owns this.
        let engine = Arc::downgrade(engine);
        thread::Builder::new()
            .name("erofs_storer".to_owned())
            .spawn(move || run(&ours, &session, &engine, nodes))
            .map_err(Error::std_io("erofs_storer"))?;
        Ok(Self(queue))
    }
}

impl Drop for Storer {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}

impl PageCacheWriter for Storer {
    fn has_room(&self, bytes: usize) -> bool {
        let taken = self.0.lock().bytes;
        bytes <= LONGEST && (taken == 0 || taken + bytes <= ROOM)
    }

    fn store(&self, remainder: Remainder) {
        let mut state = self.0.lock();
        state.bytes += remainder.memory();
        state.waiting.push_back(remainder);
        drop(state);
        self.0.changed.notify_one();
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sleeps until there is something; `None` at the end.
    fn next(&self) -> Option<Remainder> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(remainder) = state.waiting.pop_front() {
                return Some(remainder);
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Gives its memory back.
    fn done(&self, remainder: Remainder) {
        let memory = remainder.memory();
        drop(remainder);
        self.lock().bytes -= memory;
    }
}

fn run(queue: &Queue, session: &Weak<Session>, engine: &Weak<Engine>, nodes: Nodes) {
    let thread = rustix::thread::gettid().as_raw_nonzero().get();
    let pinned = |engine: Arc<Engine>| {
        let workers = engine.workers().cloned();
        workers.filter(|workers| workers.mode() == Mode::PerCpu)
    };
    if let Some(workers) = engine.upgrade().and_then(pinned) {
        workers.follow(thread);
    }
    store_all(queue, session, engine, nodes);
    if let Some(workers) = engine.upgrade().and_then(pinned) {
        workers.unfollow(thread);
    }
}

fn store_all(queue: &Queue, session: &Weak<Session>, engine: &Weak<Engine>, nodes: Nodes) {
    while let Some(remainder) = queue.next() {
        let (Some(session), Some(engine)) = (session.upgrade(), engine.upgrade()) else {
            return;
        };
        let _busy = engine.busy();
        if let Some(node) = nodes.node(remainder.nid()) {
            put_in_place(&session, node, &remainder);
        }
        queue.done(remainder);
    }
}

fn put_in_place(session: &Session, node: u64, remainder: &Remainder) {
    let [before, behind] = remainder.parts();
    for ((offset, bytes), ends_file) in [(before, false), (behind, remainder.reaches_end())] {
        if let Some((offset, bytes)) = whole_pages(offset, bytes, ends_file) {
            // Refused: forgotten by the kernel, or no memory for it. Reads ask again.
            let _ = session.store(node, offset, bytes);
        }
    }
}

/// The part of a stretch that fills pages; the last page of a file need not be full.
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
