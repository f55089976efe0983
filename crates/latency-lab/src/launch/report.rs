//! The report of a launch experiment: the contract's JSON, with more fields beside it.

use std::collections::BTreeMap;

use serde::Serialize;

use super::executor::Finished;
use super::options::LaunchOptions;
use super::picture::{Blocked, Picture, common_name};
use super::{explain, table};
use crate::environment::Environment;
use crate::load::{LoadChoice, LoadReport};
use crate::schedule::{Gathered, Kept};
use crate::statistics::{Comparison, Summary, compare, outliers};

/// One launch, in microseconds and counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Sample {
    /// From starting the program to its end.
    pub launch_us: f64,
    /// Total scheduling latency of the threads that decompressed: `wakeup_us` + `preempted_us`.
    pub sched_latency_us: f64,
    /// Waits from waking up to running.
    pub wakeup_us: f64,
    /// Waits after being taken off the CPU while able to go on.
    pub preempted_us: f64,
    /// From queueing work items to their start; contains waits of their workers, so it is never
    /// added to the scheduling latency.
    pub queue_us: f64,
    /// How often those threads were woken.
    pub wakeups: u64,
    /// How many such threads waited at least once.
    pub threads: u64,
    /// Whose waits they were.
    pub by_thread: Vec<ThreadWaits>,
    /// Behind whom those waits were spent, longest first.
    pub behind: Vec<Blocked>,
    /// Launch time by the lab's own two looks at the clock, its own wait for a CPU included.
    pub seen_us: f64,
    /// What it looked like.
    #[serde(skip)]
    pub picture: Picture,
    /// Work items that decompressed; in-kernel engines only.
    pub works: u64,
    /// CPU time that programs took which have nothing to do with the launch.
    pub foreign_us: f64,
    /// The round it was measured in.
    pub iteration: usize,
    /// Why it should not count, if so; a run with such samples is not valid.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spoilt: Option<String>,
}

/// The waits of one thread within one launch.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ThreadWaits {
    /// Its name.
    pub comm: String,
    /// As the kernel traces it: 120 is nice 0, 100 is nice -20, below 100 is real-time.
    pub priority: i32,
    /// How often it was woken.
    pub wakeups: u64,
    /// All its waits, after wake-up and after preemption.
    pub total_us: f64,
    /// The longest of them.
    pub longest_us: f64,
}

/// An engine against the first one.
#[derive(Debug, Clone, Serialize)]
pub struct Against {
    /// Total scheduling latency per launch.
    pub sched_latency: Comparison,
    /// Launch time.
    pub launch: Comparison,
}

/// Launches with the recorder on, against launches of the same engine with it off, interleaved. Both
/// by the lab's own clock.
#[derive(Debug, Clone, Serialize)]
pub struct RecordingCost {
    /// Launch time without.
    pub without_us: Option<Summary>,
    /// Launch time with.
    pub with_us: Option<Summary>,
    /// With, against without.
    pub comparison: Comparison,
    /// Launch times without.
    pub samples_without_us: Vec<f64>,
}

/// Positions in `samples` that are far from the rest; they are in every figure all the same.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outliers {
    /// By scheduling latency.
    pub sched_latency: Vec<usize>,
    /// By launch time.
    pub launch: Vec<usize>,
}

/// All about one engine.
#[derive(Debug, Clone, Serialize)]
pub struct EngineReport {
    /// As it was asked for.
    pub engine: String,
    /// Every launch that counts.
    pub samples: Vec<Sample>,
    /// None when no launch counts.
    pub sched_latency_us: Option<Summary>,
    /// Likewise.
    pub launch_us: Option<Summary>,
    /// Part of the scheduling latency.
    pub wakeup_us: Option<Summary>,
    /// The other part.
    pub preempted_us: Option<Summary>,
    /// Beside the scheduling latency, not part of it.
    pub queue_us: Option<Summary>,
    /// Where the queue delay comes from, or why it is 0.
    pub queue_source: String,
    /// Against the first engine; none for the first.
    pub against_first: Option<Against>,
    /// What recording costs a launch, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordingCost>,
    /// Shown, not dropped.
    pub outliers: Outliers,
    /// Launches that were thrown away, and why.
    pub thrown_away: Vec<String>,
}

