//! Makes one launch: prepares it, mounts anew, starts the recorder, runs the program to its end,
//! stops the recorder, unmounts. A command of `lab run` needs no mount.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use rustix::process::{getpriority_process, setpriority_process};
use sched_trace::record::{Drain, RecordOptions, Recorder, now_ns};
use sched_trace::stats::us;
use sched_trace::{Notice, Trace};

use super::attribute::Launch;
use super::cpu_time::{CpuTime, Foreign};
use super::measures::Experiment;
use super::options::LaunchOptions;
use super::origin::Mounts;
use super::owner::{Owner, Threads, Waiting};
use super::sample::Sample;
use super::side::Side;
use super::traces::Traces;
use crate::engine::{Engine, Mounted, Site, mount_point, warm};
use crate::environment::Quota;
use crate::figure::{count, label, numbers};
use crate::load::{Load, Spent};
use crate::process::{Child, End, Orphans, allowed_cpus, kernel_threads, process_threads};
use crate::schedule::{Executor, Outcome, Thrown};
use crate::{Interrupt, Result};

/// Unrelated programs that use less CPU time than this do not spoil a launch: for example a timer,
/// or a daemon's periodic check.
const FOREIGN_FLOOR_US: f64 = 500.0;

/// The recorder's ring buffer per CPU: enough for a launch of several seconds under load.
const BUFFER_KIB: usize = 48 << 10;

/// Launches programs. The load and the recorder run as long as this exists.
pub(super) struct Launcher<'a> {
    options: &'a LaunchOptions,
    /// What the engines need to mount; none if nothing is mounted.
    site: Option<&'a Site>,
    pub(super) sides: Vec<Side>,
    points: &'a Path,
    pub(super) load: Option<Load>,
    recorder: Recorder,
    interrupt: &'a Interrupt,
    /// Problems of the recorder, by engine.
    pub(super) trace_notices: BTreeSet<TraceNotice>,
    began: Instant,
    /// The CPU quota that limits the lab and its launches.
    quota: Option<Quota>,
    pub(super) traces: Option<Traces>,
}

/// A notice of the recorder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TraceNotice {
    pub(super) side: usize,
    pub(super) text: String,
    /// Whether the notice invalidates the figures of this side.
    pub(super) spoils: bool,
}

/// Everything that was prepared for a launch: the mount, if any, how long mounting took, and the
/// threads that already exist.
struct Ready {
    mounted: Option<Mounted>,
    threads: Threads,
    mount_us: f64,
}

impl Ready {
    fn point(&self) -> Option<&Path> {
        self.mounted.as_ref().map(Mounted::point)
    }

    /// Returns an error if the daemon is dead, because then the daemon is to blame if the program
    /// failed.
    fn check(&mut self) -> Result<()> {
        self.mounted.as_mut().map_or(Ok(()), Mounted::check)
    }
}

/// A program that ran to its end or was interrupted, with its time.
struct Run {
    pid: u32,
    start_ns: u64,
    end_ns: u64,
    interrupted: bool,
}

impl Run {
    fn seen_us(&self) -> f64 {
        us(self.end_ns - self.start_ns)
    }

    fn spoilt(&self, reason: String, sample: Option<Sample>) -> Outcome<Sample> {
        let time_us = self.seen_us();
        Outcome::Spoilt(Thrown { reason, time_us }, sample)
    }
}

