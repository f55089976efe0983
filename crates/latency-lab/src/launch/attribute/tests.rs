//! Traces written line by line, and the samples that follow from them.

use super::*;
use sched_trace::{Comm, Event, Task, TaskState, Wake};

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
        let kind = Kind::Switch {
            prev: task(prev),
            prev_state,
            next: task(next),
        };
        self.add(at_us, kind)
    }
    fn waking(self, at_us: u64, pid: i32) -> Self {
        let kind = Kind::Wake {
            wake: Wake::Begins,
            task: task(pid),
            target_cpu: 0,
        };
        self.add(at_us, kind)
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

fn task(pid: i32) -> Task {
    Task {
        comm: Comm::new(name(pid).as_bytes()),
        pid,
        prio: 120,
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
        cpus: BTreeSet::from([0]),
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
    let sample = Launch::new(&lines.0, threads(false), PROGRAM as u32, 200_000, 2_000_000).sample();
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
    let sample = Launch::new(&lines.0, threads(false), PROGRAM as u32, 200_000, 2_000_000).sample();
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
                kthread: false,
            },
        ));
        let start = Kind::WorkStart {
            work: 7,
            function,
            kthread: false,
        };
        trace.events.push(work(1310, start));
        trace.events.push(work(
            1690,
            Kind::WorkEnd {
                work: 7,
                function: Some(function),
                kthread: false,
            },
        ));
        trace.sort();
        Launch::new(&trace, threads(true), PROGRAM as u32, 200_000, 2_000_000).sample()
    };
    let sample = with(decompress);
    assert_eq!((sample.wakeup_us, sample.preempted_us), (300.0, 200.0));
    assert_eq!((sample.works, sample.queue_us), (1, Some(320.0)));
    let sample = with(other);
    assert_eq!((sample.sched_latency_us, sample.works), (0.0, 0));
}

#[test]
fn a_daemon_beside_the_kernels_mount_is_not_the_kernel() {
    let mut lines = waits();
    for event in &mut lines.0.events {
        match &mut event.kind {
            Kind::Wake { task, .. } | Kind::Switch { next: task, .. } if task.pid == WORKER => {
                task.comm = "erofs_worker/0".into();
            }
            _ => {}
        }
    }
    let waited = |threads| {
        let sample = Launch::new(&lines.0, threads, PROGRAM as u32, 200_000, 2_000_000).sample();
        sample.sched_latency_us
    };
    assert_eq!(waited(threads(true)), 500.0, "a thread of the kernel");
    let mut beside = threads(true);
    beside.kernel.clear();
    assert_eq!(waited(beside), 0.0, "of a daemon");
}

#[test]
fn a_worker_that_still_waits_at_the_end_has_waited_until_then() {
    let lines = waits()
        .waking(1800, WORKER)
        .switch(1950, FIO, TaskState::PREEMPTED, STRANGER);
    let sample = Launch::new(&lines.0, threads(false), PROGRAM as u32, 200_000, 2_000_000).sample();
    assert_eq!((sample.wakeup_us, sample.unfinished), (450.0, 1));
}

#[test]
fn reclaim_is_foreign_and_other_cpus_are_not_the_launchs() {
    let preempted = TaskState::PREEMPTED;
    let mut lines = Lines::new()
        .switch(100, LAB, TaskState::SLEEPING, WORKER)
        .switch(300, WORKER, preempted, PROGRAM);
    for event in &mut lines.0.events {
        if let Kind::Switch { prev, next, .. } = &mut event.kind {
            (prev.comm, next.comm) = ("kswapd0".into(), "kswapd0".into());
        }
    }
    let foreign = |threads| {
        let launch = Launch::new(&lines.0, threads, PROGRAM as u32, 0, 400_000);
        launch.cpu_time().foreign.total_us
    };
    assert_eq!(foreign(threads(true)), 200.0);
    let mut elsewhere = threads(true);
    elsewhere.cpus = BTreeSet::from([1]);
    assert_eq!(foreign(elsewhere), 0.0);
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
    let foreign = launch.cpu_time().foreign;
    assert_eq!((foreign.total_us, foreign.most.as_str()), (400.0, "rustc"));
}

#[test]
fn a_stranger_that_still_runs_when_the_launch_ends_is_foreign_until_then() {
    let preempted = TaskState::PREEMPTED;
    let lines = Lines::new()
        .switch(100, LAB, TaskState::SLEEPING, PROGRAM)
        .switch(200, PROGRAM, preempted, STRANGER);
    let launch = Launch::new(&lines.0, threads(false), PROGRAM as u32, 0, 1_000_000);
    assert_eq!(launch.cpu_time().foreign.total_us, 800.0);
}

