//! Whose wait, whose CPU time: from the trace of one launch to its sample.
//!
//! In the kernel the threads that decompressed are the kworkers while they run
//! `z_erofs_decompressqueue_work`, and the `erofs_worker/N` kthreads where the kernel has them. A
//! daemon's are all threads of its process, the ones that started during the launch included.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use sched_trace::blame::Timeline;
use sched_trace::latency::{Report, Wait, WaitKind, analyse};
use sched_trace::{Kind, Trace};

use super::picture::{Who, blame, picture};
use super::report::{Sample, ThreadWaits};

/// The work function of fs/erofs, for work queues; its kthread twin has the same beginning.
const DECOMPRESS: &str = "z_erofs_decompressqueue";
/// The name of the kernel's per-CPU threads, before the number of the CPU.
const KTHREAD: &str = "erofs_worker/";
/// The lab's own time stamp of the end may be late by its own wait for a CPU, hardly by more.
const LATE_NS: u64 = 100_000_000;

/// Threads known before or right after a launch.
#[derive(Debug, Default, Clone)]
pub(super) struct Threads {
    pub(super) lab: Vec<u32>,
    pub(super) load: Vec<u32>,
    pub(super) kernel: Vec<u32>,
    pub(super) engine: Vec<u32>,
    /// The kernel decompresses.
    pub(super) in_kernel: bool,
}

/// Who a thread belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Idle,
    Kernel,
    Lab,
    Load,
    Engine,
    Program,
}

/// CPU time of programs that have nothing to do with the launch.
#[derive(Debug, Default, Clone, PartialEq)]
pub(super) struct Foreign {
    pub(super) total_us: f64,
    /// The name of the greediest.
    pub(super) most: String,
}

/// One launch with its trace.
pub(super) struct Launch<'a> {
    trace: &'a Trace,
    report: Report,
    sides: HashMap<i32, Side>,
    in_kernel: bool,
    start_ns: u64,
    end_ns: u64,
}

impl<'a> Launch<'a> {
    /// Why the waits of this launch cannot be told, if the kernel kept too many switches to itself.
    pub(super) fn unwritten(&self) -> Option<String> {
        let (missing, all) = (self.report.missing_switches, self.report.switches);
        (!self.report.is_valid()).then(|| {
            format!("the kernel did not write {missing} switches beside {all}, and waits are missing with them")
        })
    }

    pub(super) fn new(
        trace: &'a Trace,
        threads: Threads,
        program: u32,
        start_ns: u64,
        end_ns: u64,
    ) -> Self {
        Launch {
            trace,
            report: analyse(trace),
            in_kernel: threads.in_kernel,
            sides: sides(trace, &threads, program as i32),
            start_ns,
            end_ns: exit_time(trace, program as i32, start_ns, end_ns),
        }
    }

    pub(super) fn sample(&self) -> Sample {
        let (mut wakeups, mut wakeup_ns, mut preempted_ns) = (0, 0, 0);
        let mut threads: BTreeMap<i32, ThreadWaits> = BTreeMap::new();
        let counted: Vec<&Wait> = self
            .report
            .waits
            .iter()
            .filter(|wait| self.counts(wait))
            .collect();
        let timeline = Timeline::new(self.trace);
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
        let (works, queue_ns) = if self.in_kernel {
            self.kernel_queue()
        } else {
            (0, 0)
        };
        Sample {
            launch_us: us(self.end_ns - self.start_ns),
            sched_latency_us: us(wakeup_ns + preempted_ns),
            wakeup_us: us(wakeup_ns),
            preempted_us: us(preempted_ns),
            queue_us: us(queue_ns),
            wakeups,
            threads: threads.len() as u64,
            by_thread: threads.into_values().collect(),
            works,
            behind: blame(&timeline, &counted),
            picture: picture(
                &timeline,
                &self.cpus(),
                (self.start_ns, self.end_ns),
                &counted,
                &|pid| self.who(pid, &counted),
            ),
            ..Sample::default()
        }
    }

