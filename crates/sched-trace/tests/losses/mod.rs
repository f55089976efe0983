//! Recordings from which events were taken away on purpose, of every format that is read. None may
//! be valid with a row that is off by more than 5 %, and whole ones are not refused.
//!
//! What is true comes from a calculator of its own (`truth`), which shares nothing with the crate
//! but the events of the whole recording.

mod text;
mod truth;

use sched_trace::latency::analyse;
use sched_trace::{ReadOptions, read};
use std::io::Cursor;
use std::path::Path;
use truth::Row;

/// How far a figure of a valid row may be from the truth.
const TOLERANCE: f64 = 0.05;

/// What became of a recording.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Refused,
    NotValid,
    Valid,
}

/// A row that is called valid, and is not what the whole recording says.
#[derive(Debug)]
struct Wrong {
    pid: i32,
    found: Row,
    right: Row,
}

/// Reads a recording, and compares every row that is called valid with the truth.
fn judge(bytes: &[u8], whole: &truth::Rows) -> (Outcome, Vec<Wrong>) {
    let file = Cursor::new(bytes);
    let Ok(trace) = read(file, Path::new("mutated"), &ReadOptions::default()) else {
        return (Outcome::Refused, Vec::new());
    };
    let report = analyse(&trace);
    let json = report.to_json();
    if json["valid"] != true {
        return (Outcome::NotValid, Vec::new());
    }
    // A ring buffer whose oldest events were overwritten has figures of the rest, and says so.
    let begins = trace.span().map_or(0, |(first, _)| first);
    let right = whole.since(begins);
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
            wrong.push(Wrong { pid, found, right });
        }
    }
    (Outcome::Valid, wrong)
}
