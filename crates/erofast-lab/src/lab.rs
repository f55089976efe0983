//! `erofast lab`: the experiments.

use std::fs::File;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use erofast_cli::{
    LabDiffArgs, LabHotplugArgs, LabKernelArgs, LabLaunchArgs, LabPressureArgs, LabReadArgs,
    LabReportArgs, LabSuiteArgs, Outcome, Usage, program,
};
use erofs_fuse::note;
use latency_lab::diff;
use latency_lab::engine::Engine;
use latency_lab::hotplug::{self, HotplugOptions};
use latency_lab::kernel::{self, KernelOptions};
use latency_lab::launch::{self, LaunchOptions, LaunchReport};
use latency_lab::pressure::{self, PressureOptions};
use latency_lab::read::{self, ImageState, ReadOptions, Test};
use latency_lab::suite::{self, SuiteOptions};
use latency_lab::{Report, Reports};

use crate::progress::Shown;

/// `erofast lab launch`
pub fn launch(args: &LabLaunchArgs) -> anyhow::Result<Outcome> {
    writable([&args.html, &args.svg])?;
    let engines = engines(&args.engines)?;
    let mut options = LaunchOptions {
        image: args.image.clone(),
        erofast: program("erofast"),
        command: args.command.clone(),
        root: args.root,
        directory: args.chdir.clone(),
        prepare: args.prepare.clone(),
        iterations: args.iterations,
        warm_ups: args.warmup,
        load: args.load.parse()?,
        timeout: Duration::from_secs(args.timeout),
        scratch: args.scratch.clone(),
        overhead: args.overhead,
        seed: args.seed,
        ..LaunchOptions::default()
    };
    if !engines.is_empty() {
        options.engines = engines;
        options.engines_by_default = false;
    }
    let report = launch::run(&options, &mut Shown::begin())?;
    write_page(args.html.as_deref(), &report)?;
    write(args.svg.as_deref(), || report.to_svg())?;
    print_launches(args.json, args.details, &report)
}

/// The page that `lab report` makes of the JSON.
fn write_page(path: Option<&Path>, report: &LaunchReport) -> anyhow::Result<()> {
    if path.is_none() {
        return Ok(());
    }
    let page = Report::from_json(report.to_json().as_bytes()).map_err(anyhow::Error::msg)?;
    write(path, || page.to_html())
}

fn print_launches(json: bool, details: bool, report: &LaunchReport) -> anyhow::Result<Outcome> {
    // A script or a file gets all figures, a terminal the answer.
    let text = || match details || !std::io::stdout().is_terminal() {
        true => report.table(),
        false => report.answer(),
    };
    print(json, || report.to_json(), text)?;
    Ok(outcome(report.valid, json, &report.not_valid_because))
}

/// `erofast lab report`
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

/// `erofast lab read`
pub fn read(args: &LabReadArgs) -> anyhow::Result<Outcome> {
    let engines = engines(&args.engines)?;
    let mut options = ReadOptions {
        image: args.image.clone(),
        erofast: program("erofast"),
        iterations: args.iterations,
        seed: args.seed,
        ..ReadOptions::default()
    };
    if !engines.is_empty() {
        options.engines = engines;
        options.engines_by_default = false;
    }
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
    let report = read::run(&options, &mut Shown::begin())?;
    print(args.json, || report.to_json(), || report.table())?;
    Ok(outcome(report.valid, args.json, &[]))
}

fn is_test(name: &str) -> bool {
    Test::all().iter().any(|test| test.word() == name)
}

/// `erofast lab suite`
pub fn suite(args: &LabSuiteArgs) -> anyhow::Result<Outcome> {
    let engines = engines(&args.engines)?;
    let mut options = SuiteOptions {
        erofast: program("erofast"),
        iterations: args.iterations,
        load: args.load.parse()?,
        only: args.only.clone(),
        work: args.work.clone(),
        timeout: Duration::from_secs(args.timeout),
        seed: args.seed,
        ..SuiteOptions::default()
    };
    if !engines.is_empty() {
        options.engines = engines;
        options.engines_by_default = false;
    }
    let report = suite::run(&options, &mut Shown::begin())?;
    print(args.json, || report.to_json(), || report.table())?;
    Ok(outcome(report.valid, args.json, &report.not_valid_because))
}

