//! Selects waits and work items.

use super::report::{Report, Wait, WorkRun};
use crate::Name;

/// Which waits to analyse; all of them by default.
#[derive(Default)]
pub struct Filter<'a> {
    /// Only waits that ended at or after this time.
    pub from_ns: Option<u64>,
    /// Only waits that ended before this time.
    pub until_ns: Option<u64>,
    /// Only threads with a name, work queue or work function that this function accepts.
    pub name: Option<&'a dyn Fn(&str) -> bool>,
    /// Only threads whose pid this function accepts.
    pub pids: Option<&'a dyn Fn(i32) -> bool>,
    /// Only waits that ended on a CPU that this function accepts.
    pub cpus: Option<&'a dyn Fn(u32) -> bool>,
    /// Only waits of workers before or within work items.
    pub items: bool,
}

impl std::fmt::Debug for Filter<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").finish_non_exhaustive()
    }
}

impl Filter<'_> {
    /// Whether the filter accepts this wait.
    pub fn accepts(&self, report: &Report, wait: &Wait) -> bool {
        let names = [wait.function, wait.workqueue];
        self.selects(wait.end_ns, wait.cpu, wait.pid)
            && (!self.items || wait.function.is_some())
            && self.name.is_none_or(|name| {
                name(&wait.comm.to_string()) || self.accepts_names(report, &names)
            })
    }

    /// Whether the filter accepts what a thread does on a CPU at a given time, even if the thread
    /// is not waiting.
    pub fn accepts_thread(&self, report: &Report, pid: i32, cpu: u32, time_ns: u64) -> bool {
        self.selects(time_ns, cpu, pid)
            && self
                .name
                .is_none_or(|name| name(&report.comm(pid).to_string()))
    }

    /// Whether the filter accepts this work item.
    pub(super) fn accepts_work(&self, report: &Report, work: &WorkRun) -> bool {
        self.selects(work.start_ns, work.cpu, work.pid)
            && self.accepts_names(report, &[Some(work.function), work.workqueue])
    }

    /// Whether the filter selects by name.
    pub(super) fn by_name(&self) -> bool {
        self.name.is_some()
    }

    /// Whether the filter accepts every thread and every moment of the trace.
    pub(super) fn accepts_all(&self) -> bool {
        let anywhere = self.from_ns.is_none() && self.until_ns.is_none() && self.cpus.is_none();
        anywhere && self.name.is_none() && self.pids.is_none()
    }

    fn selects(&self, time_ns: u64, cpu: u32, pid: i32) -> bool {
        self.from_ns.is_none_or(|from| time_ns >= from)
            && self.until_ns.is_none_or(|until| time_ns < until)
            && self.cpus.is_none_or(|cpus| cpus(cpu))
            && self.pids.is_none_or(|pids| pids(pid))
    }

    fn accepts_names(&self, report: &Report, names: &[Option<Name>]) -> bool {
        self.name.is_none_or(|accepts| {
            names
                .iter()
                .flatten()
                .any(|&n| accepts(report.names.get(n)))
        })
    }
}
