//! Tests of `erofast trace diff` on recordings whose waits are known.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// A recording of one CPU for `seconds`: every 4 ms, each thread runs once, for 50 us. After each
/// wake-up, a thread waits for its given time, plus or minus a tenth.
fn recording(threads: &[(&str, u32)], seconds: u32, seed: u32) -> String {
    let mut out = String::new();
    let (mut random, mut lines) = (seed, 0);
    for turn in 0..seconds * 250 {
        let mut at = 1_000_000 + turn * 4000;
        for (number, (name, wait)) in (1..).zip(threads) {
            random = random.wrapping_mul(1_103_515_245).wrapping_add(12345);
            let wait = wait * (90 + (random >> 16) % 21) / 100;
            let time = |us: u32| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
            let _ = write!(
                out,
                "<idle>-0 [000] d..2. {}: sched_waking: comm={name} pid={number} prio=120 target_cpu=000\n\
                 <idle>-0 [000] d..2. {}: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 \
                 prev_state=R ==> next_comm={name} next_pid={number} next_prio=120\n\
                 {name}-{number} [000] d..2. {}: sched_switch: prev_comm={name} prev_pid={number} \
                 prev_prio=120 prev_state=S ==> next_comm=swapper/0 next_pid=0 next_prio=120\n",
                time(at),
                time(at + wait),
                time(at + wait + 50),
            );
            (at, lines) = (at + wait + 100, lines + 3);
        }
    }
    format!("# entries-in-buffer/entries-written: {lines}/{lines}   #P:1\n{out}")
}

struct Place(TempDir);

impl Place {
    fn with(files: &[(&str, String)]) -> Place {
        let place = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(place.path().join(name), text).unwrap();
        }
        Place(place)
    }

    fn diff(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_erofast-lab"))
            .args(["trace", "diff"])
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.diff(&[arguments, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

fn row<'a>(report: &'a Value, name: &str) -> &'a Value {
    let rows = report["rows"].as_array().unwrap();
    let found = rows.iter().find(|row| row["name"] == name);
    found.unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn what_waits_longer_appears_or_is_gone_is_told_apart_from_what_stays() {
    let old = recording(&[("same", 100), ("slower", 100), ("gone", 200)], 3, 1);
    let new = recording(&[("same", 100), ("slower", 150), ("young", 30)], 3, 2);
    let place = Place::with(&[("a.txt", old), ("b.txt", new)]);
    let report = place.json(&["a.txt", "b.txt"]);
    crate::schema::check("trace-diff", &report);
    assert_eq!(report["valid"], true, "{report}");
    let verdict = |name: &str, of: &str| row(&report, name)[of]["verdict"].clone();
    for (name, waited) in [("slower", "higher"), ("gone", "lower"), ("young", "higher")] {
        assert_eq!(verdict(name, "waited"), waited, "{name}: {report}");
    }
    assert_eq!(verdict("same", "waited"), "no-difference");
    assert_eq!(verdict("slower", "average"), "higher");
    let shift = row(&report, "slower")["waited"]["difference_percent"].as_f64();
    assert!(
        shift.is_some_and(|it| (40.0..60.0).contains(&it)),
        "{shift:?}"
    );
    let only = |name: &str| row(&report, name)["only"].clone();
    assert_eq!([only("gone"), only("young")], ["old", "new"]);
    assert!(only("same").is_null());
    let text = place.diff(&["a.txt", "b.txt", "--html", "d.html"]);
    assert!(text.status.success(), "{text:?}");
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.contains("gone: lower") && text.contains("appears: higher"),
        "{text}"
    );
    assert!(
        text.lines().all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let page = std::fs::read_to_string(place.file("d.html")).unwrap();
    assert!(page.contains("Slower, waited per second"), "{page}");
}

#[test]
fn a_recording_against_another_one_of_the_same_claims_no_difference() {
    let threads = [("a", 100), ("b", 70), ("c", 250)];
    let files = [1, 2, 3, 4].map(|seed| recording(&threads, 3, seed * 77));
    let names = ["1.txt", "2.txt", "3.txt", "4.txt"];
    let named: Vec<(&str, String)> = names.into_iter().zip(files).collect();
    let place = Place::with(&named);
    for new in &names[1..] {
        for by in ["comm", "task", "process"] {
            let report = place.json(&[names[0], new, "--by", by]);
            for row in report["rows"].as_array().unwrap() {
                assert_eq!(row["waited"]["verdict"], "no-difference", "{row}");
            }
        }
    }
}

#[test]
fn work_items_have_their_queue_delays() {
    let items = |delay: u32| {
        let mut out = String::new();
        for turn in 0..500 {
            let at = 1_000_000 + turn * 5000;
            let time = |us: u32| format!("{}.{:06}", us / 1_000_000, us % 1_000_000);
            let begin = at + delay + turn % 7;
            let _ = write!(
                out,
                "<idle>-0 [000] d..2. {}: workqueue_queue_work: work struct=0000000000000001 \
                 function=work_function workqueue=events req_cpu=0 cpu=0\n\
                 <idle>-0 [000] d..2. {0}: sched_waking: comm=kworker/0:1 pid=9 prio=120 target_cpu=000\n\
                 <idle>-0 [000] d..2. {}: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 \
                 prev_state=R ==> next_comm=kworker/0:1 next_pid=9 next_prio=120\n\
                 kworker/0:1-9 [000] d..2. {}: workqueue_execute_start: work struct 0000000000000001: \
                 function work_function\n\
                 kworker/0:1-9 [000] d..2. {}: workqueue_execute_end: work struct 0000000000000001: \
                 function work_function\n\
                 kworker/0:1-9 [000] d..2. {}: sched_switch: prev_comm=kworker/0:1 prev_pid=9 \
                 prev_prio=120 prev_state=I ==> next_comm=swapper/0 next_pid=0 next_prio=120\n",
                time(at),
                time(begin),
                time(begin + 1),
                time(begin + 20),
                time(begin + 21),
            );
        }
        format!("# entries-in-buffer/entries-written: 3000/3000   #P:1\n{out}")
    };
    let place = Place::with(&[("a", items(40)), ("b", items(90))]);
    let report = place.json(&["a", "b", "--by", "workqueue"]);
    crate::schema::check("trace-diff", &report);
    let row = row(&report, "events work_function");
    assert_eq!(row["queue_delay"]["verdict"], "higher", "{row}");
    let unmatched = place.diff(&["a", "b", "--match", "nothing"]);
    assert_eq!(unmatched.status.code(), Some(1));
    let line = String::from_utf8(unmatched.stderr).unwrap();
    assert!(
        line.contains("a, b: no waits or work items are selected"),
        "{line}"
    );
}

#[test]
fn a_recording_that_is_not_valid_claims_nothing() {
    let whole = recording(&[("a", 100), ("b", 100)], 3, 1);
    let lossy = format!(
        "CPU:0 [LOST 3 EVENTS]\n{}",
        recording(&[("a", 300), ("b", 100)], 3, 2)
    );
    let place = Place::with(&[("a.txt", whole), ("b.txt", lossy)]);
    let report = place.json(&["a.txt", "b.txt"]);
    assert_eq!(report["valid"], false);
    assert!(row(&report, "a")["waited"].is_null());
    let output = place.diff(&["a.txt", "b.txt"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.starts_with("NOT VALID: b.txt lost 3 events\n"),
        "{text}"
    );
}
