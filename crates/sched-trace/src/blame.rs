//! Which threads a waiting thread had to wait for, and why it was not moved.

use crate::latency::Wait;
use crate::policy::{Policy, REALTIME};
use crate::stats::us;
use crate::timeline::{Item, Run, Timeline};
use crate::{Comm, UNKNOWN_PID};
use serde::Serialize;
use std::collections::{HashMap, HashSet};

/// A real-time thread that waits behind one normal thread for longer than this is delayed by more
/// than the usual cost of a preemption.
const HELD_UP_NS: u64 = 1_000_000;

/// A switch this long after a wake-up no longer races with the wake-up: by then, the waiting thread
/// is on the run queue.
const ENQUEUED_NS: u64 = 100_000;

/// The activity of the CPUs while a thread waited.
#[derive(Clone, Debug, PartialEq)]
pub struct Behind {
    /// What ran on the CPUs where the thread was queued, clipped to the time of its wait.
    pub runs: Vec<Run>,
    /// Time for which the CPU where the thread was queued was idle but had not yet switched to the
    /// thread: the cost of the wake-up.
    pub idle_ns: u64,
    /// Time for which the trace does not show what ran, or where the thread was queued.
    pub unknown_ns: u64,
    /// The longest time for which another CPU was idle during the wait.
    pub idle_elsewhere_ns: u64,
    /// Why the thread was not moved.
    pub why: Why,
}

/// Why a waiting thread did not run elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// The thread was eventually moved.
    Moved,
    /// No other CPU was idle for long enough to matter.
    AllBusy,
    /// The thread is bound to its CPU, as far as the trace shows: it never ran on another one.
    Pinned,
    /// The thread is real-time, and the scheduler switched to a normal thread while it waited: the
    /// real-time budget of its CPU or cgroup was exhausted, or normal threads got the share that
    /// the deadline server reserves for them (Linux 6.12). The trace does not distinguish these
    /// cases.
    Throttled,
    /// The thread was runnable although its CPU was idle, which shows that the quota of its cgroup
    /// was exhausted (`cpu.max`).
    Quota,
    /// The CPU mostly ran the owner of a mutex. A more urgent thread was blocked on the mutex, and
    /// the owner may have run in that thread's turn (proxy execution).
    Donated,
    /// The thread is real-time, and one normal thread kept the CPU, because the kernel code that it
    /// ran could not be preempted. The trace does not distinguish this from an exhausted budget.
    NotPreempted,
    /// Another CPU was idle, but the scheduler did not move the thread.
    NotMoved,
}

/// A summary of the threads that other threads waited behind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Blame {
    /// Number of waits.
    pub waits: u64,
    /// Total length of the waits.
    pub total_us: f64,
    /// The part spent waiting behind other threads; longest first.
    pub behind: Vec<Blocker>,
    /// The part spent on an idle CPU that was about to run the waiting thread.
    pub idle_us: f64,
    /// The part of `idle_us` in which the quota of the thread's cgroup was exhausted.
    pub quota_us: f64,
    /// The part for which the trace does not show what ran.
    pub unknown_us: f64,
    /// Waits and time by the reason why the thread was not moved; longest first.
    pub why: Vec<Reason>,
}

/// Threads of one name and priority that other threads waited behind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Blocker {
    /// Name of the threads.
    pub comm: Comm,
    /// Priority as the kernel traces it.
    pub prio: i32,
    /// Policy of the threads, if `record` noted it.
    pub policy: Option<Policy>,
    /// The work item that the threads were executing, since a kworker's name does not identify its
    /// work.
    #[serde(skip)]
    pub item: Option<Item>,
    /// Total time spent waiting behind these threads.
    pub total_us: f64,
    /// Number of waits.
    pub waits: u64,
}

/// How often and for how long a reason applied.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// The reason.
    pub why: Why,
    /// Number of waits.
    pub waits: u64,
    /// Total length of the waits.
    pub total_us: f64,
}

