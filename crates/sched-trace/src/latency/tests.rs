//! Tests of the analysis on traces with known answers.

use super::{Filter, GroupBy, Report, WaitKind, analyse};
use crate::{Comm, Event, Kind, Notice, TaskState, Trace};

const SLEEPS: TaskState = TaskState::SLEEPING;
const PREEMPTED: TaskState = TaskState::PREEMPTED;

/// Builds traces in microseconds.
struct Script(Trace);

impl Script {
    fn new() -> Self {
        Self(Trace::new("mono"))
    }

    fn add(&mut self, us: u64, cpu: u32, pid: i32, kind: Kind) -> &mut Self {
        self.0.events.push(Event {
            time_ns: us * 1000,
            cpu,
            pid,
            kind,
        });
        self
    }

    fn switch(&mut self, us: u64, cpu: u32, prev: i32, state: TaskState, next: i32) -> &mut Self {
        let kind = Kind::Switch {
            prev_pid: prev,
            prev_comm: comm(prev),
            prev_prio: 120,
            prev_state: state,
            next_pid: next,
            next_comm: comm(next),
            next_prio: 120,
        };
        self.add(us, cpu, prev, kind)
    }

    fn waking(&mut self, us: u64, cpu: u32, by: i32, pid: i32) -> &mut Self {
        self.add(
            us,
            cpu,
            by,
            Kind::Waking {
                pid,
                comm: comm(pid),
                prio: 120,
                target_cpu: cpu,
            },
        )
    }

    fn wakeup(&mut self, us: u64, cpu: u32, by: i32, pid: i32) -> &mut Self {
        self.add(
            us,
            cpu,
            by,
            Kind::Wakeup {
                pid,
                comm: comm(pid),
                prio: 120,
                target_cpu: cpu,
            },
        )
    }

    fn analyse(&mut self) -> Report {
        self.0.sort();
        analyse(&self.0)
    }
}

fn comm(pid: i32) -> Comm {
    if pid == 0 {
        "swapper/0".into()
    } else {
        Comm::new(format!("task{pid}").as_bytes())
    }
}

fn lengths(report: &Report, kind: WaitKind) -> Vec<(i32, u64)> {
    let waits = report.waits.iter().filter(|wait| wait.kind == kind);
    waits
        .map(|wait| (wait.pid, wait.length_ns() / 1000))
        .collect()
}

#[test]
fn a_wait_lasts_from_waking_to_the_switch_that_runs_the_thread() {
    let mut script = Script::new();
    script
        .waking(10, 0, 1, 7)
        .wakeup(12, 0, 1, 7)
        .switch(25, 0, 1, SLEEPS, 7);
    let report = script.analyse();
    assert_eq!(lengths(&report, WaitKind::Wakeup), [(7, 15)]);
    assert_eq!(report.waits[0].caused_by, 1);
}

#[test]
fn waits_after_preemption_are_kept_apart() {
    let mut script = Script::new();
    script
        .waking(10, 0, 1, 7)
        .switch(20, 0, 1, PREEMPTED, 7)
        .switch(50, 0, 7, SLEEPS, 1);
    let report = script.analyse();
    assert_eq!(lengths(&report, WaitKind::Wakeup), [(7, 10)]);
    assert_eq!(lengths(&report, WaitKind::Preempted), [(1, 30)]);
    assert_eq!(report.waits[1].caused_by, 7, "the thread that took the CPU");
}

#[test]
fn yielding_counts_as_a_wait_after_preemption() {
    let mut script = Script::new();
    script
        .switch(5, 0, 3, TaskState::RUNNABLE, 4)
        .switch(9, 0, 4, SLEEPS, 3);
    assert_eq!(lengths(&script.analyse(), WaitKind::Preempted), [(3, 4)]);
}

#[test]
fn a_wakeup_of_a_running_thread_is_not_a_wait() {
    let mut script = Script::new();
    script
        .switch(0, 0, 0, TaskState::RUNNABLE, 7)
        .waking(10, 1, 1, 7)
        .wakeup(11, 1, 1, 7)
        .switch(20, 0, 7, SLEEPS, 0)
        .waking(100, 1, 1, 7)
        .switch(103, 0, 0, TaskState::RUNNABLE, 7);
    assert_eq!(lengths(&script.analyse(), WaitKind::Wakeup), [(7, 3)]);
}

