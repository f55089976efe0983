//! One cold launch: fresh mount, recorder on, the program from start to end, recorder off, unmount.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use rustix::process::{getpriority_process, setpriority_process};
use sched_trace::Trace;
use sched_trace::record::{Drain, RecordOptions, Recorder, now_ns};

use super::attribute::{Foreign, Launch};
use super::options::LaunchOptions;
use super::owner::Threads;
use super::sample::Sample;
use crate::engine::{Engine, Mounted, Site, mount_point, warm};
use crate::load::{Fio, LoadReport};
use crate::process::{Child, End, in_path, kernel_threads, process_threads};
use crate::schedule::{Executor, Outcome};
use crate::{Interrupt, LabError, Result};

/// Less foreign CPU time than this spoils no launch, however short it is.
const FOREIGN_FLOOR_US: f64 = 20_000.0;

/// Launches programs; what it needs for that is up while it lives.
pub(super) struct Launcher<'a> {
    options: &'a LaunchOptions,
    site: &'a Site,
    engines: Vec<Engine>,
    points: &'a Path,
    load: Option<Fio>,
    recorder: Recorder,
    interrupt: &'a Interrupt,
    notes: BTreeMap<usize, String>,
    began: Instant,
}

/// What the launcher knows when all launches are done.
pub(super) struct Finished {
    pub(super) engines: Vec<Engine>,
    pub(super) load: Option<LoadReport>,
    /// Per engine: where its queue delay comes from, or why there is none.
    pub(super) queue_notes: BTreeMap<usize, String>,
}

impl Finished {
    /// The engine of this number, which may be one without the recorder.
    pub(super) fn name(&self, number: usize) -> String {
        name(&self.engines, number)
    }
}

fn name(engines: &[Engine], number: usize) -> String {
    let engine = &engines[number % engines.len()];
    match number < engines.len() {
        true => engine.to_string(),
        false => format!("{engine} without recording"),
    }
}

/// A program that ran to its end, and the time it took.
struct Run {
    pid: u32,
    start_ns: u64,
    end_ns: u64,
    end: End,
    last_line: String,
}

impl Run {
    fn seen_us(&self) -> f64 {
        (self.end_ns - self.start_ns) as f64 / 1000.0
    }
}

impl<'a> Launcher<'a> {
    pub(super) fn new(
        options: &'a LaunchOptions,
        site: &'a Site,
        engines: Vec<Engine>,
        points: &'a Path,
        load: Option<Fio>,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        // Nothing of the recorder runs during a launch: the buffers are read when it is over.
        let record = RecordOptions {
            buffer_kib_per_cpu: options.buffer_kib_per_cpu,
            drain: Drain::AtStop,
            migrations: false,
            ..RecordOptions::default()
        };
        let mut recorder = Recorder::start(&record).map_err(recorder_fault)?;
        recorder.pause().map_err(recorder_fault)?;
        Ok(Launcher {
            options,
            site,
            engines,
            points,
            load,
            recorder,
            interrupt,
            notes: BTreeMap::new(),
            began: Instant::now(),
        })
    }

    pub(super) fn engines(&self) -> &[Engine] {
        &self.engines
    }

    /// Ends load and recorder.
    pub(super) fn finish(self) -> Finished {
        Finished {
            load: self.load.as_ref().map(Fio::report),
            engines: self.engines,
            queue_notes: self.notes,
        }
    }

