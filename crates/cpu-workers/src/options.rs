//! Options of the workers: [`Mode`], [`Priority`], [`WorkerOptions`].

use std::time::Duration;

/// How often to [check the CPUs](crate::Workers::check_cpus) if no event arrives, since a change of
/// the cpuset causes none. A check costs one system call and one small read; with five seconds, an
/// idle machine stays idle and the workers follow a cpuset soon enough.
pub const RESCAN_INTERVAL: Duration = Duration::from_secs(5);

/// Where jobs run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// On one pinned thread per usable CPU, with the unbound pool as a fallback.
    PerCpu,
    /// Only on the unbound pool.
    Unbound,
}

/// Priority of the workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Priority {
    /// The creating thread's policy and nice value.
    Normal,
    /// `SCHED_FIFO` priority 1; if that is refused, the lowest nice value allowed and a slice of
    /// 100 us (Linux 6.12 or later).
    High,
    /// Like `High` for pinned workers, but a refusal causes no notice: any priority granted will
    /// do. The threads of the unbound pool keep the priority they are created with.
    Best,
}

/// Options of [`Workers::start`](crate::Workers::start).
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Pinned workers or only the unbound pool.
    pub mode: Mode,
    /// The requested priority; `stats()` and `notices()` report the one granted.
    pub priority: Priority,
    /// Threads are called `NAME/N` (pinned to CPU N) and `NAME/uN` (unbound). The kernel keeps 15
    /// bytes of a thread's name, so NAME may be up to 12 bytes long if CPU numbers have two digits.
    pub name: String,
    /// Maximum number of threads in the unbound pool; `None` for as many as there are usable CPUs.
    /// If the pool is a fallback for pinned workers, it starts without threads, and each job that
    /// finds no idle thread adds one.
    pub unbound_threads: Option<usize>,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        WorkerOptions {
            mode: Mode::PerCpu,
            priority: Priority::Normal,
            name: "erofs_worker".to_owned(),
            unbound_threads: None,
        }
    }
}
