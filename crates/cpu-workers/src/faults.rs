//! Places where start-up can fail, so that the tests can make each of them fail. A test names them
//! for its thread; the threads that this one makes inherit them.

#[cfg(test)]
use std::cell::RefCell;
#[cfg(test)]
use std::collections::HashSet;
use std::io;
#[cfg(test)]
use std::sync::{Arc, Mutex};

/// One rung of the ladder.
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

/// Without tests this never fails.
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

/// What a new thread runs.
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

/// What fails from here on.
#[cfg(all(test, not(feature = "loom")))]
pub(crate) fn fail_at(points: &[FailPoint]) {
    let points = points.iter().copied().collect();
    POINTS.with_borrow(|own| *own.lock().unwrap() = points);
}
