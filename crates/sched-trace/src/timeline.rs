//! The threads that ran on each CPU, and where waiting threads were queued.

use crate::donation::{Donation, donations};
use crate::latency::{Report, Wait, WorkRun};
use crate::{Comm, Event, Kind, Name, Policy, Task, TaskState, Trace, UNKNOWN_PID, Wake};
use std::collections::{BTreeMap, HashMap};

/// The runs of all threads, by CPU.
#[derive(Debug, Default)]
pub struct Timeline {
    cpus: BTreeMap<u32, Vec<Run>>,
    threads: HashMap<i32, Past>,
    policies: HashMap<i32, Policy>,
    /// Whether the trace has migrations.
    migrates: bool,
    /// Turns that other threads may have lent, by the thread that ran in them.
    donations: HashMap<i32, Vec<Donation>>,
    /// The work items of each worker, ordered by time: beginning, end, item.
    items: HashMap<i32, Vec<(u64, u64, Item)>>,
}

/// An uninterrupted run of one thread on a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Beginning.
    pub start_ns: u64,
    /// End; `u64::MAX` for a run that had not ended when the trace ended.
    pub end_ns: u64,
    /// The thread; 0 is the idle task.
    pub pid: i32,
    /// Name of the thread.
    pub comm: Comm,
    /// Priority of the thread as the kernel traces it.
    pub prio: i32,
    /// The state in which the thread left the CPU, if the trace shows it.
    pub left: Option<TaskState>,
    /// Whether the trace has the switch to the thread.
    pub entered: bool,
    /// The work item that the thread executed, if the timeline was given the items.
    pub item: Option<Item>,
}

/// Function and work queue of a work item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Item {
    /// The function.
    pub function: Name,
    /// The work queue, if known.
    pub workqueue: Option<Name>,
}

impl WorkRun {
    /// The item that this run executed.
    pub(crate) fn item(&self) -> Item {
        Item {
            function: self.function,
            workqueue: self.workqueue,
        }
    }
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
            entered: true,
            item: None,
        }
    }

    /// Length of the run.
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// The known past of a thread.
#[derive(Debug, Default)]
struct Past {
    /// Runs of the thread, ordered by time: the CPU of each, and its index among that CPU's runs.
    runs: Vec<(u32, usize)>,
    /// Migrations of the thread, ordered by time.
    migrations: Vec<Migration>,
    /// The last time the thread was woken.
    woken_ns: u64,
}

