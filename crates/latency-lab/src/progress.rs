//! Progress of an experiment.

/// The command draws bars with it; tests stay silent.
pub trait Progress {
    /// A phase of `total` steps begins.
    fn begin(&mut self, _phase: &str, _total: u64) {}
    /// `done` steps of the phase are behind us; `note` says what comes now.
    fn step(&mut self, _done: u64, _note: &str) {}
    /// Something the user should know, once, as one line.
    fn line(&mut self, _text: &str) {}
}

/// Says nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {}
