//! How many readers all images have, and whether the process ends with the last one.

use std::cell::Cell;
use std::process::exit;

/// Counts readers.
#[derive(Debug, Default)]
pub struct Readers {
    count: Cell<usize>,
    ends: Cell<bool>,
}

impl Readers {
    /// One has come.
    pub fn join(&self) {
        self.count.set(self.count.get() + 1);
    }

    /// One has gone.
    pub fn leave(&self) {
        self.count.set(self.count.get().saturating_sub(1));
        self.end();
    }

    /// No reader comes after the last one has gone.
    pub fn end_with_last(&self) {
        self.ends.set(true);
        self.end();
    }

    fn end(&self) {
        if self.ends.get() && self.count.get() == 0 {
            exit(0);
        }
    }
}