#[test]
fn a_second_wakeup_of_a_runnable_thread_does_not_restart_its_wait() {
    let mut script = Script::new();
    script
        .waking(10, 0, 1, 7)
        .waking(14, 0, 1, 7)
        .switch(20, 0, 1, SLEEPS, 7);
    assert_eq!(lengths(&script.analyse(), WaitKind::Wakeup), [(7, 10)]);
    let mut script = Script::new();
    script
        .switch(0, 0, 7, PREEMPTED, 1)
        .waking(4, 1, 2, 7)
        .wakeup(5, 1, 2, 7)
        .switch(20, 0, 1, SLEEPS, 7);
    let report = script.analyse();
    assert_eq!(lengths(&report, WaitKind::Preempted), [(7, 20)]);
    assert_eq!(lengths(&report, WaitKind::Wakeup), []);
}

#[test]
fn a_wakeup_that_races_with_going_to_sleep_counts_from_the_switch() {
    let mut script = Script::new();
    script
        .switch(0, 0, 0, TaskState::RUNNABLE, 7)
        .waking(18, 1, 1, 7)
        .switch(20, 0, 7, SLEEPS, 3)
        .wakeup(22, 1, 1, 7)
        .switch(30, 0, 3, SLEEPS, 7);
    assert_eq!(lengths(&script.analyse(), WaitKind::Wakeup), [(7, 10)]);
}

#[test]
fn half_waits_at_the_edges_are_dropped_and_counted() {
    let mut script = Script::new();
    script
        .switch(0, 0, 0, TaskState::RUNNABLE, 5)
        .switch(10, 0, 5, SLEEPS, 0)
        .waking(20, 0, 0, 6);
    let report = script.analyse();
    assert_eq!(report.waits, []);
    assert_eq!(
        report.dropped_at_edges, 2,
        "5 began before the trace, 6 ends after it"
    );
}

#[test]
fn running_without_a_wakeup_is_counted_but_is_no_wait() {
    let mut script = Script::new();
    script
        .switch(0, 0, 5, SLEEPS, 0)
        .switch(10, 0, 0, TaskState::RUNNABLE, 5);
    let report = script.analyse();
    assert_eq!((report.waits.len(), report.unexplained_runs), (0, 1));
}

#[test]
fn a_switch_that_is_not_in_the_trace_is_noticed() {
    let mut script = Script::new();
    script
        .switch(10, 0, 7, SLEEPS, 0)
        .waking(20, 0, 0, 7)
        // Thread 7 must have been switched in by now.
        .switch(40, 0, 7, SLEEPS, 0);
    let report = script.analyse();
    assert_eq!((report.switches, report.missing_switches), (2, 1));
    assert!(report.waits.is_empty() && !report.is_valid());

    let mut script = Script::new();
    script
        .switch(10, 0, 7, SLEEPS, 0)
        .waking(20, 0, 0, 7)
        .switch(30, 0, 0, PREEMPTED, 7)
        .switch(30, 1, 8, SLEEPS, 0)
        .switch(40, 0, 7, SLEEPS, 0);
    let report = script.analyse();
    assert_eq!(report.missing_switches, 0);
    assert!(report.is_valid());
}

/// Thread 7 has `waits` waits on CPU 0; one switch to thread 8 is missing on CPU 1, where the idle
/// task switches often.
fn one_switch_missing(waits: u64) -> Report {
    let mut script = Script::new();
    for round in 0..waits {
        let us = round * 10;
        script
            .waking(us, 0, 0, 7)
            .switch(us + 2, 0, 0, TaskState::RUNNABLE, 7)
            .switch(us + 5, 0, 7, SLEEPS, 0);
    }
    for round in 0..5 {
        let us = 100_000 + round * 10;
        script
            .waking(us, 1, 0, 8)
            .switch(us + 2, 1, 0, TaskState::RUNNABLE, 8)
            .switch(us + 5, 1, 8, SLEEPS, 0);
    }
    script
        .waking(200_000, 1, 0, 8)
        .switch(200_005, 1, 8, SLEEPS, 0);
    script.analyse()
}

