//! Fail points in the start-up, so that tests can make each step fail. A test sets them for its own
//! thread, and threads that this thread creates inherit them.

#[cfg(test)]
use std::cell::RefCell;
#[cfg(test)]
use std::collections::HashSet;
use std::io;
#[cfg(test)]
use std::sync::{Arc, Mutex};

/// One step of start-up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum FailPoint {
    SlotTable,
    Cpus,
    UnboundThread(usize),
    WorkerThread(usize),
    Pin(usize),
    RealTime,
    Nice,
    Slice,
}

#[cfg(test)]
thread_local!(static POINTS: RefCell<Arc<Mutex<HashSet<FailPoint>>>> = RefCell::default());

/// Always succeeds outside tests.
#[cfg(not(test))]
pub(crate) fn check(_point: FailPoint) -> io::Result<()> {
    Ok(())
}

#[cfg(test)]
pub(crate) fn check(point: FailPoint) -> io::Result<()> {
    match POINTS.with_borrow(|points| points.lock().unwrap().contains(&point)) {
        true => Err(io::Error::other(format!("injected: {point:?}"))),
        false => Ok(()),
    }
}

/// Wraps the body of a new thread, so that it inherits the fail points.
#[cfg(not(test))]
pub(crate) fn inherited(body: impl FnOnce() + Send) -> impl FnOnce() + Send {
    body
}

#[cfg(test)]
pub(crate) fn inherited(body: impl FnOnce() + Send) -> impl FnOnce() + Send {
    let points = POINTS.with_borrow(Arc::clone);
    move || {
        POINTS.set(points);
        body();
    }
}

/// Makes these points fail on the calling thread.
#[cfg(all(test, not(feature = "loom")))]
pub(crate) fn fail_at(points: &[FailPoint]) {
    let points = points.iter().copied().collect();
    POINTS.with_borrow(|own| *own.lock().unwrap() = points);
}
