//! Throughput and latency of reading, engine beside engine: sequential, random, the whole tree, its
//! metadata, and `ls -lR`; the image warm and cold. File contents are always cold: every sample has
//! a fresh mount.
//!
//! Readers are threads of the lab. Before anything is measured, every engine has to deliver the
//! same bytes as the first one.

mod cell;
mod content;
mod executor;
mod job;
mod options;
mod report;

pub use cell::{Cell, ImageState, Test};
pub(crate) use content::{Content, Part, walk};
pub use options::ReadOptions;
pub use report::{ReadReport, ReadResult};

use crate::engine::{Site, present};
use crate::environment::Environment;
use crate::schedule::{Plan, gather, repeats};
use crate::scratch::Scratch;
use crate::{Interrupt, LabError, Progress, Result};
use executor::Bench;

/// Runs the experiment.
pub fn run(options: &ReadOptions, progress: &mut dyn Progress) -> Result<ReadReport> {
    if options.iterations == 0 || options.tests.is_empty() {
        let text = "lab read: nothing to measure: at least one iteration and a test with these \
                    readers are needed";
        return Err(LabError::Usage(text.into()));
    }
    let interrupt = Interrupt::watch()?;
    let site = Site::new(&options.image, &options.erofast)?;
    let points = Scratch::new(&std::env::temp_dir())?;
    let (engines, left_out) =
        present(&options.engines, &site, points.path(), &interrupt, progress)?;
    let environment = Environment::capture(&site.image, &site.erofast)?;
    let mut bench = Bench::new(options, &site, engines, points.path(), &interrupt)?;
    bench.compare_bytes(progress)?;
    let plan = Plan {
        engines: bench.cells().len(),
        iterations: options.iterations,
        warm_ups: 1,
        repeats: repeats(options.iterations),
        seed: options.seed,
    };
    let gathered = gather(&mut bench, &plan, &interrupt, progress)?;
    Ok(report::build(
        &plan,
        environment,
        bench.cells(),
        gathered,
        left_out,
    ))
}
