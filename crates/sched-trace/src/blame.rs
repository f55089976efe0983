//! Behind whom a thread waited, and why it was not moved.

use crate::latency::{Filter, Report, Wait};
use crate::{Comm, Kind, Trace, UNKNOWN_PID};
use serde::{Serialize, Serializer};
use std::collections::{BTreeMap, HashMap, HashSet};

/// A real-time waiter that stands behind normal threads for longer than this was throttled:
/// otherwise it would have preempted them.
const THROTTLE_NS: u64 = 1_000_000;

/// Priorities below this are real-time, as the kernel traces them.
const REALTIME: i32 = 100;

/// Who ran on each CPU, and when.
#[derive(Debug, Default)]
pub struct Timeline {
    cpus: BTreeMap<u32, Vec<Run>>,
    /// The CPUs each thread ran on.
    seen_on: HashMap<i32, HashSet<u32>>,
}

/// An uninterrupted run of one thread on a CPU.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// From here...
    pub start_ns: u64,
    /// ...to here.
    pub end_ns: u64,
    /// Who; 0 is idle.
    pub pid: i32,
    /// Its name.
    pub comm: Comm,
    /// Its priority as the kernel traces it.
    pub prio: i32,
}

/// What went on while one thread waited.
#[derive(Clone, Debug, PartialEq)]
pub struct Behind {
    /// Runs on the CPU it waited for, cut to its wait.
    pub runs: Vec<Run>,
    /// The CPU was idle that long, and had not begun to run the waiter: the cost of waking up.
    pub idle_ns: u64,
    /// Of this part of the wait the trace does not say who ran.
    pub unknown_ns: u64,
    /// The longest that another CPU was idle meanwhile.
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
    /// It is real-time and yet waited behind normal threads: its group's budget was used up.
    Throttled,
    /// Another CPU was idle, and the scheduler did not move it.
    NotMoved,
}

/// The waits of a report, summed up by who stood in the way.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Blame {
    /// How many waits.
    pub waits: u64,
    /// Their sum.
    pub total_us: f64,
    /// Of it, time behind threads; longest first.
    pub behind: Vec<Blocker>,
    /// Of it, time on an idle CPU that was on its way to run the waiter.
    pub idle_us: f64,
    /// Of it, time of which the trace does not say who ran.
    pub unknown_us: f64,
    /// Waits and time by the reason why the waiter was not moved; longest first.
    pub why: Vec<Reason>,
}

/// A name and priority that others waited behind.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Blocker {
    /// The threads' name.
    #[serde(serialize_with = "comm_text")]
    pub comm: Comm,
    /// Their priority as the kernel traces it.
    pub prio: i32,
    /// Time waited behind them.
    pub total_us: f64,
    /// In how many waits.
    pub waits: u64,
}

/// How often and how long a reason held.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Reason {
    /// The reason.
    pub why: Why,
    /// In how many waits.
    pub waits: u64,
    /// Their sum.
    pub total_us: f64,
}

fn comm_text<S: Serializer>(comm: &Comm, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(comm)
}

impl Timeline {
    /// Reads the switches of a trace.
    pub fn new(trace: &Trace) -> Self {
        let mut timeline = Self::default();
        for event in &trace.events {
            if let Kind::Switch {
                next_pid,
                next_comm,
                next_prio,
                ..
            } = event.kind
            {
                let run = Run {
                    start_ns: event.time_ns,
                    end_ns: u64::MAX,
                    pid: next_pid,
                    comm: next_comm,
                    prio: next_prio,
                };
                timeline.switch(event.cpu, run);
            }
        }
        let end = trace.span().map_or(0, |(_, last)| last);
        for run in timeline
            .cpus
            .values_mut()
            .filter_map(|runs| runs.last_mut())
        {
            run.end_ns = end.max(run.start_ns);
        }
        timeline
    }

    fn switch(&mut self, cpu: u32, run: Run) {
        let runs = self.cpus.entry(cpu).or_default();
        if let Some(before) = runs.last_mut() {
            before.end_ns = run.start_ns;
        }
        runs.push(run);
        if run.pid > 0 {
            self.seen_on.entry(run.pid).or_default().insert(cpu);
        }
    }

    /// The runs on a CPU that touch `start..end`, cut to it.
    pub fn runs(&self, cpu: u32, start: u64, end: u64) -> impl Iterator<Item = Run> {
        let runs = self.cpus.get(&cpu).map_or(&[][..], |runs| runs);
        let first = runs.partition_point(|run| run.end_ns <= start);
        runs[first..]
            .iter()
            .take_while(move |run| run.start_ns < end)
            .map(move |run| Run {
                start_ns: run.start_ns.max(start),
                end_ns: run.end_ns.min(end),
                ..*run
            })
    }