impl Timeline {
    /// The threads that ran while a thread waited, and why the waiting thread was not moved.
    pub fn behind(&self, wait: &Wait) -> Behind {
        let queued = self.queued(wait);
        let (mut runs, mut idle_ns, mut known) = (Vec::new(), 0, 0);
        for part in &queued {
            let Some(cpu) = part.cpu else { continue };
            for run in self.runs(cpu, part.start_ns, part.end_ns) {
                match run.pid {
                    UNKNOWN_PID => continue,
                    0 => idle_ns += run.length_ns(),
                    _ => runs.push(run),
                }
                known += run.length_ns();
            }
        }
        let lent: u64 = runs.iter().map(|run| self.lent_ns(run, wait.prio)).sum();
        let mut own: HashSet<u32> = queued.iter().filter_map(|part| part.cpu).collect();
        own.insert(wait.cpu);
        let idle_elsewhere_ns = self.idle_elsewhere(wait, &own);
        Behind {
            why: match idle_ns {
                // An idle CPU immediately runs any queued thread that is not throttled.
                idle if idle > HELD_UP_NS && idle > wait.length_ns() / 2 => Why::Quota,
                _ if lent > wait.length_ns() / 2 => Why::Donated,
                _ => self.why(wait, &runs, own.len() > 1, idle_elsewhere_ns),
            },
            runs,
            idle_ns,
            unknown_ns: wait.length_ns().saturating_sub(known),
            idle_elsewhere_ns,
        }
    }

    fn idle_elsewhere(&self, wait: &Wait, own: &HashSet<u32>) -> u64 {
        let idle = |cpu: u32| -> u64 {
            let runs = self.runs(cpu, wait.start_ns, wait.end_ns);
            runs.filter(|run| run.pid == 0)
                .map(|run| run.length_ns())
                .sum()
        };
        let others = self.cpus().filter(|cpu| !own.contains(cpu));
        others.map(idle).max().unwrap_or(0)
    }

    fn why(&self, wait: &Wait, runs: &[Run], moved: bool, idle_elsewhere_ns: u64) -> Why {
        let normal = || runs.iter().filter(|run| run.prio >= REALTIME);
        let realtime = wait.prio < REALTIME;
        let enqueued_ns = wait.start_ns.saturating_add(ENQUEUED_NS);
        if moved || wait.queued_cpu != wait.cpu {
            Why::Moved
        } else if realtime && normal().any(|run| run.start_ns > enqueued_ns) {
            Why::Throttled
        } else if realtime && normal().map(Run::length_ns).sum::<u64>() > HELD_UP_NS {
            Why::NotPreempted
        } else if idle_elsewhere_ns.saturating_mul(10) < wait.length_ns() {
            Why::AllBusy
        } else if self.runs_on_one_cpu(wait.pid) {
            Why::Pinned
        } else {
            Why::NotMoved
        }
    }
}

/// A number of waits, and a time in nanoseconds. Waits overlap, and in a damaged trace they may
/// last for centuries, so their sum needs more than 64 bits.
#[derive(Default)]
struct Sum {
    waits: u64,
    ns: u128,
}

impl Sum {
    fn add(&mut self, waits: u64, ns: u64) {
        self.waits += waits;
        self.ns += u128::from(ns);
    }
}

