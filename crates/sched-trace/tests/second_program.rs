//! Compares rows by work queue with those of `fixtures/workqueue_rows.py`, which reads the same
//! text and shares no code with the crate. Needs python3.

use sched_trace::latency::{Filter, analyse};
use sched_trace::{ReadOptions, read};
use std::collections::BTreeMap;
use std::io::{Cursor, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Number of executed items; then the number and the sum in ns of waits after wake-ups, of waits
/// after preemptions, and of queue delays.
type Row = [u64; 7];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures")
}

fn ours(text: &str) -> BTreeMap<String, Row> {
    let file = Cursor::new(text.as_bytes());
    let trace = read(file, Path::new("text"), &ReadOptions::default()).unwrap();
    let report = analyse(&trace);
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for group in report.workqueues(&Filter::default()) {
        let name = group
            .function
            .map_or("", |name| report.names.get(name))
            .to_string();
        let row = rows.entry(name).or_default();
        row[0] += group.executed;
        for (at, of) in [group.wakeup, group.preempted, group.queue_delay]
            .iter()
            .enumerate()
        {
            row[1 + 2 * at] += of.count as u64;
            row[2 + 2 * at] += (of.total * 1e3).round() as u64;
        }
    }
    rows
}

/// The second program's rows; `None` without python3.
fn theirs(text: &str) -> Option<BTreeMap<String, Row>> {
    let mut python = Command::new("python3")
        .arg(fixtures().join("workqueue_rows.py"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .ok()?;
    python.stdin.take()?.write_all(text.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success());
    let rows = String::from_utf8(output.stdout).unwrap();
    let rows = rows.lines().map(|line| {
        let (function, figures) = line.split_once(' ').unwrap();
        let figures: Vec<u64> = figures.split(' ').map(|n| n.parse().unwrap()).collect();
        (function.to_string(), figures.try_into().unwrap())
    });
    Some(rows.collect())
}

#[test]
fn rows_by_work_queue_are_those_of_a_second_program() {
    let packed = std::fs::read(fixtures().join("ftrace.txt.z")).unwrap();
    let text = miniz_oxide::inflate::decompress_to_vec_zlib(&packed).unwrap();
    let text = String::from_utf8(text).unwrap();
    let lines = text.split_inclusive('\n');
    let without_ends: String = lines
        .filter(|l| !l.contains("workqueue_execute_end"))
        .collect();
    for text in [text.as_str(), &without_ends] {
        let Some(theirs) = theirs(text) else {
            return println!("skipped: no python3");
        };
        let ours = ours(text);
        assert!(
            ours.values().map(|row| row[0]).sum::<u64>() > 10,
            "{ours:?}"
        );
        assert_eq!(ours, theirs);
    }
}
