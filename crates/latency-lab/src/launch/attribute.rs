//! Derives the sample of a launch from its trace.
//!
//! Two figures measure waiting, both defined in the same way for every engine:
//!
//! * **Scheduling latency**, the figure of the kernel patch: how long the threads that decompressed
//!   waited for a CPU. In the kernel these threads are the kworkers while they run
//!   `z_erofs_decompressqueue_work`, and the `erofs_worker/N` kthreads if the kernel has them; only
//!   their work for the measured mount counts (`origin.rs`). For a daemon they are all threads of
//!   its processes, including threads that started during the launch, but not while they read ahead
//!   of the program (`requests.rs`). An engine that decompresses in the program's own thread has no
//!   such waits.
//! * **Whole path**: how long the program's first thread was off the CPU, blocked or preempted. It
//!   is blocked from a page fault or a read until it runs again with the data, no matter who did
//!   the work: kworkers of a loop device, softirqs, a daemon, a disk. This is the delay that the
//!   user sees, whichever thread decompresses.
//!
//! A command without a mount (`lab run`) decompresses nothing: its scheduling latency consists of
//! the waits of all its own threads.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

use sched_trace::latency::{Report, Wait, WaitKind, WorkRun, analyse};
use sched_trace::stats::us;
use sched_trace::timeline::{Run, Timeline};
use sched_trace::{Kind, Trace};

use super::cpu_time::{CpuTime, Judges, Ran, is_foreign};
use super::elsewhere::Elsewhere;
use super::origin::{DECOMPRESS, Origin, Origins, Queuer};
use super::owner::{Owner, Threads, Waiting, owners};
use super::picture::{behind, picture};
use super::program::{self, Items, Times};
use super::requests::Requests;
use super::sample::{Sample, ThreadWaits};

/// The beginning of the names of the kernel's per-CPU threads; the CPU number follows.
const KTHREAD: &[u8] = b"erofs_worker/";
/// Maximum time by which the lab may see the end of the program late, because the lab itself waits
/// for a CPU. An end that the trace shows even earlier is ignored.
const LATE_NS: u64 = 100_000_000;

/// One launch with its trace.
pub(super) struct Launch {
    report: Report,
    timeline: Timeline,
    owners: HashMap<i32, Owner>,
    origins: Origins,
    requests: Requests,
    /// Indices of the work items that each thread executed, ordered by time.
    works: HashMap<i32, Vec<usize>>,
    waiting: Waiting,
    /// What all threads of the program did within the launch, added up.
    times: Times,
    elsewhere: Elsewhere,
    /// The CPUs on which the program may run.
    cpus_of_launch: BTreeSet<u32>,
    program: i32,
    start_ns: u64,
    end_ns: u64,
}

impl Launch {
    pub(super) fn new(
        trace: &Trace,
        threads: Threads,
        program: u32,
        start_ns: u64,
        end_ns: u64,
    ) -> Self {
        let program = program as i32;
        let owners = owners(trace, &threads, program);
        let queuer = |pid: i32| match owners.get(&pid) {
            Some(Owner::Program) => Queuer::Program,
            Some(Owner::Kernel | Owner::Idle) => Queuer::Kernel,
            _ => Queuer::Stranger,
        };
        let report = analyse(trace);
        let mut works: HashMap<i32, Vec<usize>> = HashMap::new();
        for (index, work) in report.works.iter().enumerate() {
            works.entry(work.pid).or_default().push(index);
        }
        let end_ns = exit_time(trace, program, &owners, start_ns, end_ns);
        let timeline = Timeline::new(trace);
        let times = Times::of(trace, &timeline, &(start_ns..end_ns), &owners);
        let window = start_ns..end_ns;
        Launch {
            times,
            elsewhere: Elsewhere::of(trace, (&timeline, &report), &window, &owners),
            origins: Origins::of(trace, &threads.mounts, &queuer),
            requests: Requests::of(trace, &report, &|pid| {
                owners.get(&pid).copied().unwrap_or(Owner::Other)
            }),
            works,
            report,
            timeline,
            waiting: threads.waiting,
            cpus_of_launch: threads.cpus.clone(),
            program,
            start_ns,
            end_ns,
            owners,
        }
    }

