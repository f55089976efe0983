//! How the CPUs spent the time of one launch, and when its program was off the CPU: from the
//! switches of the trace, up to the end of the launch, so that nothing outside of it counts.

use std::collections::HashMap;

use sched_trace::{Comm, Kind, Trace, Wake};

use super::owner::Owner;

/// CPU time of programs unrelated to the launch.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Foreign {
    pub(super) total_us: f64,
    /// The name of the program that ran longest.
    pub(super) most: String,
}

/// The CPU time of a launch.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct CpuTime {
    /// By owner, of all CPUs together.
    pub(super) by_owner_us: HashMap<Owner, f64>,
    pub(super) foreign: Foreign,
    /// The program's first thread slept: from blocking to running again.
    pub(super) program_blocked_us: f64,
    /// It was runnable and did not run.
    pub(super) program_preempted_us: f64,
    /// Switches out of the selected threads.
    pub(super) left: u64,
    /// Those without a traced switch in.
    pub(super) not_entered: u64,
}

/// A thread that ran on a CPU.
#[derive(Clone, Copy)]
pub(super) struct Ran {
    pub(super) owner: Owner,
    pub(super) comm: Comm,
    pub(super) cpu: u32,
}

/// Which runs are foreign, and for which threads missing switches are counted.
pub(super) struct Judges<'a> {
    pub(super) switches: &'a dyn Fn(i32) -> bool,
    pub(super) foreign: &'a dyn Fn(Ran) -> bool,
}

/// Threads of the kernel that work for whoever is measured.
const SERVING: [&str; 9] = [
    "kworker/",
    "ksoftirqd/",
    "erofs_worker/",
    "migration/",
    "rcu",
    "loop",
    "irq/",
    "cpuhp/",
    "napi/",
];

/// Unrelated programs, and threads of the kernel that do work of their own: reclaim, compaction,
/// file systems.
pub(super) fn is_foreign(ran: Ran) -> bool {
    let name = ran.comm.as_bytes();
    match ran.owner {
        Owner::Other => true,
        Owner::Kernel => !SERVING
            .iter()
            .any(|serving| name.starts_with(serving.as_bytes())),
        _ => false,
    }
}

/// What runs on a CPU, and since when.
#[derive(Clone, Copy)]
struct Running {
    pid: i32,
    comm: Comm,
    since_ns: u64,
}

impl CpuTime {
    /// Of `start..end`.
    pub(super) fn of(
        trace: &Trace,
        owners: &HashMap<i32, Owner>,
        program: i32,
        (start, end): (u64, u64),
        judges: &Judges<'_>,
    ) -> CpuTime {
        let mut time = CpuTime::default();
        let mut running: HashMap<u32, Running> = HashMap::new();
        let mut foreign: HashMap<Comm, f64> = HashMap::new();
        let mut add = |cpu: u32, ran: Running, until_ns: u64| {
            let ns = until_ns.min(end).saturating_sub(ran.since_ns.max(start));
            let owner = owners.get(&ran.pid).copied().unwrap_or(Owner::Other);
            *time.by_owner_us.entry(owner).or_default() += us(ns);
            let comm = ran.comm;
            if ns > 0 && (judges.foreign)(Ran { owner, comm, cpu }) {
                *foreign.entry(comm).or_default() += us(ns);
            }
        };
        let (mut left, mut not_entered) = (0, 0);
        let mut woken: HashMap<i32, u64> = HashMap::new();
        for event in &trace.events {
            let (prev, next) = match event.kind {
                Kind::Switch { prev, next, .. } => (prev, next),
                Kind::Wake {
                    wake: Wake::Begins,
                    task,
                    ..
                } => {
                    woken.insert(task.pid, event.time_ns);
                    continue;
                }
                _ => continue,
            };
            let prev_pid = prev.pid;
            let next = Running {
                pid: next.pid,
                comm: next.comm,
                since_ns: event.time_ns,
            };
            let before = running.insert(event.cpu, next);
            let mut since_ns = before.map_or(start, |before| before.since_ns);
            // The kernel did not write that this thread entered the CPU: it was not before its
            // wake-up.
            if let Some(before) = before.filter(|before| before.pid != prev_pid) {
                let woken_ns = woken.get(&prev_pid).copied().unwrap_or_default();
                since_ns = since_ns.max(woken_ns.min(event.time_ns));
                add(event.cpu, before, since_ns);
            }
            let ran = Running {
                pid: prev_pid,
                comm: prev.comm,
                since_ns,
            };
            add(event.cpu, ran, event.time_ns);
            if (start..end).contains(&event.time_ns) && (judges.switches)(prev_pid) {
                left += 1;
                not_entered += u64::from(before.is_some_and(|before| before.pid != prev_pid));
            }
        }
        // Runs that had not ended when the recording ended.
        running.iter().for_each(|(cpu, ran)| add(*cpu, *ran, end));
        time.foreign = Foreign {
            // The sum of nothing is -0.
            total_us: foreign.values().sum::<f64>() + 0.0,
            most: most(&foreign),
        };
        (time.left, time.not_entered) = (left, not_entered);
        time.add_program(trace, program, (start, end));
        time
    }

    /// The times that the program's first thread was off the CPU.
    fn add_program(&mut self, trace: &Trace, program: i32, (start, end): (u64, u64)) {
        let mut off: Option<(u64, bool)> = None;
        for event in &trace.events {
            let Kind::Switch {
                prev,
                prev_state,
                next,
            } = event.kind
            else {
                continue;
            };
            if next.pid == program
                && let Some((since, runnable)) = off.take()
            {
                let time = us(event.time_ns.min(end).saturating_sub(since.max(start)));
                match runnable {
                    true => self.program_preempted_us += time,
                    false => self.program_blocked_us += time,
                }
            }
            if prev.pid == program && !prev_state.is_dead() {
                off = Some((event.time_ns, prev_state.is_runnable()));
            }
        }
    }

    pub(super) fn owner_us(&self, owner: Owner) -> f64 {
        self.by_owner_us.get(&owner).copied().unwrap_or_default()
    }
}

fn most(times: &HashMap<Comm, f64>) -> String {
    let most = times.iter().max_by(|a, b| a.1.total_cmp(b.1));
    most.map(|(comm, _)| comm.to_string()).unwrap_or_default()
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}
