//! What ran on each CPU, and where waiting threads were queued.

use crate::latency::Wait;
use crate::{Comm, Kind, Task, TaskState, Trace, UNKNOWN_PID};
use std::collections::{BTreeMap, HashMap};

/// The runs of all threads, by CPU.
#[derive(Debug, Default)]
pub struct Timeline {
    cpus: BTreeMap<u32, Vec<Run>>,
    /// The runs of each thread in the order of time: their CPU, and their index there.
    threads: HashMap<i32, Vec<(u32, usize)>>,
    /// Migrations of each thread in the order of time.
    migrations: HashMap<i32, Vec<Migration>>,
}

/// An uninterrupted run of one thread on a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Beginning.
    pub start_ns: u64,
    /// End; the end of the trace for a run that has not ended.
    pub end_ns: u64,
    /// The thread; 0 is the idle task.
    pub pid: i32,
    /// Its name.
    pub comm: Comm,
    /// Its priority as the kernel traces it.
    pub prio: i32,
    /// How it left the CPU, if the trace shows that.
    pub left: Option<TaskState>,
}

impl Run {
    fn begin(start_ns: u64, Task { comm, pid, prio }: Task) -> Self {
        Self {
            start_ns,
            end_ns: u64::MAX,
            pid,
            comm,
            prio,
            left: None,
        }
    }

    /// Length of the run.
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// `sched_migrate_task`.
#[derive(Clone, Copy, Debug)]
struct Migration {
    time_ns: u64,
    from: u32,
    to: u32,
}

/// A part of a wait on one CPU's run queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queued {
    /// The CPU; `None` if the trace does not show it.
    pub cpu: Option<u32>,
    /// Beginning.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
}

impl Timeline {
    /// Reads the switches and migrations of a trace.
    pub fn new(trace: &Trace) -> Self {
        let mut timeline = Self::default();
        let (first, last) = trace.span().unwrap_or_default();
        for event in &trace.events {
            if event.pid != UNKNOWN_PID && !timeline.cpus.contains_key(&event.cpu) {
                timeline.begin(trace, event.cpu, event.pid, first);
            }
            match event.kind {
                Kind::Switch {
                    prev,
                    prev_state,
                    next,
                } => {
                    timeline.leave(event.cpu, prev, prev_state);
                    timeline.switch(event.cpu, Run::begin(event.time_ns, next));
                }
                Kind::Migrate {
                    task: Task { pid, .. },
                    from_cpu: from,
                    to_cpu: to,
                } => timeline.migrations.entry(pid).or_default().push(Migration {
                    time_ns: event.time_ns,
                    from,
                    to,
                }),
                _ => {}
            }
        }
        let runs = timeline.cpus.values_mut();
        for run in runs.filter_map(|runs| runs.last_mut()) {
            run.end_ns = last.max(run.start_ns);
        }
        timeline
    }

    /// The thread that writes the first event of a CPU runs there since the trace began.
    fn begin(&mut self, trace: &Trace, cpu: u32, pid: i32, start_ns: u64) {
        let comm = trace.threads.get(&pid).map_or(Comm::default(), |t| t.comm);
        let task = Task {
            comm,
            pid,
            prio: 120,
        };
        self.switch(cpu, Run::begin(start_ns, task));
    }

    /// A switch names the previous thread, of which the first run of a CPU knows only the pid.
    fn leave(&mut self, cpu: u32, task: Task, state: TaskState) {
        let runs = self.cpus.entry(cpu).or_default();
        if let [only] = runs.as_mut_slice()
            && !task.comm.is_empty()
        {
            (only.comm, only.prio) = (task.comm, task.prio);
        }
        if let Some(last) = runs.last_mut().filter(|last| last.pid == task.pid) {
            last.left = Some(state);
        }
    }

    fn switch(&mut self, cpu: u32, run: Run) {
        let runs = self.cpus.entry(cpu).or_default();
        if let Some(before) = runs.last_mut() {
            before.end_ns = run.start_ns;
        }
        runs.push(run);
        if run.pid > 0 {
            let place = (cpu, runs.len() - 1);
            self.threads.entry(run.pid).or_default().push(place);
        }
    }

    /// The CPUs of the trace.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.cpus.keys().copied()
    }

    /// The runs on a CPU that touch `start..end`, cut to it.
    pub fn runs(&self, cpu: u32, start: u64, end: u64) -> impl Iterator<Item = Run> {
        let runs = self.cpus.get(&cpu).map_or(&[][..], |runs| runs);
        let first = runs.partition_point(|run| run.end_ns <= start);
        runs[first..]
            .iter()
            .take_while(move |run| run.start_ns < end)
            .map(move |run| Run {
                start_ns: run.start_ns.max(start),
                end_ns: run.end_ns.min(end),
                ..*run
            })
    }

    /// Whether the thread ran on one CPU only, as far as the trace shows.
    pub fn runs_on_one_cpu(&self, pid: i32) -> bool {
        let runs = self.threads.get(&pid);
        runs.is_none_or(|runs| runs.iter().all(|(cpu, _)| *cpu == runs[0].0))
    }

    /// The last run of a thread that began before or at a time, and its CPU.
    pub fn run_before(&self, pid: i32, time_ns: u64) -> Option<(u32, Run)> {
        let runs = self.threads.get(&pid)?;
        let run = |(cpu, index): &(u32, usize)| (*cpu, self.cpus[cpu][*index]);
        let after = runs.partition_point(|place| run(place).1.start_ns <= time_ns);
        Some(run(runs.get(after.checked_sub(1)?)?))
    }

    /// The run queues on which a thread waited.
    ///
    /// Without `sched_migrate_task` events the trace does not show when a thread was moved, and so
    /// not where it waited.
    pub fn queued(&self, wait: &Wait) -> Vec<Queued> {
        let all = self.migrations.get(&wait.pid).map_or(&[][..], |all| all);
        let first = all.partition_point(|migration| migration.time_ns < wait.start_ns);
        let moves = all[first..].iter();
        let moves: Vec<&Migration> = moves.take_while(|m| m.time_ns <= wait.end_ns).collect();
        let mut cpu = match moves.first() {
            Some(first) => Some(first.from),
            None if self.migrations.is_empty() && wait.queued_cpu != wait.cpu => None,
            None => Some(wait.cpu),
        };
        let (mut queued, mut start_ns) = (Vec::new(), wait.start_ns);
        for migration in moves {
            queued.push(Queued {
                cpu,
                start_ns,
                end_ns: migration.time_ns,
            });
            (cpu, start_ns) = (Some(migration.to), migration.time_ns);
        }
        queued.push(Queued {
            cpu,
            start_ns,
            end_ns: wait.end_ns,
        });
        queued.retain(|part| part.end_ns > part.start_ns);
        queued
    }
}
