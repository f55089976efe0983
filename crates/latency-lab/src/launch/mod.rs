//! Launches one program from each engine's mount, under load: the experiment of the kernel patch.
//! `lab run` launches several commands in the same rounds, without image and mount.
//!
//! **Cold** means that every launch has a new mount: new inodes, no dentries, no decompressed pages
//! and no workers that keep state from the previous launch. The **image** stays warm in the page
//! cache on purpose: it is read before each mount, so no launch waits for the disk, and engines
//! differ only in how they decompress and how a read reaches the decompressor. The loop device of
//! `kernel-loop` is attached anew for each launch. Files outside the image (a dynamic loader, the
//! lab itself) are equally warm for all engines.
//!
//! [`run`] takes these steps: it checks the options, tries the engines, captures the environment,
//! starts the load and the recorder, and launches. Each step is undone when its value is dropped,
//! in reverse order, whether the run succeeds, fails or is ended by Ctrl-C.

mod answer;
mod attribute;
mod build;
mod cpu_time;
mod elsewhere;
mod executor;
mod explain;
mod measures;
mod options;
mod origin;
mod owner;
mod picture;
mod program;
mod report;
mod requests;
mod sample;
mod side;
mod traces;

pub use elsewhere::Loss;
pub use explain::EXPLANATION;
pub use measures::Experiment;
pub use options::LaunchOptions;
pub(crate) use options::{command_at, names_mount};
pub use owner::Owner;
pub use picture::{Blocked, Lane, Picture, Stretch, Waited};
pub use program::QueueWaits;
pub use report::{
    Against, EngineReport, LaunchReport, Machine, Outliers, RecordingCost, TimesAlone,
};
pub use sample::{Sample, ThreadWaits};
pub use side::{Scan, Side, commands};

use std::path::Path;

use crate::engine::{Site, mount_point, present};
use crate::environment::Environment;
use crate::process::load_found;
use crate::schedule::{Plan, gather, repeats};
use crate::scratch::Scratch;
use crate::statistics::too_few;
use crate::{Interrupt, Progress, Result, load};
use executor::Launcher;

/// Runs the experiment.
pub fn run(options: &LaunchOptions, progress: &mut dyn Progress) -> Result<LaunchReport> {
    options.check()?;
    let interrupt = Interrupt::watch()?;
    let points = Scratch::new(&std::env::temp_dir())?;
    let (mut site, sides, left_out) = match options.experiment() {
        Experiment::Run => (None, options.commands.clone(), Vec::new()),
        Experiment::Launch => {
            let site = options.site()?;
            let (sides, left_out) = engines(options, &site, points.path(), &interrupt, progress)?;
            (Some(site), sides, left_out)
        }
    };
    let experiment = options.experiment();
    let comparisons = experiment.compared() * (sides.len() - 1);
    let compared = (sides.len(), experiment.row());
    if let Some(line) = too_few(options.iterations, compared, comparisons) {
        progress.line(&line);
    }
    if let Some(line) = load_found(options.foreign_limit) {
        progress.line(&line);
    }
    let environment = match &mut site {
        None => Environment::here(),
        Some(site) => {
            let environment = Environment::capture(&site.image, &site.erofast)?;
            site.watch = environment.watch();
            environment
        }
    };
    let load = load::start(
        &options.load,
        (options.scratch.as_deref(), options.keep_scratch),
        options.load_disk.as_deref(),
        &interrupt,
        progress,
    )?;
    let compared = (site.as_ref(), sides);
    let mut launcher = Launcher::new(options, compared, points.path(), load, &interrupt)?;
    let plan = Plan {
        // With `overhead`, every engine is listed twice: with and without the recorder.
        engines: launcher.sides.len() * if options.overhead { 2 } else { 1 },
        iterations: options.iterations,
        warm_ups: options.warm_ups,
        repeats: repeats(options.iterations),
        seed: options.seed,
    };
    let gathered = gather(&mut launcher, &plan, &interrupt, progress)?;
    Ok(build::build(
        options,
        environment,
        launcher,
        gathered,
        left_out,
    ))
}

/// The engines that can mount the image and whose mount contains the program, each with the command
/// to launch; and the engines of the default list that are left out.
fn engines(
    options: &LaunchOptions,
    site: &Site,
    points: &Path,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<(Vec<Side>, Vec<String>)> {
    let (engines, left_out) = present(&options.engines, site, points, interrupt, progress)?;
    let trial = engines[0].mount(site, &mount_point(points, "trial")?, interrupt)?;
    options.check_program(trial.point())?;
    trial.unmount()?;
    Ok((options.sides(engines), left_out))
}