/// `erofast lab diff`
pub fn diff(args: &LabDiffArgs) -> anyhow::Result<Outcome> {
    let report = diff::run(&args.old, &args.new)?;
    print(args.json, || report.to_json(), || report.table())?;
    Ok(outcome(report.valid, args.json, &report.not_valid_because))
}

/// `erofast lab pressure`
pub fn pressure(args: &LabPressureArgs) -> anyhow::Result<Outcome> {
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
        ..PressureOptions::default()
    };
    let report = pressure::run(&options, &mut Shown::begin())?;
    print(args.json, || report.to_json(), || report.table())?;
    Ok(outcome(report.valid, args.json, &report.not_valid_because))
}

/// `erofast lab hotplug`
pub fn hotplug(args: &LabHotplugArgs) -> anyhow::Result<Outcome> {
    let options = HotplugOptions {
        image: args.image.clone(),
        erofast: program("erofast"),
        engine: args.engine.parse()?,
        cycles: args.cycles,
        cpu: args.cpu,
        readers: args.readers,
        load: args.load.parse()?,
        command: args.command.clone(),
        ..HotplugOptions::default()
    };
    let report = hotplug::run(&options, &mut Shown::begin())?;
    print(args.json, || report.to_json(), || report.table())?;
    Ok(outcome(report.valid, args.json, &[]))
}

/// `erofast lab kernel`
pub fn kernel(args: &LabKernelArgs) -> anyhow::Result<Outcome> {
    writable([&args.html])?;
    let defaults = KernelOptions::default();
    let options = KernelOptions {
        erofast: program("erofast"),
        image: args.image.clone(),
        command: args.command.clone(),
        root: args.root,
        iterations: args.iterations,
        time: Duration::from_secs(60 * args.minutes),
        load: args.load.parse()?,
        seed: args.seed,
        reserved_pages: match args.reserved_pages.is_empty() {
            true => defaults.reserved_pages.clone(),
            false => args.reserved_pages.clone(),
        },
        cpus: args.cpus,
        accelerate: !args.emulate,
        work: args.work.clone(),
        mirror: args.mirror.clone(),
        suite: args.suite.clone(),
        ..defaults
    };
    if let Some(directory) = &args.module_for_this_kernel {
        let modules = kernel::module_for_running_kernel(&options, directory, &mut Shown::begin())?;
        for module in modules {
            outln!("{}", module.display());
        }
        return Ok(Outcome::Fine);
    }
    let report = kernel::run(&options, &mut Shown::begin())?;
    write_page(args.html.as_deref(), &report)?;
    print_launches(args.json, args.details, &report)
}

/// `erofast lab guest`
pub fn guest() -> anyhow::Result<Outcome> {
    kernel::run_guest()?;
    Ok(Outcome::Fine)
}

fn engines(names: &[String]) -> anyhow::Result<Vec<Engine>> {
    names.iter().map(|name| Ok(name.parse()?)).collect()
}

/// Refuses a report that cannot be written before the run, not after it.
fn writable<'a>(paths: impl IntoIterator<Item = &'a Option<PathBuf>>) -> anyhow::Result<()> {
    paths
        .into_iter()
        .flatten()
        .try_for_each(|path| writable_file(path))
}

/// The same for one file, which is left as it was.
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

fn write(path: Option<&Path>, content: impl Fn() -> String) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    std::fs::write(path, content()).with_context(|| format!("cannot write {}", path.display()))
}

fn print(
    json: bool,
    as_json: impl Fn() -> String,
    as_table: impl Fn() -> String,
) -> anyhow::Result<()> {
    let text = if json { as_json() } else { as_table() };
    outln!("{}", text.trim_end_matches('\n'));
    Ok(())
}

/// A table has the reasons in itself, and JSON goes to a program.
fn outcome(is_valid: bool, json: bool, reasons: &[String]) -> Outcome {
    if is_valid {
        return Outcome::Fine;
    }
    if json {
        let reasons = match reasons {
            [] => "see the report".to_owned(),
            reasons => reasons.join("; "),
        };
        note(format_args!("the run is not valid: {reasons}"));
    }
    Outcome::Faulty
}