    fn launch(&mut self, engine: usize) -> Result<Outcome<Sample>> {
        let point = self.point(engine)?;
        warm(&self.site.image)?;
        let mut mounted = self.engines[engine].mount(self.site, &point, self.interrupt)?;
        let queued_before = self.queue_counter(engine, &mounted);
        let mut threads = self.threads(&mounted);
        mounted.settle();
        let run = self.recorded(&point);
        // A program does not start from a mount whose daemon is dead: report the daemon, not the program.
        mounted.check()?;
        let (run, trace) = run?;
        self.check_run(engine, &run)?;
        if run.end == End::Interrupted {
            return Ok(Outcome::Interrupted);
        }
        threads.engine.extend(mounted.threads());
        let queued_after = self.queue_counter(engine, &mounted);
        mounted.unmount()?;
        if trace.lost_events > 0 {
            return Ok(Outcome::Spoilt(
                format!("the recorder lost {} events", trace.lost_events),
                None,
            ));
        }
        let launch = Launch::new(&trace, threads, run.pid, run.start_ns, run.end_ns);
        let mut sample = launch.sample();
        sample.seen_us = run.seen_us();
        if let Some((before, after)) = queued_before.zip(queued_after) {
            sample.queue_us = (after - before).max(0.0);
        }
        if let Some(reason) = launch.unwritten() {
            return Ok(Outcome::Spoilt(reason, Some(sample)));
        }
        Ok(self.judge(sample, &launch.foreign()))
    }

    /// The same launch with the recorder off: only its time is known.
    fn launch_unrecorded(&mut self, engine: usize) -> Result<Outcome<Sample>> {
        let point = self.point(engine)?;
        warm(&self.site.image)?;
        let mut mounted = self.engines[engine].mount(self.site, &point, self.interrupt)?;
        // All that a recorded launch has before it.
        self.queue_counter(engine, &mounted);
        self.threads(&mounted);
        mounted.settle();
        let run = self.run_program(&point);
        mounted.check()?;
        let run = run?;
        self.check_run(engine, &run)?;
        if run.end == End::Interrupted {
            return Ok(Outcome::Interrupted);
        }
        mounted.unmount()?;
        Ok(Outcome::Good(Sample {
            seen_us: run.seen_us(),
            ..Sample::default()
        }))
    }

    fn point(&self, engine: usize) -> Result<PathBuf> {
        mount_point(self.points, &format!("engine-{engine}"))
    }

    /// The owners of threads before the launch. Threads that start later belong to their parents' owner.
    fn threads(&self, mounted: &Mounted) -> Threads {
        let load = self.load.as_ref().map(Fio::processes).unwrap_or_default();
        Threads {
            lab: process_threads(std::process::id()),
            load: load.into_iter().flat_map(process_threads).collect(),
            kernel: kernel_threads(),
            engine: mounted.threads(),
            in_kernel: mounted.daemon().is_none(),
        }
    }

    fn recorded(&mut self, point: &Path) -> Result<(Run, Trace)> {
        let window = self.load.as_ref().and_then(Fio::window);
        self.recorder.resume().map_err(recorder_fault)?;
        let run = self.run_program(point);
        self.recorder.pause().map_err(recorder_fault)?;
        let trace = self.recorder.take().map_err(recorder_fault)?;
        if let Some(load) = &mut self.load {
            load.check()?;
            load.count(window);
        }
        Ok((run?, trace))
    }