    /// Why the launch does not count, if the kernel may also have decompressed for other mounts and
    /// the trace does not show which work was for which mount.
    pub(super) fn mixed_up(&self) -> Option<String> {
        let items = self.all_decompressions();
        let origins: Vec<Origin> = items.map(|work| self.origins.of_item(Some(work))).collect();
        let unknown = origins.iter().filter(|origin| **origin == Origin::Unknown);
        let (unknown, all) = (unknown.count(), origins.len());
        (unknown > 0).then(|| {
            format!("{unknown} of {all} decompression work items may belong to another EROFS mount")
        })
    }

    pub(super) fn sample(&self) -> Sample {
        let (mut wakeups, mut wakeup_ns, mut preempted_ns) = (0, 0, 0);
        let mut threads: BTreeMap<i32, ThreadWaits> = BTreeMap::new();
        let counted: Vec<&Wait> = self.counted().collect();
        for wait in &counted {
            threads.entry(wait.pid).or_default().add(wait);
            match wait.kind {
                WaitKind::Wakeup => {
                    wakeups += 1;
                    wakeup_ns += wait.length_ns();
                }
                WaitKind::Preempted => preempted_ns += wait.length_ns(),
            }
        }
        let items = self.items();
        let (works, queue_ns) = match self.waiting {
            Waiting::Program => items.queue(),
            Waiting::Kernel | Waiting::Daemon => self.kernel_queue(),
        };
        let time = self.cpu_time();
        Sample {
            launch_us: us(self.end_ns - self.start_ns),
            sched_latency_us: us(wakeup_ns + preempted_ns),
            wakeup_us: us(wakeup_ns),
            preempted_us: us(preempted_ns),
            queue_us: (self.waiting != Waiting::Daemon).then_some(us(queue_ns)),
            program_blocked_us: time.program_blocked_us,
            program_preempted_us: time.program_preempted_us,
            load_us: time.owner_us(Owner::Load),
            idle_us: time.owner_us(Owner::Idle),
            foreign_us: time.foreign.total_us,
            cpu_us: time.owner_us(Owner::Program),
            uninterruptible_us: us(self.times.uninterruptible_ns),
            preemptions: Some(self.preemptions()),
            migrations: Some(self.times.migrations),
            interrupted_us: self.elsewhere.interrupted_us(),
            interrupts: self.elsewhere.interrupts.clone(),
            slept_in: self.elsewhere.sleeps.clone(),
            by_workqueue: items.by_workqueue(&self.report.names),
            ahead_us: self.ahead_us(),
            wakeups,
            threads: threads.len() as u64,
            unfinished: self
                .report
                .unfinished
                .iter()
                .filter(|wait| self.counts(wait))
                .count() as u64,
            by_thread: threads.into_values().collect(),
            works,
            other_works: self.other_works(),
            behind: behind(&self.timeline, &counted),
            picture: picture(&self.timeline, self.window(), &counted, &|pid| {
                self.owner(pid, &counted)
            }),
            ..Sample::default()
        }
    }

    /// How often a thread of the program was preempted while still runnable.
    fn preemptions(&self) -> u64 {
        let all = self.report.waits.iter().chain(&self.report.unfinished);
        let preempted = all.filter(|wait| wait.kind == WaitKind::Preempted);
        let within = preempted.filter(|wait| self.window().contains(&wait.start_ns));
        within.filter(|wait| self.is_program(wait.pid)).count() as u64
    }