impl<'a> Launcher<'a> {
    pub(super) fn new(
        options: &'a LaunchOptions,
        (site, sides): (Option<&'a Site>, Vec<Side>),
        points: &'a Path,
        load: Option<Load>,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        // No process of the recorder runs during a launch, since the buffers are read afterwards.
        let record = RecordOptions {
            buffer_kib_per_cpu: BUFFER_KIB,
            drain: Drain::AtStop,
            // Block events show for which mount the kernel decompresses.
            blocks: sides.iter().any(is_kernel),
            // Request events separate the program's requests from those of a daemon.
            requests: sides.iter().any(is_daemon),
            interrupts: true,
        };
        let mut recorder = Recorder::start(&record)?;
        recorder.pause()?;
        Ok(Launcher {
            options,
            site,
            sides,
            points,
            load,
            recorder,
            interrupt,
            trace_notices: BTreeSet::new(),
            began: Instant::now(),
            quota: Quota::find(),
            traces: options
                .keep_traces
                .as_deref()
                .map(Traces::into)
                .transpose()?,
        })
    }

    /// Prepares a launch: reads the image into the page cache, mounts it, notes the existing
    /// threads, and waits until the daemon has come to rest.
    fn ready(&self, side: usize) -> Result<Ready> {
        self.prepare(side)?;
        let (Some(site), Some(engine)) = (self.site, &self.sides[side].engine) else {
            return Ok(Ready {
                mounted: None,
                threads: self.threads(Waiting::Program),
                mount_us: 0.0,
            });
        };
        let point = mount_point(self.points, &format!("engine-{side}"))?;
        warm(&site.image)?;
        let start_ns = now_ns();
        let mounted = engine.mount(site, &point, self.interrupt)?;
        let mount_us = (now_ns() - start_ns) as f64 / 1e3;
        let waiting = match mounted.daemon() {
            None => Waiting::Kernel,
            Some(_) => Waiting::Daemon,
        };
        let threads = Threads {
            engine: mounted.threads(),
            mounts: Mounts::beside(mounted.point()),
            ..self.threads(waiting)
        };
        mounted.settle();
        Ok(Ready {
            mounted: Some(mounted),
            threads,
            mount_us,
        })
    }

    fn launch(&mut self, side: usize) -> Result<Outcome<Sample>> {
        let mut ready = self.ready(side)?;
        let run = self.recorded(side, ready.point());
        ready.check()?;
        let Ready {
            mounted,
            mut threads,
            mount_us,
        } = ready;
        let fetched = mounted.as_ref().and_then(Mounted::fetched);
        let (run, trace, spent, throttled) = run?;
        if run.interrupted {
            return Ok(Outcome::Interrupted);
        }
        if let Some(mounted) = mounted {
            threads.engine.extend(mounted.threads());
            // The second look finds mounts that were made during the launch. Mounts that were
            // removed during the launch were found by the first look.
            threads.mounts.look();
            mounted.unmount()?;
        }
        for notice in &trace.notices {
            self.trace_notices.insert(TraceNotice {
                side,
                text: notice.to_string(),
                spoils: spoils(notice, is_kernel(&self.sides[side])),
            });
        }
        if trace.lost_events > 0 {
            let reason = format!(
                "the recorder lost {}",
                count(trace.lost_events as usize, "event")
            );
            return Ok(run.spoilt(reason, None));
        }
        let launch = Launch::new(&trace, threads, run.pid, run.start_ns, run.end_ns);
        let mut sample = launch.sample();
        (sample.seen_us, sample.mount_us) = (run.seen_us(), mount_us);
        sample.fetched = fetched;
        sample.throttled_us = throttled.map(|us| us as f64);
        let time = launch.cpu_time();
        let missing = missing_switches(&time);
        let traced = missing.is_none();
        if let Some(reason) = missing {
            if !self.options.counts_times() {
                return Ok(run.spoilt(reason, None));
            }
            sample = sample.without_scheduling(reason);
        }
        if let Some(traces) = &mut self.traces {
            sample.trace = Some(traces.add(&self.sides[side].name, &trace)?);
        }
        if let Some(reason) = launch.mixed_up() {
            return Ok(run.spoilt(reason, None));
        }
        let cpu_us = sample.launch_us * allowed_cpus().len() as f64;
        if let Some(reason) = disturbed(cpu_us, &time.foreign, self.options.foreign_limit) {
            return Ok(run.spoilt(reason, Some(sample)));
        }
        self.count_load(spent, traced.then_some(&time));
        Ok(Outcome::Good(sample))
    }

    /// Launches the program with the recorder off, so only the launch time is known.
    fn launch_unrecorded(&mut self, side: usize) -> Result<Outcome<Sample>> {
        // The preparation is the same as for a recorded launch.
        let mut ready = self.ready(side)?;
        let run = self.run_program(side, ready.point());
        ready.check()?;
        let run = run?;
        if run.interrupted {
            return Ok(Outcome::Interrupted);
        }
        ready.mounted.map_or(Ok(()), Mounted::unmount)?;
        Ok(Outcome::Good(Sample {
            seen_us: run.seen_us(),
            ..Sample::default()
        }))
    }

    /// Runs the user's command line before each launch.
    fn prepare(&self, side: usize) -> Result<()> {
        let Some(line) = &self.sides[side].prepare else {
            return Ok(());
        };
        let mut child = Child::spawn(Command::new("sh").arg("-c").arg(line))?;
        let end = child.wait(self.options.timeout, self.interrupt)?;
        let program = format!("--prepare {}", line.to_string_lossy());
        child.judge(end, self.engine_name(side), program)
    }

    /// The owners of the threads that exist before the launch. A thread that starts later has the
    /// owner of its parent.
    fn threads(&self, waiting: Waiting) -> Threads {
        let load = self.load.as_ref().map(Load::processes).unwrap_or_default();
        Threads {
            lab: process_threads(std::process::id()),
            load: load.into_iter().flat_map(process_threads).collect(),
            kernel: kernel_threads(),
            waiting,
            cpus: allowed_cpus(),
            ..Threads::default()
        }
    }

    /// Counts the load's CPU time during a launch. It is taken from the trace, which is more exact
    /// than clock ticks and shows the launch's own time separately.
    fn count_load(&mut self, spent: Option<Spent>, time: Option<&CpuTime>) {
        let Some((load, mut spent)) = self.load.as_mut().zip(spent) else {
            return;
        };
        if let Some(time) = time {
            let seconds = |owner: Owner| time.owner_us(owner) / 1e6;
            let idle = seconds(Owner::Idle);
            spent.total = time.by_owner_us.values().sum::<f64>() / 1e6;
            spent.load = seconds(Owner::Load);
            spent.busy = spent.total - idle;
            // The load is not expected to use the CPU time that other programs may use in a valid
            // launch.
            let tolerated = self.options.foreign_limit * spent.total;
            let excess = (seconds(Owner::Other) - tolerated).max(0.0);
            spent.own = spent.busy - spent.load - excess;
        }
        load.add(spent);
    }

    fn recorded(
        &mut self,
        side: usize,
        point: Option<&Path>,
    ) -> Result<(Run, Trace, Option<Spent>, Option<u64>)> {
        let before = self.quota.as_ref().and_then(Quota::throttled_us);
        self.recorder.resume()?;
        // The window covers only the launch, not the recorder's work before and after it.
        let window = self.load.as_ref().and_then(Load::window);
        let run = self.run_program(side, point);
        let spent = self.load.as_ref().and_then(|load| load.since(window));
        self.recorder.pause()?;
        let throttled = self.quota.as_ref().and_then(Quota::throttled_us);
        let throttled = throttled.zip(before);
        let throttled = throttled.and_then(|(after, before)| after.checked_sub(before));
        let trace = self.recorder.take()?;
        if let Some(load) = &mut self.load {
            load.check()?;
        }
        Ok((run?, trace, spent, throttled))
    }

    fn run_program(&self, side: usize, point: Option<&Path>) -> Result<Run> {
        let words = self.options.command_at(&self.sides[side], point);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        if let Some(directory) = self.options.directory_at(point)? {
            command.current_dir(directory);
        }
        let orphans = Orphans::watch();
        let deadline = Instant::now() + self.options.timeout;
        let start_ns = now_ns();
        let mut child = Child::spawn(&mut command)?;
        let urgency = Urgency::begin();
        let end = child.wait(self.options.timeout, self.interrupt)?;
        let mut end_ns = now_ns();
        let well = match end {
            End::Exited(status) => status.success() || self.options.ignore_failure,
            End::TimedOut | End::Interrupted => false,
        };
        if well && orphans.wait(deadline, self.interrupt) {
            end_ns = now_ns();
        }
        drop(urgency);
        let names = if well { orphans.names() } else { Vec::new() };
        let pid = child.id();
        child.end();
        drop(orphans);
        let program = self.program_name(side);
        let interrupted = end == End::Interrupted || self.interrupt.asked();
        if well && !names.is_empty() && !interrupted {
            let how = format!(
                "it exited but left {} running past the time limit: a launch lasts until its last \
                 process has exited",
                names.join(", ")
            );
            return Err(child.failed(self.engine_name(side), program, how));
        }
        if !well {
            let judged = child.judge(end, self.engine_name(side), program);
            judged.map_err(|error| match end {
                End::Exited(_) => error.with_remedy("--ignore-failure continues"),
                _ => error,
            })?;
        }
        Ok(Run {
            pid,
            start_ns,
            end_ns,
            interrupted,
        })
    }
}

impl Launcher<'_> {
    pub(super) fn experiment(&self) -> Experiment {
        self.options.experiment()
    }

