//! Throughput and latency of reading, engine beside engine: sequential, random, the whole tree,
//! its metadata, and `ls -lR`; the image warm and cold. File contents are always cold: every sample has a fresh mount.
//!
//! Readers are threads of the lab. Before anything is measured, every engine has to deliver the same
//! bytes as the first one.

mod cell;
mod content;
mod executor;
mod job;
mod report;

pub use cell::{Cell, ImageState, Test};
pub(crate) use content::{Content, Part, walk};
pub use report::{ReadReport, ReadResult};

use std::path::PathBuf;

use crate::engine::{Engine, Site, present};
use crate::environment::Environment;
use crate::schedule::{Plan, gather};
use crate::scratch::Scratch;
use crate::{Interrupt, LabError, Progress, Result};
use executor::Bench;

/// One read experiment.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The image to read.
    pub image: PathBuf,
    /// The `erofast` binary for the engines `erofast:...`.
    pub erofast: PathBuf,
    /// The engines to compare, each with the first one.
    pub engines: Vec<Engine>,
    /// The engines were not named by the user: those that are missing are left out and said.
    pub engines_by_default: bool,
    /// Samples of each test that count.
    pub iterations: usize,
    /// Samples before them that do not.
    pub warm_ups: usize,
    /// What is measured.
    pub tests: Vec<Test>,
    /// Image in the page cache, out of it, or both.
    pub states: Vec<ImageState>,
    /// Sequential tests read this much at most, of the biggest files.
    pub sequential_bytes: u64,
    /// Random tests make this many reads at most, each of a place of its own.
    pub random_reads: usize,
    /// Of the order and of the places of random reads.
    pub seed: u64,
    /// As for launches.
    pub foreign_limit: f64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            image: PathBuf::new(),
            erofast: PathBuf::new(),
            engines: Engine::default_list(),
            engines_by_default: true,
            iterations: 5,
            warm_ups: 1,
            tests: Test::all(),
            states: vec![ImageState::Warm, ImageState::Cold],
            sequential_bytes: 512 << 20,
            random_reads: 4000,
            seed: 1,
            foreign_limit: 0.1,
        }
    }
}

/// Runs the experiment.
pub fn run(options: &ReadOptions, progress: &mut dyn Progress) -> Result<ReadReport> {
    if options.iterations == 0 || options.engines.is_empty() || options.tests.is_empty() {
        let text =
            "lab read: nothing to measure: at least one engine, test and iteration are needed";
        return Err(LabError::Usage(text.into()));
    }
    let interrupt = Interrupt::watch()?;
    let site = Site::new(&options.image, &options.erofast)?;
    let points = Scratch::new(&std::env::temp_dir())?;
    let asked = (&options.engines[..], options.engines_by_default);
    let (engines, left_out) = present(asked, &site, points.path(), &interrupt, progress)?;
    let environment = Environment::capture(&site.image, &site.erofast)?;
    let mut bench = Bench::new(options, &site, engines, points.path(), &interrupt)?;
    bench.compare_bytes(progress)?;
    let plan = Plan {
        engines: bench.cells().len(),
        iterations: options.iterations,
        warm_ups: options.warm_ups,
        repeats: options.iterations * bench.cells().len(),
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
