//! The number of readers of all images, and whether the process ends with the last one.

use std::cell::Cell;
use std::process::exit;

/// Counts readers.
#[derive(Debug, Default)]
pub struct Readers {
    count: Cell<usize>,
    ends: Cell<bool>,
}

impl Readers {
    /// Adds a reader.
    pub fn join(&self) {
        self.count.update(|count| count + 1);
    }

    /// Removes a reader.
    pub fn leave(&self) {
        self.count.update(|count| count.saturating_sub(1));
        self.end();
    }

    /// Makes the process end with its last reader, since no new ones will come.
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
