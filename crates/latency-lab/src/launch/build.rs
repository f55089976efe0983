//! Builds the report of a run from its samples.

use std::collections::BTreeSet;

use super::executor::Launcher;
use super::explain;
use super::options::LaunchOptions;
use super::report::{EngineReport, LaunchReport, RecordingCost, around, spoilt};
use super::sample::Sample;
use super::side::Side;
use crate::engine::Engine;
use crate::environment::Environment;
use crate::figure::count;
use crate::load::{Load, LoadReport};
use crate::schedule::{Executor, Gathered, Kept};
use crate::shell::{command_line, lossy};

pub(super) fn build(
    options: &LaunchOptions,
    environment: Environment,
    mut launcher: Launcher<'_>,
    gathered: Gathered<Sample>,
    left_out: Vec<String>,
) -> LaunchReport {
    let environment = environment.ended();
    let load = launcher.load.as_ref().map(Load::report);
    let faults = faults(&environment, &launcher, load.as_ref(), &gathered);
    let time_over = (gathered.rounds < options.iterations).then(|| {
        format!(
            "time ran out: {} of {} per {}",
            gathered.rounds,
            count(options.iterations, "launch"),
            options.experiment().row()
        )
    });
    let mut kept = gathered.kept;
    // The samples of the engines are followed by those of the same engines without the recorder.
    let twins = kept.split_off(launcher.sides.len());
    let mut engines: Vec<EngineReport> = Vec::new();
    for (number, kept) in kept.into_iter().enumerate() {
        let side = &launcher.sides[number];
        let mut report = EngineReport::of(side.name.clone(), kept);
        if side.engine.is_none() {
            report.command = lossy(&side.command);
            report.prepare = lossy(&side.prepare).pop();
        }
        report.keep_two_timelines();
        let seen = |twin: &Vec<Kept<Sample>>| twin.iter().map(|kept| kept.sample.seen_us).collect();
        report.recording = twins.get(number).map(|twin| RecordingCost::of(seen(twin)));
        report.thrown_away = gathered.thrown_away[number].clone();
        report.queue_source = queue_source(side).into();
        engines.push(report);
    }
    if let Some(traces) = launcher.traces.take() {
        traces.keep(engines.iter().flat_map(|engine| &engine.samples));
    }
    let experiment = options.experiment();
    let mut report = LaunchReport {
        experiment,
        iterations: gathered.rounds,
        load: options.load.to_string(),
        valid: faults.is_empty(),
        not_valid_because: faults,
        interrupted: gathered.interrupted,
        command: lossy(&options.command),
        prepare: lossy(&options.prepare).pop(),
        chdir: lossy(&options.directory).pop(),
        root: options.root,
        warm_ups: options.warm_ups,
        seed: options.seed,
        repeat: Some(options.repeat_with.clone().unwrap_or_else(command_line)),
        cold: explain::cold(experiment).into(),
        notices: options.notices.clone(),
        environment,
        load_seen: load,
        left_out,
        engines,
        machine: None,
    };
    report.compute();
    let engines = &report.engines;
    let notices = time_over.into_iter().chain(trace_notices(&launcher));
    let notices = notices
        .chain(engines.iter().filter_map(times_alone))
        .chain(starved(engines));
    let explained = explain::notices(&report);
    let notices: Vec<String> = notices.chain(explained).collect();
    report.notices.extend(notices);
    report
}

/// A notice that says of how many launches only the launch time counts.
fn times_alone(engine: &EngineReport) -> Option<String> {
    let alone = engine.times_alone.as_ref()?;
    let others = match alone.too_many {
        true => ", and there are no scheduling figures",
        false => "; they are left out of the scheduling figures",
    };
    Some(format!(
        "{}: only launch times are known for {} of {} ({}){others}",
        engine.label(),
        alone.launches,
        count(engine.samples.len(), "launch"),
        alone.reason
    ))
}

/// The source of an engine's queue delay.
fn queue_source(side: &Side) -> &'static str {
    match side.engine.as_ref().map(Engine::is_kernel) {
        None => {
            "from queueing a work item to its start, for items queued by the command's threads, \
             and by kernel workers that executed such items"
        }
        Some(true) => {
            "from queueing a work item to its start, both in the trace (workqueue_* and, for \
             per-CPU threads, sched_kthread_work_*)"
        }
        Some(false) => {
            "n/a: requests of a FUSE mount queue in the kernel, which does not trace when a \
             daemon takes one; the whole path has that time"
        }
    }
}

/// The notices of the recorder, without repetitions.
fn trace_notices(launcher: &Launcher<'_>) -> Vec<String> {
    let notices = launcher.trace_notices.iter();
    let texts: BTreeSet<&String> = notices.map(|notice| &notice.text).collect();
    texts
        .into_iter()
        .map(|text| format!("recorder: {text}"))
        .collect()
}