/// What `lab launch` hands out.
#[derive(Debug, Clone, Serialize)]
pub struct LaunchReport {
    /// Launches per engine that were asked for, or those that there was time for.
    pub iterations: usize,
    /// "fio" or "none".
    pub load: String,
    /// Whether the figures may be relied on.
    pub valid: bool,
    /// If not, why.
    pub not_valid_because: Vec<String>,
    /// The user stopped the run; what was gathered is here.
    pub interrupted: bool,
    /// What was launched, with `{}` for the mount point.
    pub command: Vec<String>,
    /// The mount was the program's root directory.
    pub root: bool,
    /// Launches per engine before those that count.
    pub warm_ups: usize,
    /// Of the order of launches.
    pub seed: u64,
    /// The command line that makes such a run, where that is not `lab launch` with what stands here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<String>,
    /// What "cold" was.
    pub cold: &'static str,
    /// Where this ran.
    pub environment: Environment,
    /// Whether the load really burned its share.
    pub load_seen: Option<LoadReport>,
    /// Engines of the default list that this machine does not have.
    pub left_out: Vec<String>,
    /// In the order they were asked for.
    pub engines: Vec<EngineReport>,
    /// What a reader of the figures should know.
    pub notices: Vec<String>,
}

impl LaunchReport {
    /// The table that the patch printed, with what each number means.
    pub fn table(&self) -> String {
        table::render(self)
    }

    /// One HTML file that needs no network: the table beside the published one, distributions, all samples.
    pub fn to_html(&self) -> String {
        crate::html::launch_page(self)
    }

