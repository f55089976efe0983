//! Measures the throughput and latency of reading, with engines side by side. The tests read files
//! sequentially and at random places, read the whole tree and its metadata, and run `ls -lR`, with
//! the image warm and cold. The file contents of the mount are always cold, since every sample has
//! a new mount.
//!
//! Readers are threads of the lab. Before anything is measured, every engine must deliver the same
//! bytes as the first one.

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
use crate::statistics::{fewest_rounds, too_few};
use crate::{Interrupt, LabError, Progress, Result};
use executor::Bench;

/// Number of samples if there is only one engine and therefore nothing to claim.
const ALONE: usize = 5;

/// The number of rounds that are needed for a claim.
fn rounds(comparisons: usize) -> usize {
    match comparisons {
        0 => ALONE,
        comparisons => fewest_rounds(comparisons),
    }
}

/// Runs the experiment.
pub fn run(options: &ReadOptions, progress: &mut dyn Progress) -> Result<ReadReport> {
    if options.iterations == Some(0) || options.tests.is_empty() {
        let text = "lab read: nothing to measure: at least one iteration and a test with these \
                    readers are needed";
        return Err(LabError::Usage(text.into()));
    }
    let interrupt = Interrupt::watch()?;
    let mut site = Site::new(&options.image, &options.erofast)?;
    let points = Scratch::new(&std::env::temp_dir())?;
    let (engines, left_out) =
        present(&options.engines, &site, points.path(), &interrupt, progress)?;
    let comparisons = options.tests.len() * options.states.len() * (engines.len() - 1);
    let iterations = options.iterations.unwrap_or_else(|| rounds(comparisons));
    if let Some(line) = too_few(iterations, (engines.len(), "engine"), comparisons) {
        progress.line(&line);
    }
    let environment = Environment::capture(&site.image, &site.erofast)?;
    site.watch = environment.watch();
    let mut bench = Bench::new(options, &site, engines, points.path(), &interrupt)?;
    bench.compare_bytes(progress)?;
    let plan = Plan {
        engines: bench.cells.len(),
        iterations,
        warm_ups: 1,
        repeats: repeats(iterations),
        seed: options.seed,
    };
    let gathered = gather(&mut bench, &plan, &interrupt, progress)?;
    Ok(report::build(
        &plan,
        environment,
        &bench.cells,
        gathered,
        left_out,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn engines_are_compared_in_as_many_rounds_as_a_claim_needs() {
        let tests = 2 * Test::all().len();
        assert_eq!([0, tests, 3 * tests].map(rounds), [ALONE, 12, 14]);
        for comparisons in [1, tests, 3 * tests] {
            assert_eq!(
                too_few(rounds(comparisons), (2, "engine"), comparisons),
                None
            );
        }
    }
}
