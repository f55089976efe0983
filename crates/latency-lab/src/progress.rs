//! Progress of an experiment.

/// Receives progress. The command draws progress bars with it; tests stay silent.
pub trait Progress {
    /// A phase of `total` steps begins.
    fn begin(&mut self, _phase: &str, _total: u64) {}
    /// `done` steps of the phase are complete; `note` names the next one.
    fn step(&mut self, _done: u64, _note: &str) {}
    /// A notice for the user, as one line.
    fn line(&mut self, _text: &str) {}
}

/// Prints nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {}
