//! Which threads a wait was spent behind, and why the waiting thread was not moved.

use crate::Comm;
use crate::UNKNOWN_PID;
use crate::latency::{Filter, Report, Wait};
use crate::stats::us;
use crate::timeline::{Run, Timeline};
use serde::{Serialize, Serializer};
use std::collections::{HashMap, HashSet};

/// A real-time thread that waits behind one normal thread for longer than this was held up by
/// something other than the usual cost of a preemption.
const HELD_UP_NS: u64 = 1_000_000;

/// A switch this long after a wake-up no longer races with it: the waiting thread is on the run
/// queue.
const ENQUEUED_NS: u64 = 100_000;

/// Priorities below this are real-time, as the kernel traces them.
const REALTIME: i32 = 100;

/// What happened while a thread waited.
#[derive(Clone, Debug, PartialEq)]
pub struct Behind {
    /// Runs on the CPUs where it was queued, cut to its wait.
    pub runs: Vec<Run>,
    /// Time for which such a CPU was idle and did not run the thread yet: the cost of waking up.
    pub idle_ns: u64,
    /// Time for which the trace does not show what ran, or where the thread was queued.
    pub unknown_ns: u64,
    /// The longest time for which another CPU was idle meanwhile.
    pub idle_elsewhere_ns: u64,
    /// Why it was not moved.
    pub why: Why,
}

/// Why a waiting thread did not run elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// It was moved in the end.
    Moved,
    /// No other CPU was idle for long enough to matter.
    AllBusy,
    /// It is bound to its CPU, as far as the trace shows: it never ran on another one.
    Pinned,
    /// It is real-time, and the scheduler switched to a normal thread while it waited: the
    /// real-time budget of its CPU or cgroup was used up, or normal threads had the share that the
    /// deadline server reserves for them (Linux 6.12). The trace does not distinguish these.
    Throttled,
    /// It is real-time, and one normal thread kept the CPU: code that does not preempt (the trace
    /// does not distinguish it from an exhausted budget).
    NotPreempted,
    /// Another CPU was idle, and the scheduler did not move it.
    NotMoved,
}

/// Summary of what waits were spent behind.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Blame {
    /// Number of waits.
    pub waits: u64,
    /// Their sum.
    pub total_us: f64,
    /// Part of it spent behind threads; longest first.
    pub behind: Vec<Blocker>,
    /// Part of it spent on an idle CPU that was about to run the waiting thread.
    pub idle_us: f64,
    /// Part of it for which the trace does not show what ran.
    pub unknown_us: f64,
    /// Waits and time by the reason why the thread was not moved; longest first.
    pub why: Vec<Reason>,
}

/// Threads of one name and priority that others waited behind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Blocker {
    /// The threads' name.
    #[serde(serialize_with = "comm_text")]
    pub comm: Comm,
    /// Their priority as the kernel traces it.
    pub prio: i32,
    /// Time waited behind them.
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
    /// Their sum.
    pub total_us: f64,
}

fn comm_text<S: Serializer>(comm: &Comm, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(comm)
}

