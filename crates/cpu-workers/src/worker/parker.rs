//! How one thread sleeps and is woken: on a token, or on its event source.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::Waker;
use crate::sync::{AtomicBool, Condvar, Mutex, lock, wait};

/// Has its own cache lines, because the owner writes to it with each request.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Parker {
    /// Guarded by its own lock. A pending wake-up, which persists so that a wake-up between the
    /// check of the queue and the sleep is not lost.
    token: Mutex<bool>,
    condvar: Condvar,
    /// Guarded by its own lock. The owner sets and clears the waker while awake; any thread that
    /// wakes the owner uses it.
    waker: Mutex<Option<Arc<dyn Waker>>>,
    /// Atomic. Whether the owner is registered as idle at its queue. Written under the queue's
    /// lock.
    idle: AtomicBool,
    /// Atomic. Whether the owner is running a job or serving a request of its event source,
    /// regardless of `idle`. Written by the owner.
    serving: AtomicBool,
}

impl Parker {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sleeps until there is a token, and takes it. Only the owner calls this.
    pub(crate) fn park(&self) {
        let mut token = lock(&self.token);
        while !*token {
            token = wait(&self.condvar, token);
        }
        *token = false;
    }

    /// Ends the owner's current sleep, or its next one. Called from any thread.
    pub(crate) fn unpark(&self) {
        let waker = lock(&self.waker).clone();
        match waker {
            Some(waker) => waker.wake(),
            None => {
                *lock(&self.token) = true;
                self.condvar.notify_one();
            }
        }
    }

    /// Makes the owner sleep on an event source that `waker` wakes, or on the token (`None`).
    ///
    /// A wake-up that still takes the old path is not lost: its sender has already queued the job,
    /// and the owner, which is awake now, checks the queue before its next sleep.
    pub(crate) fn set_waker(&self, waker: Option<Arc<dyn Waker>>) {
        *lock(&self.waker) = waker;
    }

    /// Whether the owner is registered as idle at its queue. A push, or the closing of the queue,
    /// unregisters the owner before waking it, so an owner that wakes for another reason can go
    /// back to sleep without taking the lock.
    pub(crate) fn is_registered(&self) -> bool {
        self.idle.load(Ordering::Acquire)
    }

    pub(crate) fn set_idle(&self, idle: bool) {
        self.idle.store(idle, Ordering::Release);
    }

    /// Sets whether the owner is serving, and returns the previous state. Only the owner calls
    /// this, so no atomic exchange is needed.
    pub(crate) fn set_serving(&self, serving: bool) -> bool {
        let before = self.serving.load(Ordering::Relaxed);
        self.serving.store(serving, Ordering::Release);
        before
    }

    /// Whether the owner is running a job or serving a request.
    pub(crate) fn is_serving(&self) -> bool {
        self.serving.load(Ordering::Acquire)
    }

    /// Whether the owner is asleep with nothing to do. Only a hint, which may be outdated when the
    /// caller reads it.
    pub(crate) fn is_idle(&self) -> bool {
        self.idle.load(Ordering::Acquire) && !self.serving.load(Ordering::Acquire)
    }
}