    /// The CPUs that the trace tells of.
    fn cpus(&self) -> Vec<u32> {
        let cpus: BTreeSet<u32> = self.trace.events.iter().map(|event| event.cpu).collect();
        cpus.into_iter().collect()
    }

    /// A thread of the kernel that waited to decompress is the engine's for the whole launch.
    fn who(&self, pid: i32, counted: &[&Wait]) -> Who {
        match self.sides.get(&pid) {
            Some(Side::Kernel) if counted.iter().any(|wait| wait.pid == pid) => Who::Engine,
            Some(Side::Idle) => Who::Idle,
            Some(Side::Kernel) => Who::Kernel,
            Some(Side::Lab) => Who::Lab,
            Some(Side::Load) => Who::Load,
            Some(Side::Engine) => Who::Engine,
            Some(Side::Program) => Who::Program,
            None => Who::Other,
        }
    }

    fn counts(&self, wait: &Wait) -> bool {
        if wait.start_ns < self.start_ns || wait.start_ns >= self.end_ns {
            return false;
        }
        if self.in_kernel {
            let function = wait.function.map_or("", |name| self.report.names.get(name));
            function.starts_with(DECOMPRESS) || wait.comm.to_string().starts_with(KTHREAD)
        } else {
            self.sides.get(&wait.pid) == Some(&Side::Engine)
        }
    }

    /// Work items that decompressed, and their total delay from queueing to start.
    fn kernel_queue(&self) -> (u64, u64) {
        let works = self.report.works.iter().filter(|work| {
            (self.start_ns..self.end_ns).contains(&work.start_ns)
                && self.report.names.get(work.function).starts_with(DECOMPRESS)
        });
        works.fold((0, 0), |(count, total), work| {
            let delay = work
                .queued_ns
                .map_or(0, |queued| work.start_ns.saturating_sub(queued));
            (count + 1, total + delay)
        })
    }

    /// Run time within the launch of threads that belong to nobody we know.
    pub(super) fn foreign(&self) -> Foreign {
        let mut by_name: HashMap<String, u64> = HashMap::new();
        let mut since: HashMap<u32, u64> = HashMap::new();
        for event in &self.trace.events {
            let Kind::Switch {
                prev_pid,
                prev_comm,
                ..
            } = event.kind
            else {
                continue;
            };
            let from = since
                .insert(event.cpu, event.time_ns)
                .unwrap_or(self.start_ns)
                .max(self.start_ns);
            let ran = event.time_ns.min(self.end_ns).saturating_sub(from);
            if ran > 0 && !self.sides.contains_key(&prev_pid) {
                *by_name.entry(prev_comm.to_string()).or_default() += ran;
            }
        }
        let most = by_name
            .iter()
            .max_by_key(|&(name, &ran)| (ran, name.clone()));
        Foreign {
            most: most.map(|(name, _)| name.clone()).unwrap_or_default(),
            total_us: us(by_name.values().sum()),
        }
    }
}

impl ThreadWaits {
    fn add(&mut self, wait: &Wait) {
        self.comm = wait.comm.to_string();
        self.priority = wait.prio;
        self.wakeups += u64::from(wait.kind == WaitKind::Wakeup);
        self.total_us += us(wait.length_ns());
        self.longest_us = self.longest_us.max(us(wait.length_ns()));
    }
}

/// Known threads, and every thread that one of them made while we looked.
fn sides(trace: &Trace, threads: &Threads, program: i32) -> HashMap<i32, Side> {
    let mut sides = HashMap::from([(0, Side::Idle)]);
    let groups = [
        (&threads.kernel, Side::Kernel),
        (&threads.lab, Side::Lab),
        (&threads.load, Side::Load),
        (&threads.engine, Side::Engine),
    ];
    for (members, side) in groups {
        sides.extend(members.iter().map(|&pid| (pid as i32, side)));
    }
    sides.insert(program, Side::Program);
    for event in &trace.events {
        if let Kind::Fork {
            child_pid,
            parent_pid,
            ..
        } = event.kind
            && child_pid != program
            && let Some(&side) = sides.get(&parent_pid)
        {
            sides.insert(child_pid, side);
        }
    }
    sides
}