    /// Who ran while this thread waited, and why it was not moved.
    pub fn behind(&self, wait: &Wait) -> Behind {
        let moved = wait
            .moved_ns
            .filter(|_| wait.queued_cpu != wait.cpu)
            .unwrap_or(wait.start_ns);
        let first = self.runs(wait.queued_cpu, wait.start_ns, moved);
        let last = self.runs(wait.cpu, moved, wait.end_ns);
        let (mut runs, mut idle_ns, mut known) = (Vec::new(), 0, 0);
        for run in first.chain(last) {
            let length = run.end_ns - run.start_ns;
            known += length;
            match run.pid {
                0 => idle_ns += length,
                UNKNOWN_PID => known -= length,
                _ => runs.push(run),
            }
        }
        let idle_elsewhere_ns = self.idle_elsewhere(wait);
        let why = self.why(wait, &runs, idle_elsewhere_ns);
        let unknown_ns = wait.length_ns().saturating_sub(known);
        Behind {
            runs,
            idle_ns,
            unknown_ns,
            idle_elsewhere_ns,
            why,
        }
    }

    fn idle_elsewhere(&self, wait: &Wait) -> u64 {
        let others = self
            .cpus
            .keys()
            .filter(|&&cpu| cpu != wait.cpu && cpu != wait.queued_cpu);
        let idle = |&cpu: &u32| -> u64 {
            let runs = self.runs(cpu, wait.start_ns, wait.end_ns);
            runs.filter(|run| run.pid == 0)
                .map(|run| run.end_ns - run.start_ns)
                .sum()
        };
        others.map(idle).max().unwrap_or(0)
    }

    fn why(&self, wait: &Wait, runs: &[Run], idle_elsewhere_ns: u64) -> Why {
        let normal: u64 = runs
            .iter()
            .filter(|r| r.prio >= REALTIME)
            .map(|r| r.end_ns - r.start_ns)
            .sum();
        if wait.queued_cpu != wait.cpu {
            Why::Moved
        } else if wait.prio < REALTIME && normal > THROTTLE_NS {
            Why::Throttled
        } else if idle_elsewhere_ns * 10 < wait.length_ns() {
            Why::AllBusy
        } else if self
            .seen_on
            .get(&wait.pid)
            .is_none_or(|cpus| cpus.len() == 1)
        {
            Why::Pinned
        } else {
            Why::NotMoved
        }
    }
}

/// Sums up, over the waits that the filter takes, who stood in the way.
pub fn blame(timeline: &Timeline, report: &Report, filter: &Filter<'_>) -> Blame {
    let mut blockers: HashMap<(Comm, i32), (u64, u64)> = HashMap::new();
    let mut reasons: HashMap<Why, (u64, u64)> = HashMap::new();
    let (mut waits, mut total, mut idle, mut unknown) = (0, 0, 0, 0);
    for wait in report
        .waits
        .iter()
        .filter(|wait| filter.takes(report, wait))
    {
        let behind = timeline.behind(wait);
        waits += 1;
        total += wait.length_ns();
        idle += behind.idle_ns;
        unknown += behind.unknown_ns;
        let reason = reasons.entry(behind.why).or_default();
        *reason = (reason.0 + 1, reason.1 + wait.length_ns());
        let mut counted = HashSet::new();
        for run in behind.runs {
            let key = (run.comm, run.prio);
            let blocker = blockers.entry(key).or_default();
            blocker.0 += u64::from(counted.insert(key));
            blocker.1 += run.end_ns - run.start_ns;
        }
    }
    let us = crate::stats::us;
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
    use crate::{Event, TaskState};

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
    fn a_wait_is_divided_among_those_who_ran() {
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
    fn a_real_time_thread_behind_normal_ones_was_throttled() {
        let blame = blamed(
            vec![
                switch(0, 0, 0, 1, S),
                waking(10, 0, 4),
                switch(5000, 0, 1, 4, P),
            ],
            4,
        );
        assert_eq!(blame.why[0].why, Why::Throttled);
    }

    #[test]
    fn what_the_trace_does_not_show_is_said() {
        let blame = blamed(vec![waking(10, 0, 3), switch(40, 0, 1, 3, P)], 3);
        assert_eq!((blame.unknown_us, blame.behind.len()), (30.0, 0));
    }
}
