//! Waits after wake-ups and preemptions, their filter and their JSON.

use super::script::*;
use crate::TaskState;
use crate::latency::{Filter, GroupBy, WaitKind};

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
    script.switch(55, 0, 0, TaskState::RUNNABLE, 0);
    let report = script.analyse();
    assert_eq!(report.waits, []);
    assert_eq!(report.dropped_at_edges, 1, "5 began before the trace");
    let unfinished = &report.to_json()["unfinished"];
    assert_eq!(unfinished.as_array().unwrap().len(), 1);
    assert_eq!(unfinished[0]["pid"], 6);
    assert_eq!(unfinished[0]["at_least_us"], 35.0);
    assert_eq!(unfinished[0]["preempted"], false);
}

#[test]
fn a_wakeup_that_kept_a_thread_from_sleeping_explains_no_later_sleep() {
    let mut script = Script::new();
    script
        .switch(0, 0, 0, TaskState::RUNNABLE, 7)
        // Thread 7 was about to sleep and runs on.
        .waking(10, 1, 1, 7)
        .switch(5_000, 0, 7, SLEEPS, 0)
        .waking(1_000_000, 1, 1, 7)
        .switch(1_000_010, 0, 0, TaskState::RUNNABLE, 7);
    assert_eq!(lengths(&script.analyse(), WaitKind::Wakeup), [(7, 10)]);
}

#[test]
fn running_without_a_wakeup_is_counted_but_is_no_wait() {
    let mut script = Script::new();
    script
        .switch(0, 0, 5, SLEEPS, 0)
        .switch(10, 0, 0, TaskState::RUNNABLE, 5);
    let report = script.analyse();
    assert_eq!((report.waits.len(), report.unexplained_runs), (0, 1));
    assert!(!report.is_valid(), "its wake-ups are not in the trace");
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
