//! Invariants for any file: the oracle of the trace fuzzers (`fuzz/`) and of the tests that replay
//! their findings.

use sched_trace::blame::blame;
use sched_trace::latency::{Filter, GroupBy, Report, analyse};
use sched_trace::timeline::Timeline;
use sched_trace::{Event, ReadOptions, Trace, perfetto, read, why};
use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;

/// Bounds that a fuzzer can reach.
const BOUNDS: ReadOptions = ReadOptions {
    max_events: 50_000,
    max_slices: 5_000,
    max_unpacked_bytes: 4 << 20,
};

/// Maximum number of waits for which blame is computed; more would only take time.
const WAITS: usize = 500;

/// Reads a file with arbitrary content. Either the file is refused with a one-line error, or
/// everything computed from it is consistent.
pub fn check(bytes: &[u8]) {
    let trace = match read(Cursor::new(bytes), Path::new("fuzzed"), &BOUNDS) {
        Ok(trace) => trace,
        Err(error) => {
            let line = error.to_string();
            assert!(!line.contains('\n'), "one line: {line}");
            assert!(line.starts_with("fuzzed: "), "it names the file: {line}");
            return;
        }
    };
    let sorted = trace.events.is_sorted_by_key(|event| event.time_ns);
    assert!(sorted, "events are in the order of time");
    assert!((1..=BOUNDS.max_events).contains(&trace.events.len()));
    assert!(trace.slices.len() <= BOUNDS.max_slices);
    let report = analyse(&trace);
    check_sums(&report);
    check_blame(&trace, &report);
    let of_first = report.waits.first().map(|wait| wait.pid);
    why::longest(&trace, &report, &|pid| Some(pid) == of_first, 3);
    check_written(&trace, &report);
}

/// Every wait is in exactly one row of each table.
fn check_sums(report: &Report) {
    for wait in &report.waits {
        assert!(wait.start_ns <= wait.end_ns, "{wait:?}");
    }
    let all = Filter::default();
    for by in [GroupBy::Task, GroupBy::Comm] {
        let groups = report.group(by, &all);
        let counts = groups.iter().map(|g| g.wakeup.count + g.preempted.count);
        assert_eq!(counts.sum::<usize>(), report.waits.len(), "{by:?}");
    }
    let works = report.workqueues(&all);
    let executed: u64 = works.iter().map(|work| work.executed).sum();
    assert_eq!(executed, report.works.len() as u64);
    let json = report.to_json();
    assert_eq!(json["valid"], report.is_valid());
    assert!(report.lost_events == 0 || !report.is_valid());
}

/// Each part of a wait is charged exactly once.
fn check_blame(trace: &Trace, report: &Report) {
    let waits = report.waits.iter().take(WAITS);
    let blame = blame(&Timeline::new(trace), waits);
    let behind: f64 = blame.behind.iter().map(|blocker| blocker.total_us).sum();
    let parts = behind + blame.idle_us + blame.unknown_us;
    let rounding = blame.total_us * 1e-9 + 1e-3;
    assert!((parts - blame.total_us).abs() <= rounding, "{blame:?}");
}

/// A trace that is written and read again gives the same figures. Events with equal times on
/// different CPUs may swap places.
fn check_written(trace: &Trace, report: &Report) {
    let mut bytes = Vec::new();
    perfetto::write(trace, &mut bytes).expect("a Vec takes everything");
    let bounds = ReadOptions {
        max_slices: 2 * BOUNDS.max_slices + 2 * trace.slices.len(),
        ..BOUNDS
    };
    let again = read(Cursor::new(bytes), Path::new("written"), &bounds);
    let again = again.expect("what is written can be read");
    assert_eq!(again.events.len(), trace.events.len());
    assert_eq!(again.lost_events, trace.lost_events);
    // A file does not store what the reader knew in addition to the events: the positions of losses
    // and seams, and whether the recorder silently omits events.
    let claims = &trace.claims;
    if claims.skips_some || !claims.losses.is_empty() || !claims.seams.is_empty() {
        return;
    }
    let mut cpus = HashMap::new();
    let ambiguous = |event: &Event| *cpus.entry(event.time_ns).or_insert(event.cpu) != event.cpu;
    if trace.events.iter().any(ambiguous) {
        return;
    }
    let again = analyse(&again);
    let lengths = |report: &Report| -> Vec<(i32, u64)> {
        let waits = report.waits.iter();
        waits.map(|wait| (wait.pid, wait.length_ns())).collect()
    };
    assert_eq!(lengths(&again), lengths(report));
}
