//! `erofast lab`: the experiments.

use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use erofast_cli::{
    LabDiffArgs, LabEngineArgs, LabHotplugArgs, LabKernelArgs, LabLaunchArgs, LabOutputArgs,
    LabPressureArgs, LabReadArgs, LabReportArgs, LabRoundsArgs, LabRunArgs, LabSuiteArgs, Outcome,
    Usage, print_json, program,
};
use erofs_mount::note;
use latency_lab::diff;
use latency_lab::engine::Engine;
use latency_lab::hotplug::{self, HotplugOptions};
use latency_lab::kernel::{self, Arch, KernelOptions};
use latency_lab::launch::{self, LaunchOptions, Scan};
use latency_lab::pressure::{self, PressureOptions};
use latency_lab::read::{self, ImageState, ReadOptions, Test};
use latency_lab::suite::{self, SuiteOptions};
use latency_lab::{Report, Reports};

use crate::progress::Shown;

pub fn launch(args: &LabLaunchArgs) -> anyhow::Result<Outcome> {
    let options = LaunchOptions {
        image: args.image.clone(),
        erofast: program("erofast"),
        engines: engines(&args.compared)?,
        command: args.command.clone(),
        root: args.root,
        directory: args.chdir.clone(),
        prepare: args.prepare.clone(),
        iterations: args.iterations,
        load: args.load.as_str().into(),
        ..rounds(&args.rounds)
    };
    launched(&options, &args.rounds)
}

pub fn run(args: &LabRunArgs) -> anyhow::Result<Outcome> {
    let scans = args.scans.iter().map(|scan| Ok(scan.parse()?));
    let scans = scans.collect::<anyhow::Result<Vec<Scan>>>()?;
    let options = LaunchOptions {
        commands: launch::commands(&args.commands, &args.names, &args.prepare, &scans)?,
        directory: args.chdir.clone(),
        ignore_failure: args.ignore_failure,
        iterations: args.iterations,
        load: args.load.as_str().into(),
        ..rounds(&args.rounds)
    };
    launched(&options, &args.rounds)
}

fn rounds(args: &LabRoundsArgs) -> LaunchOptions {
    LaunchOptions {
        warm_ups: args.warmup,
        timeout: Duration::from_secs(args.timeout),
        scratch: args.scratch.clone(),
        overhead: args.overhead,
        keep_traces: args.keep_traces.clone(),
        seed: args.seed,
        ..LaunchOptions::default()
    }
}

fn launched(options: &LaunchOptions, args: &LabRoundsArgs) -> anyhow::Result<Outcome> {
    writable([&args.output.html, &args.svg])?;
    let report = launch::run(options, &mut Shown::begin())?;
    write(args.svg.as_deref(), || report.to_svg())?;
    end(Report::Launch(Box::new(report)), &args.output, args.details)
}

/// Writes the page, made from the JSON as `lab report` would make it, and prints the report.
fn end(report: Report, output: &LabOutputArgs, details: bool) -> anyhow::Result<Outcome> {
    let json = report.to_json();
    if output.html.is_some() {
        let page = Report::from_json(json.as_bytes()).map_err(anyhow::Error::msg)?;
        write(output.html.as_deref(), || page.to_html())?;
    }
    // Scripts and files get all figures; a terminal gets only the answer.
    let text = match details || !std::io::stdout().is_terminal() {
        _ if output.json => json,
        true => report.table(),
        false => report.answer(),
    };
    outln!("{}", text.trim_end_matches('\n'));
    Ok(outcome(output.json, &report.faults()))
}

pub fn report(args: &LabReportArgs) -> anyhow::Result<Outcome> {
    let reports = Reports::read(&args.files)?;
    write(args.html.as_deref(), || reports.to_html())?;
    let text = match () {
        () if args.csv => reports.to_csv()?,
        () if args.markdown => reports.to_markdown()?,
        () if args.details => reports.table(),
        () => reports.answer(),
    };
    outln!("{}", text.trim_end_matches('\n'));
    Ok(Outcome::Fine)
}

pub fn read(args: &LabReadArgs) -> anyhow::Result<Outcome> {
    writable([&args.output.html])?;
    let mut options = ReadOptions {
        image: args.image.clone(),
        erofast: program("erofast"),
        engines: engines(&args.compared)?,
        iterations: args.iterations,
        seed: args.seed,
        ..ReadOptions::default()
    };
    if let Some(unknown) = args.tests.iter().find(|name| !is_test(name)) {
        bail!(Usage(format!(
            "--test {unknown}: must be seq, rand, tree, meta or list"
        )));
    }
    options.tests.retain(|test| {
        (args.tests.is_empty() || args.tests.iter().any(|name| name == test.word()))
            && args.readers.is_none_or(|readers| test.readers() == readers)
    });
    match args.state.as_deref() {
        None => {}
        Some("warm") => options.states = vec![ImageState::Warm],
        Some("cold") => options.states = vec![ImageState::Cold],
        Some(other) => bail!(Usage(format!(
            "--image-state {other}: must be warm or cold"
        ))),
    }
    let report = Report::Read(Box::new(read::run(&options, &mut Shown::begin())?));
    end(report, &args.output, true)
}

