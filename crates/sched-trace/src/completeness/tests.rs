//! Tests what contradictions prove, and what complete traces may contain.

use super::*;
use crate::latency::analyse;
use crate::script::trace;

/// CPUs whose events are missing.
fn broken(text: &str) -> Vec<Option<u32>> {
    let found = of(&trace(text)).intervals.into_iter();
    let broken = found.filter(|interval| interval.coverage == Coverage::Broken);
    broken.map(|interval| interval.cpu).collect()
}

/// A description of a trace, the trace, and the CPUs whose events are proven to be missing.
type Case = (&'static str, &'static str, &'static [Option<u32>]);

const CASES: [Case; 22] = [
    (
        "a second waking of a thread that never ran proves a run on the CPU where it slept",
        "0 0 7 S 1; 10 0 1 waking 7 1; 20 0 1 waking 7 1; 30 0 1 S 7",
        &[Some(1)],
    ),
    (
        "a second waking proves nothing if the thread may have been about to sleep",
        "0 0 5 S 1; 10 0 1 waking 7; 20 0 1 waking 7; 30 0 1 S 7",
        &[],
    ),
    (
        "a second waking proves nothing after a wake-up that raced with going to sleep",
        "0 0 0 R 7; 10 1 1 waking 7; 5000 0 7 S 0; 6000 1 1 waking 7; 6010 0 0 R 7",
        &[],
    ),
    (
        "a thread slept on a CPU to which nothing brought it, and was woken there",
        "0 0 7 S 1; 1 0 1 migrate 9 1 0; 10 0 1 waking 7 1; 12 0 1 migrate 7 1 0; 20 0 1 waking 7 1; 30 0 1 S 7",
        &[Some(1)],
    ),
    (
        "a single missing migration may be one that the kernel did not write",
        "0 0 7 S 1; 1 0 1 migrate 9 1 0; 10 0 1 waking 7 1; 12 0 1 migrate 7 1 0; 20 0 1 S 7",
        &[],
    ),
    (
        "a thread may sleep where nothing brought it in a trace without migrations",
        "0 0 7 S 1; 10 0 1 waking 7 1; 20 0 1 S 7",
        &[],
    ),
    (
        "two threads are moved from a CPU to which nothing brought them",
        "0 0 7 R 1; 1 0 1 R 8; 5 0 8 migrate 7 1 0; 6 0 8 migrate 1 1 0; 20 0 8 S 7",
        &[Some(1)],
    ),
    (
        "a thread runs on a CPU to which nothing brought it, and a switch there is missing",
        "0 0 7 R 1; 0 1 0 R 2; 1 1 2 migrate 9 0 1; 20 1 3 S 7",
        &[None],
    ),
    (
        "the first thread of a CPU slept elsewhere when that CPU began to write",
        "0 0 7 S 1; 20 1 7 S 0",
        &[Some(1)],
    ),
    (
        "a recorder that stops one CPU after another is the last thread of several CPUs",
        "0 1 0 R 7; 5 0 1 S 2; 9 0 2 S 7",
        &[],
    ),
    (
        "a thread runs elsewhere, and its previous CPU writes no more events",
        "0 1 0 R 7; 5 0 1 S 2; 9 0 2 S 7; 12 0 7 S 3",
        &[Some(1)],
    ),
    (
        "a switch that the kernel omits proves nothing",
        "0 1 0 R 7; 5 0 1 S 2; 9 0 2 S 7; 20 1 3 S 0",
        &[],
    ),
    (
        "an idle CPU that runs no thread queued there is no longer recorded",
        "0 1 5 S 0; 10 0 1 waking 7 1; 11 0 1 wakeup 7 1; 900000 0 1 S 2",
        &[Some(1)],
    ),
    (
        "a busy CPU may take long to run a thread queued there",
        "0 1 0 R 5; 10 0 1 waking 7 1; 11 0 1 wakeup 7 1; 900000 0 1 S 2",
        &[],
    ),
    (
        "two threads run for the first time, and nothing woke them",
        "0 0 1 waking 8; 5 0 1 thread 7; 6 0 1 thread 6; 20 0 1 S 7; 25 0 7 S 6; 30 0 6 waking 8",
        &[None],
    ),
    (
        "the first wake-up of a new thread is a separate event",
        "0 0 1 waking 8; 5 0 1 thread 7; 6 0 1 new 7; 7 0 1 thread 6; 8 0 1 new 6; 20 0 1 S 7; 25 0 7 S 6; 30 0 6 waking 8",
        &[],
    ),
    (
        "two threads run after a sleep from which nothing woke them",
        "0 0 1 waking 8; 5 0 7 S 6; 6 0 6 S 1; 20 0 1 S 7; 25 0 7 S 6; 30 0 6 waking 8",
        &[None],
    ),
    (
        "a single thread without a wake-up may lack an event that the kernel did not write",
        "0 0 1 waking 8; 5 0 7 S 1; 20 0 1 S 7; 30 0 7 waking 8",
        &[],
    ),
    (
        "threads woken by a hidden thread, whose events are not recorded, prove nothing",
        "0 0 1 waking 8; 1 0 1 S 7; 2 0 7 S 6; 3 0 6 S 99; 9 0 5 S 7; 12 0 7 S 99; 15 0 6 S 5; 20 0 5 waking 8",
        &[],
    ),
    (
        "a hidden thread woken twice between runs of another hidden thread proves nothing",
        "0 0 1 S 99; 5 0 2 S 98; 8 0 2 S 99; 10 0 3 S 98; 12 0 3 waking 98; 15 0 3 waking 98; 20 0 3 S 1",
        &[],
    ),
    (
        "a missing wake-up proves nothing while a recorder starts on one CPU after another",
        "0 0 1 waking 8; 5 0 7 S 1; 20 0 1 S 7; 30 0 7 waking 8; 40 1 5 waking 9",
        &[],
    ),
    (
        "an interrupt wakes a preempted thread that was about to sleep",
        "0 0 7 R+ 1; 4 1 2 waking 7; 5 1 2 wakeup 7; 20 0 1 S 7",
        &[],
    ),
];

#[test]
fn contradictions_prove_missing_events_and_nothing_else_does() {
    for (what, text, cpus) in CASES {
        assert_eq!(broken(text), cpus, "{what}");
        let report = analyse(&trace(text));
        assert_eq!(report.completeness.is_broken(), !cpus.is_empty(), "{what}");
        assert!(cpus.is_empty() || !report.is_valid(), "{what}");
    }
}

/// Two seconds in which two threads take turns on CPU 1 every 4 ms, and a timer wakes a thread on
/// CPU 0.
fn turns(keep: impl Fn(u64, u32) -> bool, shift: impl Fn(u64) -> u64) -> Trace {
    let mut text = String::new();
    let mut add = |us: u64, cpu: u32, what: &str| {
        if keep(us, cpu) {
            text += &format!("{} {cpu} {what};", shift(us));
        }
    };
    for turn in 0..500 {
        let (at, pair) = (turn * 4000, turn % 2);
        add(at, 1, ["1 R 2", "2 R 1"][pair as usize]);
        add(at + 100, 0, "0 waking 3");
        add(at + 105, 0, "0 R 3");
        add(at + 150, 0, "3 S 0");
    }
    trace(&text)
}

fn longest_us(trace: &Trace) -> u64 {
    let waits = analyse(trace).waits;
    waits.iter().map(|w| w.length_ns() / 1000).max().unwrap()
}

#[test]
fn a_cpu_whose_threads_used_to_take_turns_is_not_silent_for_long() {
    let always = |us| us;
    let whole = analyse(&turns(|_, _| true, always));
    assert!(
        whole.is_valid() && whole.left_out == 0,
        "{:?}",
        whole.notices
    );
    for until in [1_500_000, 2_000_000] {
        let cut = turns(
            |us, cpu| cpu == 0 || !(500_000..until).contains(&us),
            always,
        );
        let report = analyse(&cut);
        let said: Vec<String> = report.notices.iter().map(ToString::to_string).collect();
        assert!(
            !report.is_valid() && said[0].contains("usually runs soon"),
            "{said:?}"
        );
        assert_eq!(longest_us(&cut), 4000);
    }
    // A recorder that counted the events knows that this is a real wait.
    let mut cut = turns(
        |us, cpu| cpu == 0 || !(500_000..1_500_000).contains(&us),
        always,
    );
    cut.claims.counted.extend([0, 1]);
    assert!(longest_us(&cut) > 900_000 && analyse(&cut).is_valid());
}

#[test]
fn a_jump_of_the_clock_is_no_wait_of_all_threads() {
    for jump in [50_000, 1_000_000, 1_900_000] {
        let trace = turns(|_, _| true, |us| us + if us < 1_000_000 { 0 } else { jump });
        let report = analyse(&trace);
        assert_eq!((report.left_out, longest_us(&trace)), (1, 4000), "{jump}");
        let said: Vec<String> = report.notices.iter().map(ToString::to_string).collect();
        assert!(said[0].contains("the clock jumped"), "{said:?}");
        assert!(report.is_valid());
    }
}

#[test]
fn who_is_used_to_waiting_may_wait_long() {
    // Like a SCHED_IDLE thread, thread 2 waits half a second for each of its turns.
    let mut text = String::new();
    for turn in 0..50 {
        let at = turn * 501_000;
        text += &format!("{at} 1 1 R 2; {} 1 2 R 1;", at + 1000);
        text += &format!(
            "{} 0 0 waking 3; {} 0 0 R 3; {} 0 3 S 0;",
            at + 9,
            at + 11,
            at + 20
        );
    }
    let report = analyse(&trace(&text));
    assert!(
        report.is_valid() && report.left_out == 0,
        "{:?}",
        report.notices
    );
}

#[test]
fn one_wakeup_that_was_not_written_leaves_out_one_wait() {
    let mut text = String::new();
    for at in (0..400).map(|at| at * 1000) {
        for (pid, begin) in [(7, at), (8, at + 400)] {
            if (pid, at) != (7, 200_000) {
                text += &format!("{begin} 0 0 waking {pid};");
            }
            text += &format!("{} 0 0 R {pid}; {} 0 {pid} S 0;", begin + 5, begin + 300);
        }
    }
    let report = analyse(&trace(&text));
    let count = |pid| report.waits.iter().filter(|wait| wait.pid == pid).count();
    assert_eq!([count(7), count(8)], [399, 400]);
    assert_eq!(report.completeness.proofs, 1);
    assert!(report.is_valid(), "{:?}", report.notices);
}

#[test]
fn a_wait_goes_on_from_the_second_waking_and_the_one_across_it_is_left_out() {
    let (_, text, _) = CASES[0];
    let report = analyse(&trace(text));
    let waits: Vec<(i32, u64)> = report
        .waits
        .iter()
        .map(|w| (w.pid, w.length_ns()))
        .collect();
    assert_eq!(waits, [(7, 10_000)]);
    let notices: Vec<String> = report.notices.iter().map(ToString::to_string).collect();
    assert!(
        notices[0].contains("t7:7 is woken a second time"),
        "{notices:?}"
    );
}

#[test]
fn waits_across_lost_events_are_left_out_and_counted() {
    let mut trace =
        trace("0 0 1 waking 7; 1 1 2 S 3; 10 0 1 S 7; 20 0 7 waking 8; 50 0 7 S 8; 51 1 3 S 0");
    trace.lose_before(4, Some(1), 51_000);
    let report = analyse(&trace);
    assert_eq!(
        (report.waits.len(), report.left_out, report.lost_events),
        (0, 2, 4)
    );
    let of_cpu = |cpu| {
        let intervals = report.completeness.intervals.iter();
        let intervals = intervals.filter(move |interval| interval.cpu == Some(cpu));
        intervals
            .map(|interval| interval.coverage)
            .collect::<Vec<_>>()
    };
    assert_eq!(of_cpu(0), [Coverage::Unknown]);
    assert_eq!(of_cpu(1), [Coverage::Unknown, Coverage::Broken]);
}

#[test]
fn a_seam_ends_every_wait_and_is_said() {
    let mut joined =
        trace("0 0 1 waking 7; 5000000 0 2 S 7; 5000010 0 7 waking 8; 5000030 0 7 S 8");
    joined.claims.seams = vec![5_000_000_000];
    let report = analyse(&joined);
    let waits: Vec<(i32, u64)> = report
        .waits
        .iter()
        .map(|w| (w.pid, w.length_ns()))
        .collect();
    assert_eq!(waits, [(8, 20_000)]);
    assert!(report.notices.contains(&Notice::Seam {
        at_ns: 5_000_000_000
    }));
    assert!(report.is_valid());
}

#[test]
fn a_bad_recording_joined_with_a_good_one_stays_bad() {
    let round = |us: u64| format!("{us} 0 0 waking 7; {} 0 0 R 7; {} 0 7 S 0;", us + 2, us + 5);
    let good: String = (0..1000).map(|at| round(1_000_000 + at * 10)).collect();
    let bad = "0 0 0 waking 8; 5 0 0 R 8; 9 0 8 S 0; 20 0 0 waking 8; 30 0 8 S 0;";
    let mut joined = trace(&format!("{bad}{good}"));
    assert!(analyse(&joined).is_valid(), "one of a thousand");
    joined.claims.seams = vec![1_000_000_000];
    assert!(!analyse(&joined).is_valid(), "one of one");
}

#[test]
fn a_wait_across_a_silence_of_all_cpus_is_left_out() {
    let text = "0 0 1 waking 7; 1 0 1 S 2; 3587000000 0 2 S 7; 3587000010 0 7 S 0";
    let report = analyse(&trace(text));
    assert_eq!((report.waits.len(), report.left_out), (0, 1));
    // A thread that occupies its CPU for a second is not mistaken for a silence.
    let text = "0 0 1 waking 7; 1 0 1 S 2; 1000000 0 2 S 7";
    assert_eq!(analyse(&trace(text)).waits.len(), 1);
}
