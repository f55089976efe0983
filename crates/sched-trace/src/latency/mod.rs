//! Scheduling latency: from when a thread could run to when it ran.
//!
//! Three numbers are told apart and never added silently:
//! * waits after a **wake-up** (`sched_waking` to the `sched_switch` that runs the thread),
//! * waits after a **preemption** (switched out while it could go on, to running again),
//! * the **queue delay** of a work item (queued to started), which contains waits of its worker.

mod group;
mod json;
mod machine;
mod report;
mod works;

#[cfg(test)]
mod tests;

pub use group::{Filter, Group, GroupBy, WorkGroup};
pub use report::{Report, Wait, WaitKind, WorkRun};

use crate::Trace;

/// Pairs every wake-up and preemption of the trace with the switch that ended it, and joins
/// kworkers with the work they did.
pub fn analyse(trace: &Trace) -> Report {
    machine::run(trace)
}
