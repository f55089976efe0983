//! Runs, waits and requests of each thread, for looking up what a thread did at a time.

use crate::latency::{Report, Wait, WorkRun};
use crate::{Kind, TaskState, Trace};
use std::collections::HashMap;

/// A run of one thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub start_ns: u64,
    pub end_ns: u64,
    pub cpu: u32,
    /// It ended with an uninterruptible sleep.
    pub uninterruptible: bool,
}

/// A request to a FUSE mount.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub time_ns: u64,
    pub opcode: u32,
}

/// What each thread did, in the order of time.
#[derive(Default)]
pub(super) struct History {
    runs: HashMap<i32, Vec<Run>>,
    /// Indices of waits.
    waits: HashMap<i32, Vec<usize>>,
    requests: HashMap<i32, Vec<Request>>,
    /// Indices of executed work items, by worker.
    works: HashMap<i32, Vec<usize>>,
}

impl History {
    pub fn new(trace: &Trace, report: &Report) -> Self {
        let mut history = Self::default();
        let (begin, end) = trace.span().unwrap_or_default();
        for event in &trace.events {
            match event.kind {
                Kind::Switch {
                    prev_pid,
                    prev_state,
                    next_pid,
                    ..
                } => {
                    history.leave(prev_pid, begin, event.time_ns, event.cpu, prev_state);
                    history.runs.entry(next_pid).or_default().push(Run {
                        start_ns: event.time_ns,
                        end_ns: end,
                        cpu: event.cpu,
                        uninterruptible: false,
                    });
                }
                Kind::FuseSent { opcode, .. } => {
                    history
                        .requests
                        .entry(event.pid)
                        .or_default()
                        .push(Request {
                            time_ns: event.time_ns,
                            opcode,
                        });
                }
                _ => {}
            }
        }
        for (index, wait) in report.waits.iter().enumerate() {
            history.waits.entry(wait.pid).or_default().push(index);
        }
        for (index, work) in report.works.iter().enumerate() {
            history.works.entry(work.pid).or_default().push(index);
        }
        history
    }

    /// The work item that a worker starts next, if the wait was for it and not inside another one.
    pub fn work_after<'a>(&self, report: &'a Report, wait: &Wait) -> Option<&'a WorkRun> {
        let works = self.works.get(&wait.pid)?;
        let at = works.partition_point(|&index| report.works[index].start_ns < wait.end_ns);
        let inside = |index: usize| {
            let before = &report.works[works[index]];
            before.end_ns.is_some_and(|end| end > wait.start_ns)
        };
        if at.checked_sub(1).is_some_and(inside) {
            return None;
        }
        let work = report.works.get(*works.get(at)?)?;
        (wait.function == Some(work.function)).then_some(work)
    }

    fn leave(&mut self, pid: i32, begin: u64, time_ns: u64, cpu: u32, state: TaskState) {
        let runs = self.runs.entry(pid).or_default();
        if runs.is_empty() {
            runs.push(Run {
                start_ns: begin,
                end_ns: time_ns,
                cpu,
                uninterruptible: false,
            });
        }
        if let Some(run) = runs.last_mut() {
            run.end_ns = time_ns;
            run.uninterruptible = state == TaskState::UNINTERRUPTIBLE;
        }
    }

    /// The run of a thread that covers a time.
    pub fn run_at(&self, pid: i32, time_ns: u64) -> Option<Run> {
        let runs = self.runs.get(&pid)?;
        let after = runs.partition_point(|run| run.start_ns <= time_ns);
        let run = *runs.get(after.checked_sub(1)?)?;
        (run.end_ns >= time_ns).then_some(run)
    }

    /// The last run that began before a time.
    pub fn run_before(&self, pid: i32, time_ns: u64) -> Option<Run> {
        let runs = self.runs.get(&pid)?;
        let after = runs.partition_point(|run| run.start_ns < time_ns);
        runs.get(after.checked_sub(1)?).copied()
    }

    /// The wait that ended when a run began.
    pub fn wait_before<'a>(&self, report: &'a Report, pid: i32, run_ns: u64) -> Option<&'a Wait> {
        let waits = self.waits.get(&pid)?;
        let at = waits.partition_point(|&index| report.waits[index].end_ns < run_ns);
        let wait = report.waits.get(*waits.get(at)?)?;
        (wait.end_ns == run_ns).then_some(wait)
    }

    /// The last request that a thread sent from `start` to `end`, both included.
    pub fn last_request(&self, pid: i32, start: u64, end: u64) -> Option<Request> {
        let requests = self.requests.get(&pid)?;
        let after = requests.partition_point(|request| request.time_ns <= end);
        let request = *requests.get(after.checked_sub(1)?)?;
        (request.time_ns >= start).then_some(request)
    }
}
