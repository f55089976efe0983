//! Time that the program's threads lost but that no run queue shows: in interrupts and softirqs
//! within their slices, and in uninterruptible sleeps by kernel function, if the kernel traces
//! these (`sched_blocked_reason` of Android's kernels).

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use sched_trace::Trace;
use sched_trace::interrupted;
use sched_trace::interrupts::Interrupts;
use sched_trace::latency::{Filter, Report};
use sched_trace::sleeps;
use sched_trace::timeline::Timeline;
use serde::{Deserialize, Serialize};

use super::owner::Owner;

/// Time lost to one interrupt or softirq, or in one kernel function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Loss {
    /// "virtio0-input.0 (irq 24)", "softirq NET_RX", or the function.
    pub name: String,
    /// How often time was lost.
    pub count: u64,
    /// Total time.
    pub total_us: f64,
    /// The longest loss.
    pub longest_us: f64,
}

/// Time that the program's threads lost within a launch.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Elsewhere {
    /// Interrupts by source, longest first.
    pub(super) interrupts: Vec<Loss>,
    /// Sleeps by function, longest first.
    pub(super) sleeps: Vec<Loss>,
}

impl Elsewhere {
    pub(super) fn of(
        trace: &Trace,
        (timeline, report): (&Timeline, &Report),
        window: &Range<u64>,
        owners: &HashMap<i32, Owner>,
    ) -> Elsewhere {
        let is_program = |pid: i32| owners.get(&pid) == Some(&Owner::Program);
        let filter = Filter {
            from_ns: Some(window.start),
            until_ns: Some(window.end),
            pids: Some(&is_program),
            ..Filter::default()
        };
        let lost = interrupted::lost(&Interrupts::of(trace), timeline, report, &filter);
        let loss = |name, count, total_us, longest_us| Loss {
            name,
            count,
            total_us,
            longest_us,
        };
        let sources = lost.sources.into_iter();
        let sources = sources.map(|it| loss(it.source, it.count, it.total_us, it.longest_us));
        let places = sleeps::places(trace, report, &filter).into_iter();
        let places = places.map(|it| loss(it.function, it.count, it.total_us, it.longest_us));
        Elsewhere {
            interrupts: sources.collect(),
            sleeps: places.collect(),
        }
    }

    pub(super) fn interrupted_us(&self) -> f64 {
        // Adding 0 turns -0, the sum of no numbers, into 0.
        self.interrupts.iter().map(|it| it.total_us).sum::<f64>() + 0.0
    }
}

/// Losses of several launches by name, longest first.
pub(super) fn summed<'a>(all: impl Iterator<Item = &'a Loss>) -> Vec<Loss> {
    let mut sums: BTreeMap<&str, Loss> = BTreeMap::new();
    for loss in all {
        let sum = sums.entry(&loss.name).or_default();
        sum.name.clone_from(&loss.name);
        sum.count += loss.count;
        sum.total_us += loss.total_us;
        sum.longest_us = sum.longest_us.max(loss.longest_us);
    }
    let mut all: Vec<Loss> = sums.into_values().collect();
    all.sort_by(|a, b| b.total_us.total_cmp(&a.total_us));
    all
}
