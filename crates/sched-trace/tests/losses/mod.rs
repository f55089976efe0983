//! Recordings in every format that is read, from which events were deliberately removed. No row
//! that is called valid may be off by more than 5 %, and complete recordings must not be refused.
//!
//! The true values come from a separate calculator (`truth`), which shares only the events of the
//! complete recording with the crate.

mod binary;
mod text;
mod truth;

use sched_trace::latency::analyse;
use sched_trace::{ReadOptions, Trace, perfetto, read};
use std::io::Cursor;
use std::path::Path;
use truth::Row;

/// How far a figure of a valid row may be from the true value.
const TOLERANCE: f64 = 0.05;

/// The result for a recording.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Refused,
    NotValid,
    Valid,
}

/// Reads a recording, and compares every row that the report calls valid with the true values.
/// Returns descriptions of the rows that are wrong.
fn judge(bytes: &[u8], whole: &truth::Rows) -> (Outcome, Vec<String>) {
    let file = Cursor::new(bytes);
    let Ok(trace) = read(file, Path::new("mutated"), &ReadOptions::default()) else {
        return (Outcome::Refused, Vec::new());
    };
    let report = analyse(&trace);
    let json = report.to_json();
    if json["valid"] != true {
        return (Outcome::NotValid, Vec::new());
    }
    // If a ring buffer overwrote events, or some were cut off at the beginning or the end, the
    // figures cover the rest, and the report says so.
    let right = whole.within(trace.span().unwrap_or_default());
    let mut wrong = Vec::new();
    for row in json["tasks"].as_array().unwrap() {
        if row["valid"] != true {
            continue;
        }
        let pid = row["pid"].as_i64().unwrap() as i32;
        let figure = |name: &str| row[name].as_f64().unwrap();
        let found = Row {
            count: (figure("count") + figure("preempted_count")) as u64,
            total_us: figure("total_us") + figure("preempted_total_us"),
            maximum_us: figure("maximum_us").max(figure("preempted_maximum_us")),
        };
        let right = right.get(&pid).copied().unwrap_or_default();
        if !found.is_near(right, TOLERANCE) {
            wrong.push(format!("{pid}: {found:?}, right is {right:?}"));
        }
    }
    (Outcome::Valid, wrong)
}

/// A recording, and the one that it was made from.
struct Case {
    what: String,
    bytes: Vec<u8>,
    /// The complete recordings; more than one if unrelated ones were concatenated.
    whole: Vec<Vec<u8>>,
    /// Whether nothing was removed.
    is_whole: bool,
}

/// A recording of the fixtures.
fn fixture(name: &str) -> Vec<u8> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/fixtures/{name}.z"));
    miniz_oxide::inflate::decompress_to_vec_zlib(&std::fs::read(path).unwrap()).unwrap()
}

fn trace(bytes: &[u8]) -> Trace {
    read(
        Cursor::new(bytes),
        Path::new("whole"),
        &ReadOptions::default(),
    )
    .unwrap()
}

/// Judges each case; returns the number of cases.
fn check(cases: Vec<Case>) -> usize {
    let (mut failed, count) = (Vec::new(), cases.len());
    let mut before: Option<(Vec<Vec<u8>>, truth::Rows)> = None;
    for case in cases {
        let rows = match before.take() {
            Some((whole, rows)) if whole == case.whole => rows,
            _ => truth::Rows::of(case.whole.iter().map(|bytes| trace(bytes))),
        };
        let (outcome, wrong) = judge(&case.bytes, &rows);
        // In recordings of a few milliseconds, most of the missing events may be ones that the
        // kernel itself did not write.
        let omits = || {
            case.whole
                .iter()
                .any(|bytes| analyse(&trace(bytes)).missing_switches > 0)
        };
        let refused = case.is_whole && outcome != Outcome::Valid;
        if refused && !omits() || !wrong.is_empty() {
            failed.push(format!(
                "{}: {outcome:?} {:?}",
                case.what,
                &wrong[..wrong.len().min(2)]
            ));
        }
    }
    assert!(
        failed.is_empty(),
        "{} of {count}:\n{}",
        failed.len(),
        failed.join("\n")
    );
    count
}

#[test]
fn no_text_that_lost_events_is_valid_with_a_wrong_row() {
    let words = &text::WORDS;
    let count: usize = std::thread::scope(|scope| {
        let all = words
            .iter()
            .map(|words| scope.spawn(|| check(text::cases(words))));
        let all: Vec<_> = all.collect();
        all.into_iter().map(|one| one.join().unwrap()).sum()
    });
    assert!(count >= 540, "{count}");
}

#[test]
fn no_file_that_lost_events_is_valid_with_a_wrong_row() {
    // A recording made by this crate, which stores its counts in the file.
    let mut own = trace(&fixture("busy.txt"));
    own.clock = "mono".into();
    let mut written = Vec::new();
    perfetto::write(&own, &mut written).unwrap();
    let plain = fixture("perfetto-plain.pftrace");
    let cases = [
        binary::trace_dat(),
        binary::perf_data("perf-busy.data"),
        binary::perf_data("perf-7-busy.data"),
        binary::perfetto("perfetto-plain.pftrace", &plain),
        binary::perfetto(
            "perfetto-compact.pftrace",
            &fixture("perfetto-compact.pftrace"),
        ),
        binary::perfetto("written", &written),
    ];
    let count = check(cases.into_iter().flatten().collect());
    assert!(count >= 75, "{count}");
}