/// An engine gains at the load's expense if, beside it, the load gets less than this fraction of
/// the CPU time that it gets beside another engine.
const STARVES: f64 = 0.8;

fn starved(engines: &[EngineReport]) -> Vec<String> {
    let most = engines
        .iter()
        .filter_map(|engine| Some((engine.load_share?, engine.label())))
        .max_by(|a, b| a.0.total_cmp(&b.0));
    let Some((most, name)) = most else {
        return Vec::new();
    };
    let starves = |engine: &&EngineReport| {
        engine
            .load_share
            .is_some_and(|share| share < STARVES * most)
    };
    let line = |engine: &EngineReport| {
        format!(
            "{} leaves the load {:.0} % of the CPU time, {name} leaves it {:.0} %: part of \
             what the former gains is the load's loss",
            engine.label(),
            engine.load_share.unwrap_or_default() * 100.0,
            most * 100.0
        )
    };
    engines.iter().filter(starves).map(line).collect()
}

/// All reasons why the run is not valid.
fn faults(
    environment: &Environment,
    launcher: &Launcher<'_>,
    load: Option<&LoadReport>,
    gathered: &Gathered<Sample>,
) -> Vec<String> {
    let mut faults = Vec::new();
    if gathered.interrupted {
        faults.push("the run was interrupted".to_owned());
    }
    if gathered.hopeless {
        faults.push("every launch was spoilt, so the run ended early".to_owned());
    }
    for (number, kept) in gathered.kept.iter().enumerate() {
        let name = launcher.name(number);
        let reasons = kept.iter().map(|kept| kept.spoilt.as_ref());
        faults.extend(spoilt(&name, reasons, gathered.thrown_away[number].len()));
        if kept.len() < gathered.rounds && !gathered.interrupted {
            let last = gathered.thrown_away[number].last();
            let why = last.map_or(String::new(), |why| {
                format!(", the others were spoilt: {why}")
            });
            let (made, of) = (kept.len(), count(gathered.rounds, "launch"));
            faults.push(format!("{name}: only {made} of {of} in the figures{why}"));
        }
    }
    if launcher.sides.len() > 1 && gathered.rounds < 2 {
        let row = launcher.experiment().row();
        faults.push(format!("a single launch of each {row} proves nothing"));
    }
    for notice in launcher.trace_notices.iter().filter(|notice| notice.spoils) {
        let name = launcher.name(notice.side);
        faults.push(format!("{name}: recorder: {}", notice.text));
    }
    faults.extend(around(environment, load));
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::ThreadWaits;

    #[test]
    fn an_engine_that_takes_the_loads_time_is_named() {
        let with = |name: &str, share| EngineReport {
            load_share: Some(share),
            ..EngineReport::of(name.into(), Vec::new())
        };
        let lines = starved(&[with("a", 0.6), with("b", 0.5), with("c", 0.3)]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("c leaves the load 30 % of the CPU time, a leaves it 60 %"));
    }

    fn kept(missing: bool) -> Kept<Sample> {
        let waits = ThreadWaits {
            comm: "erofs_worker/0".into(),
            total_us: 10.0,
            ..ThreadWaits::default()
        };
        let sample = Sample {
            launch_us: 1000.0,
            sched_latency_us: 10.0,
            wakeups: 4,
            by_thread: vec![waits],
            ..Sample::default()
        };
        Kept {
            iteration: 0,
            spoilt: None,
            sample: match missing {
                true => sample.without_scheduling("3 of 200 switches".into()),
                false => sample,
            },
        }
    }

    /// A report with engines of these names, each with two launches; `true` means that switches are
    /// missing.
    fn report(engines: &[(&str, [bool; 2])]) -> LaunchReport {
        let engine = |(name, missing): &(&str, [bool; 2])| {
            EngineReport::of((*name).into(), missing.map(kept).into())
        };
        let mut report = LaunchReport {
            iterations: 2,
            valid: true,
            engines: engines.iter().map(engine).collect(),
            ..LaunchReport::default()
        };
        report.compute();
        report
    }

    #[test]
    fn launches_whose_figure_is_unknown_are_neither_zeros_nor_drawn() {
        let engines = report(&[("a", [false; 2]), ("b", [false, true])]).engines;
        let [all, some] = &engines[..] else { panic!() };
        assert_eq!(all.column(|sample| sample.sched_latency_us), [10.0, 10.0]);
        assert_eq!(all.wakeups(), Some(4.0));
        assert_eq!(some.column(|sample| sample.sched_latency_us), [0.0; 0]);
        assert!(some.sched_latency_us.is_none() && some.wakeups().is_none());
        assert!(some.by_thread().is_empty() && some.median_and_worst().is_none());
    }

    #[test]
    fn launches_of_which_only_the_time_is_known_count_as_times() {
        let engines = report(&[("a", [false; 2]), ("b", [false, true])]).engines;
        let [first, second] = &engines[..] else {
            panic!()
        };
        assert!(second.launch_us.is_some() && second.sched_latency_us.is_none());
        let against = second.against_first.as_ref().unwrap();
        assert!(against["sched_latency"].is_none() && against["program_off_cpu"].is_none());
        assert!(against["launch"].is_some());
        let json = serde_json::to_value(&second.samples[1]).unwrap();
        assert!(json["sched_latency_us"].is_null() && json["launch_us"] == 1000.0);
        let line = times_alone(second).unwrap();
        assert!(
            line.contains("1 of 2 launches (3 of 200 switches), and there are no"),
            "{line}"
        );
        assert_eq!(times_alone(first), None);
    }

    #[test]
    fn a_launch_without_switches_is_left_out_and_counted() {
        let mut engines = ["a", "b"].map(|name| {
            let mut engine = EngineReport::of(name.into(), Vec::new());
            for iteration in 0..20 {
                let kept = kept(name == "b" && [3, 7].contains(&iteration)).sample;
                let spread = kept.sched_latency_us + iteration as f64 / 10.0;
                let sched_latency_us = spread * if name == "b" { 2.0 } else { 1.0 };
                let idle_us = 500.0 + kept.idle_us;
                engine.samples.push(Sample {
                    iteration,
                    sched_latency_us,
                    idle_us,
                    ..kept
                });
            }
            engine
        });
        engines[1].samples[9].sched_latency_us = 900.0;
        let mut report = LaunchReport {
            iterations: 20,
            valid: true,
            engines: engines.into(),
            ..LaunchReport::default()
        };
        report.environment.allowed_cpus = Some("0".into());
        report.compute();
        let second = &report.engines[1];
        assert_eq!(second.column(|it| it.sched_latency_us).len(), 18);
        assert_eq!(second.launch_us.unwrap().average, 1000.0);
        let against = second.against_first.as_ref().unwrap();
        let shift = against["sched_latency"].as_ref().unwrap();
        assert!((shift.difference_percent.unwrap() - 100.0).abs() < 1e-6);
        assert_eq!(
            (second.outliers.sched_latency[0], second.idle_share),
            (9, Some(0.5))
        );
        assert_eq!(
            (second.by_thread()[0].total_us, second.wakeups()),
            (10.0, Some(4.0))
        );
        let line = times_alone(second).unwrap();
        assert!(
            line.contains("2 of 20 launches (3 of 200 switches); they are left out"),
            "{line}"
        );
        let alone = &serde_json::to_value(second).unwrap()["times_alone"];
        assert_eq!(
            (&alone["launches"], &alone["too_many"]),
            (&2.into(), &false.into())
        );
        let text = crate::Report::Launch(Box::new(report)).table();
        assert!(
            text.contains("2 of 20 launches left out of the scheduling figures"),
            "{text}"
        );
    }

    #[test]
    fn shares_are_of_the_cpus_that_the_run_had() {
        let mut report = report(&[("a", [false; 2])]);
        report.environment.allowed_cpus = Some("0-1,4".into());
        let shares = |report: &mut LaunchReport, load: &str| {
            report.load = load.into();
            report.compute();
            [report.engines[0].load_share, report.engines[0].idle_share]
        };
        assert_eq!(
            shares(&mut report, "fio"),
            [None; 2],
            "from an early version"
        );
        report.engines[0].samples[0].load_us = 3000.0;
        report.engines[0].samples[1].idle_us = 600.0;
        assert_eq!(shares(&mut report, "fio"), [Some(0.5), Some(0.1)]);
        assert_eq!(shares(&mut report, "none"), [None, Some(0.1)]);
    }

    #[test]
    fn engines_of_one_name_have_a_number_in_every_place() {
        let report = report(&[("a", [false; 2]), ("a", [false; 2]), ("b", [false; 2])]);
        let json = serde_json::to_value(&report.engines).unwrap();
        assert_eq!(
            [0, 1, 2].map(|at| json[at]["number"].as_u64()),
            [Some(1), Some(2), Some(1)]
        );
        assert_eq!(json[1]["engine"], "a", "as requested");
        let text = crate::Report::Launch(Box::new(report)).table();
        assert!(
            text.contains("\n  a (2)  ") && text.contains("  a (2): inconclusive"),
            "{text}"
        );
    }
}