fn is_test(name: &str) -> bool {
    Test::all().iter().any(|test| test.word() == name)
}

pub fn suite(args: &LabSuiteArgs) -> anyhow::Result<Outcome> {
    writable([&args.output.html])?;
    let options = SuiteOptions {
        erofast: program("erofast"),
        engines: engines(&args.compared)?,
        iterations: args.iterations,
        load: args.load.as_str().into(),
        only: args.only.clone(),
        work: args.work.clone(),
        timeout: Duration::from_secs(args.timeout),
        seed: args.seed,
    };
    let report = Report::Suite(Box::new(suite::run(&options, &mut Shown::begin())?));
    end(report, &args.output, true)
}

pub fn diff(args: &LabDiffArgs) -> anyhow::Result<Outcome> {
    let report = diff::run(&args.old, &args.new)?;
    match args.json {
        true => print_json(&report)?,
        false => outln!("{}", report.table().trim_end_matches('\n')),
    }
    Ok(outcome(args.json, &report.not_valid_because))
}

pub fn pressure(args: &LabPressureArgs) -> anyhow::Result<Outcome> {
    writable([&args.output.html])?;
    let options = PressureOptions {
        image: args.image.clone(),
        erofast: program("erofast"),
        mount_options: args.options.clone(),
        pools: args.pools.clone(),
        programs: args.programs,
        limit: args.limit.saturating_mul(1 << 20),
        iterations: args.iterations,
        command: args.command.clone(),
        timeout: Duration::from_secs(args.timeout),
        seed: args.seed,
    };
    let report = Report::Pressure(Box::new(pressure::run(&options, &mut Shown::begin())?));
    end(report, &args.output, true)
}

pub fn hotplug(args: &LabHotplugArgs) -> anyhow::Result<Outcome> {
    writable([&args.output.html])?;
    let options = HotplugOptions {
        image: args.image.clone(),
        erofast: program("erofast"),
        engine: args.engine.parse()?,
        cycles: args.cycles,
        cpu: args.cpu,
        readers: args.readers,
        load: args.load.as_str().into(),
        command: args.command.clone(),
    };
    let report = Report::Hotplug(Box::new(hotplug::run(&options, &mut Shown::begin())?));
    end(report, &args.output, true)
}

pub fn kernel(args: &LabKernelArgs) -> anyhow::Result<Outcome> {
    writable([&args.output.html])?;
    let arch = match &args.arch {
        Some(name) => name.parse()?,
        None => Arch::of_this_machine()?,
    };
    let options = KernelOptions {
        arch,
        programs: args.programs.clone(),
        erofast: program("erofast"),
        image: args.image.clone(),
        command: args.command.clone(),
        root: args.root,
        iterations: args.iterations,
        time: Duration::from_secs(60 * args.minutes),
        load: args.load.as_str().into(),
        seed: args.seed,
        reserved_pages: match args.reserved_pages.is_empty() {
            true => KernelOptions::default().reserved_pages,
            false => args.reserved_pages.clone(),
        },
        cpus: args.cpus,
        accelerate: !args.emulate,
        work: args.work.clone(),
        mirror: args.mirror.clone(),
        suite: args.suite.clone(),
    };
    if let Some(directory) = &args.module_for_this_kernel {
        let modules = kernel::module_for_running_kernel(&options, directory, &mut Shown::begin())?;
        for module in modules {
            outln!("{}", module.display());
        }
        return Ok(Outcome::Fine);
    }
    let report = kernel::run(&options, &mut Shown::begin())?;
    end(Report::Launch(Box::new(report)), &args.output, args.details)
}

pub fn guest() -> anyhow::Result<Outcome> {
    kernel::run_guest()?;
    Ok(Outcome::Fine)
}

fn engines(args: &LabEngineArgs) -> anyhow::Result<Vec<Engine>> {
    let names = args.engines.iter();
    names.map(|name| Ok(name.parse()?)).collect()
}

/// Checks before the run that reports can be written, so that no run is wasted.
fn writable<'a>(paths: impl IntoIterator<Item = &'a Option<PathBuf>>) -> anyhow::Result<()> {
    paths
        .into_iter()
        .flatten()
        .try_for_each(|path| writable_file(path))
}

/// Checks that a file can be written, without changing or creating it.
pub fn writable_file(path: &Path) -> anyhow::Result<()> {
    let is_new = !path.try_exists().unwrap_or(true);
    File::options()
        .append(true)
        .create(true)
        .open(path)
        .with_context(|| format!("cannot write {}", path.display()))?;
    if is_new {
        std::fs::remove_file(path)?;
    }
    Ok(())
}

/// Writes a file, if its name is given.
pub fn write(path: Option<&Path>, content: impl FnOnce() -> String) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, content()).with_context(|| format!("cannot write {}", path.display()))
}

/// The outcome of a run. A table lists the run's faults. JSON is meant for programs, so with JSON
/// the faults are also printed as a note.
pub fn outcome(json: bool, faults: &[String]) -> Outcome {
    if json && !faults.is_empty() {
        note(format_args!("the run is not valid: {}", faults.join("; ")));
    }
    Outcome::of(faults.is_empty())
}
