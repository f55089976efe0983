//! The report of a launch experiment. Its JSON is described in docs/schemas.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::elsewhere::{self, Loss};
use super::measures::{Experiment, Measure, TIME};
use super::picture::{Blocked, Picture, common_name, summed};
use super::program::{self, QueueWaits};
use super::sample::{Sample, ThreadWaits};
use crate::environment::Environment;
use crate::figure::{Figure, Row, count, label, stored};
use crate::load::LoadReport;
use crate::schedule::{Kept, Thrown};
use crate::statistics::{
    Comparison, Modes, Summary, compare, compare_rounds, correct, modes, outliers,
};

/// The figures of an engine or command compared with the first one: `launch`, `sched_latency`,
/// `program_off_cpu`, ... A figure is none if it is unknown for too many launches.
pub type Against = BTreeMap<String, Option<Comparison>>;

/// Launches with the recorder on, compared with interleaved launches of the same engine with the
/// recorder off. The lab's own clock timed both.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct RecordingCost {
    /// Launch time without the recorder.
    pub without_us: Option<Summary>,
    /// Launch time with the recorder.
    pub with_us: Option<Summary>,
    /// The launch times with the recorder, compared with those without it.
    pub comparison: Comparison,
    /// Launch times without the recorder.
    pub samples_without_us: Vec<f64>,
}

/// Indices of outliers in `samples`. All figures include them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Outliers {
    /// Outliers by scheduling latency.
    pub sched_latency: Vec<usize>,
    /// Outliers by launch time.
    pub launch: Vec<usize>,
}

/// Launches of which only the launch time counts; no scheduling figure includes them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimesAlone {
    /// Number of these launches.
    pub launches: usize,
    /// What was wrong with the recording of the first such launch.
    pub reason: String,
    /// Whether so many launches are affected that the scheduling figures of the others are not used
    /// either.
    pub too_many: bool,
}

/// Figures and samples of one engine, or of one command.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct EngineReport {
    /// The engine as requested, or the name of a command; without a name, the command itself.
    pub engine: String,
    /// The launched command, if several commands are compared.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// The shell command line run before each launch, if several commands are compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepare: Option<String>,
    /// Number of this engine among those of the same name, counted from 1.
    #[serde(default)]
    pub number: usize,
    /// Every launch that counts.
    pub samples: Vec<Sample>,
    /// Summary of the scheduling latencies; none if no launch counts, or if the recordings of too
    /// many launches lack switches.
    pub sched_latency_us: Option<Summary>,
    /// Summary of the launch times; none if no launch counts.
    pub launch_us: Option<Summary>,
    /// The part of the scheduling latency after wake-ups.
    pub wakeup_us: Option<Summary>,
    /// The part of the scheduling latency after preemptions.
    pub preempted_us: Option<Summary>,
    /// Queue delay, which is not part of the scheduling latency.
    pub queue_us: Option<Summary>,
    /// Waits for read-ahead, which are not part of the scheduling latency.
    #[serde(default)]
    pub ahead_us: Option<Summary>,
    /// The source of the queue delay, or why there is none.
    pub queue_source: String,
    /// Time that the program's first thread was off the CPU, blocked or preempted: the whole path.
    pub program_off_cpu_us: Option<Summary>,
    /// CPU time of the program's threads. Reports from early versions lack this field and those
    /// below it that have defaults.
    #[serde(default)]
    pub cpu_us: Option<Summary>,
    /// The time that interrupts and softirqs took within `cpu_us`.
    #[serde(default)]
    pub interrupted_us: Option<Summary>,
    /// How long a CPU quota throttled threads, if there is one.
    #[serde(default)]
    pub throttled_us: Option<Summary>,
    /// Time that the program's first thread was asleep.
    #[serde(default)]
    pub program_blocked_us: Option<Summary>,
    /// Number of preemptions of the program's threads.
    #[serde(default)]
    pub preemptions: Option<Summary>,
    /// Number of migrations of the program's threads.
    #[serde(default)]
    pub migrations: Option<Summary>,
    /// CPU time of the load within the launches, as a fraction of all CPUs' time; none without
    /// load.
    pub load_share: Option<f64>,
    /// Idle time of all CPUs within the launches, as a fraction of all CPUs' time.
    pub idle_share: Option<f64>,
    /// The two groups of launch times, if they fall into two groups.
    pub launch_modes: Option<Modes>,
    /// The two groups of scheduling latencies, if they fall into two groups.
    pub sched_latency_modes: Option<Modes>,
    /// Comparison with the first engine; none for the first.
    pub against_first: Option<Against>,
    /// The cost of recording a launch, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recording: Option<RecordingCost>,
    /// Outliers, which are reported but not dropped.
    pub outliers: Outliers,
    /// The launches of which only the launch time counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times_alone: Option<TimesAlone>,
    /// The discarded launches, each with its reason and duration.
    pub thrown_away: Vec<Thrown>,
}

