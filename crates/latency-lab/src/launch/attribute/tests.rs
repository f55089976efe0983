//! Traces written as text, and the samples derived from them.

use super::super::cpu_time::OTHER_MOUNT;
use super::super::origin::Mounts;
use super::*;
use sched_trace::{Comm, Event, Interrupt, Task, TaskState, Wake};

const THREADS: [(&str, i32); 12] = [
    ("idle", 0),
    ("lab", 10),
    ("program", 20),
    ("child", 21),
    ("thread", 22),
    ("worker", 30),
    ("young", 31),
    ("companion", 32),
    ("looker", 33),
    ("copier", 34),
    ("fio", 40),
    ("rustc", 50),
];
const PROGRAM: i32 = 20;
const WORKER: i32 = 30;

fn task(name: &str) -> Task {
    let found = THREADS.iter().find(|(known, _)| *known == name);
    let comm = match name {
        "worker" => "kworker/u9:2",
        "looker" => "erofs_companion",
        name => name,
    };
    Task {
        comm: Comm::from(comm),
        pid: found.unwrap_or_else(|| panic!("{name}")).1,
        prio: 120,
    }
}

/// Parses the events of one CPU, each `MICROSECOND THREAD WHAT OTHER`, separated by semicolons. A
/// thread wakes or forks another; queues, starts or ends the work of a function; sends or answers a
/// numbered request; is interrupted by a softirq, or returns from it; is reported to have slept in
/// a function; or leaves the CPU, in the state WHAT, to the other thread.
fn trace(text: &str) -> Trace {
    let mut trace = Trace::new("mono");
    for line in text.split(';').filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [at, by, what, other] = words[..] else {
            panic!("{line}")
        };
        let (work, kthread) = (7, false);
        let mut function = || trace.names.intern(other);
        let kind = match what {
            "wakes" => Kind::Wake {
                wake: Wake::Begins,
                task: task(other),
                target_cpu: 0,
            },
            "forks" => Kind::Fork {
                child_pid: task(other).pid,
                child_comm: task(other).comm,
                parent_pid: task(by).pid,
                parent_comm: task(by).comm,
            },
            "queues" => Kind::WorkQueued {
                work,
                function: function(),
                queue: None,
                kthread,
            },
            "starts" => Kind::WorkStart {
                work,
                function: function(),
                kthread,
            },
            "ends" => Kind::WorkEnd {
                work,
                function: Some(function()),
                kthread,
            },
            "interrupted" | "returns" => Kind::Interrupt {
                source: Interrupt::Softirq(other.parse().unwrap()),
                begins: what == "interrupted",
            },
            "blamed" => Kind::SleptIn {
                pid: task(by).pid,
                caller: function(),
                io_wait: true,
            },
            "asks" => Kind::FuseSent {
                connection: 44,
                unique: other.parse().unwrap(),
                opcode: 15,
            },
            "answers" => Kind::FuseDone {
                connection: 44,
                unique: other.parse().unwrap(),
            },
            "completes" => Kind::BlockDone {
                device: other.parse().unwrap(),
                request: true,
            },
            state => Kind::Switch {
                prev: task(by),
                prev_state: TaskState::from_text(state),
                next: task(other),
            },
        };
        trace.events.push(Event {
            time_ns: at.parse::<u64>().unwrap() * 1000,
            cpu: 0,
            pid: task(by).pid,
            kind,
        });
    }
    trace
}

/// The threads of a launch, served by a daemon or by the kernel.
fn threads(in_kernel: bool) -> Threads {
    let worker = |is| if is { vec![WORKER as u32] } else { vec![] };
    Threads {
        lab: vec![10],
        load: vec![40],
        kernel: worker(in_kernel),
        engine: worker(!in_kernel),
        waiting: if in_kernel {
            Waiting::Kernel
        } else {
            Waiting::Daemon
        },
        cpus: BTreeSet::from([0]),
        ..Threads::default()
    }
}

/// The launch that lasts from the start to the end of `window`, in microseconds.
fn launch(trace: &Trace, threads: Threads, window: Range<u64>) -> Launch {
    let Range { start, end } = window;
    Launch::new(trace, threads, PROGRAM as u32, start * 1000, end * 1000)
}

/// The worker waits 300 us behind fio, runs, is preempted for 200 us, and runs again.
const WAITS: &str = "100 lab S worker; 110 worker S fio; 1000 fio wakes worker; 1300 fio R+ worker;
    1400 worker R+ fio; 1600 fio R+ worker; 1700 worker S fio;";

