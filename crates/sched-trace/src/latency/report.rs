//! What the analysis found: every wait and every executed work item, to be summed up at will.

use super::group::{Filter, Group, GroupBy, WorkGroup};
use crate::{Comm, Name, Names};

/// All waits and work items of a trace.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Waits in the order in which they ended.
    pub waits: Vec<Wait>,
    /// Executed work items in the order in which they started.
    pub works: Vec<WorkRun>,
    /// Events the trace lost. Anything but 0 makes the figures invalid.
    pub lost_events: u64,
    /// Waits whose beginning or end lies outside of the trace; not among the waits.
    pub dropped_at_edges: u64,
    /// Threads that ran without a wake-up in the trace although they had gone to sleep in it
    /// (wake-ups were not recorded, or were lost); not among the waits.
    pub unexplained_runs: u64,
    /// Switches from one thread to another that were read.
    pub switches: u64,
    /// Switches that must have been and are not in the trace: a thread left a CPU that another one
    /// had entered last. Seen on kernels that write no `sched_switch` when the idle thread of a CPU
    /// ends its idling, once that CPU was taken offline and back; waits that end there are missing.
    pub missing_switches: u64,
    /// First and last time stamp of the trace.
    pub span: Option<(u64, u64)>,
    /// How many events were read.
    pub events: u64,
    /// The strings that waits and works refer to.
    pub names: Names,
}

/// One thread waited for a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// When it could have run.
    pub start_ns: u64,
    /// When it ran.
    pub end_ns: u64,
    /// Who.
    pub pid: i32,
    /// How many threads had this pid before, within the trace.
    pub life: u32,
    /// Its name when it ran.
    pub comm: Comm,
    /// Its priority as the kernel traces it: below 100 real-time (99 - rt_priority), 120 is nice 0.
    pub prio: i32,
    /// Where it ran in the end.
    pub cpu: u32,
    /// Where it was put to wait; differs from `cpu` when it was moved.
    pub queued_cpu: u32,
    /// When it was last moved to another CPU while it waited, where the trace tells.
    pub moved_ns: Option<u64>,
    /// What it waited after.
    pub kind: WaitKind,
    /// Who woke it; the thread that took its place where it was preempted.
    pub caused_by: i32,
    /// For a kworker: the function of the work item it ran right after, or was running.
    pub function: Option<Name>,
    /// For a kworker: the name of the work queue that item was queued on, where known.
    pub workqueue: Option<Name>,
}

impl Wait {
    /// How long.
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// What a wait follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitKind {
    /// A wake-up of a sleeping or new thread.
    Wakeup,
    /// Being taken off the CPU (or yielding it) while able to go on.
    Preempted,
}

/// One execution of a work item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkRun {
    /// When it was queued, if within the trace.
    pub queued_ns: Option<u64>,
    /// When its worker began with it.
    pub start_ns: u64,
    /// When it was done, if within the trace.
    pub end_ns: Option<u64>,
    /// The worker thread.
    pub pid: i32,
    /// The CPU it began on.
    pub cpu: u32,
    /// What was executed.
    pub function: Name,
    /// The work queue, where known; for a kthread_worker the name of its threads.
    pub workqueue: Option<Name>,
    /// Done by a kthread_worker, not by a work queue.
    pub kthread: bool,
}

impl Report {
    /// False when events were lost, or more than one switch in a hundred is missing: figures may be
    /// printed, but not relied on.
    pub fn is_valid(&self) -> bool {
        self.lost_events == 0 && self.missing_switches * 100 <= self.switches
    }

    /// Summaries by thread, by name or by work queue, longest total of waits first.
    pub fn group(&self, by: GroupBy, filter: &Filter<'_>) -> Vec<Group> {
        super::group::waits(self, by, filter)
    }

    /// Summaries by work queue and function, with the queue delay apart from the waits.
    pub fn workqueues(&self, filter: &Filter<'_>) -> Vec<WorkGroup> {
        super::group::works(self, filter)
    }

    /// The contract's JSON of `trace latency`.
    pub fn to_json(&self) -> serde_json::Value {
        super::json::report(self, &Filter::default())
    }

    /// The same for some of the threads only.
    pub fn to_json_filtered(&self, filter: &Filter<'_>) -> serde_json::Value {
        super::json::report(self, filter)
    }

    /// The `count` longest waits, longest first.
    pub fn worst(&self, count: usize, filter: &Filter<'_>) -> Vec<Wait> {
        let mut waits: Vec<Wait> = self
            .waits
            .iter()
            .filter(|wait| filter.takes(self, wait))
            .copied()
            .collect();
        waits.sort_by_key(|wait| (std::cmp::Reverse(wait.length_ns()), wait.start_ns));
        waits.truncate(count);
        waits
    }
}