#[test]
fn missing_switches_are_judged_against_the_wakeups_of_the_threads_they_concern() {
    let report = one_switch_missing(1000);
    assert_eq!(report.missing_switches, 1);
    assert!(report.is_valid(), "1 of 1005 wake-ups");
    let of = |wanted: i32| report.missing(|pid| pid == wanted);
    assert_eq!((of(7).switches, of(7).wakeups), (0, 1000));
    assert_eq!((of(8).switches, of(8).wakeups), (1, 5));
    assert!(of(8).spoils() && !of(7).spoils());
    let only_8 = |pid| pid == 8;
    let filter = Filter {
        pids: Some(&only_8),
        ..Filter::default()
    };
    assert!(!report.is_valid_for(&filter));
    assert_eq!(report.to_json_filtered(&filter)["valid"], false);
    assert_eq!(report.to_json()["valid"], true);
}

#[test]
fn notices_invalidate_the_figures_they_spoil() {
    let valid = |notice, filter: &Filter<'_>| {
        let mut script = Script::new();
        script
            .waking(10, 0, 1, 7)
            .switch(25, 0, 1, SLEEPS, 7)
            .0
            .notices
            .push(notice);
        let report = script.analyse();
        assert_eq!(report.to_json()["notices"].as_array().unwrap().len(), 1);
        report.is_valid_for(filter)
    };
    let all = Filter::default();
    let any = |_: &str| true;
    let by_name = Filter {
        name: Some(&any),
        ..Filter::default()
    };
    let unnamed = Notice::UnnamedFunctions { unnamed: 3, of: 4 };
    assert!(!valid(Notice::UndecodedRecords { count: 2 }, &all));
    assert!(valid(unnamed.clone(), &all));
    assert!(!valid(unnamed, &by_name), "a match could miss a row");
}

#[test]
fn the_idle_task_never_waits() {
    let mut script = Script::new();
    script
        .switch(0, 0, 0, TaskState::RUNNABLE, 5)
        .switch(10, 0, 5, SLEEPS, 0);
    assert!(script.analyse().waits.is_empty());
}

#[test]
fn a_damaged_cpu_number_costs_no_memory() {
    let mut script = Script::new();
    script
        .waking(0, u32::MAX, 1, 7)
        .switch(5, u32::MAX, 1, SLEEPS, 7);
    let report = script.analyse();
    assert_eq!(lengths(&report, WaitKind::Wakeup), [(7, 5)]);
    let timeline = crate::timeline::Timeline::new(&script.0);
    assert_eq!(timeline.behind(&report.waits[0]).unknown_ns, 0);
}

#[test]
fn a_reused_pid_is_another_thread() {
    let mut script = Script::new();
    script
        .waking(0, 0, 1, 7)
        .switch(5, 0, 1, SLEEPS, 7)
        .switch(9, 0, 7, TaskState::DEAD, 0)
        .waking(20, 0, 0, 7)
        .switch(22, 0, 0, TaskState::RUNNABLE, 7);
    let report = script.analyse();
    assert_eq!(report.group(GroupBy::Task, &Filter::default()).len(), 2);
}