#[test]
fn waits_of_a_daemons_threads_within_the_launch_count() {
    // Each case has additional events, the window, and the expected waits (after wake-ups, after
    // preemptions) and counts (wake-ups, threads, unfinished waits).
    let cases = [
        ("", 200, [300.0, 200.0], [1, 1, 0]),
        ("", 1800, [0.0, 0.0], [0, 0, 0]),
        // The daemon creates a thread during the launch.
        (
            "1750 worker forks young; 1760 fio R+ young; 1770 young S fio; 1800 fio wakes young;
             1840 fio R+ young",
            200,
            [340.0, 200.0],
            [2, 2, 0],
        ),
        // A thread that is still waiting at the end has waited until then.
        (
            "1800 fio wakes worker; 1950 fio R+ rustc",
            200,
            [450.0, 200.0],
            [2, 1, 1],
        ),
    ];
    for (more, start, waits, counts) in cases {
        let trace = trace(&format!("{WAITS} {more}"));
        let sample = launch(&trace, threads(false), start..2000).sample();
        assert_eq!([sample.wakeup_us, sample.preempted_us], waits, "{more}");
        assert_eq!(sample.sched_latency_us, waits[0] + waits[1]);
        assert_eq!(
            [sample.wakeups, sample.threads, sample.unfinished],
            counts,
            "{more}"
        );
        assert_eq!(
            (sample.launch_us, sample.queue_us),
            ((2000 - start) as f64, None)
        );
    }
}

#[test]
fn waits_for_reads_ahead_count_only_if_the_program_waits_for_them() {
    // The companion sends request 2, for which the worker waits as in `WAITS`.
    let text = |asks: &str, wakes: &str, more: &str| {
        format!(
            "100 lab S worker; 110 worker S companion; 990 {asks} asks 2; 1000 {asks} wakes worker;
             1005 companion S fio; 1300 fio R+ worker; 1400 worker R+ fio; 1600 fio R+ worker;
             1650 worker answers 2; {wakes} 1700 worker S fio; {more}"
        )
    };
    // Each case has a trace, the waits that count, and the waits for read-ahead.
    let cases = [
        (text("companion", "", ""), 0.0, Some(500.0)),
        (text("program", "", ""), 500.0, Some(0.0)),
        // The companion itself waits as well.
        (
            text(
                "companion",
                "",
                "1750 fio wakes companion; 1800 fio R+ companion; 1810 companion S fio",
            ),
            0.0,
            Some(550.0),
        ),
        // The program was asleep until the page had arrived.
        (
            text(
                "companion",
                "1651 worker wakes program;",
                "1710 fio R+ program; 1720 program S fio",
            ),
            500.0,
            Some(0.0),
        ),
        // A request of the program was queued behind the companion's during the second wait, ...
        (
            text("companion", "1680 worker answers 4;", "1500 program asks 4"),
            200.0,
            Some(300.0),
        ),
        // ... and here a server sent the request, possibly on behalf of the program.
        (
            text("companion", "1680 worker answers 4;", "1500 worker asks 4"),
            200.0,
            Some(300.0),
        ),
        // Another thread helps the worker.
        (
            text(
                "companion",
                "",
                "1350 worker wakes young; 1710 fio R+ young; 1720 young S fio",
            ),
            0.0,
            Some(860.0),
        ),
        (
            text(
                "program",
                "",
                "1350 worker wakes young; 1710 fio R+ young; 1720 young S fio",
            ),
            860.0,
            Some(0.0),
        ),
        // If the kernel does not trace these events (Linux 6.9), all waits count.
        (WAITS.into(), 500.0, None),
    ];
    for (text, counted, ahead) in cases {
        let mut trace = trace(&text);
        trace.sort();
        let mut threads = threads(false);
        threads.engine.extend([31, 32]);
        let sample = launch(&trace, threads, 200..2000).sample();
        assert_eq!(
            (sample.sched_latency_us, sample.ahead_us),
            (counted, ahead),
            "{text}"
        );
    }
}

/// The companion starts when it is needed, and may end before it has sent any request.
#[test]
fn waits_of_a_companion_count_only_if_the_program_waits_for_it() {
    let text = |wakes: &str| {
        format!(
            "{WAITS} 1310 worker forks looker; 1710 fio wakes looker; 1750 fio R+ looker;
             1752 looker forks copier; {wakes} 1760 looker S fio; 1770 fio wakes copier;
             1790 fio R+ copier; 1795 copier S fio"
        )
    };
    let woken = "1754 looker wakes program; 1756 looker R+ program; 1758 program S looker;";
    for (wakes, counted, ahead) in [("", 500.0, 60.0), (woken, 540.0, 22.0)] {
        let mut trace = trace(&text(wakes));
        trace.sort();
        let sample = launch(&trace, threads(false), 200..2000).sample();
        assert_eq!(
            (sample.sched_latency_us, sample.ahead_us),
            (counted, Some(ahead)),
            "{wakes}"
        );
    }
}