    /// The work items that the kernel's workers executed for the program.
    fn items(&self) -> Items<'_> {
        let started = |work: &&WorkRun| self.window().contains(&work.start_ns);
        program::items(&self.report.works, &|pid| self.is_program(pid), &started)
    }

    fn is_program(&self, pid: i32) -> bool {
        self.owners.get(&pid) == Some(&Owner::Program)
    }

    /// The CPU time of the launch. Missing switches are counted for the threads that the figures
    /// are based on.
    pub(super) fn cpu_time(&self) -> CpuTime {
        let counted: BTreeSet<i32> = self.counted().map(|wait| wait.pid).collect();
        // A worker whose switch-in events are all missing has no wait in the report.
        let decompressed: BTreeSet<i32> = self.decompressions().map(|work| work.pid).collect();
        let judged = |pid: i32| {
            pid == self.program
                || counted.contains(&pid)
                || decompressed.contains(&pid)
                || self.owners.get(&pid) == Some(&Owner::Engine)
                || self.waiting == Waiting::Program && self.is_program(pid)
        };
        let of_launch = |cpu: u32| self.cpus_of_launch.contains(&cpu);
        let judges = Judges {
            switches: &judged,
            foreign: &|ran: Ran| self.is_foreign(ran) && of_launch(ran.cpu),
            other_mounts_ns: &|run: &Run, cpu: u32| match of_launch(cpu) {
                true if self.waiting != Waiting::Program => self.other_mounts_ns(run),
                _ => 0,
            },
        };
        let owner = |pid: i32| self.known_owner(pid);
        CpuTime::of(
            &self.timeline,
            &self.window(),
            self.program,
            &owner,
            &judges,
        )
    }

    /// Whether a run is unrelated to the launch. A command may need any kernel thread (for reclaim,
    /// file systems or mounts), so for commands only runs of other programs are unrelated.
    fn is_foreign(&self, ran: Ran) -> bool {
        match self.waiting {
            Waiting::Program => ran.owner == Owner::Other,
            Waiting::Kernel | Waiting::Daemon => is_foreign(ran),
        }
    }

    /// The part of a run that was spent decompressing for EROFS mounts that are not measured.
    fn other_mounts_ns(&self, run: &Run) -> u64 {
        let works = self.works.get(&run.pid).into_iter().flatten();
        let works = works.map(|&index| &self.report.works[index]);
        let others = works.filter(|work| {
            self.decompresses(work)
                && (self.waiting != Waiting::Kernel
                    || self.origins.of_item(Some(work)) == Origin::Other)
        });
        let within = |work: &WorkRun| {
            let end = work.end_ns.unwrap_or(run.end_ns).min(run.end_ns);
            end.saturating_sub(work.start_ns.max(run.start_ns))
        };
        others.map(within).sum()
    }

    fn window(&self) -> Range<u64> {
        self.start_ns..self.end_ns
    }

    fn known_owner(&self, pid: i32) -> Owner {
        self.owners.get(&pid).copied().unwrap_or(Owner::Other)
    }

    /// The owner of a thread. A kernel thread that waited to decompress belongs to the engine for
    /// the whole launch.
    fn owner(&self, pid: i32, counted: &[&Wait]) -> Owner {
        match self.known_owner(pid) {
            Owner::Kernel if counted.iter().any(|wait| wait.pid == pid) => Owner::Engine,
            known => known,
        }
    }

    /// The waits that make up the scheduling latency. A thread that is still waiting when the
    /// recording ends has waited at least until then.
    fn counted(&self) -> impl Iterator<Item = &Wait> {
        let waits = self.report.waits.iter().chain(&self.report.unfinished);
        waits.filter(|wait| self.counts(wait))
    }

    fn counts(&self, wait: &Wait) -> bool {
        if !self.window().contains(&wait.start_ns) {
            return false;
        }
        match self.waiting {
            Waiting::Kernel => {
                let function = wait.function.map_or("", |name| self.report.names.get(name));
                let kthread = self.owners.get(&wait.pid) == Some(&Owner::Kernel);
                // A daemon's workers have the same names, but only the kernel's own count here.
                let decompresses = function.starts_with(DECOMPRESS)
                    || kthread && wait.comm.as_bytes().starts_with(KTHREAD);
                decompresses && self.origins.of_item(self.work_of(wait)) != Origin::Other
            }
            Waiting::Daemon => self.is_daemons(wait) && !self.requests.is_ahead(wait),
            Waiting::Program => self.is_program(wait.pid),
        }
    }

    fn is_daemons(&self, wait: &Wait) -> bool {
        self.owners.get(&wait.pid) == Some(&Owner::Engine)
    }

    /// Total of those waits of the daemon's threads that did not delay the program; none if the
    /// trace does not show which waits these are.
    fn ahead_us(&self) -> Option<f64> {
        let waits = self.report.waits.iter().chain(&self.report.unfinished);
        let ahead = waits.filter(|wait| {
            self.window().contains(&wait.start_ns)
                && self.is_daemons(wait)
                && self.requests.is_ahead(wait)
        });
        let is_known = self.waiting == Waiting::Daemon && self.requests.show_ahead();
        is_known.then(|| us(ahead.map(Wait::length_ns).sum::<u64>()))
    }

    /// The work item that a worker was executing when it waited, or else the next item that it
    /// started.
    fn work_of(&self, wait: &Wait) -> Option<&WorkRun> {
        let works = self.works.get(&wait.pid)?;
        let work = |at: usize| works.get(at).map(|&index| &self.report.works[index]);
        let next = works.partition_point(|&at| self.report.works[at].start_ns < wait.end_ns);
        let before = next.checked_sub(1).and_then(work);
        let inside = before.filter(|work| {
            work.start_ns <= wait.start_ns && work.end_ns.is_none_or(|end| end >= wait.end_ns)
        });
        inside.or(work(next))
    }

    /// Whether a kernel work item decompresses, for whichever mount.
    fn decompresses(&self, work: &WorkRun) -> bool {
        self.report.names.get(work.function).starts_with(DECOMPRESS)
    }

    /// The kernel's work items that decompressed during the launch, for whichever mount.
    fn all_decompressions(&self) -> impl Iterator<Item = &WorkRun> {
        self.report.works.iter().filter(|work| {
            self.waiting == Waiting::Kernel
                && self.window().contains(&work.start_ns)
                && self.decompresses(work)
        })
    }

    /// The kernel's work items that decompressed for the mount during the launch.
    fn decompressions(&self) -> impl Iterator<Item = &WorkRun> {
        let works = self.all_decompressions();
        works.filter(|work| self.origins.of_item(Some(work)) != Origin::Other)
    }

    /// The number of work items that decompressed for other mounts.
    fn other_works(&self) -> u64 {
        let works = self.all_decompressions();
        let others = works.filter(|work| self.origins.of_item(Some(work)) == Origin::Other);
        others.count() as u64
    }

    /// Number of work items that decompressed, and their total delay from queueing to start.
    fn kernel_queue(&self) -> (u64, u64) {
        self.decompressions().fold((0, 0), |(count, total), work| {
            let delay = work
                .queued_ns
                .map_or(0, |queued| work.start_ns.saturating_sub(queued));
            (count + 1, total + delay)
        })
    }
}

/// When the program really ended: when the last thread of the program, or of a process that it left
/// behind, left its CPU for good. The lab itself notices the end only once it gets a CPU.
fn exit_time(
    trace: &Trace,
    program: i32,
    owners: &HashMap<i32, Owner>,
    start_ns: u64,
    seen_ns: u64,
) -> u64 {
    let of_program = |pid: i32| {
        pid == program
            || owners.get(&pid) == Some(&Owner::Program)
            || trace
                .threads
                .get(&pid)
                .is_some_and(|thread| thread.tgid == program)
    };
    let gone = trace
        .events
        .iter()
        .rev()
        .find_map(|event| match event.kind {
            Kind::Switch {
                prev, prev_state, ..
            } if of_program(prev.pid) && prev_state.is_dead() => Some(event.time_ns),
            _ => None,
        });
    gone.filter(|&gone| gone > start_ns && gone <= seen_ns && seen_ns - gone < LATE_NS)
        .unwrap_or(seen_ns)
}

#[cfg(test)]
mod tests;
