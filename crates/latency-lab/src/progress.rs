//! Progress of an experiment.

/// Receives the progress of an experiment. The command shows it to the user; tests ignore it.
pub trait Progress {
    /// Called when a phase of `total` steps begins.
    fn begin(&mut self, _phase: &str, _total: u64) {}
    /// Called when `done` steps of the phase are complete; `note` names the next step.
    fn step(&mut self, _done: u64, _note: &str) {}
    /// A notice for the user, as one line.
    fn line(&mut self, _text: &str) {}
}

/// Prints nothing.
#[derive(Debug, Default, Clone, Copy)]
pub struct Silent;

impl Progress for Silent {}
