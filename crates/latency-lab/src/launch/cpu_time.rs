//! How the CPUs spent the time of one launch, and when its program was off the CPU. Time outside
//! the launch does not count.

use std::collections::HashMap;
use std::ops::Range;

use sched_trace::Comm;
use sched_trace::stats::us;
use sched_trace::timeline::{Run, Timeline};

use super::owner::Owner;

/// CPU time unrelated to the launch: other programs, and other mounts of EROFS.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Foreign {
    pub(super) total_us: f64,
    /// What used the largest part: the name of a program, or [`OTHER_MOUNT`].
    pub(super) most: String,
}

/// The name that reports give to the kernel's work for mounts that are not measured.
pub(super) const OTHER_MOUNT: &str = "the kernel for another EROFS mount";

#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct CpuTime {
    /// CPU time by owner, summed over all CPUs.
    pub(super) by_owner_us: HashMap<Owner, f64>,
    pub(super) foreign: Foreign,
    /// Time that the program's first thread slept: from blocking to running again.
    pub(super) program_blocked_us: f64,
    /// Time that the program's first thread was runnable but did not run.
    pub(super) program_preempted_us: f64,
    /// Number of switches away from the selected threads.
    pub(super) left: u64,
    /// Number of these switches that ended a run whose beginning is not in the trace.
    pub(super) not_entered: u64,
}

/// A thread that ran on a CPU.
#[derive(Clone, Copy)]
pub(super) struct Ran {
    pub(super) owner: Owner,
    pub(super) comm: Comm,
    pub(super) cpu: u32,
}

/// Functions that say for which threads missing switches are counted, which runs are unrelated to
/// the launch, and for how many nanoseconds a run decompressed for mounts that are not measured.
pub(super) struct Judges<'a> {
    pub(super) switches: &'a dyn Fn(i32) -> bool,
    pub(super) foreign: &'a dyn Fn(Ran) -> bool,
    pub(super) other_mounts_ns: &'a dyn Fn(&Run, u32) -> u64,
}

/// Kernel threads that work for whatever is being measured.
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

/// Whether this is an unrelated program, or a kernel thread doing its own work: reclaim,
/// compaction, file systems.
pub(super) fn is_foreign(ran: Ran) -> bool {
    let serves = |serving: &&str| ran.comm.as_bytes().starts_with(serving.as_bytes());
    match ran.owner {
        Owner::Other => true,
        Owner::Kernel => !SERVING.iter().any(serves),
        _ => false,
    }
}

impl CpuTime {
    pub(super) fn of(
        timeline: &Timeline,
        window: &Range<u64>,
        program: i32,
        owner: &dyn Fn(i32) -> Owner,
        judges: &Judges<'_>,
    ) -> CpuTime {
        let mut time = CpuTime::default();
        let mut foreign: HashMap<String, f64> = HashMap::new();
        for cpu in timeline.cpus() {
            for run in timeline.runs(cpu, window.start, window.end) {
                let (owner, comm, length) = (owner(run.pid), run.comm, us(run.length_ns()));
                *time.by_owner_us.entry(owner).or_default() += length;
                if (judges.foreign)(Ran { owner, comm, cpu }) {
                    *foreign.entry(comm.to_string()).or_default() += length;
                } else if let ns @ 1.. = (judges.other_mounts_ns)(&run, cpu) {
                    *foreign.entry(OTHER_MOUNT.into()).or_default() += us(ns);
                }
                let left = run.left.is_some() && run.end_ns < window.end;
                if left && (judges.switches)(run.pid) {
                    time.left += 1;
                    time.not_entered += u64::from(!run.entered);
                }
            }
        }
        let most = foreign.iter().max_by(|a, b| a.1.total_cmp(b.1));
        time.foreign = Foreign {
            // Adding 0 turns -0, the sum of no numbers, into 0.
            total_us: foreign.values().sum::<f64>() + 0.0,
            most: most.map_or(String::new(), |(name, _)| name.clone()),
        };
        time.add_program(timeline, window, program);
        time
    }

    /// Adds the times for which the program's first thread was off the CPU.
    fn add_program(&mut self, timeline: &Timeline, window: &Range<u64>, program: i32) {
        let runs: Vec<_> = timeline.runs_of(program).map(|(_, run)| run).collect();
        for pair in runs.windows(2) {
            let (from, to) = (
                pair[0].end_ns.max(window.start),
                pair[1].start_ns.min(window.end),
            );
            let time = us(to.saturating_sub(from));
            match pair[0].left {
                Some(state) if state.is_runnable() => self.program_preempted_us += time,
                Some(state) if !state.is_dead() => self.program_blocked_us += time,
                _ => {}
            }
        }
    }

    pub(super) fn owner_us(&self, owner: Owner) -> f64 {
        self.by_owner_us.get(&owner).copied().unwrap_or_default()
    }
}