/// A `sched_migrate_task` event.
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
    /// Reads the switches, wake-ups and migrations of a trace.
    pub fn new(trace: &Trace) -> Self {
        let mut timeline = Self::default();
        let threads = trace.threads.iter();
        timeline.policies = threads
            .filter_map(|(pid, thread)| Some((*pid, thread.policy?)))
            .collect();
        timeline.donations = donations(trace);
        let (first, _) = trace.span().unwrap_or_default();
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
                    timeline.leave(event, prev, prev_state);
                    timeline.switch(event.cpu, Run::begin(event.time_ns, next));
                }
                Kind::Wake {
                    wake: Wake::Begins,
                    task,
                    ..
                } => timeline.past(task.pid).woken_ns = event.time_ns,
                Kind::Migrate {
                    task,
                    from_cpu: from,
                    to_cpu: to,
                } => {
                    let time_ns = event.time_ns;
                    let migration = Migration { time_ns, from, to };
                    timeline.past(task.pid).migrations.push(migration);
                    timeline.migrates = true;
                }
                _ => {}
            }
        }
        timeline
    }

    /// Learns which work item each worker executed at which time. A softirq's item may be nested
    /// within the item of the worker that the softirq interrupted.
    pub fn with_items(mut self, report: &Report) -> Self {
        let unknown = |work: &&WorkRun| work.softirq && work.end_ns.is_none();
        for work in report.works.iter().filter(|work| !unknown(work)) {
            let item = work.item();
            let items = self.items.entry(work.pid).or_default();
            let end_ns = work.end_ns.unwrap_or(u64::MAX);
            let before = items.last().copied();
            // If its end is missing from the trace, an item ends when its worker starts the next
            // one.
            if let Some(last) = items.last_mut() {
                last.1 = last.1.min(work.start_ns);
            }
            items.push((work.start_ns, end_ns, item));
            if let Some((_, end, interrupted)) = before.filter(|before| before.1 > end_ns) {
                items.push((end_ns, end, interrupted));
            }
        }
        self
    }

    /// The parts of a run in which its thread executed one item, or none.
    pub fn by_item(&self, run: Run) -> Vec<Run> {
        let items = self.items.get(&run.pid).map_or(&[][..], |items| items);
        let first = items.partition_point(|(_, end, _)| *end <= run.start_ns);
        let (mut parts, mut at) = (Vec::new(), run.start_ns);
        let mut part = |start_ns: u64, end_ns: u64, item| {
            if end_ns > start_ns {
                parts.push(Run {
                    start_ns,
                    end_ns,
                    item,
                    ..run
                });
            }
        };
        for &(start, end, item) in items[first..].iter().take_while(|it| it.0 < run.end_ns) {
            let (start, end) = (start.max(at), end.min(run.end_ns));
            part(at, start, None);
            part(start, end, Some(item));
            at = end.max(at);
        }
        part(at, run.end_ns, None);
        parts
    }

    fn past(&mut self, pid: i32) -> &mut Past {
        self.threads.entry(pid).or_default()
    }

    /// Begins the first run on a CPU: the thread that writes a CPU's first event has been running
    /// there since the trace began.
    fn begin(&mut self, trace: &Trace, cpu: u32, pid: i32, start_ns: u64) {
        let comm = trace.threads.get(&pid).map_or(Comm::default(), |t| t.comm);
        let task = Task {
            comm,
            pid,
            prio: 120,
        };
        self.switch(cpu, Run::begin(start_ns, task));
    }

    /// Ends a run. A switch names the previous thread, of which a CPU's first run has only the pid.
    /// If another thread was switched in last, the kernel omitted the switch to the thread
    /// that leaves, which cannot have run before its wake-up.
    fn leave(&mut self, event: &Event, task: Task, state: TaskState) {
        let runs = self.cpus.entry(event.cpu).or_default();
        let alone = runs.len() == 1 && !task.comm.is_empty();
        match runs.last_mut() {
            Some(last) if last.pid == task.pid => {
                last.left = Some(state);
                if alone {
                    (last.comm, last.prio) = (task.comm, task.prio);
                }
            }
            Some(last) if task.pid != UNKNOWN_PID => {
                let woken = self.threads.get(&task.pid).map_or(0, |past| past.woken_ns);
                let run = Run {
                    left: Some(state),
                    entered: false,
                    ..Run::begin(last.start_ns.max(woken), task)
                };
                self.switch(event.cpu, run);
            }
            _ => {}
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
            self.past(run.pid).runs.push(place);
        }
    }

    /// The policy of the thread that ran, if it is known and fits its priority.
    pub fn policy(&self, run: &Run) -> Option<Policy> {
        let policy = self.policies.get(&run.pid).copied();
        policy.filter(|policy| policy.fits(run.prio))
    }

    /// The CPUs of the trace.
    pub fn cpus(&self) -> impl Iterator<Item = u32> {
        self.cpus.keys().copied()
    }

    /// The runs on a CPU that overlap `start..end`, clipped to it.
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
            .filter(|run| run.end_ns > run.start_ns)
    }

    /// The runs of a thread on all CPUs.
    pub fn runs_of(&self, pid: i32) -> impl Iterator<Item = (u32, Run)> {
        let places = self.threads.get(&pid).map_or(&[][..], |past| &past.runs);
        places.iter().map(|place| self.run(place))
    }

    fn run(&self, (cpu, index): &(u32, usize)) -> (u32, Run) {
        (*cpu, self.cpus[cpu][*index])
    }

    /// Whether the thread ran on one CPU only, as far as the trace shows.
    pub fn runs_on_one_cpu(&self, pid: i32) -> bool {
        let mut cpus = self.runs_of(pid).map(|(cpu, _)| cpu);
        let first = cpus.next();
        cpus.all(|cpu| Some(cpu) == first)
    }

    /// The last run of a thread that began at or before a time, and its CPU.
    pub fn run_before(&self, pid: i32, time_ns: u64) -> Option<(u32, Run)> {
        let runs = &self.threads.get(&pid)?.runs;
        let after = runs.partition_point(|place| self.run(place).1.start_ns <= time_ns);
        Some(self.run(runs.get(after.checked_sub(1)?)?))
    }

    /// How much of a run may have taken place in turns lent by threads that are more urgent than
    /// the one that ran and have at least this priority.
    pub(crate) fn lent_ns(&self, run: &Run, prio: i32) -> u64 {
        let all = self.donations.get(&run.pid).map_or(&[][..], |all| all);
        let first = all.partition_point(|lent| lent.end_ns <= run.start_ns);
        // Donations overlap, and only their ends are ordered.
        let mut lent: Vec<(u64, u64)> = all[first..]
            .iter()
            .filter(|lent| lent.prio < run.prio && lent.prio <= prio)
            .map(|lent| (lent.start_ns.max(run.start_ns), lent.end_ns.min(run.end_ns)))
            .filter(|(start, end)| start < end)
            .collect();
        lent.sort_unstable();
        let (mut sum, mut at) = (0, run.start_ns);
        for (start, end) in lent {
            sum += end.saturating_sub(start.max(at));
            at = at.max(end);
        }
        sum
    }

    /// The run queues on which a thread waited.
    ///
    /// Without `sched_migrate_task` events the trace does not show when a thread was moved, and
    /// thus not where it waited.
    pub fn queued(&self, wait: &Wait) -> Vec<Queued> {
        let past = self.threads.get(&wait.pid);
        let all = past.map_or(&[][..], |past| &past.migrations);
        let first = all.partition_point(|migration| migration.time_ns < wait.start_ns);
        let moves = all[first..].iter();
        let moves: Vec<&Migration> = moves.take_while(|m| m.time_ns <= wait.end_ns).collect();
        let mut cpu = match moves.first() {
            Some(first) => Some(first.from),
            None if !self.migrates && wait.queued_cpu != wait.cpu => None,
            None => Some(wait.cpu),
        };
        let (mut queued, mut start_ns) = (Vec::new(), wait.start_ns);
        let ends = moves.iter().map(|m| (m.time_ns, Some(m.to)));
        for (end_ns, next) in ends.chain([(wait.end_ns, None)]) {
            queued.push(Queued {
                cpu,
                start_ns,
                end_ns,
            });
            (cpu, start_ns) = (next, end_ns);
        }
        queued.retain(|part| part.end_ns > part.start_ns);
        queued
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::script::trace;

    #[test]
    fn a_worker_returns_to_the_item_that_a_softirq_interrupted() {
        let text =
            "0 0 0 R 9; 10 0 9 start 1 work_a; 20 0 9 queue 2 bh_b events_bh; 30 0 9 start 2 bh_b;
            40 0 9 end 2 bh_b; 90 0 9 end 1 work_a; 100 0 9 I 0";
        let items = |text: &str| -> Vec<(u64, u64, String)> {
            let trace = trace(text);
            let timeline = Timeline::new(&trace).with_items(&crate::latency::analyse(&trace));
            let run = timeline.runs_of(9).next().unwrap().1;
            let name = |item: Option<Item>| item.map_or("", |item| trace.names.get(item.function));
            let parts = timeline.by_item(run).into_iter();
            let parts =
                parts.map(|p| (p.start_ns / 1000, p.end_ns / 1000, name(p.item).to_owned()));
            parts.collect()
        };
        let part = |from, until, name: &str| (from, until, name.to_owned());
        let expected = [
            part(0, 10, ""),
            part(10, 30, "work_a"),
            part(30, 40, "bh_b"),
            part(40, 90, "work_a"),
            part(90, 100, ""),
        ];
        assert_eq!(items(text), expected);
        let endless = text.replace("40 0 9 end 2 bh_b; 90 0 9 end 1 work_a;", "");
        assert_eq!(items(&endless), [part(0, 10, ""), part(10, 100, "work_a")]);
    }

    #[test]
    fn a_thread_whose_entering_is_not_written_ran_since_its_wake_up_at_most() {
        // The CPU is idle, and the kernel omits the switch from the idle task to thread 5.
        let trace = trace("10 0 1 S 0; 20 0 0 waking 5; 30 0 5 S 0; 40 0 0 S 1");
        let timeline = Timeline::new(&trace);
        let runs = timeline.runs(0, 10_000, 50_000);
        let found: Vec<_> = runs
            .map(|r| (r.pid, r.start_ns / 1000, r.entered))
            .collect();
        let expected = [(0, 10, true), (5, 20, false), (0, 30, true), (1, 40, true)];
        assert_eq!(found, expected);
        assert!(timeline.runs_on_one_cpu(5) && timeline.runs_on_one_cpu(99));
    }
}