    /// The engine's name for errors; empty if nothing is mounted.
    fn engine_name(&self, side: usize) -> String {
        match self.sides[side].engine {
            Some(_) => self.name(side),
            None => String::new(),
        }
    }

    fn program_name(&self, side: usize) -> String {
        match self.sides[side].engine {
            Some(_) => self.sides[side].command[0].to_string_lossy().into_owned(),
            None => self.name(side),
        }
    }
}

impl Executor for Launcher<'_> {
    type Sample = Sample;

    fn measure(&mut self, side: usize) -> Result<Outcome<Sample>> {
        let launched = match side.checked_sub(self.sides.len()) {
            None => self.launch(side),
            Some(twin) => self.launch_unrecorded(twin),
        };
        match launched {
            // After a request to stop, the engine is not to blame for a failure.
            Err(_) if self.interrupt.asked() => Ok(Outcome::Interrupted),
            other => other,
        }
    }

    /// Sides without the recorder follow those with the recorder.
    fn name(&self, side: usize) -> String {
        let names: Vec<&str> = self.sides.iter().map(|it| it.name.as_str()).collect();
        let at = side % names.len();
        let name = label(names[at], numbers(names.iter().copied())[at]);
        match side < names.len() {
            true => name,
            false => format!("{name} without recording"),
        }
    }

    fn time_is_over(&self) -> bool {
        self.options
            .time
            .is_some_and(|time| self.began.elapsed() >= time)
    }
}