#[test]
fn a_kworker_counts_for_decompression_only() {
    let with = |function: &str| {
        let works = format!(
            "990 worker queues {function}; 1310 worker starts {function};
             1690 worker ends {function}"
        );
        let mut trace = trace(&format!("{WAITS} {works}"));
        trace.sort();
        launch(&trace, threads(true), 200..2000).sample()
    };
    let sample = with("z_erofs_decompressqueue_work");
    assert_eq!((sample.wakeup_us, sample.preempted_us), (300.0, 200.0));
    assert_eq!((sample.works, sample.queue_us), (1, Some(320.0)));
    let sample = with("loop_workfn");
    assert_eq!((sample.sched_latency_us, sample.works), (0.0, 0));
}

#[test]
fn what_the_kernel_decompresses_for_another_mount_is_no_figure_of_this_one() {
    const OWN: u32 = 7 << 20;
    const OTHER: u32 = OWN | 1;
    let with = |device: Option<u32>, done: &str| {
        let works = format!(
            "980 fio completes {done}; 990 fio queues z_erofs_decompressqueue_work;
             1310 worker starts z_erofs_decompressqueue_work;
             1690 worker ends z_erofs_decompressqueue_work"
        );
        let mut trace = trace(&format!("{WAITS} {works}"));
        trace.sort();
        let threads = Threads {
            mounts: Mounts::of(device, [OWN, OTHER], false),
            ..threads(true)
        };
        let launch = launch(&trace, threads, 200..2000);
        let sample = launch.sample();
        let counts = (sample.works, sample.other_works);
        assert_eq!(sample.queue_us.is_some_and(|us| us > 0.0), counts.0 > 0);
        (sample.sched_latency_us, counts, launch.mixed_up())
    };
    assert_eq!(with(Some(OWN), "7340032"), (500.0, (1, 0), None));
    assert_eq!(with(Some(OWN), "7340033"), (0.0, (0, 1), None));
    assert_eq!(with(None, "7340033"), (0.0, (0, 1), None));
    // The load's thread is only interrupted by the completion of a disk read; it does not read a
    // file of EROFS itself.
    assert_eq!(with(None, "1"), (0.0, (0, 1), None));
}

#[test]
fn cpu_time_of_the_kernel_for_another_mount_is_foreign() {
    const OWN: u32 = 7 << 20;
    let with = |in_kernel: bool, done: &str, cpu: u32| {
        // The worker runs from 1300 to 1400 and from 1600 to 1700 us; the item begins at 1310.
        let works = format!(
            "980 fio completes {done}; 990 fio queues z_erofs_decompressqueue_work;
             1310 worker starts z_erofs_decompressqueue_work;
             1690 worker ends z_erofs_decompressqueue_work"
        );
        let mut trace = trace(&format!("{WAITS} {works}"));
        trace.sort();
        let threads = Threads {
            mounts: Mounts::of(in_kernel.then_some(OWN), [OWN, OWN | 1], false),
            kernel: vec![WORKER as u32],
            engine: Vec::new(),
            cpus: BTreeSet::from([cpu]),
            ..threads(in_kernel)
        };
        let foreign = launch(&trace, threads, 200..2000).cpu_time().foreign;
        (foreign.total_us, foreign.most)
    };
    let other = (180.0, OTHER_MOUNT.to_owned());
    let none = (0.0, String::new());
    assert_eq!(with(true, "7340033", 0), other);
    assert_eq!(with(true, "7340033", 1), none, "not a CPU of the launch");
    assert_eq!(with(true, "7340032", 0), none, "the measured mount");
    // If a daemon serves the mount, the kernel decompresses only for other mounts.
    assert_eq!(with(false, "7340033", 0), other);
}

#[test]
fn a_launch_of_which_it_is_not_known_for_whom_the_kernel_decompressed_does_not_count() {
    let works = "990 worker queues z_erofs_decompressqueue_work;
        1310 worker starts z_erofs_decompressqueue_work;
        1690 worker ends z_erofs_decompressqueue_work";
    let mut trace = trace(&format!("{WAITS} {works}"));
    trace.sort();
    let of = |mounts| {
        let threads = Threads {
            mounts,
            ..threads(true)
        };
        launch(&trace, threads, 200..2000).mixed_up()
    };
    let reason = of(Mounts::of(None, [1], false)).unwrap();
    assert!(
        reason.starts_with("1 of 1 decompression work items"),
        "{reason}"
    );
    assert!(of(Mounts::of(None, [], true)).is_some());
    assert_eq!(of(Mounts::default()), None, "no other mount is there");
}