#[test]
fn the_loads_share_is_that_within_the_launch() {
    let preempted = TaskState::PREEMPTED;
    let lines = Lines::new()
        .switch(100, LAB, TaskState::SLEEPING, FIO)
        .switch(600, FIO, preempted, PROGRAM)
        .switch(800, PROGRAM, TaskState::SLEEPING, 0)
        .switch(900, 0, TaskState::RUNNABLE, FIO)
        // What the recorder does afterwards is no part of it.
        .switch(5000, FIO, preempted, LAB);
    let sample = Launch::new(&lines.0, threads(false), PROGRAM as u32, 500_000, 1_000_000).sample();
    assert_eq!((sample.load_us, sample.idle_us), (200.0, 100.0));
}

#[test]
fn the_whole_path_is_the_programs_time_off_the_cpu_whoever_serves_it() {
    let preempted = TaskState::PREEMPTED;
    let lines = Lines::new()
        .switch(100, LAB, TaskState::SLEEPING, PROGRAM)
        // A page fault, served by a kworker of a loop device: not a thread that decompresses.
        .switch(200, PROGRAM, TaskState::UNINTERRUPTIBLE, WORKER)
        .switch(500, WORKER, TaskState::SLEEPING, PROGRAM)
        .switch(600, PROGRAM, preempted, FIO)
        .switch(700, FIO, preempted, PROGRAM)
        .switch(900, PROGRAM, TaskState::DEAD, FIO);
    let sample = Launch::new(&lines.0, threads(true), PROGRAM as u32, 0, 950_000).sample();
    assert_eq!(
        (sample.program_blocked_us, sample.program_preempted_us),
        (300.0, 100.0)
    );
    assert_eq!(
        (sample.sched_latency_us, sample.program_off_cpu_us()),
        (0.0, 400.0)
    );
}

#[test]
fn a_thread_that_leaves_without_having_entered_is_a_missing_switch_of_its_owner() {
    let sleeping = TaskState::SLEEPING;
    let lines = Lines::new()
        .switch(100, LAB, sleeping, PROGRAM)
        .switch(200, PROGRAM, sleeping, 0)
        // The kernel did not write that the idle task ended.
        .switch(300, WORKER, sleeping, 0)
        .switch(400, STRANGER, sleeping, FIO);
    let time = Launch::new(&lines.0, threads(false), PROGRAM as u32, 0, 500_000).cpu_time();
    assert_eq!((time.left, time.not_entered), (2, 1));
}

#[test]
fn a_kworker_that_decompressed_and_never_entered_is_a_missing_switch() {
    let mut lines = Lines::new()
        .switch(100, LAB, TaskState::SLEEPING, 0)
        .waking(200, WORKER)
        // The kernel did not write that the idle task ended.
        .switch(400, WORKER, TaskState::SLEEPING, 0);
    let function = lines.0.intern("z_erofs_decompressqueue_work");
    lines.0.events.push(Event {
        time_ns: 300_000,
        cpu: 0,
        pid: WORKER,
        kind: Kind::WorkStart {
            work: 7,
            function,
            kthread: false,
        },
    });
    lines.0.sort();
    let time = Launch::new(&lines.0, threads(true), PROGRAM as u32, 0, 500_000).cpu_time();
    assert_eq!((time.left, time.not_entered), (1, 1));
}

#[test]
fn the_queue_delay_of_a_fuse_mount_is_unknown_and_not_zero() {
    let lines = waits();
    let sample = Launch::new(&lines.0, threads(false), PROGRAM as u32, 200_000, 2_000_000).sample();
    assert_eq!(sample.queue_us, None);
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

#[test]
fn a_program_lasts_as_long_as_its_last_thread() {
    let thread = 22;
    let mut lines = Lines::new()
        .switch(700, PROGRAM, TaskState::DEAD, thread)
        .switch(8800, thread, TaskState::DEAD, FIO);
    let of_program = sched_trace::Thread {
        tgid: PROGRAM,
        ..Default::default()
    };
    lines.0.threads.insert(thread, of_program);
    assert_eq!(exit_time(&lines.0, PROGRAM, 0, 9_000_000), 8_800_000);
}

#[test]
fn a_thread_whose_entering_is_not_written_ran_since_its_wake_up_at_most() {
    // The CPU idles, and the kernel leaves out the switch from the idle task to a stranger.
    let lines = Lines::new()
        .switch(100, LAB, TaskState::SLEEPING, 0)
        .waking(1900, STRANGER)
        .switch(2000, STRANGER, TaskState::SLEEPING, 0);
    let launch = Launch::new(&lines.0, threads(true), PROGRAM as u32, 0, 3_000_000);
    let time = launch.cpu_time();
    assert_eq!(time.foreign.total_us, 100.0);
    assert_eq!(time.owner_us(Owner::Idle), 2800.0);
}
