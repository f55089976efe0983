//! Waits after wake-ups and preemptions, their filter and their JSON.

use super::*;
use crate::latency::{Filter, GroupBy};

/// Threads and lengths of waits.
type Lengths = &'static [(i32, u64)];

/// A description of a trace, the trace, and its waits after wake-ups and after preemptions.
const CASES: [(&str, &str, Lengths, Lengths); 11] = [
    (
        "a wait lasts from waking to the switch that runs the thread",
        "10 0 1 waking 7; 12 0 1 wakeup 7; 25 0 1 S 7",
        &[(7, 15)],
        &[],
    ),
    (
        "waits after preemptions are separate",
        "10 0 1 waking 7; 20 0 1 R+ 7; 50 0 7 S 1",
        &[(7, 10)],
        &[(1, 30)],
    ),
    (
        "yielding counts as a preemption",
        "5 0 3 R 4; 9 0 4 S 3",
        &[],
        &[(3, 4)],
    ),
    (
        "a wake-up of a running thread is not a wait",
        "0 0 0 R 7; 10 1 1 waking 7; 11 1 1 wakeup 7; 20 0 7 S 0; 100 1 1 waking 7; 103 0 0 R 7",
        &[(7, 3)],
        &[],
    ),
    (
        "a second wake-up of a runnable thread does not restart its wait",
        "10 0 1 waking 7; 14 0 1 waking 7; 20 0 1 S 7",
        &[(7, 10)],
        &[],
    ),
    (
        "a wake-up of a preempted thread does not restart its wait",
        "0 0 7 R+ 1; 4 1 2 waking 7; 5 1 2 wakeup 7; 20 0 1 S 7",
        &[],
        &[(7, 20)],
    ),
    (
        "a wake-up that races with going to sleep counts from the switch",
        "0 0 0 R 7; 18 1 1 waking 7; 20 0 7 S 3; 22 1 1 wakeup 7; 30 0 3 S 7",
        &[(7, 10)],
        &[],
    ),
    (
        "a wake-up that kept a thread from sleeping explains no later sleep",
        "0 0 0 R 7; 10 1 1 waking 7; 5000 0 7 S 0; 1000000 1 1 waking 7; 1000010 0 0 R 7",
        &[(7, 10)],
        &[],
    ),
    (
        "the idle task never waits",
        "0 0 0 R 5; 10 0 5 S 0",
        &[],
        &[],
    ),
    (
        "a damaged CPU number costs no memory",
        "0 4294967295 1 waking 7; 5 4294967295 1 S 7",
        &[(7, 5)],
        &[],
    ),
    (
        "a new thread with the pid of one that was preempted did not wait",
        "24 0 7 R 8; 30 0 8 thread 7; 31 0 8 S 7",
        &[],
        &[],
    ),
];

#[test]
fn waits_are_those_of_the_rules() {
    for (what, text, wakeups, preemptions) in CASES {
        let report = report(text);
        assert_eq!(lengths(&report, WaitKind::Wakeup), wakeups, "{what}");
        assert_eq!(lengths(&report, WaitKind::Preempted), preemptions, "{what}");
    }
}

#[test]
fn half_waits_at_the_edges_are_dropped_and_counted() {
    let report = report("0 0 0 R 5; 10 0 5 S 0; 20 0 0 waking 6; 55 0 0 R 0");
    assert_eq!(report.waits, []);
    assert_eq!(report.dropped_at_edges, 1, "5 began before the trace");
    let unfinished = &report.to_json()["unfinished"];
    assert_eq!(unfinished.as_array().unwrap().len(), 1);
    let of = |name: &str| unfinished[0][name].to_string();
    assert_eq!(
        [of("pid"), of("at_least_us"), of("preempted")],
        ["6", "35.0", "false"]
    );
}

#[test]
fn running_without_a_wakeup_is_counted_but_is_no_wait() {
    let report = report("0 0 5 S 0; 10 0 0 R 5");
    assert_eq!((report.waits.len(), report.unexplained_runs), (0, 1));
    assert!(!report.is_valid(), "its wake-ups are not in the trace");
}

#[test]
fn a_reused_pid_is_another_thread() {
    let exits = "0 0 1 waking 7; 5 0 1 S 7; 9 0 7 X 0; 20 0 0 waking 7; 22 0 0 R 7";
    let created = "0 0 1 waking 7; 5 0 1 S 7; 9 0 7 S 0; 15 0 0 thread 7; 20 0 0 new 7; 22 0 0 R 7";
    for text in [exits, created] {
        assert_eq!(
            report(text).group(GroupBy::Task, &Filter::default()).len(),
            2,
            "{text}"
        );
    }
}

#[test]
fn a_wait_tells_who_began_it_and_the_cpu_the_thread_ran_on_before() {
    let report = report("0 1 7 S 0; 10 0 1 waking 7; 25 0 1 R+ 7; 30 0 7 S 1");
    let [woken, preempted] = &report.waits[..] else {
        panic!("{:?}", report.waits);
    };
    assert_eq!((woken.caused_by, woken.caused_on), (1, 0));
    assert_eq!((woken.last_cpu, woken.cpu), (Some(1), 0));
    assert_eq!(preempted.caused_by, 7, "the thread that took the CPU");
}

#[test]
fn a_filter_takes_threads_work_queues_and_times() {
    let report = report(TWO_ITEMS);
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
    let mut trace = trace(TWO_ITEMS);
    trace.lost_events = 3;
    let json = analyse(&trace).to_json();
    assert_eq!(
        (json["lost_events"].as_u64(), json["valid"].as_bool()),
        (Some(3), Some(false))
    );
    let (tasks, works) = (&json["tasks"][0], &json["workqueues"][0]);
    for figure in [
        "total_us",
        "average_us",
        "median_us",
        "minimum_us",
        "maximum_us",
        "stddev_us",
        "p90_us",
        "p99_us",
        "p999_us",
        "count",
    ] {
        for name in [figure.to_string(), format!("preempted_{figure}")] {
            assert!(tasks[&name].is_number(), "tasks: {name}");
            assert!(works[&name].is_number(), "workqueues: {name}");
        }
    }
    assert!(tasks["comm"].is_string() && tasks["pid"].is_number());
    assert_eq!(works["name"], "erofs_worker");
    assert_eq!(works["function"], "z_erofs_decompressqueue_work");
}
