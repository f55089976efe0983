//! Tests of the output of `erofast trace latency` on a trace whose waits are known.

use std::io::Write;
use std::process::{Command, Output};

/// Two threads on one CPU: `b` waits 3 us and then 100 us after wake-ups, `a` 100 us after a
/// preemption.
const TRACE: &str = "\
    a-1     [000] d..2.   1.000000: sched_switch: prev_comm=c prev_pid=3 prev_prio=120 prev_state=S ==> next_comm=a next_pid=1 next_prio=120
    a-1     [000] d..2.   1.000010: sched_waking: comm=b pid=2 prio=120 target_cpu=000
    a-1     [000] d..2.   1.000013: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=R ==> next_comm=b next_pid=2 next_prio=120
    b-2     [000] d..2.   1.000113: sched_switch: prev_comm=b prev_pid=2 prev_prio=120 prev_state=S ==> next_comm=a next_pid=1 next_prio=120
    a-1     [000] d..2.   1.000200: sched_waking: comm=b pid=2 prio=120 target_cpu=000
    a-1     [000] d..2.   1.000300: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 prev_state=S ==> next_comm=b next_pid=2 next_prio=120
";

fn run(trace: &str, arguments: &[&str]) -> Output {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(trace.as_bytes()).unwrap();
    Command::new(env!("CARGO_BIN_EXE_erofast-lab"))
        .args(["trace", "latency"])
        .arg(file.path())
        .args(arguments)
        .output()
        .unwrap()
}

