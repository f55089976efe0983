//! The page-pool experiment: what it costs to get pages when memory is short.
//!
//! Inside of a memory-limited cgroup programs are launched one after another out of a mount; all but
//! the last fill the group with what they read. The last one is measured: how long the threads that
//! decompressed for it were busy getting pages, and how often they had to reclaim memory for that.
//!
//! To be fair to all: the daemon has one thread for each CPU; it measures itself in windows around
//! each allocation of a buffer, in CPU time of the thread and on the clock, and what an empty window
//! takes is subtracted; reclaim counts only where the allocating thread itself began it, inside of a
//! window; the image is in the page cache already and is read outside of the group; a buffer is held
//! as long as a decompression holds it, and none is kept as a cache (`cache=0`).

mod assign;
mod counters;
mod group;
mod place;
mod report;
mod rounds;
mod tracefs;

pub use report::{PoolReport, PoolSample, PressureReport, Sufficient};

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::engine::{Engine, Site, missing};
use crate::environment::Environment;
use crate::scratch::Scratch;
use crate::{Interrupt, LabError, Progress, Result};

/// What is compared: where buffers come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Buffers {
    /// A pool of so many pages, 0 for none, and the system behind it.
    Pool(usize),
    /// Each thread keeps one.
    PerThread,
}

/// One pressure experiment.
#[derive(Debug, Clone)]
pub struct PressureOptions {
    /// The image to launch from.
    pub image: PathBuf,
    /// The `erofast` binary.
    pub erofast: PathBuf,
    /// Mount options that all have in common.
    pub mount_options: String,
    /// Sizes of the pool, in pages of 4 KiB.
    pub pools: Vec<usize>,
    /// Compare with buffers that threads keep.
    pub thread_buffers: bool,
    /// Programs in a row; the last one is measured.
    pub programs: usize,
    /// Memory of the group, in bytes.
    pub limit: u64,
    /// Measured launches for each way to get buffers.
    pub iterations: usize,
    /// The last program, with `{}` for the mount point; empty: one that reads files, as the others do.
    pub command: Vec<OsString>,
    /// Longest time a program may take.
    pub timeout: Duration,
    /// Of the order, and of the files that are read.
    pub seed: u64,
}

impl Default for PressureOptions {
    fn default() -> Self {
        PressureOptions {
            image: PathBuf::new(),
            erofast: PathBuf::new(),
            mount_options: "workers=percpu,hipri=auto,cache=0".into(),
            pools: vec![0, 16, 64, 256],
            thread_buffers: true,
            programs: 16,
            limit: 96 << 20,
            iterations: 5,
            command: Vec::new(),
            timeout: Duration::from_secs(120),
            seed: 1,
        }
    }
}

impl PressureOptions {
    fn check(&self) -> Result<()> {
        let wrong = |text: &str| Err(LabError::Usage(format!("lab pressure: {text}")));
        if self.pools.is_empty() || self.iterations == 0 || self.programs < 2 {
            return wrong("at least one pool, one iteration and two programs are needed");
        }
        if self.limit < 16 << 20 {
            return wrong("a group of less than 16 MiB leaves no room for the programs themselves");
        }
        Ok(())
    }

    fn ways(&self) -> Vec<Buffers> {
        let pools = self.pools.iter().map(|&pages| Buffers::Pool(pages));
        pools
            .chain(self.thread_buffers.then_some(Buffers::PerThread))
            .collect()
    }

    fn engine(&self, buffers: Buffers) -> Engine {
        let more = match buffers {
            Buffers::Pool(pages) => format!("reserved_pages={pages}"),
            Buffers::PerThread => "thread_buffers".into(),
        };
        // Inside of its sandbox the daemon may not count the kernel's events.
        Engine::Erofast {
            options: format!(
                "{},sandbox=off,measure_allocations,{more}",
                self.mount_options
            ),
        }
    }
}

/// Runs the experiment.
pub fn run(options: &PressureOptions, progress: &mut dyn Progress) -> Result<PressureReport> {
    options.check()?;
    let interrupt = Interrupt::watch()?;
    let site = Site::new(&options.image, &options.erofast)?;
    if let Some(missing) = missing(&options.engine(Buffers::PerThread), &site) {
        return Err(missing);
    }
    let _tracefs = tracefs::Tracefs::mounted();
    // What is refused here is refused before anything is mounted.
    drop(group::Group::make(options.limit)?);
    let environment = Environment::capture(&site.image, &site.erofast)?;
    let points = Scratch::new(&std::env::temp_dir())?;
    let rounds = rounds::Rounds::new(options, &site, points.path(), &interrupt)?;
    let samples = rounds.run(progress)?;
    Ok(report::build(
        options,
        environment,
        interrupt.asked(),
        samples,
    ))
}