/// When the program was really gone: its first thread's last switch. The lab itself sees that only
/// when it gets a CPU. A program whose first thread ends long before the others keeps the lab's time.
fn exit_time(trace: &Trace, program: i32, start_ns: u64, seen_ns: u64) -> u64 {
    let gone = trace
        .events
        .iter()
        .rev()
        .find_map(|event| match event.kind {
            Kind::Switch {
                prev_pid,
                prev_state,
                ..
            } if prev_pid == program && prev_state.is_dead() => Some(event.time_ns),
            _ => None,
        });
    gone.filter(|&gone| gone > start_ns && gone <= seen_ns && seen_ns - gone < LATE_NS)
        .unwrap_or(seen_ns)
}

fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched_trace::{Comm, Event, TaskState};

    const LAB: i32 = 10;
    const PROGRAM: i32 = 20;
    const WORKER: i32 = 30;
    const FIO: i32 = 40;
    const STRANGER: i32 = 50;

    /// A trace of one CPU, written line by line; times in microseconds.
    struct Lines(Trace);

    impl Lines {
        fn new() -> Self {
            Lines(Trace::new("mono"))
        }
        fn add(mut self, at_us: u64, kind: Kind) -> Self {
            self.0.events.push(Event {
                time_ns: at_us * 1000,
                cpu: 0,
                pid: 0,
                kind,
            });
            self
        }
        fn switch(self, at_us: u64, prev: i32, prev_state: TaskState, next: i32) -> Self {
            let comm = |pid: i32| Comm::new(name(pid).as_bytes());
            self.add(
                at_us,
                Kind::Switch {
                    prev_pid: prev,
                    prev_comm: comm(prev),
                    prev_prio: 120,
                    prev_state,
                    next_pid: next,
                    next_comm: comm(next),
                    next_prio: 120,
                },
            )
        }
        fn waking(self, at_us: u64, pid: i32) -> Self {
            self.add(
                at_us,
                Kind::Waking {
                    pid,
                    comm: Comm::new(name(pid).as_bytes()),
                    prio: 120,
                    target_cpu: 0,
                },
            )
        }
        fn fork(self, at_us: u64, parent: i32, child: i32) -> Self {
            let comm = Comm::new(b"x");
            self.add(
                at_us,
                Kind::Fork {
                    child_pid: child,
                    child_comm: comm,
                    parent_pid: parent,
                    parent_comm: comm,
                },
            )
        }
    }

    fn name(pid: i32) -> String {
        match pid {
            0 => "swapper/0".into(),
            WORKER => "kworker/u9:2".into(),
            FIO => "fio".into(),
            STRANGER => "rustc".into(),
            pid => format!("task-{pid}"),
        }
    }

    fn threads(in_kernel: bool) -> Threads {
        Threads {
            lab: vec![LAB as u32],
            load: vec![FIO as u32],
            kernel: if in_kernel {
                vec![WORKER as u32]
            } else {
                vec![]
            },
            engine: if in_kernel {
                vec![]
            } else {
                vec![WORKER as u32]
            },
            in_kernel,
        }
    }

    /// The worker waits 300 us behind fio, runs, is preempted for 200 us, runs again.
    fn waits() -> Lines {
        let sleeping = TaskState::SLEEPING;
        Lines::new()
            .switch(100, LAB, sleeping, WORKER)
            .switch(110, WORKER, sleeping, FIO)
            .waking(1000, WORKER)
            .switch(1300, FIO, TaskState::PREEMPTED, WORKER)
            .switch(1400, WORKER, TaskState::PREEMPTED, FIO)
            .switch(1600, FIO, TaskState::PREEMPTED, WORKER)
            .switch(1700, WORKER, sleeping, FIO)
    }

    #[test]
    fn a_daemon_waits_after_wake_up_and_after_preemption() {
        let lines = waits();
        let sample =
            Launch::new(&lines.0, threads(false), PROGRAM as u32, 200_000, 2_000_000).sample();
        assert_eq!(
            (
                sample.wakeup_us,
                sample.preempted_us,
                sample.sched_latency_us
            ),
            (300.0, 200.0, 500.0)
        );
        assert_eq!(
            (sample.wakeups, sample.threads, sample.launch_us),
            (1, 1, 1800.0)
        );
    }

    #[test]
    fn what_a_daemon_does_before_and_after_the_launch_does_not_count() {
        let lines = waits();
        let sample = Launch::new(
            &lines.0,
            threads(false),
            PROGRAM as u32,
            1_800_000,
            2_000_000,
        )
        .sample();
        assert_eq!((sample.sched_latency_us, sample.wakeups), (0.0, 0));
    }

    #[test]
    fn a_thread_that_the_daemon_makes_during_the_launch_counts() {
        let young = 31;
        let lines = waits()
            .fork(1750, WORKER, young)
            .switch(1760, FIO, TaskState::PREEMPTED, young)
            .switch(1770, young, TaskState::SLEEPING, FIO)
            .waking(1800, young)
            .switch(1840, FIO, TaskState::PREEMPTED, young);
        let sample =
            Launch::new(&lines.0, threads(false), PROGRAM as u32, 200_000, 2_000_000).sample();
        assert_eq!((sample.wakeup_us, sample.threads), (340.0, 2));
    }

    #[test]
    fn a_kworker_counts_for_decompression_only() {
        let mut lines = waits();
        let decompress = lines.0.intern("z_erofs_decompressqueue_work");
        let other = lines.0.intern("loop_workfn");
        let with = |function| {
            let mut trace = lines.0.clone();
            let work = |at_us: u64, kind| Event {
                time_ns: at_us * 1000,
                cpu: 0,
                pid: WORKER,
                kind,
            };
            trace.events.push(work(
                990,
                Kind::WorkQueued {
                    work: 7,
                    function,
                    queue: None,
                    cpu: 0,
                },
            ));
            trace
                .events
                .push(work(1310, Kind::WorkStart { work: 7, function }));
            trace.events.push(work(
                1690,
                Kind::WorkEnd {
                    work: 7,
                    function: Some(function),
                },
            ));
            trace.sort();
            Launch::new(&trace, threads(true), PROGRAM as u32, 200_000, 2_000_000).sample()
        };
        let sample = with(decompress);
        assert_eq!((sample.wakeup_us, sample.preempted_us), (300.0, 200.0));
        assert_eq!((sample.works, sample.queue_us), (1, 320.0));
        let sample = with(other);
        assert_eq!((sample.sched_latency_us, sample.works), (0.0, 0));
    }

    #[test]
    fn time_of_strangers_is_foreign_and_the_programs_children_are_not() {
        let child = 21;
        let preempted = TaskState::PREEMPTED;
        let lines = Lines::new()
            .fork(100, LAB, PROGRAM)
            .fork(150, PROGRAM, child)
            .switch(200, LAB, preempted, child)
            .switch(500, child, preempted, STRANGER)
            .switch(900, STRANGER, preempted, FIO)
            .switch(1000, FIO, preempted, PROGRAM);
        let launch = Launch::new(&lines.0, threads(false), PROGRAM as u32, 0, 2_000_000);
        assert_eq!(
            launch.foreign(),
            Foreign {
                total_us: 400.0,
                most: "rustc".into()
            }
        );
    }

    #[test]
    fn the_end_is_the_programs_last_switch_when_the_lab_looked_late() {
        let lines = Lines::new().switch(1500, PROGRAM, TaskState::DEAD, FIO);
        let end = |seen_us: u64| exit_time(&lines.0, PROGRAM, 0, seen_us * 1000);
        assert_eq!(end(9000), 1_500_000);
        assert_eq!(
            end(500_000),
            500_000_000,
            "a first thread that ends early is not the end of the program"
        );
        assert_eq!(exit_time(&Trace::new("mono"), PROGRAM, 0, 7000), 7000);
    }
}
