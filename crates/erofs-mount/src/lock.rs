//! Locks of files that other processes hold for a moment.

use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// Locks a file against other processes that lock it. Returns false if another process has held the
/// lock for longer than `limit`.
pub(crate) fn lock_within(limit: Duration, file: impl AsFd) -> bool {
    let end = Instant::now() + limit;
    while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        if Instant::now() >= end {
            return false;
        }
        thread::sleep(Duration::from_millis(1));
    }
    true
}
