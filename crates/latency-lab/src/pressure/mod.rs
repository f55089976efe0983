//! The page-pool experiment: the cost of page allocation under memory pressure.
//!
//! Inside a memory-limited cgroup, programs are launched one after another from a mount; all but
//! the last fill the group's memory with what they read. The last one is measured: how long the
//! threads that decompressed for it spent getting pages, and how often they had to reclaim memory
//! to do so.
//!
//! All ways to get buffers are measured in the same way. The daemon has one thread per CPU. It
//! measures the thread CPU time and the elapsed time of a window around each allocation of a
//! buffer; the duration of an empty window is subtracted from both. Reclaim counts only if the
//! allocating thread itself began it, inside a window. The image is already in the page cache and
//! is read outside the group. A buffer is in use only while something is decompressed into it; none
//! is kept as a cache (`cache=0`).

mod assign;
mod counters;
mod group;
mod options;
mod place;
mod report;
mod rounds;
mod tracefs;

pub use options::PressureOptions;
pub use report::{PoolReport, PoolSample, PressureReport, Sufficient};

use crate::engine::{Site, missing};
use crate::environment::Environment;
use crate::scratch::Scratch;
use crate::{Interrupt, Progress, Result};

/// Runs the experiment.
pub fn run(options: &PressureOptions, progress: &mut dyn Progress) -> Result<PressureReport> {
    options.check()?;
    let interrupt = Interrupt::watch()?;
    let mut site = Site::new(&options.image, &options.erofast)?;
    if let Some(missing) = missing(&options.engine(0), &site) {
        return Err(missing);
    }
    let _tracefs = tracefs::Tracefs::mounted();
    // Creating a group here detects bad settings before anything is mounted.
    drop(group::Group::make(options.limit)?);
    let environment = Environment::capture(&site.image, &site.erofast)?;
    site.watch = environment.watch();
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
