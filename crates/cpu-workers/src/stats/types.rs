//! Types that workers report about themselves.

use std::fmt;

use figures::{Shape, Shaped};
use serde::{Serialize, Serializer};

/// The scheduling policy that a thread actually has.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Policy {
    /// `SCHED_FIFO` with this priority.
    Fifo(u8),
    /// The ordinary policy with a slice of 100 us and this nice value, so that the thread runs soon
    /// after it wakes.
    Slice {
        /// -20 (first) to 19 (last).
        nice: i8,
    },
    /// An ordinary policy with this nice value.
    Other {
        /// -20 (first) to 19 (last).
        nice: i8,
    },
}

impl Policy {
    /// The nice value of a thread that is not real-time.
    pub fn nice(self) -> Option<i8> {
        match self {
            Policy::Fifo(_) => None,
            Policy::Slice { nice } | Policy::Other { nice } => Some(nice),
        }
    }
}

impl fmt::Display for Policy {
    /// Writes `fifo`, `slice` or `other`, as `erofast stat --json` prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Policy::Fifo(_) => "fifo",
            Policy::Slice { .. } => "slice",
            Policy::Other { .. } => "other",
        })
    }
}

impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl Shaped for Policy {
    const SHAPE: Shape = Shape::Words(&["fifo", "slice", "other"]);
}

figures::figures! {
    /// A distribution of times in nanoseconds. Percentiles are upper bounds, at most 1/16 too high.
    #[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize)]
    pub struct Summary {
        /// Number of values.
        pub count: u64,
        /// Sum of the values.
        pub total_ns: u64,
        /// The mean; 0 if there are no values.
        pub average_ns: u64,
        /// The largest value, exact.
        pub max_ns: u64,
        /// Half of the values are at most this.
        pub p50_ns: u64,
        /// 90 % of the values are at most this.
        pub p90_ns: u64,
        /// 99 % of the values are at most this.
        pub p99_ns: u64,
        /// 99.9 % of the values are at most this.
        pub p999_ns: u64,
    }
}

figures::figures! {
    /// Statistics of one worker. The counters of a CPU outlive its worker: they continue when the
    /// CPU returns.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct WorkerStats counted by pub(crate) struct Counts {
        /// Jobs finished, including those that panicked.
        pub jobs,
        /// Requests served by the worker's event source (see `serve`).
        pub served,
        /// Jobs and sources that panicked.
        pub panics => counter "worker_panics_total",
        /// Number of queued jobs that found the worker asleep and woke it.
        pub wakeups,
    } and {
        /// The CPU that the worker is pinned to; none for a thread of the unbound pool.
        pub cpu: Option<usize>,
        /// The thread's name.
        pub name: String,
        /// The thread's ID; none if there is no worker now (its CPU is offline, or it could not be
        /// created).
        pub tid: Option<i32>,
        /// The policy that the kernel currently reports for the thread.
        pub policy: Option<Policy>,
        /// The thread's nice value, unless it is real-time.
        pub nice: Option<i8>,
        /// Whether the worker is asleep with nothing to do.
        pub idle: bool,
        /// Number of jobs waiting now. The unbound threads share one queue, and each reports the
        /// length of that queue.
        pub queued: usize,
        /// Jobs finished and requests served.
        pub done: u64,
        /// Time from queueing to start, per job.
        pub queue_delay: Summary,
        /// Time from start to finish, per job and per request served.
        pub run: Summary,
    }
}
