//! What `erofast trace latency` prints of a trace whose waits are known.

use std::io::Write;
use std::process::Command;

/// Two threads on one CPU: `b` waits 3 us and then 100 us after wake-ups, `a` 100 us after a preemption.
const TRACE: &str = "\
    a-1     [000] d..2.   1.000000: sched_switch: prev_comm=c prev_pid=3 prev_prio=120 prev_state=S ==> next_comm=a next_pid=1 next_prio=120
    a-1     [000] d..2.   1.000010: sched_waking: comm=b pid=2 prio=120 target_cpu=000
    a-1     [000] d..2.   1.000013: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=R ==> next_comm=b next_pid=2 next_prio=120
    b-2     [000] d..2.   1.000113: sched_switch: prev_comm=b prev_pid=2 prev_prio=120 prev_state=S ==> next_comm=a next_pid=1 next_prio=120
    a-1     [000] d..2.   1.000200: sched_waking: comm=b pid=2 prio=120 target_cpu=000
    a-1     [000] d..2.   1.000300: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120
";

fn latency(arguments: &[&str]) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(TRACE.as_bytes()).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_erofast"))
        .args(["trace", "latency"])
        .arg(file.path())
        .args(arguments)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The words of the first line that has `part` in it.
fn words(text: &str, part: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.contains(part));
    let line = line.unwrap_or_else(|| panic!("{part}: {text}"));
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_table_has_every_figure_of_a_thread() {
    let text = latency(&[]);
    let head = "count total average median minimum maximum stddev p90 p99 p99.9 preempt total";
    assert_eq!(words(&text, "stddev").join(" "), head);
    let b = "b:2 2 103.0 51.5 51.5 3.0 100.0 68.6 100.0 100.0 100.0 0 0.0";
    assert_eq!(words(&text, "b:2").join(" "), b);
    let a = words(&text, "a:1");
    assert_eq!(a[11..], ["1", "100.0"], "{a:?}");
}

#[test]
fn waits_are_counted_by_length_and_kind() {
    let text = latency(&[]);
    assert!(text.contains("Waits by length (us):"), "{text}");
    // 3 us lie between 2^11 and 2^12 ns, 100 us between 2^16 and 2^17.
    assert_eq!(
        words(&text, " 2.0 to").join(" "),
        format!("2.0 to 4.1 1 0 {}", "#".repeat(20))
    );
    assert_eq!(
        words(&text, " 65.5 to").join(" "),
        format!("65.5 to 131.1 1 1 {}", "#".repeat(40))
    );
    let json: serde_json::Value = serde_json::from_str(&latency(&["--json"])).unwrap();
    let counts = |kind: &str| -> u64 {
        let rows = json["histogram"][kind].as_array().unwrap().iter();
        rows.map(|row| row["count"].as_u64().unwrap()).sum()
    };
    assert_eq!((counts("wakeup"), counts("preempted")), (2, 1));
}

#[test]
fn the_worst_wait_stands_with_its_time_and_who_ran_meanwhile() {
    let text = latency(&["--match", "^b$", "--worst", "1"]);
    let worst = words(&text, "after a wake-up");
    assert_eq!(
        worst.join(" "),
        "100.0 us after a wake-up, from 1.000200 s on CPU 0: b:2"
    );
    assert!(text.contains("103.0 us behind a, priority 120"), "{text}");
}
