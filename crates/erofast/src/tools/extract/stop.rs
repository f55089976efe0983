//! Why an extraction ends before its last entry.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether and why an extraction must stop; shared by all threads.
pub struct Stop<'a> {
    /// Set by Ctrl-C.
    interrupted: &'a AtomicBool,
    /// The first error that would recur for every further entry.
    full: OnceLock<String>,
}

impl<'a> Stop<'a> {
    pub fn new(interrupted: &'a AtomicBool) -> Self {
        Self {
            interrupted,
            full: OnceLock::new(),
        }
    }

    pub fn is_set(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed) || self.full.get().is_some()
    }

    /// Whether an error ends the extraction: no space left, quota exceeded, or the target became
    /// read-only.
    pub fn takes(&self, error: &anyhow::Error) -> bool {
        let ends = error.downcast_ref::<io::Error>().is_some_and(|error| {
            matches!(
                error.kind(),
                io::ErrorKind::StorageFull
                    | io::ErrorKind::QuotaExceeded
                    | io::ErrorKind::ReadOnlyFilesystem
            )
        });
        if ends {
            let _ = self.full.set(error.to_string());
        }
        ends
    }

    /// # Errors
    /// Why the extraction must stop. Everything written so far is complete except directories,
    /// which receive their metadata last.
    pub fn check(&self) -> anyhow::Result<()> {
        let why = match self.full.get() {
            Some(error) => error,
            None if self.is_set() => "interrupted",
            None => return Ok(()),
        };
        anyhow::bail!("{why}: the tree is incomplete; repeat the command with --continue to resume")
    }
}