/// The report of `lab launch` or `lab run`.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct LaunchReport {
    /// Which experiment this is; reports from early versions are always from `lab launch`.
    #[serde(default)]
    pub experiment: Experiment,
    /// Number of launches per engine: as many as requested, or as many as time allowed.
    pub iterations: usize,
    /// "fio", "none" or the command line of the load.
    pub load: String,
    /// Whether the figures may be relied on.
    pub valid: bool,
    /// Why the run is not valid; empty if it is valid.
    pub not_valid_because: Vec<String>,
    /// Whether the user stopped the run; the report then has the samples so far.
    pub interrupted: bool,
    /// The launched command, with `{}` for the mount point; with several commands, each row has its
    /// own.
    pub command: Vec<String>,
    /// The shell command line run before each launch.
    pub prepare: Option<String>,
    /// The program's working directory, unless it is the root directory.
    pub chdir: Option<String>,
    /// Whether the program's root directory was the mount.
    pub root: bool,
    /// Number of warm-up launches per engine.
    pub warm_ups: usize,
    /// Seed of the order of launches.
    pub seed: u64,
    /// The command line that repeats the run; reports from early versions lack it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeat: Option<String>,
    /// The meaning of "cold" in this run.
    pub cold: String,
    /// The environment of the run.
    pub environment: Environment,
    /// Whether the load reached its share of CPU time.
    pub load_seen: Option<LoadReport>,
    /// Engines of the default list that are not available on this machine.
    pub left_out: Vec<String>,
    /// The engines in the order requested, or the commands that were compared.
    pub engines: Vec<EngineReport>,
    /// Notices, among them the limits of the figures.
    pub notices: Vec<String>,
    /// The machine that `lab kernel` created; absent from reports of other experiments.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub machine: Option<Machine>,
}

/// The virtual machine of `lab kernel`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Machine {
    /// QEMU's name and version.
    pub qemu: String,
    /// The CPU architecture, as Debian names it; empty in reports before 1.1, all of which are from
    /// amd64.
    #[serde(default)]
    pub arch: String,
    /// "kvm" or "tcg", which is emulation.
    pub accelerator: String,
    /// Whether the machine is emulated; if so, its times can be compared only with each other.
    pub emulated: bool,
    /// Release of the machine's kernel.
    pub kernel: String,
    /// Version of the kernel's package.
    pub kernel_package: String,
    /// Number of the machine's CPUs.
    pub cpus: usize,
}

impl EngineReport {
    /// Creates an engine's report that contains only launches; [`LaunchReport::compute`] adds the
    /// figures.
    pub(super) fn of(engine: String, kept: Vec<Kept<Sample>>) -> EngineReport {
        let sample = |kept: Kept<Sample>| Sample {
            iteration: kept.iteration,
            spoilt: kept.spoilt,
            ..kept.sample
        };
        EngineReport {
            engine,
            samples: kept.into_iter().map(sample).collect(),
            ..EngineReport::default()
        }
    }

    /// Computes everything that follows from the samples, and compares the samples with those of
    /// the first engine.
    fn compute(&mut self, first: Option<&EngineReport>, measures: &[&Measure]) {
        let samples = &self.samples;
        let column = |of| column(samples, of);
        let launch = column(|s| s.launch_us);
        let latency = column(|s| s.sched_latency_us);
        let known = known(samples, |s| s.sched_latency_us);
        let off_cpu = column(Sample::program_off_cpu_us);
        self.against_first = first.map(|first| {
            let compared = measures.iter().filter(|it| !it.field.is_empty());
            let against = |it: &&Measure| (it.field.into(), against(first, samples, it));
            compared.map(against).collect()
        });
        self.sched_latency_us = Summary::of(&latency);
        self.launch_us = Summary::of(&launch);
        self.wakeup_us = Summary::of(&column(|s| s.wakeup_us));
        self.preempted_us = Summary::of(&column(|s| s.preempted_us));
        self.queue_us = Summary::of(&column(Sample::queue_us));
        self.ahead_us = Summary::of(&column(Sample::ahead_us));
        self.program_off_cpu_us = Summary::of(&off_cpu);
        self.cpu_us = Summary::of(&column(|s| s.cpu_us));
        self.interrupted_us = Summary::of(&column(|s| s.interrupted_us));
        self.throttled_us = Summary::of(&column(Sample::throttled_us));
        self.program_blocked_us = Summary::of(&column(|s| s.program_blocked_us));
        self.preemptions = Summary::of(&column(Sample::preemptions));
        self.migrations = Summary::of(&column(Sample::migrations));
        self.launch_modes = modes(&launch);
        self.sched_latency_modes = modes(&latency);
        self.outliers = Outliers {
            sched_latency: outliers(&latency).into_iter().map(|at| known[at]).collect(),
            launch: outliers(&launch),
        };
        self.times_alone = times_alone(&self.samples);
        let with = column(|s| s.seen_us);
        if let Some(recording) = &mut self.recording {
            recording.compute(&with);
        }
    }