/// Whether the kernel itself decompresses for this side.
fn is_kernel(side: &Side) -> bool {
    side.engine.as_ref().is_some_and(Engine::is_kernel)
}

/// Whether a process serves the mount of this side.
fn is_daemon(side: &Side) -> bool {
    side.engine.is_some() && !is_kernel(side)
}

/// While this exists, the thread that created it has priority over the load, so that the thread
/// notices the end of the program promptly. The program has already started and does not inherit
/// the priority.
struct Urgency(Option<i32>);

impl Urgency {
    fn begin() -> Urgency {
        let before = getpriority_process(None).ok();
        // Without privileges this is refused, and the time stamps are slightly late.
        Urgency(before.filter(|_| setpriority_process(None, -20).is_ok()))
    }
}

impl Drop for Urgency {
    fn drop(&mut self) {
        if let Some(before) = self.0 {
            let _ = setpriority_process(None, before);
        }
    }
}

/// Describes the CPU time that other programs and mounts used during a launch of `cpu_us`, if their
/// fraction exceeds `limit`.
fn disturbed(cpu_us: f64, foreign: &Foreign, limit: f64) -> Option<String> {
    let share = foreign.total_us / cpu_us.max(1.0);
    (share > limit && foreign.total_us > FOREIGN_FLOOR_US).then(|| {
        format!(
            "other programs took {:.0} % of the CPU time, mostly {}",
            share * 100.0,
            foreign.most
        )
    })
}

/// Whether a notice invalidates figures. If work functions have no names, that of EROFS cannot be
/// recognised, which matters only if the kernel decompresses.
fn spoils(notice: &Notice, in_kernel: bool) -> bool {
    notice.spoils_figures() || in_kernel && notice.spoils_names()
}

/// Why only the launch time can be used, if the trace lacks more than a few switches of the threads
/// that the figures are based on. Some kernels omit switches.
fn missing_switches(time: &CpuTime) -> Option<String> {
    let (missing, all) = (time.not_entered, time.left);
    (missing * 100 > all).then(|| {
        format!(
            "the kernel did not record {missing} of {} of the program and the engine, so waits are \
             missing too",
            count(all as usize, "switch")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_switches_are_judged_against_those_of_the_threads_in_question() {
        let time = |not_entered, left| CpuTime {
            left,
            not_entered,
            ..CpuTime::default()
        };
        assert_eq!(missing_switches(&time(1, 100)), None);
        assert_eq!(missing_switches(&time(0, 0)), None);
        let reason = missing_switches(&time(3, 200)).unwrap();
        assert!(reason.contains("3 of 200 switches"), "{reason}");
    }

    #[test]
    fn a_short_launch_is_disturbed_by_a_short_run_of_others() {
        let foreign = |total_us| Foreign {
            total_us,
            most: "apt".into(),
        };
        let reason = disturbed(10_000.0, &foreign(5_000.0), 0.1).unwrap();
        assert!(
            reason.contains("50 %") && reason.ends_with("apt"),
            "{reason}"
        );
        assert_eq!(disturbed(10_000.0, &foreign(900.0), 0.1), None);
        assert_eq!(disturbed(1_000.0, &foreign(400.0), 0.1), None, "a timer");
    }

    #[test]
    fn nameless_work_functions_spoil_the_kernels_figures_and_unread_records_all() {
        let names = Notice::UnnamedFunctions {
            unnamed: 2,
            of: 2,
            remedy: "as root",
        };
        assert!(spoils(&names, true) && !spoils(&names, false));
        let records = Notice::UndecodedRecords { count: 7 };
        assert!(spoils(&records, true) && spoils(&records, false));
        assert!(!spoils(&Notice::NoEndOfWork, true));
    }
}
