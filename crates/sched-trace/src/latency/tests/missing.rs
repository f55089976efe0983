//! Switches that the kernel did not write, and notices.

use super::*;
use crate::Notice;
use crate::latency::{Filter, GroupBy};

#[test]
fn a_switch_that_is_not_in_the_trace_is_noticed() {
    // Thread 7 must have been switched in before it leaves again.
    let missing = report("10 0 7 S 0; 20 0 0 waking 7; 40 0 7 S 0");
    assert_eq!((missing.switches, missing.missing_switches), (2, 1));
    assert!(missing.waits.is_empty() && !missing.is_valid());
    let reason = Notice::MissingEvents {
        switches: 1,
        unexplained: 0,
        waits: 0,
    };
    assert_eq!(missing.notices, [reason]);
    let whole = report("10 0 7 S 0; 20 0 0 waking 7; 30 0 0 R+ 7; 30 1 8 S 0; 40 0 7 S 0");
    assert_eq!((whole.missing_switches, whole.notices.len()), (0, 0));
    assert!(whole.is_valid());
}

/// Thread 7 has `waits` waits on CPU 0; one switch to thread 8 is missing on CPU 1, where the idle
/// task switches often.
fn one_switch_missing(waits: u64) -> Report {
    let round = |us: u64, cpu: u32, pid: i32| {
        let (runs, sleeps) = (us + 2, us + 5);
        format!("{us} {cpu} 0 waking {pid}; {runs} {cpu} 0 R {pid}; {sleeps} {cpu} {pid} S 0;")
    };
    let mut text: String = (0..waits).map(|at| round(at * 10, 0, 7)).collect();
    text.extend((0..5).map(|at| round(100_000 + at * 10, 1, 8)));
    report(&(text + "200000 1 0 waking 8; 200005 1 8 S 0"))
}

#[test]
fn missing_switches_are_judged_against_the_waits_of_the_threads_they_concern() {
    let report = one_switch_missing(1000);
    assert_eq!(report.missing_switches, 1);
    assert!(report.is_valid(), "1 of 1005 waits");
    let of = |wanted: i32| report.missing(|pid| pid == wanted);
    assert_eq!((of(7).switches, of(7).waits), (0, 1000));
    assert_eq!((of(8).switches, of(8).waits), (1, 5));
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
fn a_busy_thread_that_nobody_wakes_is_judged_by_its_preemptions() {
    // In each turn thread 8 preempts thread 7; one switch from thread 7 to thread 8 is missing.
    let turn = |us: u64| {
        let (runs, sleeps) = (us + 2, us + 5);
        format!("{us} 0 7 waking 8; {runs} 0 7 R+ 8; {sleeps} 0 8 S 7;")
    };
    let omitted = "9001 0 7 waking 8; 9005 0 8 S 7;";
    let text = |turns: u64| {
        (0..turns)
            .map(|at| turn(10_000 + at * 10))
            .collect::<String>()
    };
    let rows = |turns: u64| {
        let report =
            report(&("0 0 0 R 7; 5 0 7 R+ 8; 8 0 8 S 7;".to_owned() + omitted + &text(turns)));
        let rows = report.group(GroupBy::Task, &Filter::default());
        let row = rows.into_iter().find(|row| row.pid == 7).unwrap();
        assert_eq!(
            (row.wakeup.count, row.preempted.count as u64),
            (0, turns + 1)
        );
        row.valid
    };
    assert!(rows(200) && !rows(20));
}

#[test]
fn a_trace_without_switches_has_no_valid_figures_and_no_waits() {
    let report = report("10 0 1 waking 7; 20 0 1 wakeup 7; 90 0 1 waking 8");
    assert_eq!(report.notices, [Notice::NoSwitches]);
    assert!(!report.is_valid() && report.waits.is_empty() && report.unfinished.is_empty());
}

#[test]
fn a_trace_whose_waits_begin_late_says_so() {
    let late = report("10 0 1 wakeup 7; 25 0 1 S 7");
    assert_eq!(late.notices, [Notice::NoWaking]);
    assert!(late.is_valid());
    let early = report("5 0 1 waking 7; 10 0 1 wakeup 7; 25 0 1 S 7");
    assert!(early.notices.is_empty());
}

#[test]
fn notices_invalidate_the_figures_they_spoil() {
    let any = |_: &str| true;
    let by_name = Filter {
        name: Some(&any),
        ..Filter::default()
    };
    let unnamed = Notice::UnnamedFunctions {
        unnamed: 3,
        of: 4,
        remedy: "as root",
    };
    for (notice, all, named) in [
        (Notice::UndecodedRecords { count: 2 }, false, false),
        // Selecting by name could miss a row.
        (unnamed, true, false),
        (Notice::LocalClock, true, true),
    ] {
        let mut trace = trace("10 0 1 waking 7; 25 0 1 S 7");
        trace.notices.push(notice.clone());
        let report = analyse(&trace);
        assert_eq!(report.to_json()["notices"].as_array().unwrap().len(), 1);
        assert_eq!(report.is_valid(), all, "{notice}");
        assert_eq!(report.is_valid_for(&by_name), named, "{notice}");
    }
}
