//! The kernel functions in which threads slept uninterruptibly, if the trace has them: Android's
//! kernels write them with each wake-up (`sched_blocked_reason`).

use crate::latency::{Filter, Report};
use crate::stats::us;
use crate::{Kind, Name, TaskState, Trace};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};

/// An uninterruptible sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// When the thread left its CPU.
    pub start_ns: u64,
    /// When the thread was woken.
    pub end_ns: u64,
    /// The thread.
    pub pid: i32,
    /// The CPU on which the thread slept.
    pub cpu: u32,
    /// The kernel function in which the thread slept.
    pub caller: Name,
    /// Whether the thread waited for a device.
    pub io_wait: bool,
}

/// All sleeps with a known function, in order of time.
pub fn sleeps(trace: &Trace) -> Vec<Sleep> {
    let mut asleep: HashMap<i32, (u64, u32)> = HashMap::new();
    let mut found = Vec::new();
    for event in &trace.events {
        match event.kind {
            Kind::Switch {
                prev,
                prev_state: TaskState::UNINTERRUPTIBLE,
                ..
            } => {
                asleep.insert(prev.pid, (event.time_ns, event.cpu));
            }
            Kind::Switch { prev, next, .. } => {
                asleep.remove(&prev.pid);
                asleep.remove(&next.pid);
            }
            Kind::SleptIn {
                pid,
                caller,
                io_wait,
            } => found.extend(asleep.get(&pid).map(|&(start_ns, cpu)| Sleep {
                start_ns,
                end_ns: event.time_ns,
                pid,
                cpu,
                caller,
                io_wait,
            })),
            _ => {}
        }
    }
    found
}

/// Sleeps in one function.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Place {
    /// The function.
    pub function: String,
    /// Number of sleeps.
    pub count: u64,
    /// How many of the sleeps waited for a device.
    pub io_waits: u64,
    /// Total time of the sleeps.
    pub total_us: f64,
    /// The longest sleep.
    pub longest_us: f64,
}

/// Where the threads that the filter accepts slept, longest first.
pub fn places(trace: &Trace, report: &Report, filter: &Filter<'_>) -> Vec<Place> {
    let mut places: BTreeMap<&str, Place> = BTreeMap::new();
    for sleep in sleeps(trace) {
        if !filter.accepts_thread(report, sleep.pid, sleep.cpu, sleep.end_ns) {
            continue;
        }
        let place = places.entry(trace.names.get(sleep.caller)).or_default();
        let length_us = us(sleep.end_ns.saturating_sub(sleep.start_ns));
        place.count += 1;
        place.io_waits += u64::from(sleep.io_wait);
        place.total_us += length_us;
        place.longest_us = place.longest_us.max(length_us);
    }
    let named = |(function, place): (&str, Place)| Place {
        function: function.into(),
        ..place
    };
    let mut all: Vec<Place> = places.into_iter().map(named).collect();
    all.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::analyse;
    use crate::script::trace;

    #[test]
    fn a_sleep_is_as_long_as_until_its_wake_up() {
        let trace = trace(
            "0 0 0 R 1; 10 0 1 D 0; 60 0 0 sleptin 1 folio_wait_bit_common 1; 61 0 0 waking 1;
             70 0 0 R 1; 80 0 1 S 0; 90 0 0 sleptin 1 do_nanosleep; 95 0 0 waking 1; 99 0 0 R 1",
        );
        let report = analyse(&trace);
        let places = places(&trace, &report, &Filter::default());
        // The second sleep is not an uninterruptible one.
        let found = places
            .iter()
            .map(|it| (it.function.as_str(), it.count, it.io_waits, it.total_us));
        assert_eq!(
            found.collect::<Vec<_>>(),
            [("folio_wait_bit_common", 1, 1, 50.0)]
        );
    }
}
