//! Quotas of control groups (`cpu.max`) that throttled threads during a recording, and for how long
//! according to the kernel's own accounting. The scheduler's events do not show quotas: a throttled
//! thread looks like a preempted one, and may become runnable again while others keep its CPU busy.

use crate::latency::{Filter, Report};
use crate::stats::us;
use crate::{Comm, Trace};
use serde::Serialize;
use std::collections::BTreeMap;

/// The track on which `record` notes each thread of a group that was throttled.
pub(crate) const TRACK: &str = "CPU quota";

/// A quota, and the threads that it limits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Quota {
    /// The group, its quota, and how long the quota throttled threads.
    pub quota: String,
    /// The threads of the group that waited for a CPU. Their waits include the time for which they
    /// were throttled.
    pub threads: Vec<Bound>,
}

/// The waits of a thread whose group was throttled.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bound {
    /// Name of the thread.
    pub comm: Comm,
    /// The thread.
    pub pid: i32,
    /// Total time that the thread waited for a CPU.
    pub waited_us: f64,
}

/// The quotas that throttled threads accepted by the filter, each with these threads, longest wait
/// first.
pub fn quotas(trace: &Trace, report: &Report, filter: &Filter<'_>) -> Vec<Quota> {
    let mut waited: BTreeMap<i32, u64> = BTreeMap::new();
    for wait in report.accepted(filter) {
        *waited.entry(wait.pid).or_default() += wait.length_ns();
    }
    let mut found: BTreeMap<&str, Vec<Bound>> = BTreeMap::new();
    for slice in trace.slices.iter().filter(|slice| slice.track == TRACK) {
        let Some((pid, ns)) = slice.pid.and_then(|pid| waited.get_key_value(&pid)) else {
            continue;
        };
        found.entry(&slice.name).or_default().push(Bound {
            comm: report.comm(*pid),
            pid: *pid,
            waited_us: us(*ns),
        });
    }
    let quota = |(quota, mut threads): (&str, Vec<Bound>)| {
        threads.sort_by(|a, b| b.waited_us.total_cmp(&a.waited_us));
        Quota {
            quota: quota.into(),
            threads,
        }
    };
    found.into_iter().map(quota).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Slice;
    use crate::latency::analyse;
    use crate::script::trace;

    #[test]
    fn a_quota_has_the_waits_of_its_threads() {
        let mut trace = trace("0 0 0 R 1; 10 0 1 R+ 2; 50 0 2 R+ 1; 90 0 1 S 2; 95 0 2 S 0");
        let slice = |pid| Slice {
            name: "/small: 10 of 100 ms".into(),
            track: TRACK.into(),
            start_ns: 0,
            end_ns: 95_000,
            pid: Some(pid),
        };
        // The thread of the last slice did not wait.
        trace.slices.extend([slice(1), slice(7)]);
        let report = analyse(&trace);
        let found = quotas(&trace, &report, &Filter::default());
        assert_eq!((found.len(), &*found[0].quota), (1, "/small: 10 of 100 ms"));
        let threads = found[0].threads.iter().map(|it| (it.pid, it.waited_us));
        assert_eq!(threads.collect::<Vec<_>>(), [(1, 40.0)]);
    }
}
