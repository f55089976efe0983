//! What a caller may choose: [`Mode`], [`Priority`], [`WorkerOptions`].

use std::time::Duration;

/// Where jobs run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mode {
    /// One pinned thread for each usable CPU, and the unbound pool behind them.
    PerCpu,
    /// The unbound pool alone.
    Unbound,
}

/// How urgently workers run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Priority {
    /// The policy and nice value that the creating thread has.
    Normal,
    /// `SCHED_FIFO` priority 1; where that is refused nice -20; where that is refused too, normal.
    High,
}

/// What [`Workers::start`](crate::Workers::start) makes.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// Pinned workers or only the unbound pool.
    pub mode: Mode,
    /// The priority wished for; what came of it is in `stats()` and `notices()`.
    pub priority: Priority,
    /// Threads are called `NAME/N` (pinned to CPU N) and `NAME/uN` (unbound). The kernel keeps 15
    /// bytes of a thread's name, so a name of 12 bytes leaves room for two digits.
    pub name: String,
    /// Threads of the unbound pool; `None` makes as many as there are usable CPUs.
    pub unbound_threads: Option<usize>,
    /// How often the usable CPUs are looked at although no event came: a change of the cpuset
    /// sends none.
    pub rescan_interval: Duration,
}

impl Default for WorkerOptions {
    fn default() -> Self {
        WorkerOptions {
            mode: Mode::PerCpu,
            priority: Priority::Normal,
            name: "erofs_worker".to_owned(),
            unbound_threads: None,
            // A look costs one system call and one small read; five seconds keep an idle machine
            // idle and still follow a cpuset within a person's patience.
            rescan_interval: Duration::from_secs(5),
        }
    }
}
