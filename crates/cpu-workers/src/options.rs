//! Options of the workers: [`Mode`], [`Priority`], [`WorkerOptions`].

use std::time::Duration;

/// How often to [check the CPUs](crate::Workers::check_cpus) if no event comes, since a change of
/// the cpuset sends none. A check costs one system call and one small read; five seconds keep an
/// idle machine idle and follow a cpuset soon enough.
pub const RESCAN_INTERVAL: Duration = Duration::from_secs(5);

/// Where jobs run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// One pinned thread for each usable CPU, and the unbound pool behind them.
    PerCpu,
    /// The unbound pool alone.
    Unbound,
}

/// Priority of the workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Priority {
    /// The policy and nice value of the creating thread.
    Normal,
    /// `SCHED_FIFO` priority 1; if that is refused, the lowest nice value that is allowed and a
    /// slice of 100 us (Linux 6.12 or later).
    High,
    /// Like `High` for pinned workers, but a refusal causes no notice: any priority granted will
    /// do. The threads of the unbound pool keep the priority that they are created with.
    Best,
}

/// Options of [`Workers::start`](crate::Workers::start).
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Pinned workers or only the unbound pool.
    pub mode: Mode,
    /// The requested priority; the one granted is in `stats()` and `notices()`.
    pub priority: Priority,
    /// Threads are called `NAME/N` (pinned to CPU N) and `NAME/uN` (unbound). The kernel keeps 15
    /// bytes of a thread's name, so a name of 12 bytes leaves room for two digits.
    pub name: String,
    /// Largest number of threads in the unbound pool; `None` for as many as there are usable CPUs.
    /// Behind pinned workers the pool starts empty, and each job that finds no idle thread adds
    /// one.
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
