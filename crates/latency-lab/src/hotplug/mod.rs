//! A CPU goes offline and comes back while readers read. No request may be lost or take long, no
//! byte may be wrong, and the worker of that CPU must be pinned to it again.
//!
//! To make every read reach the engine, the file is dropped from the page cache before each read.
//! The bytes are compared with those that the kernel's own EROFS returns or, if it is not
//! available, with those that the engine under test returned before the first cycle.

mod cpu;
mod cycles;
mod options;
mod readers;
mod report;

pub use options::HotplugOptions;
pub use readers::HotplugCounts;
pub use report::HotplugReport;

use crate::engine::{Site, missing};
use crate::environment::Environment;
use crate::launch::names_mount;
use crate::load::{self, Load};
use crate::scratch::Scratch;
use crate::{Interrupt, LabError, Progress, Result};

/// Runs the experiment.
pub fn run(options: &HotplugOptions, progress: &mut dyn Progress) -> Result<HotplugReport> {
    if options.cycles == 0 || options.readers == 0 {
        return Err(LabError::Usage(
            "lab hotplug: at least one cycle and one reader are needed".into(),
        ));
    }
    if !options.command.is_empty() && !options.command.iter().any(names_mount) {
        return Err(LabError::Usage(
            "lab hotplug: the command does not contain {}, so it would not read the mount".into(),
        ));
    }
    let interrupt = Interrupt::watch()?;
    let mut site = Site::new(&options.image, &options.erofast)?;
    if let Some(missing) = missing(&options.engine, &site) {
        return Err(missing);
    }
    let mut cpu = cpu::Cpu::find(options.cpu)?;
    let points = Scratch::new(&std::env::temp_dir())?;
    let environment = Environment::capture(&site.image, &site.erofast)?;
    site.watch = environment.watch();
    let reference = readers::Reference::load(&site, &options.engine, points.path(), &interrupt)?;
    let mut load = load::start(&options.load, (None, false), None, &interrupt, progress)?;
    let experiment = cycles::Experiment {
        options,
        site: &site,
        points: points.path(),
        interrupt: &interrupt,
    };
    let gathered = experiment.run(&mut cpu, &reference, load.as_mut(), progress)?;
    let burned = load.as_ref().map(Load::report);
    Ok(report::build(
        options,
        environment,
        cpu.number,
        &reference.source,
        burned,
        gathered,
    ))
}