/// Summarizes which threads these waits were spent behind.
pub fn blame<'a>(timeline: &Timeline, waits: impl IntoIterator<Item = &'a Wait>) -> Blame {
    let mut blockers: HashMap<(Comm, i32, Option<Policy>, Option<Item>), Sum> = HashMap::new();
    let mut reasons: HashMap<Why, Sum> = HashMap::new();
    let [mut total, mut idle, mut quota, mut unknown] = [const { Sum { waits: 0, ns: 0 } }; 4];
    for wait in waits {
        let behind = timeline.behind(wait);
        total.add(1, wait.length_ns());
        idle.add(1, behind.idle_ns);
        if behind.why == Why::Quota {
            quota.add(1, behind.idle_ns);
        }
        unknown.add(1, behind.unknown_ns);
        reasons
            .entry(behind.why)
            .or_default()
            .add(1, wait.length_ns());
        let mut counted = HashSet::new();
        for run in behind
            .runs
            .into_iter()
            .flat_map(|run| timeline.by_item(run))
        {
            // Any kworker may execute an item.
            let comm = match run.item {
                Some(_) if run.comm.is_kworker() => "kworker".into(),
                _ => run.comm,
            };
            let key = (comm, run.prio, timeline.policy(&run), run.item);
            let first = u64::from(counted.insert(key));
            blockers.entry(key).or_default().add(first, run.length_ns());
        }
    }
    let behind = blockers
        .into_iter()
        .map(|((comm, prio, policy, item), sum)| Blocker {
            comm,
            prio,
            policy,
            item,
            total_us: us(sum.ns),
            waits: sum.waits,
        });
    let why = reasons.into_iter().map(|(why, sum)| Reason {
        why,
        waits: sum.waits,
        total_us: us(sum.ns),
    });
    let (mut behind, mut why): (Vec<_>, Vec<_>) = (behind.collect(), why.collect());
    behind.sort_by(|a, b| b.total_us.total_cmp(&a.total_us).then(a.comm.cmp(&b.comm)));
    why.sort_by(|a, b| b.total_us.total_cmp(&a.total_us).then(a.why.cmp(&b.why)));
    Blame {
        waits: total.waits,
        total_us: us(total.ns),
        behind,
        idle_us: us(idle.ns),
        quota_us: us(quota.ns),
        unknown_us: us(unknown.ns),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::analyse;
    use crate::script::{rename, trace};

    /// The blame for a thread's waits; thread 4 is real-time.
    fn blamed(text: &str, pid: i32) -> Blame {
        let mut trace = trace(text);
        rename(&mut trace, 4, "t4", 98);
        let waits = analyse(&trace).waits;
        let waits = waits.iter().filter(|wait| wait.pid == pid);
        blame(&Timeline::new(&trace), waits)
    }

    #[test]
    fn each_part_of_a_wait_is_charged_once() {
        // Each case has a trace; the total, idle and unknown time of thread 3's waits; and the
        // threads that it waited behind.
        type Parts = &'static [(&'static str, f64)];
        let cases: [(&str, [f64; 3], Parts); 5] = [
            (
                "0 0 0 S 1; 10 0 0 waking 3; 15 0 1 R+ 2; 35 0 2 S 0; 37 0 0 R 3",
                [27.0, 2.0, 0.0],
                &[("t2", 20.0), ("t1", 5.0)],
            ),
            // t1 has been running since before the trace began; only the event that it writes shows
            // this.
            (
                "0 0 1 waking 9; 10 0 0 waking 3; 40 0 1 R+ 3",
                [30.0, 0.0, 0.0],
                &[("t1", 30.0)],
            ),
            // Thread 3 migrates from CPU 0 to CPU 1: the wait is charged to each in turn, ...
            (
                "0 0 0 S 1; 0 1 0 S 2; 10 0 0 waking 3; 50 1 2 migrate 3 0 1; 70 1 2 R+ 3",
                [60.0, 0.0, 0.0],
                &[("t1", 40.0), ("t2", 20.0)],
            ),
            // ... but is unknown if migrations are not recorded.
            (
                "0 0 0 S 1; 0 1 0 S 2; 10 0 0 waking 3; 70 1 2 R+ 3",
                [60.0, 0.0, 60.0],
                &[],
            ),
            // The number of a CPU is damaged.
            (
                "0 4294967295 1 waking 3 4294967295; 5 4294967295 1 S 3",
                [5.0, 0.0, 0.0],
                &[("t1", 5.0)],
            ),
        ];
        for (text, [total, idle, unknown], parts) in cases {
            let blame = blamed(text, 3);
            let sums = (blame.total_us, blame.idle_us, blame.unknown_us);
            assert_eq!(sums, (total, idle, unknown), "{text}");
            let behind = blame
                .behind
                .iter()
                .map(|b| (b.comm.to_string(), b.total_us));
            let parts = parts.iter().map(|(comm, us)| (comm.to_string(), *us));
            assert!(behind.eq(parts), "{text}: {:?}", blame.behind);
        }
    }

    #[test]
    fn a_blocker_has_its_policy_if_it_fits_its_priority() {
        let text = "0 0 0 R 1; 10 0 1 waking 3; 30 0 1 R 2; 40 0 2 R 4; 50 0 4 R 3";
        let mut trace = trace(text);
        rename(&mut trace, 4, "t4", 88);
        for (pid, policy) in [(1, Policy::Idle), (2, Policy::Fifo), (4, Policy::Fifo)] {
            trace.threads.entry(pid).or_default().policy = Some(policy);
        }
        let report = analyse(&trace);
        let waits = report.waits.iter().filter(|wait| wait.pid == 3);
        let blame = blame(&Timeline::new(&trace), waits);
        let found = blame.behind.iter().map(|b| (b.comm.to_string(), b.policy));
        let expected = [
            ("t1", Some(Policy::Idle)),
            // The policy had changed by the time it was noted.
            ("t2", None),
            ("t4", Some(Policy::Fifo)),
        ];
        let expected = expected.map(|(comm, policy)| (comm.to_owned(), policy));
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn behind_a_kworker_is_behind_its_items() {
        let text = "0 0 0 S 9; 2 0 9 start 1 f; 10 0 9 waking 3; 15 0 9 end 1 f; 17 0 9 start 2 g;
                    18 0 9 end 2 g; 20 0 9 I 3";
        let trace = trace(text);
        let report = analyse(&trace);
        let blame = blame(&Timeline::new(&trace).with_items(&report), &report.waits);
        let name = |item: Option<Item>| item.map_or("", |item| report.names.get(item.function));
        let behind = blame
            .behind
            .iter()
            .map(|b| (b.comm.to_string(), name(b.item), b.total_us));
        let expected = [
            ("kworker", "f", 5.0),
            ("kworker/9", "", 4.0),
            ("kworker", "g", 1.0),
        ];
        let expected = expected.map(|(comm, item, us)| (comm.to_owned(), item, us));
        assert_eq!(behind.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn the_reason_is_what_the_trace_shows() {
        let idle = "0 1 5 S 0; 0 0 0 S 1; 10 0 0 waking 3; 50 0 1 R+ 3; 60 0 3 S 1; 90 1 0 S 5";
        let cases = [
            ("0 0 0 S 1; 10 0 0 waking 3; 37 0 1 S 3", 3, Why::AllBusy),
            (idle, 3, Why::Pinned),
            (&format!("{idle}; 95 1 5 S 3"), 3, Why::NotMoved),
            (
                "0 0 0 S 1; 0 1 0 S 2; 10 0 0 waking 3; 70 1 2 R+ 3",
                3,
                Why::Moved,
            ),
            // Thread 3 is runnable for 80 ms on an idle CPU.
            ("0 0 3 R 0; 80000 0 0 R 3; 80010 0 3 S 0", 3, Why::Quota),
            // Only a switch to a normal thread shows that a real-time one was throttled.
            (
                "0 0 0 S 1; 10 0 0 waking 4; 5000 0 1 R+ 4",
                4,
                Why::NotPreempted,
            ),
            (
                "0 0 0 S 1; 10 0 0 waking 4; 5000 0 1 R+ 2; 5100 0 2 R+ 4",
                4,
                Why::Throttled,
            ),
        ];
        for (text, pid, why) in cases {
            assert_eq!(blamed(text, pid).why[0].why, why, "{text}");
        }
    }
}
