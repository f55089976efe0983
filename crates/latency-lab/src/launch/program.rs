//! What the program's threads did: time in uninterruptible sleep, migrations, and the work items
//! that the kernel's workers executed for them.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;

use sched_trace::latency::WorkRun;
use sched_trace::stats::us;
use sched_trace::timeline::Timeline;
use sched_trace::{Kind, Names, TaskState, Trace};
use serde::{Deserialize, Serialize};

use super::owner::Owner;

/// The times of all threads of the program, added up, within the launch.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    /// Total time of uninterruptible sleeps, each from its start until the thread ran again.
    pub(super) uninterruptible_ns: u64,
    /// Number of moves to the run queue of another CPU.
    pub(super) migrations: u64,
}

impl Times {
    pub(super) fn of(
        trace: &Trace,
        timeline: &Timeline,
        window: &Range<u64>,
        owners: &HashMap<i32, Owner>,
    ) -> Times {
        let is_program = |pid: &i32| owners.get(pid) == Some(&Owner::Program);
        let moved = trace.events.iter().filter(|event| match event.kind {
            Kind::Migrate { task, .. } => is_program(&task.pid) && window.contains(&event.time_ns),
            _ => false,
        });
        let threads = owners.keys().filter(|pid| is_program(pid));
        Times {
            migrations: moved.count() as u64,
            uninterruptible_ns: threads.map(|pid| slept(timeline, window, *pid)).sum(),
        }
    }
}

/// Total uninterruptible sleep of a thread within the launch; a sleep that outlasts the launch
/// counts only until the launch ends.
fn slept(timeline: &Timeline, window: &Range<u64>, pid: i32) -> u64 {
    let mut runs = timeline.runs_of(pid).map(|(_, run)| run).peekable();
    let mut sum = 0;
    while let Some(run) = runs.next() {
        let until = runs.peek().map_or(window.end, |next| next.start_ns);
        if run.left == Some(TaskState::UNINTERRUPTIBLE) {
            let (from, until) = (run.end_ns.max(window.start), until.min(window.end));
            sum += until.saturating_sub(from);
        }
    }
    sum
}

/// The work items that the program queued during a launch, for one work queue and function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueWaits {
    /// The work queue; empty if it is unknown.
    pub workqueue: String,
    /// The function that these items execute.
    pub function: String,
    /// The number of items that were started.
    pub items: u64,
    /// Total time from queueing them to their start.
    pub delay_us: f64,
    /// The longest of these delays.
    pub longest_us: f64,
}

/// Adds up the waits by work queue and function, longest delay first.
pub(super) fn summed(all: impl Iterator<Item = QueueWaits>) -> Vec<QueueWaits> {
    let mut sums: BTreeMap<(String, String), QueueWaits> = BTreeMap::new();
    for waits in all {
        let key = (waits.workqueue.clone(), waits.function.clone());
        let sum = sums.entry(key).or_default();
        (sum.workqueue, sum.function) = (waits.workqueue, waits.function);
        sum.items += waits.items;
        sum.delay_us += waits.delay_us;
        sum.longest_us = sum.longest_us.max(waits.longest_us);
    }
    let mut all: Vec<QueueWaits> = sums.into_values().collect();
    all.sort_by(|a, b| b.delay_us.total_cmp(&a.delay_us));
    all
}

/// The work items that the kernel's workers executed for the program.
pub(super) struct Items<'a>(Vec<&'a WorkRun>);

/// Collects the items queued by threads of the program, and those that workers queued while
/// executing such items, if `counts` accepts them.
pub(super) fn items<'a>(
    works: &'a [WorkRun],
    is_program: &dyn Fn(i32) -> bool,
    counts: &dyn Fn(&&WorkRun) -> bool,
) -> Items<'a> {
    let mut queued: Vec<(u64, i32, usize)> = works
        .iter()
        .enumerate()
        .filter_map(|(at, work)| Some((work.queued_ns?, work.queued_by?, at)))
        .collect();
    // An item starts after it was queued, so the items that it queues come after it in this order.
    queued.sort_unstable();
    let mut of_program: HashSet<usize> = HashSet::new();
    // For each worker, the items of the program that it executed.
    let mut executed: HashMap<i32, Vec<usize>> = HashMap::new();
    for (time, by, at) in queued {
        let within = |other: &usize| {
            let work = &works[*other];
            work.start_ns <= time && work.end_ns.is_some_and(|end| time < end)
        };
        let handed_on = || executed.get(&by).is_some_and(|its| its.iter().any(within));
        if is_program(by) || handed_on() {
            of_program.insert(at);
            executed.entry(works[at].pid).or_default().push(at);
        }
    }
    let all = works.iter().enumerate();
    let found = all.filter(|(at, work)| of_program.contains(at) && counts(work));
    Items(found.map(|(_, work)| work).collect())
}

impl Items<'_> {
    /// The number of items, and their total delay from queueing to starting.
    pub(super) fn queue(&self) -> (u64, u64) {
        (
            self.0.len() as u64,
            self.0.iter().map(|work| delay(work)).sum(),
        )
    }

    /// The waits by work queue and function, longest delay first.
    pub(super) fn by_workqueue(&self, names: &Names) -> Vec<QueueWaits> {
        let waits = self.0.iter().map(|work| {
            let delay_us = us(delay(work));
            let queue = work.workqueue.map_or("", |name| names.get(name));
            QueueWaits {
                workqueue: queue.into(),
                function: names.get(work.function).into(),
                items: 1,
                delay_us,
                longest_us: delay_us,
            }
        });
        summed(waits)
    }
}

fn delay(work: &WorkRun) -> u64 {
    let queued = work.queued_ns.unwrap_or(work.start_ns);
    work.start_ns.saturating_sub(queued)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(queued: (u64, i32), start_ns: u64, end_ns: u64, pid: i32) -> WorkRun {
        let mut names = Names::default();
        WorkRun {
            queued_ns: Some(queued.0),
            queued_by: Some(queued.1),
            start_ns,
            end_ns: Some(end_ns),
            pid,
            cpu: 0,
            function: names.intern("f"),
            workqueue: None,
            kthread: false,
            softirq: false,
        }
    }

    #[test]
    fn items_that_the_programs_items_queue_are_the_programs() {
        let works = [
            work((10, 20), 15, 40, 30),
            // The worker of the first item queues two more: one within the item, and one after it.
            work((20, 30), 50, 60, 31),
            work((45, 30), 70, 80, 31),
            // The worker of the second item queues this one.
            work((55, 31), 90, 95, 32),
            work((12, 50), 100, 110, 33),
        ];
        let found = items(&works, &|pid| pid == 20, &|_| true);
        assert_eq!(found.queue(), (3, 5 + 30 + 35));
        let late = items(&works, &|pid| pid == 20, &|work| work.start_ns > 40);
        assert_eq!(late.queue().0, 2);
        let mut names = Names::default();
        names.intern("f");
        let queues = found.by_workqueue(&names);
        assert_eq!((queues.len(), queues[0].items), (1, 3));
        assert_eq!((queues[0].delay_us, queues[0].longest_us), (0.07, 0.035));
    }
}
