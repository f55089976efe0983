//! Switches that the kernel did not write, and notices.

use super::script::*;
use crate::latency::{Filter, Report};
use crate::{Notice, TaskState};

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
    let unnamed = Notice::UnnamedFunctions {
        unnamed: 3,
        of: 4,
        remedy: "as root",
    };
    assert!(!valid(Notice::UndecodedRecords { count: 2 }, &all));
    assert!(valid(unnamed.clone(), &all));
    assert!(!valid(unnamed, &by_name), "a match could miss a row");
}