/// The trace, with another name for the worker.
fn renamed(mut trace: Trace, name: &str) -> Trace {
    for event in &mut trace.events {
        match &mut event.kind {
            Kind::Wake { task, .. } | Kind::Switch { next: task, .. } if task.pid == WORKER => {
                task.comm = name.into();
            }
            _ => {}
        }
        if let Kind::Switch { prev, .. } = &mut event.kind
            && prev.pid == WORKER
        {
            prev.comm = name.into();
        }
    }
    trace
}

#[test]
fn a_daemon_beside_the_kernels_mount_is_not_the_kernel() {
    let trace = renamed(trace(WAITS), "erofs_worker/0");
    let waited = |threads| launch(&trace, threads, 200..2000).sample().sched_latency_us;
    assert_eq!(waited(threads(true)), 500.0, "a thread of the kernel");
    let mut beside = threads(true);
    beside.kernel.clear();
    assert_eq!(waited(beside), 0.0, "of a daemon");
}

#[test]
fn reclaim_is_foreign_and_other_cpus_are_not_the_launchs() {
    let trace = renamed(trace("100 lab S worker; 300 worker R+ program"), "kswapd0");
    let foreign = |cpu| {
        let threads = Threads {
            cpus: BTreeSet::from([cpu]),
            ..threads(true)
        };
        launch(&trace, threads, 0..400).cpu_time().foreign.total_us
    };
    assert_eq!([foreign(0), foreign(1)], [200.0, 0.0]);
}

#[test]
fn time_of_strangers_is_foreign_and_the_programs_children_are_not() {
    let cases = [
        (
            "100 lab forks program; 150 program forks child; 200 lab R+ child; 500 child R+ rustc;
             900 rustc R+ fio; 1000 fio R+ program",
            400.0,
        ),
        // The program is still running when the launch ends.
        ("100 lab S program; 200 program R+ rustc", 800.0),
    ];
    for (text, us) in cases {
        let foreign = launch(&trace(text), threads(false), 0..1000)
            .cpu_time()
            .foreign;
        assert_eq!(
            (foreign.total_us, foreign.most.as_str()),
            (us, "rustc"),
            "{text}"
        );
    }
}

#[test]
fn the_loads_share_is_that_within_the_launch() {
    let trace = trace(
        // What the recorder does after the launch does not count.
        "100 lab S fio; 600 fio R+ program; 800 program S idle; 900 idle R fio; 5000 fio R+ lab",
    );
    let sample = launch(&trace, threads(false), 500..1000).sample();
    assert_eq!((sample.load_us, sample.idle_us), (200.0, 100.0));
}

#[test]
fn the_whole_path_is_the_programs_time_off_the_cpu_whoever_serves_it() {
    // A page fault is served by a kworker of a loop device, which is not a thread that
    // decompresses.
    let trace = trace(
        "100 lab S program; 200 program D worker; 500 worker S program; 600 program R+ fio;
         700 fio R+ program; 900 program X fio",
    );
    let sample = launch(&trace, threads(true), 0..950).sample();
    let parts = (sample.program_blocked_us, sample.program_preempted_us);
    assert_eq!(parts, (300.0, 100.0));
    assert_eq!(
        (sample.sched_latency_us, sample.program_off_cpu_us()),
        (0.0, 400.0)
    );
}

#[test]
fn a_thread_that_leaves_without_having_entered_is_a_missing_switch_of_its_owner() {
    let left = |text: &str, in_kernel| {
        let time = launch(&trace(text), threads(in_kernel), 0..500).cpu_time();
        (time.left, time.not_entered)
    };
    // The trace lacks the switch that ended the idle task at 300 us, ...
    let daemon = "100 lab S program; 200 program S idle; 300 worker S idle; 400 rustc S fio";
    assert_eq!(left(daemon, false), (2, 1));
    // ... and this trace lacks the switch to a kworker that decompressed.
    let kworker = "100 lab S idle; 200 idle wakes worker;
        300 worker starts z_erofs_decompressqueue_work; 400 worker S idle";
    assert_eq!(left(kworker, true), (1, 1));
}

#[test]
fn a_thread_whose_entering_is_not_written_ran_since_its_wake_up_at_most() {
    let trace = trace("100 lab S idle; 1900 idle wakes rustc; 2000 rustc S idle");
    let time = launch(&trace, threads(true), 0..3000).cpu_time();
    assert_eq!(
        (time.foreign.total_us, time.owner_us(Owner::Idle)),
        (100.0, 2800.0)
    );
}