fn latency(arguments: &[&str]) -> String {
    let output = run(TRACE, arguments);
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// The words of the first line that contains `part`.
fn words(text: &str, part: &str) -> Vec<String> {
    let line = text.lines().find(|line| line.contains(part));
    let line = line.unwrap_or_else(|| panic!("{part}: {text}"));
    line.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn the_wide_table_has_every_figure_of_a_thread() {
    let text = latency(&["--wide"]);
    let head = "count total average median minimum maximum stddev p90 p99 p99.9 preempt total";
    assert_eq!(words(&text, "stddev").join(" "), head);
    let us = |figures: &str| figures.replace(' ', " us ");
    let b = format!(
        "b:2 2 {} us - -",
        us("103.0 51.5 51.5 3.0 100.0 68.6 100.0 100.0 100.0")
    );
    assert_eq!(words(&text, "b:2").join(" "), b);
    let a = words(&text, "a:1");
    assert_eq!(a[11..], ["1", "100.0", "us"], "{a:?}");
}

#[test]
fn the_table_fits_in_100_columns() {
    for by in ["task", "comm", "process", "workqueue"] {
        let text = latency(&["--by", by]);
        for line in text.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
    let text = latency(&[]);
    let head = "count total average median p99 maximum preempt total";
    assert_eq!(words(&text, "median").join(" "), head);
    let b = "b:2 2 103.0 us 51.5 us 51.5 us 100.0 us 100.0 us - -";
    assert_eq!(words(&text, "b:2").join(" "), b);
}

#[test]
fn an_invalid_trace_prints_its_figures_and_exits_with_1() {
    let lost = format!("CPU:0 [LOST 3 EVENTS]\n{TRACE}");
    // Changes the last switch so that the thread that leaves the CPU was never switched in.
    let (head, last) = TRACE.trim_end().rsplit_once('\n').unwrap();
    let missing = format!("{head}\n{}\n", last.replace("prev_pid=1", "prev_pid=4"));
    for (trace, reason) in [(lost, "3 events were lost"), (missing, "are missing")] {
        let output = run(&trace, &["--json"]);
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["valid"], false, "{trace}");
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(errors.contains(reason), "{errors}");
        assert!(errors.contains("the figures are not valid"), "{errors}");
    }
    assert_eq!(run(TRACE, &["--json"]).status.code(), Some(0));
}

#[test]
fn rows_have_a_validity_of_their_own() {
    // There are 200 waits of b and one wait of c. For c, a switch on another CPU is missing.
    let line = |us: u64, cpu: u32, by: &str, fields: &str| {
        format!("    {by} [00{cpu}] d..2. 2.{us:06}: {fields}\n")
    };
    let waking = |of: &str| format!("sched_waking: comm={of} prio=120 target_cpu=000");
    let switch = |from: &str, state: &str, to: &str| {
        format!(
            "sched_switch: prev_comm={} prev_prio=120 prev_state={state} ==> next_comm={} \
             next_prio=120",
            from.replace("pid", "prev_pid"),
            to.replace("pid", "next_pid")
        )
    };
    let (a, b, c) = ("a pid=1", "b pid=2", "c pid=3");
    let mut trace = line(1, 1, "x-9", &waking(c))
        + &line(2, 1, "x-9", &switch("x pid=9", "R", c))
        + &line(5, 1, "x-9", &switch("x pid=9", "S", c));
    for round in 0..200 {
        let us = 1_000 + round * 100;
        trace += &(line(us, 0, "a-1", &waking(b))
            + &line(us + 3, 0, "a-1", &switch(a, "R", b))
            + &line(us + 9, 0, "b-2", &switch(b, "S", a)));
    }
    let output = run(&trace, &[]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(words(&text, "c:3").last().unwrap(), "!", "{text}");
    assert_eq!(words(&text, "b:2").last().unwrap(), "-", "{text}");
    assert!(text.contains("! not valid, 1 row: "), "{text}");
    assert!(
        text.lines().skip(1).all(|line| line.chars().count() <= 100),
        "{text}"
    );
    let json = run(&trace, &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    let valid = |pid: u64| {
        let mut rows = json["tasks"].as_array().unwrap().iter();
        rows.find(|row| row["pid"] == pid).unwrap()["valid"].clone()
    };
    assert_eq!(
        (valid(2), valid(3), &json["valid"]),
        (true.into(), false.into(), &true.into())
    );
    // If c alone is selected, its row is not valid either, and neither is its page.
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("c.html");
    let page = page.to_str().unwrap();
    for (thread, valid) in [("^c$", false), ("^b$", true)] {
        let output = run(&trace, &["--match", thread, "--html", page]);
        assert_eq!(output.status.success(), valid, "{output:?}");
        let html = std::fs::read_to_string(page).unwrap();
        assert_eq!(html.contains("NOT VALID"), !valid, "{thread}");
    }
}

#[test]
fn notices_reach_the_user() {
    let start = "    b-2     [000] d..2.   1.000314: workqueue_execute_start: work struct 00ff: function f\n";
    let output = run(&format!("{TRACE}{start}"), &["--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let notice = json["notices"][0].as_str().unwrap();
    assert!(
        notice.starts_with("no workqueue_execute_end events"),
        "{notice}"
    );
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains(notice), "{errors}");
    assert!(output.status.success(), "{errors}");
}

#[test]
fn waits_are_counted_by_length_and_kind() {
    let text = latency(&[]);
    assert!(text.contains("Waits by length:"), "{text}");
    // 3 us is between 2^11 and 2^12 ns, and 100 us is between 2^16 and 2^17 ns.
    assert_eq!(
        words(&text, " 2.0 us to").join(" "),
        format!("2.0 us to 4.1 us 1 0 {}", "#".repeat(20))
    );
    assert_eq!(
        words(&text, " 65.5 us to").join(" "),
        format!("65.5 us to 131.1 us 1 1 {}", "#".repeat(40))
    );
    let json: serde_json::Value = serde_json::from_str(&latency(&["--json"])).unwrap();
    let counts = |kind: &str| -> u64 {
        let rows = json["histogram"][kind].as_array().unwrap().iter();
        rows.map(|row| row["count"].as_u64().unwrap()).sum()
    };
    assert_eq!((counts("wakeup"), counts("preempted")), (2, 1));
}

#[test]
fn the_worst_wait_has_its_time_its_cause_and_the_threads_that_ran_meanwhile() {
    let text = latency(&["--match", "^b$", "--worst", "1"]);
    let worst = words(&text, "woken by ");
    assert_eq!(
        worst.join(" "),
        "100.0 us from 1.000200 s on CPU 0: b:2 woken by a:1 on CPU 0; ran last on CPU 0"
    );
    assert!(text.contains("103.0 us behind a, priority 120"), "{text}");
}

/// `cc1` sends a request to a mount on CPU 0; `erofast/1` waits for fio on CPU 1, serves the
/// request, and wakes `cc1`.
const REQUEST: &str = "\
  <idle>-0   [000] d..2.   1.000000: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cc1 next_pid=20 next_prio=120
  erofast/1-30   [001] d..2.   1.000010: sched_switch: prev_comm=erofast/1 prev_pid=30 prev_prio=98 prev_state=S ==> next_comm=fio next_pid=9 next_prio=120
  cc1-20   [000] d..2.   1.000101: sched_waking: comm=erofast/1 pid=30 prio=98 target_cpu=001
  cc1-20   [000] d..2.   1.000110: sched_switch: prev_comm=cc1 prev_pid=20 prev_prio=120 prev_state=D ==> next_comm=swapper/0 next_pid=0 next_prio=120
  fio-9   [001] d..2.   1.000150: sched_switch: prev_comm=fio prev_pid=9 prev_prio=120 prev_state=R ==> next_comm=erofast/1 next_pid=30 next_prio=98
  erofast/1-30   [001] d..2.   1.000900: sched_waking: comm=cc1 pid=20 prio=120 target_cpu=000
  <idle>-0   [000] d..2.   1.000920: sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=cc1 next_pid=20 next_prio=120
";

#[test]
fn why_draws_the_chain_from_the_sleep_to_running_again() {
    let output = run(REQUEST, &["--why", "cc1"]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        lines[2..],
        [
            "1. 810.0 us from 1.000110 s",
            "-9.0 us erofast/1:30 is woken, waits 49.0 us for CPU 1 behind fio",
            "40.0 us erofast/1:30 runs 750.0 us on CPU 1",
            "790.0 us cc1:20 is woken, waits 20.0 us for CPU 0",
            "810.0 us cc1:20 runs",
        ],
        "{text}"
    );
    assert!(!text.contains("preemption"), "{text}");
    let text = String::from_utf8(run(REQUEST, &["--why", "erofast"]).stdout).unwrap();
    assert!(!text.contains("preemption"), "{text}");
    let error = String::from_utf8(run(WORK_TRACE, &["--why", "a"]).stderr).unwrap();
    let line = "--why a: no wake-up to follow: 1 wait after a preemption has no chain";
    assert!(error.contains(line), "{error}");
    for task in ["20", "cc1:20", "cc", "^cc[0-9]$"] {
        assert!(run(REQUEST, &["--why", task]).status.success());
    }
    assert_eq!(run(REQUEST, &["--why", "nobody"]).status.code(), Some(1));
    let output = run(REQUEST, &["--why", "20", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["why"]["longest"][0]["origin"], "uninterruptible_sleep");
}

/// Two threads on one CPU, one woken by the other.
const WORK_TRACE: &str = "\
    a-1     [000] d..2.   1.000000: sched_switch: prev_comm=c prev_pid=3 prev_prio=120 \
prev_state=S ==> next_comm=a next_pid=1 next_prio=120
    a-1     [000] d..2.   1.000005: workqueue_queue_work: work struct=0000000000000001 \
function=work_function workqueue=events req_cpu=8192 cpu=0
    a-1     [000] d..2.   1.000010: sched_waking: comm=b pid=2 prio=120 target_cpu=000
    a-1     [000] d..2.   1.000013: sched_switch: prev_comm=a prev_pid=1 prev_prio=120 \
prev_state=R ==> next_comm=b next_pid=2 next_prio=120
    b-2     [000] d..2.   1.000014: workqueue_execute_start: work struct 0000000000000001: \
function work_function
    b-2     [000] d..2.   1.000113: sched_switch: prev_comm=b prev_pid=2 prev_prio=120 \
prev_state=S ==> next_comm=a next_pid=1 next_prio=120
";

#[test]
fn what_is_printed_about_a_trace_fits() {
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_slice(&run(WORK_TRACE, arguments).stdout).unwrap()
    };
    let report = json(&["--json"]);
    crate::schema::check("trace-latency", &report);
    assert_eq!(report["workqueues"][0]["function"], "work_function");
    let why = json(&["--json", "--why", "b"]);
    crate::schema::check("trace-latency", &why);
    assert_eq!(why["why"]["of"], 1);
}

#[test]
fn by_work_queue_all_figures_are_of_work_items() {
    // The worker waits 3 us before its item; the thread that it preempts waits 100 us.
    let trace = WORK_TRACE.replace("comm=b ", "comm=kworker/0:1 ");
    let text = |by: &str| String::from_utf8(run(&trace, &["--by", by]).stdout).unwrap();
    let (items, threads) = (text("workqueue"), text("task"));
    assert!(
        threads.contains("Of 103.0 us of waiting in total"),
        "{threads}"
    );
    assert!(items.contains("Of 3.0 us of waiting in total"), "{items}");
    let worst = items.split("Worst waits:\n").nth(1).unwrap();
    let worst = worst.lines().take_while(|line| !line.is_empty());
    let worst: Vec<&str> = worst.collect();
    assert_eq!(worst.len(), 1, "{items}");
    assert!(worst[0].contains("kworker/0:1:2 woken by a:1"), "{items}");
    let nothing = run(&trace, &["--by", "workqueue", "--match", "^a$"]);
    assert_eq!(nothing.status.code(), Some(1), "a is not a worker");
    assert_eq!(run(&trace, &["--match", "^a$"]).status.code(), Some(0));
}

/// The steps of the chains that `--why TASK` prints, with single spaces between the words.
fn chain(trace: &str, task: &str) -> Vec<String> {
    let output = run(trace, &["--why", task]);
    let text = String::from_utf8(output.stdout).unwrap();
    let steps = text.lines().skip(3);
    steps
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn the_chain_of_a_worker_names_item_queuer_and_waker() {
    let trace = WORK_TRACE.replace("comm=b ", "comm=kworker/0:1 ");
    assert_eq!(
        chain(&trace, "kworker/"),
        [
            "0.0 us a:1 queues events work_function",
            "0.0 us a:1 runs 5.0 us on CPU 0",
            "5.0 us kworker/0:1:2 is woken, waits 3.0 us for CPU 0 behind a",
            "8.0 us kworker/0:1:2 runs events work_function",
        ]
    );
}

#[test]
fn the_file_is_summarized_and_read_from_the_standard_input() {
    let text = latency(&[]);
    let line =
        ": ftrace text, 300.0 us from 1.000000 s of an unknown clock, CPU 0, 6 events, 0 lost";
    assert!(text.lines().next().unwrap().ends_with(line), "{text}");
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(TRACE.as_bytes()).unwrap();
    std::io::Seek::rewind(&mut file).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_erofast-lab"))
        .args(["trace", "latency", "-"])
        .stdin(file)
        .output()
        .unwrap();
    let piped = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        piped.split_once(": ").unwrap().1,
        text.split_once(": ").unwrap().1
    );
    assert!(piped.starts_with("standard input: "), "{piped}");
}

/// The first words of the table's rows.
fn rows(arguments: &[&str]) -> Vec<String> {
    let text = latency(arguments);
    let rows = text.lines().skip(6).take_while(|line| !line.is_empty());
    rows.map(|row| row.split_whitespace().next().unwrap().to_owned())
        .collect()
}

#[test]
fn rows_are_sorted_limited_and_selected() {
    assert_eq!(rows(&[]), ["b:2", "a:1"]);
    assert_eq!(rows(&["--sort", "preempted"]), ["a:1", "b:2"]);
    assert_eq!(rows(&["--sort", "preempted", "--top", "1"]), ["a:1", "and"]);
    assert_eq!(rows(&["--pid", "2"]), ["b:2"]);
    assert_eq!(rows(&["--pid", "1,2", "--cpu", "0"]), ["b:2", "a:1"]);
    for nothing in [["--cpu", "1"], ["--match", "nobody"], ["--pid", "77"]] {
        for json in [&[][..], &["--json"]] {
            let output = run(TRACE, &[&nothing, json].concat());
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(1), "{nothing:?}");
            assert!(
                errors.contains("no waits or work items are selected"),
                "{errors}"
            );
        }
    }
    for times in [["--from", "1.0001"], ["--from", "+0.0001"]] {
        let b = words(&latency(&times), "b:2").join(" ");
        assert!(b.starts_with("b:2 1 100.0 us"), "{b}");
    }
    assert_eq!(rows(&["--to", "+0.000014"]), ["b:2"]);
    let wrong = run(TRACE, &["--from", "yesterday"]);
    assert_eq!(wrong.status.code(), Some(2));
    // Times outside the trace: the user probably meant times after its beginning.
    for times in [["--from", "5"], ["--from", "0.5"], ["--to", "0.5"]] {
        let wrong = run(TRACE, &times);
        let errors = String::from_utf8_lossy(&wrong.stderr).into_owned();
        assert_eq!(wrong.status.code(), Some(2), "{errors}");
        let there = format!("{} {}: the trace covers 1.0", times[0], times[1]);
        assert!(
            errors.contains(&there) && errors.contains("s of its clock; write +"),
            "{errors}"
        );
    }
}

#[test]
fn threads_of_a_process_are_one_row() {
    let trace = TRACE
        .replace("a-1 ", "a-1 (9) ")
        .replace("b-2 ", "b-2 (9) ");
    let text = String::from_utf8(run(&trace, &["--by", "process"]).stdout).unwrap();
    assert_eq!(words(&text, "(2)")[..3], ["b:9", "(2)", "2"], "{text}");
    assert_eq!(words(&text, "(2)").last().unwrap(), "us");
    let pid = run(&trace, &["--pid", "9", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&pid.stdout).unwrap();
    assert_eq!(json["tasks"].as_array().unwrap().len(), 2);
    assert_eq!(json["tasks"][0]["process"], 9);
    let text = latency(&["--by", "process"]);
    assert!(
        text.contains("does not name the process of 2 threads"),
        "{text}"
    );
}

#[test]
fn a_wait_that_outlasts_the_trace_is_shown_as_at_least() {
    let woken =
        "    b-2     [000] d..2.   1.000400: sched_waking: comm=c pid=3 prio=120 target_cpu=000\n";
    let later =
        "    b-2     [000] d..2.  11.000400: sched_waking: comm=d pid=4 prio=120 target_cpu=000\n";
    let output = run(&format!("{TRACE}{woken}{later}"), &[]);
    let text = String::from_utf8(output.stdout).unwrap();
    let line = words(&text, "at least").join(" ");
    assert_eq!(
        line,
        "at least 10.00 s from 1.000400 s: c:3 woken by b:2 on CPU 0; ran last on CPU 0"
    );
}

#[test]
fn a_wait_is_drawn_as_a_page() {
    let directory = tempfile::tempdir().unwrap();
    let page = directory.path().join("wait.html");
    let page = page.to_str().unwrap();
    let output = run(REQUEST, &["--why", "cc1", "--html", page]);
    assert!(output.status.success(), "{output:?}");
    let html = std::fs::read_to_string(page).unwrap();
    assert!(html.contains("<h1>cc1:20 waited 810.0 us</h1>"), "{html}");
    assert_eq!(html.matches("class=\"s1\"").count(), 2, "{html}");
    assert!(html.contains("erofast/1:30 waited 49.0 us") && !html.contains("http"));
    assert!(run(TRACE, &["--html", page]).status.success());
    let nothing = run(TRACE, &["--match", "nobody", "--html", page]);
    assert_eq!(nothing.status.code(), Some(1));
    let nowhere = run(TRACE, &["--html", "/nonexistent/wait.html"]);
    let error = String::from_utf8_lossy(&nowhere.stderr).into_owned();
    assert!(
        error.contains("cannot write /nonexistent/wait.html"),
        "{error}"
    );
}
