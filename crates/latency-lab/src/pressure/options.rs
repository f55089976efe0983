//! Options of the page-pool experiment.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::engine::Engine;
use crate::{LabError, Result};

/// One pressure experiment. The default has no pools; `erofast lab pressure` sets every field.
#[derive(Debug, Clone, Default)]
pub struct PressureOptions {
    /// The image to launch from.
    pub image: PathBuf,
    /// The `erofast` binary.
    pub erofast: PathBuf,
    /// Mount options that are the same for all sizes of the pool.
    pub mount_options: String,
    /// Sizes of the pool, in pages of 4 KiB.
    pub pools: Vec<usize>,
    /// Number of consecutive programs; the last one is measured.
    pub programs: usize,
    /// Memory limit of the group, in bytes.
    pub limit: u64,
    /// Number of measured launches for each way to get buffers.
    pub iterations: usize,
    /// The last program, with `{}` for the mount point; if empty, a program that reads files, as
    /// the others do.
    pub command: Vec<OsString>,
    /// Maximum time that a program may take.
    pub timeout: Duration,
    /// Seed of the order, and of the selection of files.
    pub seed: u64,
}

impl PressureOptions {
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |text: &str| Err(LabError::Usage(format!("lab pressure: {text}")));
        if self.pools.is_empty() || self.iterations == 0 || self.programs < 2 {
            return wrong("at least one pool, one iteration and two programs are needed");
        }
        if self.limit < 16 << 20 {
            return wrong("a limit of less than 16 MiB leaves no room for the programs themselves");
        }
        Ok(())
    }

    pub(super) fn engine(&self, pages: usize) -> Engine {
        // If the daemon were in its sandbox, it could not count the kernel's events.
        Engine::Erofast {
            options: format!(
                "{},sandbox=off,measure_allocations,reserved_pages={pages}",
                self.mount_options
            ),
        }
    }
}