/// pid 9 is a kworker: woken, runs two items, sleeps in the second one for a disk.
fn kworker_script() -> Script {
    let mut script = Script::new();
    let f = script.0.intern("z_erofs_decompressqueue_work");
    let g = script.0.intern("vmstat_update");
    let queue = script.0.intern("erofs_worker");
    let other = script.0.intern("mm_percpu_wq");
    let queued = |work, function, queue| Kind::WorkQueued {
        work,
        function,
        queue,
        cpu: 0,
    };
    script
        .add(10, 0, 1, queued(0xa, f, Some(queue)))
        .waking(11, 0, 1, 9)
        .switch(31, 0, 1, SLEEPS, 9)
        .add(
            32,
            0,
            9,
            Kind::WorkStart {
                work: 0xa,
                function: f,
            },
        )
        .switch(40, 0, 9, PREEMPTED, 2)
        .switch(60, 0, 2, SLEEPS, 9)
        .add(
            70,
            0,
            9,
            Kind::WorkEnd {
                work: 0xa,
                function: Some(f),
            },
        )
        .add(
            71,
            0,
            9,
            Kind::WorkStart {
                work: 0xb,
                function: g,
            },
        )
        .switch(72, 0, 9, TaskState::UNINTERRUPTIBLE, 0)
        .waking(80, 0, 0, 9)
        .switch(87, 0, 0, TaskState::RUNNABLE, 9)
        .add(
            88,
            0,
            9,
            Kind::WorkEnd {
                work: 0xb,
                function: Some(g),
            },
        )
        .add(89, 0, 9, queued(0xb, g, Some(other)))
        .switch(90, 0, 9, SLEEPS, 0);
    script
}

#[test]
fn a_kworkers_waits_belong_to_the_work_it_did() {
    let report = kworker_script().analyse();
    let groups = report.workqueues(&Filter::default());
    assert_eq!(groups.len(), 2);
    let erofs = &groups[0];
    assert_eq!(report.names.get(erofs.workqueue.unwrap()), "erofs_worker");
    assert_eq!((erofs.wakeup.count, erofs.wakeup.total), (1, 20.0));
    assert_eq!((erofs.preempted.count, erofs.preempted.total), (1, 20.0));
    assert_eq!(
        (erofs.queue_delay.count, erofs.queue_delay.total),
        (1, 22.0)
    );
    assert_eq!((erofs.executed, erofs.run.total), (1, 38.0));
    let vmstat = &groups[1];
    assert_eq!(
        vmstat.wakeup.total, 7.0,
        "the wait inside the item is the item's"
    );
    assert_eq!(
        report.names.get(vmstat.workqueue.unwrap()),
        "mm_percpu_wq",
        "named only by a later event"
    );
    assert_eq!(vmstat.queue_delay.count, 0, "queued before the trace");
}

/// pid 9 runs `vmstat_update`, sleeps, and is woken for an item of EROFS that waits 4 ms; later it
/// is preempted within that item. The trace has no `workqueue_execute_end`.
fn kworker_without_ends() -> Script {
    let mut script = Script::new();
    let vmstat = script.0.intern("vmstat_update");
    let erofs = script.0.intern("z_erofs_decompressqueue_work");
    let start = |work, function| Kind::WorkStart { work, function };
    let idle = TaskState::from_text("I");
    script
        .waking(0, 0, 1, 9)
        .switch(5, 0, 1, SLEEPS, 9)
        .add(6, 0, 9, start(1, vmstat))
        .switch(20, 0, 9, idle, 2)
        .waking(1000, 0, 2, 9)
        .switch(5000, 0, 2, SLEEPS, 9)
        .add(5001, 0, 9, start(2, erofs))
        .switch(5010, 0, 9, PREEMPTED, 2)
        .switch(5050, 0, 2, SLEEPS, 9)
        .switch(5060, 0, 9, idle, 2);
    script
}

#[test]
fn without_end_events_a_wait_belongs_to_the_item_that_starts_after_it() {
    let report = kworker_without_ends().analyse();
    let groups = report.workqueues(&Filter::default());
    let of = |function: &str| {
        let group = groups
            .iter()
            .find(|g| report.names.get(g.function) == function);
        let group = group.unwrap();
        (group.wakeup.total, group.preempted.total)
    };
    assert_eq!(of("z_erofs_decompressqueue_work"), (4000.0, 40.0));
    assert_eq!(of("vmstat_update"), (5.0, 0.0));
    assert_eq!(report.notices, [Notice::NoEndOfWork]);
    assert!(report.is_valid());
}