    /// Computes the load's CPU time and the idle time within the launches, as fractions of the time
    /// of all `cpus`. Both stay unknown for reports from early versions, which lack these times.
    fn share_time(&mut self, cpus: usize, loaded: bool) {
        let traced = self.traced();
        let known = traced.iter().any(|it| it.load_us + it.idle_us > 0.0);
        let share = |time| share(&traced, cpus, time).filter(|_| known);
        (self.load_share, self.idle_share) = (share(|it| it.load_us), share(|it| it.idle_us));
        self.load_share = self.load_share.filter(|_| loaded);
    }

    /// The engine's name, with its number unless it is the first one of this name.
    pub(crate) fn label(&self) -> String {
        label(&self.engine, self.number)
    }
}

impl RecordingCost {
    /// Creates a cost that contains only the launch times without the recorder;
    /// [`RecordingCost::compute`] adds the rest.
    pub(super) fn of(samples_without_us: Vec<f64>) -> RecordingCost {
        RecordingCost {
            without_us: None,
            with_us: None,
            comparison: compare(&[], &[]),
            samples_without_us,
        }
    }

    fn compute(&mut self, with: &[f64]) {
        let without = &self.samples_without_us;
        (self.without_us, self.with_us) = (Summary::of(without), Summary::of(with));
        self.comparison = compare(without, with);
    }
}

/// At most one launch in this many may lack a figure: otherwise the remaining launches are a biased
/// selection.
const LEFT_OUT: usize = 4;

/// Indices of the launches for which a figure is known; empty if it is unknown for too many
/// launches.
fn known(samples: &[Sample], of: fn(&Sample) -> f64) -> Vec<usize> {
    let is_known = |at: &usize| !of(&samples[*at]).is_nan();
    let known: Vec<usize> = (0..samples.len()).filter(is_known).collect();
    match (samples.len() - known.len()) * LEFT_OUT > samples.len() {
        true => Vec::new(),
        false => known,
    }
}

/// A figure of every launch for which it is known.
fn column(samples: &[Sample], of: fn(&Sample) -> f64) -> Vec<f64> {
    let known = known(samples, of).into_iter();
    known.map(|at| of(&samples[at])).collect()
}

/// For every launch in which the figure `of` is known: the launch's round and the figure.
fn in_rounds(samples: &[Sample], of: fn(&Sample) -> f64) -> Vec<(usize, f64)> {
    let known = known(samples, of).into_iter();
    known
        .map(|at| (samples[at].iteration, of(&samples[at])))
        .collect()
}

/// The launches whose recordings lack too many switches.
fn times_alone(samples: &[Sample]) -> Option<TimesAlone> {
    let mut reasons = samples.iter().filter_map(|it| it.switches_missing.as_ref());
    let reason = reasons.next()?.clone();
    Some(TimesAlone {
        launches: 1 + reasons.count(),
        reason,
        too_many: known(samples, |it| it.sched_latency_us).is_empty(),
    })
}

/// Compares a figure with that of the first engine, over the rounds in which both are known.
fn against(first: &EngineReport, samples: &[Sample], measure: &Measure) -> Option<Comparison> {
    let sides = [&first.samples[..], samples].map(|side| in_rounds(side, measure.value));
    let known = sides.iter().all(|side| !side.is_empty());
    (measure.field == TIME || known).then(|| compare_rounds(&sides[0], &sides[1]))
}

