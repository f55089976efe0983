//! Places where start-up can fail, so that the tests can make each of them fail.

use std::io;

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
    Watcher,
}

/// Without tests this never fails.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults {
    #[cfg(test)]
    points: std::sync::Arc<std::sync::Mutex<std::collections::HashSet<FailPoint>>>,
}

impl Faults {
    #[cfg(not(test))]
    pub(crate) fn check(&self, _point: FailPoint) -> io::Result<()> {
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn check(&self, point: FailPoint) -> io::Result<()> {
        match self.points.lock().unwrap().contains(&point) {
            true => Err(io::Error::other(format!("injected: {point:?}"))),
            false => Ok(()),
        }
    }

    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn at(points: impl IntoIterator<Item = FailPoint>) -> Self {
        let faults = Faults::default();
        faults.points.lock().unwrap().extend(points);
        faults
    }

    #[cfg(all(test, not(feature = "loom")))]
    pub(crate) fn clear(&self) {
        self.points.lock().unwrap().clear();
    }
}
