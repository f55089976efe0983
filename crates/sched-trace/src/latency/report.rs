//! The result of the analysis: every wait and every executed work item.

use crate::completeness::Completeness;
use crate::{Comm, Name, Names, Notice, SchedulerSettings};
use std::collections::BTreeMap;

/// A thread in one of the recordings of a trace: the number of seams before the recording, and the
/// thread's ID.
pub(super) type Concerned = (usize, i32);

/// All waits and work items of a trace.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Waits, ordered by their end.
    pub waits: Vec<Wait>,
    /// Executed work items, ordered by their start.
    pub works: Vec<WorkRun>,
    /// Number of events that were lost. Any value other than 0 makes the figures invalid.
    pub lost_events: u64,
    /// Waits that had not ended when the trace ended, longest first; not among `waits`. In this
    /// list each ends with the trace, although it actually lasted longer.
    pub unfinished: Vec<Wait>,
    /// Waits that began before the trace; not among `waits`.
    pub dropped_at_edges: u64,
    /// Waits during which events are missing, or all CPUs were silent; not among `waits`.
    pub left_out: u64,
    /// How complete the events are.
    pub completeness: Completeness,
    /// How often a thread went to sleep and ran again without a wake-up in the trace (the wake-up
    /// was not recorded, or was lost); such runs end no wait.
    pub unexplained_runs: u64,
    /// Number of switches from one thread to another.
    pub switches: u64,
    /// Switches that are provably missing from the trace: a thread left a CPU that another thread
    /// had entered last. Some kernels write no `sched_switch` when a CPU's idle task stops idling,
    /// if that CPU has been taken offline and brought back online.
    pub missing_switches: u64,
    /// `missing_switches` by thread; each missing switch hides a wait.
    pub(super) missing: BTreeMap<Concerned, u64>,
    /// `left_out` by thread, except waits that ended with a recording.
    pub(super) left_out_of: BTreeMap<Concerned, u64>,
    /// `unexplained_runs` by thread.
    pub(super) unexplained: BTreeMap<Concerned, u64>,
    /// First and last time stamp of the trace.
    pub span: Option<(u64, u64)>,
    /// Number of events read.
    pub events: u64,
    /// The format of the trace's file; empty for a recording.
    pub format: &'static str,
    /// The CPUs that wrote events, in ascending order.
    pub cpus: Vec<u32>,
    /// The clock of the time stamps, by the kernel's name; empty if the trace does not say.
    pub clock: String,
    /// How the kernel schedules, as far as the trace shows.
    pub scheduler: SchedulerSettings,
    /// The strings that waits and works refer to.
    pub names: Names,
    /// Notices, including the limits of the figures.
    pub notices: Vec<Notice>,
    /// The latest name of each thread in the events.
    pub(super) comms: BTreeMap<i32, Comm>,
    /// The process of each thread, if known.
    pub(super) processes: BTreeMap<i32, i32>,
}

impl Report {
    /// The latest name of a thread; empty if the trace does not have it.
    pub fn comm(&self, pid: i32) -> Comm {
        self.comms.get(&pid).copied().unwrap_or_default()
    }

    /// The process of a thread, if the trace has it.
    pub fn process(&self, pid: i32) -> Option<i32> {
        self.processes.get(&pid).copied()
    }
}

/// One wait of a thread for a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// When the thread became runnable.
    pub start_ns: u64,
    /// When the thread started to run.
    pub end_ns: u64,
    /// The thread.
    pub pid: i32,
    /// Number of threads that had this pid before, within the trace.
    pub life: u32,
    /// Name of the thread when it ran.
    pub comm: Comm,
    /// Priority as the kernel traces it: values below 100 are real-time (99 - rt_priority), and 120
    /// is nice 0.
    pub prio: i32,
    /// The CPU on which the thread finally ran.
    pub cpu: u32,
    /// The CPU on which the thread was first queued; differs from `cpu` if the thread was migrated.
    pub queued_cpu: u32,
    /// The CPU on which the thread had run before, if the trace shows it.
    pub last_cpu: Option<u32>,
    /// The event that started the wait.
    pub kind: WaitKind,
    /// The thread that woke the waiting thread, or that replaced it on the CPU where it was
    /// preempted.
    pub caused_by: i32,
    /// The CPU on which the wake-up or preemption happened.
    pub caused_on: u32,
    /// For a kworker: the function of the work item that it started next, or was executing.
    pub function: Option<Name>,
    /// For a kworker: the name of that item's work queue, if known.
    pub workqueue: Option<Name>,
}

impl Wait {
    /// Length of the wait.
    pub fn length_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// The event that precedes a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WaitKind {
    /// A wake-up of a sleeping or new thread.
    Wakeup,
    /// Being switched out (or yielding) while runnable.
    Preempted,
}

/// One execution of a work item.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WorkRun {
    /// When the item was queued, if the trace shows it.
    pub queued_ns: Option<u64>,
    /// The thread that queued the item, if the trace shows it.
    pub queued_by: Option<i32>,
    /// When the item started.
    pub start_ns: u64,
    /// When the item ended, if the trace shows it.
    pub end_ns: Option<u64>,
    /// The worker thread.
    pub pid: i32,
    /// The CPU on which the item started.
    pub cpu: u32,
    /// The function that the item executes.
    pub function: Name,
    /// The work queue, if known; for a kthread_worker the name of its threads.
    pub workqueue: Option<Name>,
    /// Whether a kthread_worker executed the item, rather than a work queue.
    pub kthread: bool,
    /// Whether a softirq executed the item. If so, `pid` is the thread that the softirq
    /// interrupted, not a worker.
    pub softirq: bool,
}