/// The reason why an engine's launches are not valid, if any of them were spoilt.
pub(super) fn spoilt<'a>(
    name: &str,
    launches: impl ExactSizeIterator<Item = Option<&'a String>>,
    thrown_away: usize,
) -> Option<String> {
    let all = launches.len();
    let mut spoilt = launches.flatten();
    let why = spoilt.next()?;
    let bad = 1 + spoilt.count();
    Some(format!(
        "{name}: {bad} of the {} in the figures {} spoilt ({why}); launches are no longer repeated \
         once {thrown_away} have been thrown away",
        count(all, "launch"),
        if bad == 1 { "is" } else { "are" }
    ))
}

/// Reasons why a run is not valid, apart from its launches.
pub(super) fn around(environment: &Environment, load: Option<&LoadReport>) -> Vec<String> {
    let failed = load.and_then(|load| load.failed_because.as_ref());
    let faults = [
        environment.steal_fault(load.map(|load| load.stolen_cpu_share)),
        environment.image.changed.clone(),
        failed.map(|reason| format!("load check failed: {reason}")),
    ];
    faults.into_iter().flatten().collect()
}

/// The sum of a CPU time over all launches, as a fraction of all CPUs' time.
fn share(samples: &[&Sample], cpus: usize, time: fn(&Sample) -> f64) -> Option<f64> {
    let length = samples.iter().map(|sample| sample.launch_us);
    let all = length.sum::<f64>() * cpus as f64;
    let share = samples.iter().map(|it| time(it)).sum::<f64>() / all;
    share.is_finite().then_some(share)
}

impl LaunchReport {
    /// Numbers the engines, and computes all figures and verdicts from the samples; nothing else in
    /// a stored report is trusted.
    pub(crate) fn compute(&mut self) {
        let cpus = self.environment.allowed();
        let measures = self.measures();
        let engines = self.engines.iter();
        let numbers = stored(engines.map(|it| (it.engine.as_str(), it.number)));
        for (at, number) in numbers.into_iter().enumerate() {
            let (before, rest) = self.engines.split_at_mut(at);
            rest[0].number = number;
            rest[0].compute(before.first(), &measures);
            if let Some(cpus) = cpus {
                rest[0].share_time(cpus, self.load != "none");
            }
        }
        let against = self
            .engines
            .iter_mut()
            .filter_map(|engine| engine.against_first.as_mut());
        let comparisons = against.flat_map(|it| it.values_mut().flatten());
        correct(comparisons.collect());
    }

    /// The number of launches of each engine and, if more were planned, the planned number.
    pub(crate) fn launches(&self) -> String {
        let samples = |engine: &EngineReport| engine.samples.len();
        let made = self.engines.iter().map(samples).max().unwrap_or(0);
        let wanted = count(self.iterations, "launch");
        match made != self.iterations {
            true => format!("{made} of {wanted}"),
            false => wanted,
        }
    }

    /// Why a report that claims to be valid is not.
    pub(crate) fn contradictions(&self) -> Vec<String> {
        if !self.valid || self.interrupted {
            return Vec::new();
        }
        let wanted = self.iterations;
        let uneven = self.engines.iter().filter(|it| it.samples.len() != wanted);
        let uneven = uneven.map(|it| {
            let (name, made) = (it.label(), it.samples.len());
            format!(
                "{name}: {made} of {} in the figures",
                count(wanted, "launch")
            )
        });
        let spoilt = self.engines.iter().filter_map(|engine| {
            let reasons = engine.samples.iter().map(|it| it.spoilt.as_ref());
            spoilt(&engine.label(), reasons, engine.thrown_away.len())
        });
        let around = around(&self.environment, self.load_seen.as_ref());
        uneven.chain(spoilt).chain(around).collect()
    }

    /// The figures, starting with the launch time, which is what a user waits for.
    pub(crate) fn figures(&self) -> Vec<Figure> {
        let row = |measure: &Measure, engine: &EngineReport| Row {
            name: engine.label(),
            samples: engine.column(measure.value),
            against_first: engine
                .against_first
                .as_ref()
                .and_then(|against| against.get(measure.field).cloned().flatten()),
        };
        let figure = |measure: &Measure| Figure {
            name: measure.name.into(),
            of: measure.of,
            unit: measure.unit.into(),
            rows: self.engines.iter().map(|it| row(measure, it)).collect(),
        };
        self.measures().into_iter().map(figure).collect()
    }

    fn measures(&self) -> Vec<&'static Measure> {
        let samples = self.engines.iter().flat_map(|engine| &engine.samples);
        self.experiment.measures(&samples.collect::<Vec<_>>())
    }
}

