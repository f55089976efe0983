//! Options of the workers: [`Mode`], [`Priority`], [`WorkerOptions`].

use std::time::Duration;

/// How often to [check the CPUs](crate::Workers::check_cpus) without an event, since a change of
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
    /// The policy and nice value that the creating thread has.
    Normal,
    /// `SCHED_FIFO` priority 1; where that is refused, the lowest nice value that is allowed and a
    /// slice of 100 us (Linux 6.12 or later).
    High,
    /// As `High` for pinned workers, and a refusal is no notice: what is granted will do. The
    /// threads of the unbound pool are left as they are made.
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
    /// Most threads of the unbound pool; `None` for as many as there are usable CPUs. Behind pinned
    /// workers it starts with none, and jobs which find none idle add more.
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