#[test]
fn a_wait_tells_the_waker_and_the_cpu_the_thread_ran_on_before() {
    let mut script = Script::new();
    script
        .switch(0, 1, 7, SLEEPS, 0)
        .waking(10, 0, 1, 7)
        .switch(25, 0, 1, SLEEPS, 7);
    let wait = script.analyse().waits[0];
    assert_eq!((wait.caused_by, wait.caused_on), (1, 0));
    assert_eq!((wait.last_cpu, wait.cpu), (Some(1), 0));
}

#[test]
fn a_worker_that_slept_without_work_explains_nothing() {
    let mut script = Script::new();
    let f = script.0.intern("f");
    script
        .waking(0, 0, 1, 9)
        .switch(5, 0, 1, SLEEPS, 9)
        .switch(6, 0, 9, SLEEPS, 0)
        .waking(20, 0, 0, 9)
        .switch(22, 0, 0, TaskState::RUNNABLE, 9)
        .add(
            23,
            0,
            9,
            Kind::WorkStart {
                work: 1,
                function: f,
            },
        );
    let report = script.analyse();
    let attributed: Vec<_> = report.waits.iter().map(|w| w.function.is_some()).collect();
    assert_eq!(attributed, [false, true]);
}

#[test]
fn kthread_workers_are_named_after_their_threads() {
    let mut script = Script::new();
    let f = script.0.intern("z_erofs_decompressqueue_kthread_work");
    let name = Comm::from("erofs_worker/1");
    script
        .add(
            10,
            0,
            1,
            Kind::KthreadWorkQueued {
                work: 5,
                function: f,
                worker: 99,
            },
        )
        .add(
            11,
            0,
            1,
            Kind::Waking {
                pid: 4,
                comm: name,
                prio: 98,
                target_cpu: 0,
            },
        )
        .add(15, 0, 1, switch_to(1, 4, name, 98))
        .add(
            16,
            0,
            4,
            Kind::KthreadWorkStart {
                work: 5,
                function: f,
            },
        );
    let report = script.analyse();
    let group = &report.workqueues(&Filter::default())[0];
    assert_eq!(report.names.get(group.workqueue.unwrap()), "erofs_worker");
    assert_eq!((group.wakeup.total, group.queue_delay.total), (4.0, 6.0));
    assert_eq!(report.waits[0].prio, 98);
}

fn switch_to(prev_pid: i32, next_pid: i32, next_comm: Comm, next_prio: i32) -> Kind {
    Kind::Switch {
        prev_pid,
        prev_comm: comm(prev_pid),
        prev_prio: 120,
        prev_state: SLEEPS,
        next_pid,
        next_comm,
        next_prio,
    }
}

#[test]
fn a_filter_takes_threads_work_queues_and_times() {
    let report = kworker_script().analyse();
    let is_erofs = |name: &str| name == "erofs_worker";
    let by_name = Filter {
        name: Some(&is_erofs),
        ..Filter::default()
    };
    assert_eq!(report.workqueues(&by_name).len(), 1);
    let late = Filter {
        from_ns: Some(80_000),
        ..Filter::default()
    };
    assert_eq!(report.worst(10, &late).len(), 1);
    assert_eq!(report.worst(1, &Filter::default())[0].length_ns(), 20_000);
}

#[test]
fn the_json_keeps_the_contracts_names() {
    let mut script = kworker_script();
    script.0.lost_events = 3;
    let json = script.analyse().to_json();
    assert_eq!(json["lost_events"], 3);
    assert_eq!(json["valid"], false);
    let names = [
        "count",
        "total_us",
        "average_us",
        "median_us",
        "minimum_us",
        "maximum_us",
        "stddev_us",
        "p99_us",
        "preempted_count",
        "preempted_total_us",
    ];
    for name in names {
        assert!(json["tasks"][0][name].is_number(), "tasks: {name}");
        assert!(
            json["workqueues"][0][name].is_number(),
            "workqueues: {name}"
        );
    }
    assert!(json["tasks"][0]["comm"].is_string() && json["tasks"][0]["pid"].is_number());
    assert_eq!(json["workqueues"][0]["name"], "erofs_worker");
    assert_eq!(
        json["workqueues"][0]["function"],
        "z_erofs_decompressqueue_work"
    );
}