#[test]
fn the_end_is_the_last_switch_of_the_programs_last_thread_when_the_lab_looked_late() {
    let mut gone = trace("700 program X thread; 8800 thread X fio");
    let of_program = sched_trace::Thread {
        tgid: PROGRAM,
        ..Default::default()
    };
    let end = |trace: &Trace, seen_us: u64| {
        exit_time(trace, PROGRAM, &HashMap::new(), 0, seen_us * 1000) / 1000
    };
    assert_eq!(end(&gone, 9000), 700, "of its only thread");
    gone.threads.insert(22, of_program);
    assert_eq!(end(&gone, 9000), 8800);
    // The program has not ended when its first thread has.
    assert_eq!(end(&gone, 500_000), 500_000);
    assert_eq!(end(&Trace::new("mono"), 7), 7);
}

/// The sample of a command that was launched without a mount.
fn of_command(text: &str) -> Sample {
    let threads = Threads {
        waiting: Waiting::Program,
        ..threads(true)
    };
    let mut trace = trace(text);
    trace.sort();
    launch(&trace, threads, 0..2000).sample()
}

#[test]
fn what_a_command_lost_to_interrupts_and_where_it_slept_is_told() {
    let sample = of_command(
        "10 lab forks program; 20 lab R+ program; 30 program interrupted 3; 45 program returns 3;
         50 program D fio; 60 fio interrupted 3; 90 fio returns 3; 100 program blamed filemap_fault;
         101 fio wakes program; 120 fio R+ program; 130 program interrupted 1;
         136 program returns 1; 200 program X fio; 1500 fio interrupted 1; 1600 fio returns 1",
    );
    assert_eq!(sample.interrupted_us, 21.0);
    let loss = |it: &crate::launch::Loss| (it.name.clone(), it.count, it.total_us, it.longest_us);
    assert_eq!(
        sample.interrupts.iter().map(loss).collect::<Vec<_>>(),
        [
            ("softirq NET_RX".into(), 1, 15.0, 15.0),
            ("softirq TIMER".into(), 1, 6.0, 6.0)
        ]
    );
    assert_eq!(
        sample.slept_in.iter().map(loss).collect::<Vec<_>>(),
        [("filemap_fault".into(), 1, 50.0, 50.0)]
    );
    let none = of_command("20 lab R+ program; 200 program X fio");
    assert_eq!((none.interrupted_us, none.slept_in.len()), (0.0, 0));
}

#[test]
fn a_wait_on_an_idle_cpu_is_one_for_the_quota_of_the_cgroup() {
    let sample = of_command("20 lab R+ program; 100 program R idle; 1900 idle R program");
    let behind = sample
        .behind
        .iter()
        .map(|it| (it.comm.as_str(), it.total_us));
    assert_eq!(
        behind.collect::<Vec<_>>(),
        [("quota of the cgroup (cpu.max)", 1800.0)]
    );
}

#[test]
fn a_command_has_the_waits_of_its_own_threads_and_of_its_children() {
    let sample = of_command(
        "10 lab forks program; 20 lab R+ program; 100 program forks child; 110 program R+ fio;
         200 fio R+ child; 300 child D idle; 400 idle wakes child; 450 idle R child;
         500 child X program; 600 program X fio",
    );
    // The program waits from 110 to 500 us, the child from 400 to 450 us; the child's first wait
    // has no wake-up.
    assert_eq!((sample.preempted_us, sample.wakeup_us), (390.0, 50.0));
    assert_eq!((sample.preemptions, sample.migrations), (Some(1), Some(0)));
    assert_eq!(sample.uninterruptible_us, 150.0);
    assert_eq!(sample.cpu_us, 90.0 + 100.0 + 50.0 + 100.0);
    assert_eq!((sample.launch_us, sample.threads), (600.0, 2));
}

#[test]
fn a_command_has_the_queue_delays_of_its_work_items_and_no_thread_of_the_kernel_is_foreign() {
    let sample = of_command(
        "20 lab R+ program; 100 program queues writeback; 110 program S worker;
         400 worker starts writeback; 900 worker ends writeback; 1000 worker I rustc;
         1100 rustc R+ program; 1200 program X fio",
    );
    assert_eq!((sample.works, sample.queue_us), (1, Some(300.0)));
    let [queue] = &sample.by_workqueue[..] else {
        panic!("{:?}", sample.by_workqueue)
    };
    assert_eq!(
        (queue.function.as_str(), queue.delay_us),
        ("writeback", 300.0)
    );
    assert_eq!(sample.foreign_us, 100.0, "rustc alone");
}