impl Timeline {
    /// What ran while a thread waited, and why it was not moved.
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
        let mut own: HashSet<u32> = queued.iter().filter_map(|part| part.cpu).collect();
        own.insert(wait.cpu);
        let idle_elsewhere_ns = self.idle_elsewhere(wait, &own);
        Behind {
            why: self.why(wait, &runs, own.len() > 1, idle_elsewhere_ns),
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

/// Summarizes what the waits that the filter accepts were spent behind.
pub fn blame(timeline: &Timeline, report: &Report, filter: &Filter<'_>) -> Blame {
    let mut blockers: HashMap<(Comm, i32), (u64, u128)> = HashMap::new();
    let mut reasons: HashMap<Why, (u64, u128)> = HashMap::new();
    let mut waits = 0;
    // Waits overlap: a damaged trace has some of centuries, whose sum takes more than 64 bits.
    let (mut total, mut idle, mut unknown) = (0, 0, 0);
    for wait in report
        .waits
        .iter()
        .filter(|wait| filter.accepts(report, wait))
    {
        let behind = timeline.behind(wait);
        waits += 1;
        total += u128::from(wait.length_ns());
        idle += u128::from(behind.idle_ns);
        unknown += u128::from(behind.unknown_ns);
        let reason = reasons.entry(behind.why).or_default();
        *reason = (reason.0 + 1, reason.1 + u128::from(wait.length_ns()));
        let mut counted = HashSet::new();
        for run in behind.runs {
            let key = (run.comm, run.prio);
            let blocker = blockers.entry(key).or_default();
            blocker.0 += u64::from(counted.insert(key));
            blocker.1 += u128::from(run.length_ns());
        }
    }
    let behind = blockers
        .into_iter()
        .map(|((comm, prio), (waits, ns))| Blocker {
            comm,
            prio,
            waits,
            total_us: us(ns),
        });
    let why = reasons.into_iter().map(|(why, (waits, ns))| Reason {
        why,
        waits,
        total_us: us(ns),
    });
    let (mut behind, mut why): (Vec<_>, Vec<_>) = (behind.collect(), why.collect());
    behind.sort_by(|a, b| b.total_us.total_cmp(&a.total_us).then(a.comm.cmp(&b.comm)));
    why.sort_by(|a, b| b.total_us.total_cmp(&a.total_us).then(a.why.cmp(&b.why)));
    Blame {
        waits,
        total_us: us(total),
        behind,
        idle_us: us(idle),
        unknown_us: us(unknown),
        why,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::analyse;
    use crate::{Event, Kind, TaskState, Trace};

    fn switch(us: u64, cpu: u32, prev: i32, next: i32, state: TaskState) -> Event {
        let comm = |pid| Comm::new(format!("t{pid}").as_bytes());
        let prio = |pid| if pid == 4 { 98 } else { 120 };
        let kind = Kind::Switch {
            prev_pid: prev,
            prev_comm: comm(prev),
            prev_prio: prio(prev),
            prev_state: state,
            next_pid: next,
            next_comm: comm(next),
            next_prio: prio(next),
        };
        Event {
            time_ns: us * 1000,
            cpu,
            pid: prev,
            kind,
        }
    }

    fn waking(us: u64, cpu: u32, pid: i32) -> Event {
        let prio = if pid == 4 { 98 } else { 120 };
        let kind = Kind::Waking {
            pid,
            comm: Comm::default(),
            prio,
            target_cpu: cpu,
        };
        Event {
            time_ns: us * 1000,
            cpu,
            pid: 0,
            kind,
        }
    }

    fn blamed(events: Vec<Event>, pid: i32) -> Blame {
        let trace = Trace {
            events,
            ..Trace::default()
        };
        let of_pid = |other| other == pid;
        let filter = Filter {
            pids: Some(&of_pid),
            ..Filter::default()
        };
        blame(&Timeline::new(&trace), &analyse(&trace), &filter)
    }

    const S: TaskState = TaskState::SLEEPING;
    const P: TaskState = TaskState::PREEMPTED;

    #[test]
    fn a_wait_is_divided_among_the_threads_that_ran() {
        let blame = blamed(
            vec![
                switch(0, 0, 0, 1, S),
                waking(10, 0, 3),
                switch(15, 0, 1, 2, P),
                switch(35, 0, 2, 0, S),
                switch(37, 0, 0, 3, S),
            ],
            3,
        );
        assert_eq!((blame.waits, blame.total_us, blame.idle_us), (1, 27.0, 2.0));
        let behind: Vec<_> = blame
            .behind
            .iter()
            .map(|b| (b.comm.to_string(), b.total_us))
            .collect();
        assert_eq!(behind, [("t2".to_string(), 20.0), ("t1".to_string(), 5.0)]);
        assert_eq!(blame.why[0].why, Why::AllBusy, "there is no other CPU");
    }

    #[test]
    fn an_idle_cpu_elsewhere_asks_for_a_reason() {
        let mut events = vec![
            switch(0, 1, 5, 0, S),
            switch(0, 0, 0, 1, S),
            waking(10, 0, 3),
            switch(50, 0, 1, 3, P),
            switch(60, 0, 3, 1, S),
            switch(90, 1, 0, 5, S),
        ];
        assert_eq!(blamed(events.clone(), 3).why[0].why, Why::Pinned);
        events.push(switch(95, 1, 5, 3, S));
        assert_eq!(blamed(events, 3).why[0].why, Why::NotMoved);
    }

    #[test]
    fn only_a_switch_to_a_normal_thread_shows_that_a_real_time_thread_was_throttled() {
        let mut events = vec![
            switch(0, 0, 0, 1, S),
            waking(10, 0, 4),
            switch(5000, 0, 1, 4, P),
        ];
        assert_eq!(blamed(events.clone(), 4).why[0].why, Why::NotPreempted);
        events[2] = switch(5000, 0, 1, 2, P);
        events.push(switch(5100, 0, 2, 4, P));
        assert_eq!(blamed(events, 4).why[0].why, Why::Throttled);
    }

    #[test]
    fn a_thread_that_runs_since_before_the_trace_is_known_by_its_events() {
        let mut early = waking(0, 0, 9);
        early.pid = 1;
        let blame = blamed(vec![early, waking(10, 0, 3), switch(40, 0, 1, 3, P)], 3);
        assert_eq!((blame.unknown_us, blame.behind[0].total_us), (0.0, 30.0));
    }

    /// t3 is woken on CPU 0 behind t1, migrates to CPU 1 after 40 us, and waits there behind t2.
    fn migrated(traced: bool) -> Blame {
        let mut events = vec![
            switch(0, 0, 0, 1, S),
            switch(0, 1, 0, 2, S),
            waking(10, 0, 3),
            switch(70, 1, 2, 3, P),
        ];
        if traced {
            let kind = Kind::Migrate {
                pid: 3,
                comm: Comm::default(),
                prio: 120,
                from_cpu: 0,
                to_cpu: 1,
            };
            events.insert(
                3,
                Event {
                    time_ns: 50_000,
                    cpu: 1,
                    pid: 2,
                    kind,
                },
            );
        }
        blamed(events, 3)
    }

    #[test]
    fn a_migrated_wait_is_charged_to_each_cpu_in_turn() {
        let behind = migrated(true).behind;
        let behind: Vec<_> = behind.iter().map(|b| (b.comm, b.total_us)).collect();
        assert_eq!(behind, [("t1".into(), 40.0), ("t2".into(), 20.0)]);
    }

    #[test]
    fn a_migrated_wait_is_unknown_where_migrations_are_not_recorded() {
        let blame = migrated(false);
        assert_eq!((blame.unknown_us, blame.behind.len()), (60.0, 0));
        assert_eq!(blame.why[0].why, Why::Moved);
    }
}
