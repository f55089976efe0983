//! The page-pool experiment: the cost of page allocation under memory pressure.
//!
//! Inside of a memory-limited cgroup programs are launched one after another out of a mount; all
//! but the last fill the group with what they read. The last one is measured: how long the threads
//! that decompressed for it were busy getting pages, and how often they had to reclaim memory for
//! that.
//!
//! All ways are measured alike: the daemon has one thread for each CPU; it measures itself in
//! windows around each allocation of a buffer, in CPU time of the thread and on the clock, and what
//! an empty window takes is subtracted; reclaim counts only where the allocating thread itself
//! began it, inside of a window; the image is in the page cache already and is read outside of the
//! group; a buffer is held as long as a decompression holds it, and none is kept as a cache
//! (`cache=0`).

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
    // What is refused here is refused before anything is mounted.
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