    /// The JSON of the contract, readable.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}

pub(super) fn build(
    options: &LaunchOptions,
    environment: Environment,
    finished: Finished,
    gathered: Gathered<Sample>,
    left_out: Vec<String>,
) -> LaunchReport {
    let faults = faults(options, &finished, &gathered);
    let time_over = (gathered.rounds < options.iterations).then(|| {
        format!(
            "time was over: {} of {} launches per engine",
            gathered.rounds, options.iterations
        )
    });
    let mut engines: Vec<EngineReport> = Vec::new();
    let mut kept = gathered.kept;
    // Behind the engines stand the same engines without the recorder.
    let twins = kept.split_off(finished.engines.len());
    for (number, kept) in kept.into_iter().enumerate() {
        let mut report = engine(finished.engines[number].to_string(), kept, engines.first());
        report.recording = twins.get(number).map(|twin| cost(&report, twin));
        report.thrown_away = gathered.thrown_away[number].clone();
        report.queue_source = finished
            .queue_notes
            .get(&number)
            .cloned()
            .unwrap_or_default();
        engines.push(report);
    }
    LaunchReport {
        iterations: gathered.rounds,
        load: options.load.to_string(),
        valid: faults.is_empty(),
        not_valid_because: faults,
        interrupted: gathered.interrupted,
        command: options
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        root: options.root,
        warm_ups: options.warm_ups,
        seed: options.seed,
        repeat: options.repeat_with.clone(),
        cold: explain::COLD,
        notices: options
            .notices
            .iter()
            .cloned()
            .chain(time_over)
            .chain(explain::notices(
                &environment,
                finished.load.as_ref(),
                &engines,
            ))
            .collect(),
        environment,
        load_seen: finished.load,
        left_out,
        engines,
    }
}

fn cost(with: &EngineReport, without: &[Kept<Sample>]) -> RecordingCost {
    let without: Vec<f64> = without.iter().map(|kept| kept.sample.seen_us).collect();
    let with = with.column(|sample| sample.seen_us);
    RecordingCost {
        without_us: Summary::of(&without),
        with_us: Summary::of(&with),
        comparison: compare(&without, &with),
        samples_without_us: without,
    }
}

/// Everything that keeps the run from being valid.
fn faults(
    options: &LaunchOptions,
    finished: &Finished,
    gathered: &Gathered<Sample>,
) -> Vec<String> {
    let mut faults = Vec::new();
    if gathered.interrupted {
        faults.push("the run was interrupted".to_owned());
    }
    for (number, kept) in gathered.kept.iter().enumerate() {
        let spoilt = kept.iter().filter(|kept| kept.spoilt.is_some()).count();
        if spoilt > 0 {
            let why = kept
                .iter()
                .find_map(|kept| kept.spoilt.clone())
                .unwrap_or_default();
            faults.push(format!(
                "{}: {spoilt} launches were spoilt ({why}) and could not be repeated any more",
                finished.name(number)
            ));
        }
        if kept.len() < gathered.rounds && !gathered.interrupted {
            faults.push(format!(
                "{}: {} of {} launches count",
                finished.engines[number],
                kept.len(),
                gathered.rounds
            ));
        }
    }
    let burned = finished.load.as_ref().is_none_or(|load| load.burned);
    if options.load == LoadChoice::Fio && !burned {
        faults.push("the load did not burn its share".to_owned());
    }
    faults
}

/// The figures of one engine, against those of the first.
pub(super) fn engine(
    name: String,
    kept: Vec<Kept<Sample>>,
    first: Option<&EngineReport>,
) -> EngineReport {
    let samples: Vec<Sample> = kept
        .into_iter()
        .map(|kept| Sample {
            iteration: kept.iteration,
            spoilt: kept.spoilt,
            ..kept.sample
        })
        .collect();
    let column = |of: fn(&Sample) -> f64| samples.iter().map(of).collect::<Vec<f64>>();
    let (latency, launch) = (column(|s| s.sched_latency_us), column(|s| s.launch_us));
    let against = first.map(|first| Against {
        sched_latency: compare(&first.column(|s| s.sched_latency_us), &latency),
        launch: compare(&first.column(|s| s.launch_us), &launch),
    });
    EngineReport {
        engine: name,
        sched_latency_us: Summary::of(&latency),
        launch_us: Summary::of(&launch),
        wakeup_us: Summary::of(&column(|s| s.wakeup_us)),
        preempted_us: Summary::of(&column(|s| s.preempted_us)),
        queue_us: Summary::of(&column(|s| s.queue_us)),
        queue_source: String::new(),
        recording: None,
        against_first: against,
        outliers: Outliers {
            sched_latency: outliers(&latency),
            launch: outliers(&launch),
        },
        thrown_away: Vec::new(),
        samples,
    }
}

impl EngineReport {
    /// Waits per launch by thread name and priority, greatest first; kworkers and threads of a pool
    /// count together.
    pub fn by_thread(&self) -> Vec<ThreadWaits> {
        let mut groups: BTreeMap<(String, i32), ThreadWaits> = BTreeMap::new();
        for waits in self.samples.iter().flat_map(|sample| &sample.by_thread) {
            let comm = common_name(&waits.comm);
            let group = groups.entry((comm.into(), waits.priority)).or_default();
            group.comm = comm.into();
            group.priority = waits.priority;
            group.wakeups += waits.wakeups;
            group.total_us += waits.total_us;
            group.longest_us = group.longest_us.max(waits.longest_us);
        }
        let mut groups: Vec<ThreadWaits> = groups.into_values().collect();
        let launches = self.samples.len().max(1) as f64;
        groups
            .iter_mut()
            .for_each(|group| group.total_us /= launches);
        groups.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
        groups
    }

    /// Behind whom the waits of a launch were spent, on the average over launches, longest first.
    pub fn behind(&self) -> Vec<Blocked> {
        let mut groups: BTreeMap<(&str, i32), f64> = BTreeMap::new();
        for blocked in self.samples.iter().flat_map(|sample| &sample.behind) {
            *groups.entry((&blocked.comm, blocked.priority)).or_default() += blocked.total_us;
        }
        let launches = self.samples.len().max(1) as f64;
        let mut groups: Vec<Blocked> = groups
            .into_iter()
            .map(|((comm, priority), total)| Blocked {
                comm: comm.into(),
                priority,
                total_us: total / launches,
            })
            .collect();
        groups.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
        groups
    }

    /// The launch with the middle scheduling latency, and the one with the greatest.
    pub fn median_and_worst(&self) -> Option<(&Sample, &Sample)> {
        let mut order: Vec<&Sample> = self.samples.iter().collect();
        order.sort_by(|a, b| a.sched_latency_us.total_cmp(&b.sched_latency_us));
        Some((
            *order.get(order.len().saturating_sub(1) / 2)?,
            *order.last()?,
        ))
    }

    /// One figure of every sample.
    pub fn column(&self, of: fn(&Sample) -> f64) -> Vec<f64> {
        self.samples.iter().map(of).collect()
    }
}
