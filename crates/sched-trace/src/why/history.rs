//! Waits, work items and requests of each thread, to look up what a thread did at a given time.

use crate::latency::{Report, Wait, WorkRun};
use crate::{Kind, Trace};
use std::collections::HashMap;

/// A request to a FUSE mount.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub time_ns: u64,
    pub opcode: u32,
}

/// The actions of each thread, ordered by time.
#[derive(Default)]
pub(super) struct History<'a> {
    waits: HashMap<i32, Vec<&'a Wait>>,
    /// Executed work items, by worker.
    works: HashMap<i32, Vec<&'a WorkRun>>,
    requests: HashMap<i32, Vec<Request>>,
}

impl<'a> History<'a> {
    pub fn new(trace: &Trace, report: &'a Report) -> Self {
        let mut history = Self::default();
        for event in &trace.events {
            if let Kind::FuseSent { opcode, .. } = event.kind {
                let time_ns = event.time_ns;
                let requests = history.requests.entry(event.pid).or_default();
                requests.push(Request { time_ns, opcode });
            }
        }
        for wait in &report.waits {
            history.waits.entry(wait.pid).or_default().push(wait);
        }
        for work in report.works.iter().filter(|work| !work.softirq) {
            history.works.entry(work.pid).or_default().push(work);
        }
        history
    }

    /// The work item that a worker starts after this wait, if it waited to start that item rather
    /// than inside another one.
    pub fn work_after(&self, wait: &Wait) -> Option<&'a WorkRun> {
        let works = self.works.get(&wait.pid)?;
        let at = works.partition_point(|work| work.start_ns < wait.end_ns);
        let before = at.checked_sub(1).and_then(|before| works[before].end_ns);
        let next = works
            .get(at)
            .filter(|work| wait.function == Some(work.function));
        next.copied()
            .filter(|_| before.is_none_or(|end| end <= wait.start_ns))
    }

    /// The wait that ended when a run began.
    pub fn wait_before(&self, pid: i32, run_ns: u64) -> Option<&'a Wait> {
        let waits = self.waits.get(&pid)?;
        let at = waits.partition_point(|wait| wait.end_ns < run_ns);
        waits.get(at).copied().filter(|wait| wait.end_ns == run_ns)
    }

    /// The last request that a thread sent from `start` to `end`, inclusive.
    pub fn last_request(&self, pid: i32, start: u64, end: u64) -> Option<Request> {
        let requests = self.requests.get(&pid)?;
        let after = requests.partition_point(|request| request.time_ns <= end);
        let request = *requests.get(after.checked_sub(1)?)?;
        (request.time_ns >= start).then_some(request)
    }
}
