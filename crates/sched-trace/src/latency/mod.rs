//! Scheduling latency: the time from when a thread becomes runnable until it runs.
//!
//! Three figures are reported separately and never silently added:
//! * waits after a **wake-up**: from `sched_waking` to the `sched_switch` that runs the thread,
//! * waits after a **preemption**: from being switched out while runnable to running again,
//! * the **queue delay** of a work item: from queueing to start. It includes waits of the item's
//!   worker.

mod filter;
mod group;
mod json;
mod machine;
mod report;
mod validity;
mod works;

#[cfg(test)]
mod tests;

pub use filter::Filter;
pub use group::{Group, GroupBy};
pub use report::{Report, Wait, WaitKind, WorkRun};
pub use validity::Missing;

use crate::Trace;

/// Pairs every wake-up and preemption of the trace with the switch that ends it, and attributes the
/// waits of kworkers to their work items.
pub fn analyse(trace: &Trace) -> Report {
    machine::run(trace)
}