impl EngineReport {
    /// The launches whose scheduling is known; empty if it is unknown for too many launches.
    fn traced(&self) -> Vec<&Sample> {
        let figure = |it: &Sample| match it.knows_scheduling() {
            true => it.sched_latency_us,
            false => f64::NAN,
        };
        let known = known(&self.samples, figure).into_iter();
        known.map(|at| &self.samples[at]).collect()
    }

    /// Divides a sum by the number of launches whose scheduling is known, over which it was taken.
    fn per_launch(&self, sum: f64) -> f64 {
        sum / self.traced().len().max(1) as f64
    }

    /// Waits per launch by thread name and priority, greatest first; kworkers count together, and
    /// so do the threads of a pool.
    pub fn by_thread(&self) -> Vec<ThreadWaits> {
        let mut groups: BTreeMap<(String, i32), ThreadWaits> = BTreeMap::new();
        for waits in self.traced().into_iter().flat_map(|it| &it.by_thread) {
            let comm = common_name(&waits.comm);
            let group = groups.entry((comm.into(), waits.priority)).or_default();
            group.comm = comm.into();
            group.priority = waits.priority;
            group.wakeups += waits.wakeups;
            group.total_us += waits.total_us;
            group.longest_us = group.longest_us.max(waits.longest_us);
        }
        let mut groups: Vec<ThreadWaits> = groups.into_values().collect();
        groups
            .iter_mut()
            .for_each(|group| group.total_us = self.per_launch(group.total_us));
        groups.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
        groups
    }

    /// Losses by name, longest first, each with the average number and the average times per
    /// launch.
    pub(crate) fn losses(&self, of: fn(&Sample) -> &[Loss]) -> Vec<(f64, Loss)> {
        let sums = elsewhere::summed(self.traced().into_iter().flat_map(of));
        let average = |loss: Loss| {
            let total_us = self.per_launch(loss.total_us);
            (
                self.per_launch(loss.count as f64),
                Loss { total_us, ..loss },
            )
        };
        sums.into_iter().map(average).collect()
    }

    /// The work items by work queue, longest delay first, each with the average number and the
    /// average delays per launch.
    pub(crate) fn by_workqueue(&self) -> Vec<(f64, QueueWaits)> {
        let all = self.traced().into_iter().flat_map(|it| &it.by_workqueue);
        let average = |queue: QueueWaits| {
            let delay_us = self.per_launch(queue.delay_us);
            let items = self.per_launch(queue.items as f64);
            (items, QueueWaits { delay_us, ..queue })
        };
        let sums = program::summed(all.cloned()).into_iter();
        sums.map(average).collect()
    }

    /// The threads behind which waits were spent, longest first, with averages per launch.
    pub fn behind(&self) -> Vec<Blocked> {
        let all = self.traced().into_iter().flat_map(|it| &it.behind);
        let mut sums = summed(all.cloned());
        sums.iter_mut()
            .for_each(|sum| sum.total_us = self.per_launch(sum.total_us));
        sums
    }

    /// The launch with the median scheduling latency, and the one with the greatest.
    pub fn median_and_worst(&self) -> Option<(&Sample, &Sample)> {
        let mut order = self.traced();
        order.sort_by(|a, b| a.sched_latency_us.total_cmp(&b.sched_latency_us));
        Some((
            *order.get(order.len().saturating_sub(1) / 2)?,
            *order.last()?,
        ))
    }

    /// Drops the timelines and traces of all launches except those of [`Self::median_and_worst`].
    pub(super) fn keep_two_timelines(&mut self) {
        let kept = self.median_and_worst();
        let kept = kept.map(|(median, worst)| [median.iteration, worst.iteration]);
        for sample in &mut self.samples {
            if !kept.is_some_and(|kept| kept.contains(&sample.iteration)) {
                (sample.picture, sample.trace) = (Picture::default(), None);
            }
        }
    }

    /// A figure of every sample for which it is known; empty if it is unknown for too many samples.
    pub fn column(&self, of: fn(&Sample) -> f64) -> Vec<f64> {
        column(&self.samples, of)
    }

    /// Average number of wake-ups per launch; none if the number is unknown for too many launches.
    pub(crate) fn wakeups(&self) -> Option<f64> {
        let wakeups = |sample: &Sample| sample.wakeups as f64;
        let wakeups: Vec<f64> = self.traced().into_iter().map(wakeups).collect();
        Summary::of(&wakeups).map(|summary| summary.average)
    }
}
