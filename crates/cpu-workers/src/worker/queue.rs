//! The queue of one worker, or of the unbound pool: first in, first out, of unlimited length.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::sync::{AtomicUsize, Mutex, lock};
use crate::worker::parker::Parker;

/// A mutex is fast enough: the worker and the queueing threads hold it for a few instructions.
///
/// The models in `models.rs` verify this guarantee: an item that `push` accepted is returned by
/// `take` exactly once, before `take` returns `Closed`.
pub(crate) struct JobQueue<T> {
    state: Mutex<State<T>>,
    /// Atomic. Number of items, for threads that search for an idle worker. Written under the lock.
    length: AtomicUsize,
}

/// Guarded by `JobQueue::state`.
struct State<T> {
    items: VecDeque<T>,
    /// Sleeping threads that have not been woken. The last one to fall asleep is woken first, since
    /// its caches are the warmest.
    idle: Vec<Arc<Parker>>,
    closed: bool,
}

/// Result of [`JobQueue::take`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Taken<T> {
    Item(T),
    /// The queue is empty; the caller is registered as idle and must sleep, then call `leave_idle`.
    Idle,
    /// The queue is empty and closed.
    Closed,
}

impl<T> JobQueue<T> {
    pub(crate) fn new() -> Self {
        let (items, idle) = (VecDeque::new(), Vec::new());
        JobQueue {
            state: Mutex::new(State {
                items,
                idle,
                closed: false,
            }),
            length: AtomicUsize::new(0),
        }
    }

    /// Appends an item and wakes one idle worker; returns `Ok(true)` if one was idle. A closed
    /// queue returns the item.
    pub(crate) fn push(&self, item: T) -> Result<bool, T> {
        let sleeper = {
            let mut state = lock(&self.state);
            if state.closed {
                return Err(item);
            }
            state.items.push_back(item);
            self.length.store(state.items.len(), Ordering::Release);
            let sleeper = state.idle.pop();
            if let Some(parker) = &sleeper {
                parker.set_idle(false);
            }
            sleeper
        };
        // The wake-up is a system call, so it is made outside the lock.
        if let Some(parker) = &sleeper {
            parker.unpark();
        }
        Ok(sleeper.is_some())
    }

    /// Takes the oldest item, after which the caller counts as busy. If the queue is empty, the
    /// caller is registered as idle under the same lock, so that no push is missed.
    pub(crate) fn take(&self, me: &Arc<Parker>) -> Taken<T> {
        let mut state = lock(&self.state);
        if let Some(item) = state.items.pop_front() {
            // Set before the queue counts as empty, so that no thread sees an empty queue and a
            // worker without a job.
            me.set_serving(true);
            self.length.store(state.items.len(), Ordering::Release);
            return Taken::Item(item);
        }
        if state.closed {
            return Taken::Closed;
        }
        state.idle.push(Arc::clone(me));
        me.set_idle(true);
        Taken::Idle
    }

    /// Must be called after each sleep, whatever ended it. Returns true if a push or the closing of
    /// the queue ended it.
    pub(crate) fn leave_idle(&self, me: &Arc<Parker>) -> bool {
        let mut state = lock(&self.state);
        me.set_idle(false);
        let registered = state.idle.len();
        state.idle.retain(|other| !Arc::ptr_eq(other, me));
        state.idle.len() == registered
    }

    /// Closes the queue to new items and wakes all sleepers. Queued items are still taken.
    pub(crate) fn close(&self) {
        let sleepers = {
            let mut state = lock(&self.state);
            state.closed = true;
            let sleepers = std::mem::take(&mut state.idle);
            sleepers.iter().for_each(|parker| parker.set_idle(false));
            sleepers
        };
        sleepers.iter().for_each(|parker| parker.unpark());
    }

    /// Number of items. Takes no lock.
    pub(crate) fn len(&self) -> usize {
        self.length.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn first_in_first_out() {
        let (queue, me) = (JobQueue::new(), Parker::new());
        (1..=3).for_each(|item| assert_eq!(queue.push(item), Ok(false)));
        assert_eq!(queue.len(), 3);
        let taken: Vec<_> = (0..3).map(|_| queue.take(&me)).collect();
        assert_eq!(taken, [Taken::Item(1), Taken::Item(2), Taken::Item(3)]);
    }

    #[test]
    fn only_an_idle_worker_is_woken_and_only_once() {
        let (queue, me) = (JobQueue::new(), Parker::new());
        assert_eq!(queue.push(1), Ok(false), "no worker sleeps");
        assert_eq!(queue.take(&me), Taken::Item(1));
        assert!(!me.is_idle() && me.set_serving(false), "it has a job");
        assert_eq!(queue.take(&me), Taken::Idle);
        assert!(me.is_idle());
        assert_eq!(queue.push(2), Ok(true));
        assert!(!me.is_idle(), "it has work now");
        assert_eq!(queue.push(3), Ok(false), "it knows already");
        me.park();
        assert!(queue.leave_idle(&me));
        assert_eq!(queue.take(&me), Taken::Item(2));
        me.set_serving(false);
    }

    #[test]
    fn a_sleep_that_ends_by_itself_is_no_wake_up() {
        let (queue, me) = (JobQueue::<u8>::new(), Parker::new());
        assert_eq!(queue.take(&me), Taken::Idle);
        assert!(!queue.leave_idle(&me));
        assert!(!me.is_idle());
        assert_eq!(queue.push(1), Ok(false), "it is awake");
    }

    #[test]
    fn a_closed_queue_is_emptied_first_and_accepts_nothing() {
        let (queue, me) = (JobQueue::new(), Parker::new());
        assert_eq!(queue.push(1), Ok(false));
        queue.close();
        assert_eq!(queue.push(2), Err(2));
        assert_eq!(queue.take(&me), Taken::Item(1));
        assert_eq!(queue.take(&me), Taken::Closed);
    }
}
