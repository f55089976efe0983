//! Scheduling policies: events have a thread's priority, which SCHED_IDLE and SCHED_BATCH share
//! with normal threads.

use serde::Serialize;
use std::fmt;

/// The policy of a thread (sched(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "the kernel's own names")]
pub enum Policy {
    Other = 0,
    Fifo = 1,
    Rr = 2,
    Batch = 3,
    Idle = 5,
    Deadline = 6,
    Ext = 7,
}

/// Priorities below this are real-time, as the kernel traces them.
pub(crate) const REALTIME: i32 = 100;

impl Policy {
    /// Converts the number that system calls and /proc/PID/stat use.
    pub fn from_number(number: u64) -> Option<Self> {
        let all = [
            Self::Other,
            Self::Fifo,
            Self::Rr,
            Self::Batch,
            Self::Idle,
            Self::Deadline,
            Self::Ext,
        ];
        all.into_iter().find(|policy| *policy as u64 == number)
    }

    /// Whether a thread of this policy may have such a priority, as the kernel traces it. If not,
    /// the thread's policy was different at that time, or it has inherited the priority of a thread
    /// that waits for its lock.
    pub fn fits(self, prio: i32) -> bool {
        let realtime = matches!(self, Self::Fifo | Self::Rr | Self::Deadline);
        realtime == (prio < REALTIME)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Other => "SCHED_OTHER",
            Self::Fifo => "SCHED_FIFO",
            Self::Rr => "SCHED_RR",
            Self::Batch => "SCHED_BATCH",
            Self::Idle => "SCHED_IDLE",
            Self::Deadline => "SCHED_DEADLINE",
            Self::Ext => "SCHED_EXT",
        })
    }
}