    fn run_program(&self, point: &Path) -> Result<Run> {
        let words = self.options.command_at(point);
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).current_dir("/");
        let start_ns = now_ns();
        let mut child = Child::spawn(&mut command)?;
        let urgency = Urgency::begin();
        let end = child.wait(self.options.timeout, self.interrupt)?;
        let end_ns = now_ns();
        drop(urgency);
        let pid = child.id();
        child.end();
        Ok(Run {
            pid,
            start_ns,
            end_ns,
            end,
            last_line: child.last_line(),
        })
    }

    fn check_run(&self, engine: usize, run: &Run) -> Result<()> {
        match run.end {
            End::Exited(status) if status.success() => Ok(()),
            End::Interrupted => Ok(()),
            end => Err(LabError::Program {
                engine: self.name(engine),
                program: self.options.command[0].to_string_lossy().into_owned(),
                how: end.describe(),
                last_line: run.last_line.clone(),
            }),
        }
    }

    /// The daemon's own total of queue delays so far, in microseconds.
    fn queue_counter(&mut self, engine: usize, mounted: &Mounted) -> Option<f64> {
        let (total, note) = match &self.engines[engine] {
            Engine::Erofast { .. } => match queue_total(&self.site.erofast, mounted.point()) {
                Some(total) => (Some(total), "from the counters of erofast stat"),
                None => (None, "n/a: erofast stat has no queue delay"),
            },
            Engine::Erofsfuse => (
                None,
                "0: erofsfuse has no queue of its own; its threads wait for requests, which is scheduling latency",
            ),
            _ => (
                None,
                "from queueing a work item to its start, both in the trace (workqueue_* and, for per-CPU threads, sched_kthread_work_*)",
            ),
        };
        self.notes.insert(engine, note.into());
        total
    }

    fn judge(&self, mut sample: Sample, foreign: &Foreign) -> Outcome<Sample> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        let share = foreign.total_us / (sample.launch_us * cpus).max(1.0);
        sample.foreign_us = foreign.total_us;
        if share > self.options.foreign_limit && foreign.total_us > FOREIGN_FLOOR_US {
            let reason = format!(
                "other programs took {:.0} % of the CPU time, most of it {}",
                share * 100.0,
                foreign.most
            );
            return Outcome::Spoilt(reason, Some(sample));
        }
        Outcome::Good(sample)
    }
}

impl Executor for Launcher<'_> {
    type Sample = Sample;

    fn measure(&mut self, engine: usize) -> Result<Outcome<Sample>> {
        let launched = match engine.checked_sub(self.engines.len()) {
            None => self.launch(engine),
            Some(twin) => self.launch_unrecorded(twin),
        };
        match launched {
            // Whatever a request to stop broke off is not the engine's fault.
            Err(_) if self.interrupt.asked() => Ok(Outcome::Interrupted),
            other => other,
        }
    }

    fn name(&self, engine: usize) -> String {
        name(&self.engines, engine)
    }

    fn time_is_over(&self) -> bool {
        self.options
            .time
            .is_some_and(|time| self.began.elapsed() >= time)
    }
}

/// While it lives this thread is preferred over the load, so that it sees the end of the program
/// soon. The program has been started already and does not inherit it.
struct Urgency(Option<i32>);

impl Urgency {
    fn begin() -> Urgency {
        let before = getpriority_process(None).ok();
        // Refused without the right to do so: the time stamps are a little later then.
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

/// `erofast stat` of the mount: total queue delay in microseconds, however the workers share it.
fn queue_total(erofast: &Path, point: &Path) -> Option<f64> {
    let erofast = in_path(erofast.to_str()?).unwrap_or_else(|| erofast.to_owned());
    let output = Command::new(erofast)
        .arg("stat")
        .arg(point)
        .arg("--json")
        .output()
        .ok()?;
    queue_delay(&serde_json::from_slice(&output.stdout).ok()?)
}

/// The sum over its workers; requests that a worker takes itself never stand in a queue.
fn queue_delay(stat: &serde_json::Value) -> Option<f64> {
    let workers = stat.get("workers")?.as_array()?;
    let total = |worker: &serde_json::Value| worker.pointer("/queue_delay/total_ns")?.as_f64();
    workers
        .iter()
        .map(total)
        .sum::<Option<f64>>()
        .map(|total| total / 1000.0)
}

fn recorder_fault(error: sched_trace::Error) -> LabError {
    LabError::Recorder(error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_delay_of_a_mount_is_that_of_its_workers() {
        let worker = |ns: u64| serde_json::json!({"queue_delay": {"total_ns": ns}});
        let stat = serde_json::json!({"workers": [worker(3500), worker(1000)]});
        assert_eq!(queue_delay(&stat), Some(4.5));
        assert_eq!(queue_delay(&serde_json::json!({"workers": []})), Some(0.0));
        assert_eq!(
            queue_delay(&serde_json::json!({"workers": [{"cpu": 0}]})),
            None
        );
    }
}
