//! Tests of `erofast lab report`, which makes the answer, the page and the samples of a run from
//! its JSON.

use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::failure::fails;

/// Launches of two engines, the second one faster, with the fields of a report from an early
/// version. The stored verdict does not match the samples.
fn launches(valid: bool, kernel: &str) -> Value {
    let engine = |name: &str, launch_us: u32, against: Value| {
        let sample = |k: u32| {
            json!({"launch_us": launch_us + k % 5, "sched_latency_us": 100 + k % 7, "wakeups": 3,
                   "program_blocked_us": 50, "program_preempted_us": k % 3, "iteration": k})
        };
        json!({"engine": name, "samples": (0..20).map(sample).collect::<Vec<_>>(),
               "queue_source": "n/a", "against_first": against,
               "outliers": {"sched_latency": [], "launch": []}, "thrown_away": []})
    };
    let shift = json!({"difference_percent": 50.0, "interval_percent": {"low": 45.0, "high": 55.0},
                       "chance_lower": 1.0, "p_value": 1e-6, "p_adjusted": 3e-6, "comparisons": 3,
                       "verdict": "higher"});
    let reasons = if valid {
        json!([])
    } else {
        json!(["other programs were busy"])
    };
    json!({"iterations": 20, "load": "none", "valid": valid, "not_valid_because": reasons,
           "interrupted": false, "command": ["{}/bin/app"], "root": false, "warm_ups": 1, "seed": 1,
           "cold": "a fresh mount", "left_out": [], "notices": [],
           "environment": {"date": "2026-11-23", "kernel": kernel, "cpus": "0-1", "programs": {},
                           "image": {"path": "app.erofs", "bytes": 1, "sha256": "0"}},
           "engines": [engine("kernel", 10_000, Value::Null),
                       engine("erofast", 8000, json!({"launch": shift}))]})
}

struct Place(TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    fn lab(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_erofast-lab"))
            .arg("lab")
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .unwrap()
    }

    fn report(&self, arguments: &[&str]) -> Output {
        self.lab(&[&["report"], arguments].concat())
    }

    fn prints(&self, arguments: &[&str]) -> String {
        let output = self.report(arguments);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

#[test]
fn one_report_becomes_its_answer_its_page_and_its_samples() {
    let place = Place::new();
    place.file("a.json", &launches(true, "6.18").to_string());
    let text = place.prints(&["a.json", "--html", "a.html"]);
    let sentence = "Against kernel, a launch takes 20 % less time from erofast.\n";
    assert!(text.starts_with(sentence), "{text}");
    assert!(
        text.lines().count() <= 12 && text.contains("lower, -20.0"),
        "{text}"
    );
    let all = place.prints(&["a.json", "--details"]);
    assert!(
        all.starts_with(sentence) && all.contains("deviation"),
        "{all}"
    );
    let page = std::fs::read_to_string(place.0.path().join("a.html")).unwrap();
    assert!(page.contains(sentence.trim_end()) && page.contains("lower: -20.0"));
    let csv = place.prints(&["a.json", "--csv"]);
    assert_eq!(csv.lines().count(), 1 + 2 * 3 * 20);
    assert!(
        csv.contains("\na.json,launch time,erofast,2,8001,us,true\n"),
        "{csv}"
    );
    let markdown = place.prints(&["a.json", "--markdown"]);
    assert!(
        markdown.contains("| launch time | median | shift |"),
        "{markdown}"
    );
}

#[test]
fn several_reports_stand_side_by_side_valid_or_not() {
    let place = Place::new();
    place.file("a.json", &launches(true, "6.18").to_string());
    place.file("b.json", &launches(false, "6.19").to_string());
    let text = place.prints(&["a.json", "b.json", "--html", "days.html"]);
    assert!(
        text.starts_with("NOT VALID: b.json is marked as not valid\n"),
        "{text}"
    );
    assert!(text.contains("\nerofast, launch time\n  a.json"), "{text}");
    assert!(
        text.contains("kernel differs: 6.18, in b.json 6.19"),
        "{text}"
    );
    let page = std::fs::read_to_string(place.0.path().join("days.html")).unwrap();
    assert!(page.contains("Not valid: b.json") && page.contains("Reports side by side"));
    let text = place.prints(&["a.json", "a.json"]);
    assert!(
        text.contains("\n  a.json (2)") && text.contains("no difference"),
        "{text}"
    );
    let text = place.prints(&["b.json"]);
    assert!(
        text.starts_with("NOT VALID: other programs were busy\n20 launches"),
        "{text}"
    );
}

#[test]
fn two_reports_have_their_differences_as_json() {
    let place = Place::new();
    place.file("a.json", &launches(true, "6.18").to_string());
    let mut other = launches(true, "6.19");
    other["engines"][1]["engine"] = json!("erofsfuse");
    place.file("b.json", &other.to_string());
    let output = place.lab(&["diff", "a.json", "b.json", "--json"]);
    let diff: Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schema::check("lab-diff", &diff);
    assert_eq!(
        (&diff["kind"], &diff["valid"]),
        (&json!("launch"), &json!(true))
    );
    let rows = diff["rows"].as_array().unwrap().iter();
    assert!(
        rows.len() == 3
            && rows
                .clone()
                .all(|row| row["comparison"]["comparisons"] == 3)
    );
    assert_eq!(diff["only_old"][0], "erofast, launch time");
    assert_eq!(diff["only_new"][0], "erofsfuse, launch time");
    assert_eq!(
        diff["notices"],
        json!(["kernel differs: 6.18, in b.json 6.19"])
    );
}

#[test]
fn runs_of_different_commands_do_not_compare_and_other_settings_are_named() {
    let place = Place::new();
    place.file("a.json", &launches(true, "6.18").to_string());
    let changed = |fields: Value| {
        let mut report = launches(true, "6.18");
        let all = report.as_object_mut().unwrap();
        all.extend(fields.as_object().unwrap().clone());
        place.file("b.json", &report.to_string());
    };
    for (field, value, reason) in [
        (
            "command",
            json!(["{}/bin/a b"]),
            "command differs: {}/bin/app, in b.json '{}/bin/a b'",
        ),
        (
            "prepare",
            json!("sync"),
            "--prepare differs: none, in b.json sync",
        ),
        (
            "chdir",
            json!("{}/etc"),
            "--chdir differs: none, in b.json {}/etc",
        ),
    ] {
        changed(json!({field: value}));
        let reason = format!("a.json and b.json cannot be compared: {reason}");
        fails(&place.lab(&["diff", "a.json", "b.json"]), 2, &reason);
        fails(&place.report(&["a.json", "b.json"]), 2, &reason);
    }
    changed(json!({"root": true, "warm_ups": 3, "iterations": 30}));
    let output = place.lab(&["diff", "a.json", "b.json", "--json"]);
    let diff: Value = serde_json::from_slice(&output.stdout).unwrap();
    let notices = [
        "--iterations differs: 20, in b.json 30",
        "--warmup differs: 1, in b.json 3",
        "--root differs: false, in b.json true",
    ];
    assert_eq!(diff["notices"], json!(notices));
}

/// The report of [`launches`], but with these launch times for the second engine.
fn with_times(times: impl Fn(u32) -> u32) -> Value {
    let mut report = launches(true, "6.18");
    for k in 0..20 {
        report["engines"][1]["samples"][k as usize]["launch_us"] = json!(times(k));
    }
    report
}

#[test]
fn engines_of_one_name_are_all_compared_and_have_a_number_everywhere() {
    let place = Place::new();
    for (name, slower) in [("a", 2), ("b", 3)] {
        let mut report = with_times(|k| 5_000 * slower + k % 5);
        report["engines"][1]["engine"] = json!("kernel");
        place.file(&format!("{name}.json"), &report.to_string());
    }
    let output = place.lab(&["diff", "a.json", "b.json", "--json"]);
    let diff: Value = serde_json::from_slice(&output.stdout).unwrap();
    let row = |name: &str| {
        let rows = diff["rows"].as_array().unwrap().iter();
        let of = rows.filter(|row| row["name"] == name).collect::<Vec<_>>();
        assert_eq!(of.len(), 1, "{diff}");
        of[0]["comparison"]["verdict"].clone()
    };
    assert_eq!(
        row("kernel, launch time"),
        "no difference".replace(' ', "-")
    );
    assert_eq!(row("kernel (2), launch time"), "higher");
    for text in [
        place.prints(&["a.json", "b.json"]),
        place.prints(&["b.json"]),
        place.prints(&["b.json", "--details"]),
        place.prints(&["b.json", "--csv"]),
        place.prints(&["b.json", "--markdown"]),
    ] {
        assert!(text.contains("kernel (2)"), "{text}");
    }
}

#[test]
fn launches_of_which_few_take_long_have_one_verdict_and_a_sentence() {
    let place = Place::new();
    let usual = |k: u32| 9_992 + k * 7 % 20;
    let rare = move |k: u32| usual(k) * if k % 6 == 1 { 2 } else { 1 };
    place.file("a.json", &with_times(usual).to_string());
    place.file("b.json", &with_times(rare).to_string());
    let sentence = "16 samples near 10.0 ms and 4 near 20.0 ms; one number describes neither \
                    (average 12.0 ms, maximum 20.0 ms)";
    let flat = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let run = flat(place.prints(&["b.json"]));
    assert!(run.contains("erofast 10.0 ms inconclusive"), "{run}");
    assert!(
        run.contains(&format!("erofast, launch time: {sentence}")),
        "{run}"
    );
    let diff = place.lab(&["diff", "a.json", "b.json"]);
    let several = place.prints(&["a.json", "b.json"]);
    for text in [String::from_utf8(diff.stdout).unwrap(), several].map(flat) {
        assert!(text.contains("b.json 10.0 ms inconclusive"), "{text}");
        assert!(text.contains(", average +20"), "{text}");
        assert!(
            text.contains(&format!("b.json, erofast, launch time: {sentence}")),
            "{text}"
        );
    }
    let output = place.lab(&["diff", "a.json", "b.json", "--json"]);
    let diff: Value = serde_json::from_slice(&output.stdout).unwrap();
    crate::schema::check("lab-diff", &diff);
    let mut rows = diff["rows"].as_array().unwrap().iter();
    let row = rows
        .find(|row| row["name"] == "erofast, launch time")
        .unwrap();
    assert_eq!(
        (&row["new_modes"]["upper"], &row["old_modes"]),
        (&json!(4), &Value::Null)
    );
    assert!(row["new_summary"]["maximum"].as_f64() > Some(20_000.0));
}

#[test]
fn what_else_differs_between_runs_stands_before_the_verdicts() {
    let place = Place::new();
    place.file("a.json", &launches(true, "6.18").to_string());
    for (path, value, line) in [
        ("/load", json!("fio"), "load differs: none, in b.json fio"),
        (
            "/root",
            json!(true),
            "--root differs: false, in b.json true",
        ),
        (
            "/environment/image/sha256",
            json!("1"),
            "image differs: 0, in b.json 1",
        ),
        (
            "/environment/sched_rt_runtime_us",
            json!(-1),
            "sched_rt_runtime_us differs: none, in b.json -1",
        ),
        (
            "/environment/cgroup_cpu",
            json!("/x"),
            "cgroup differs: none, in b.json /x",
        ),
        (
            "/environment/cgroup_quota_us",
            json!(50_000),
            "CPU quota of the cgroup in us differs: none, in b.json 50000",
        ),
    ] {
        let mut other = launches(true, "6.18");
        let (parent, field) = path.rsplit_once('/').unwrap();
        other.pointer_mut(parent).unwrap()[field] = value;
        place.file("b.json", &other.to_string());
        let text = place.prints(&["a.json", "b.json"]);
        assert!(
            text.starts_with(&format!("{line}\n6 comparisons")),
            "{text}"
        );
        let output = place.lab(&["diff", "a.json", "b.json"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with(&format!("{line}\n")), "{text}");
        let markdown = place.prints(&["a.json", "b.json", "--markdown"]);
        assert!(markdown.contains(&format!("* {line}\n")), "{markdown}");
    }
}

#[test]
fn runs_at_another_priority_or_on_other_cpus_are_named() {
    let place = Place::new();
    for (name, nice, policy, cpus) in [("a", 0, "other", "0-1"), ("b", -20, "fifo 1", "1")] {
        let mut report = launches(true, "6.18");
        let environment = &mut report["environment"];
        environment["nice"] = json!(nice);
        environment["scheduling_policy"] = json!(policy);
        environment["allowed_cpus"] = json!(cpus);
        place.file(&format!("{name}.json"), &report.to_string());
    }
    let output = place.lab(&["diff", "a.json", "b.json", "--json"]);
    let diff: Value = serde_json::from_slice(&output.stdout).unwrap();
    let notices = [
        "nice value differs: 0, in b.json -20",
        "scheduling policy differs: other, in b.json fifo 1",
        "allowed CPUs differs: 0-1, in b.json 1",
    ];
    assert_eq!(diff["notices"], json!(notices));
}

#[test]
fn a_report_that_has_a_reason_not_to_be_valid_is_not() {
    let place = Place::new();
    for (field, value, reason) in [
        (
            "not_valid_because",
            json!(["other programs"]),
            "other programs",
        ),
        ("interrupted", json!(true), "the run was interrupted"),
        (
            "iterations",
            json!(30),
            "kernel: 20 of 30 launches in the figures",
        ),
    ] {
        let mut report = launches(true, "6.18");
        report[field] = value;
        place.file("a.json", &report.to_string());
        let text = place.prints(&["a.json"]);
        assert!(
            text.starts_with(&format!("NOT VALID: {reason}\n")),
            "{text}"
        );
        assert!(
            !text.contains("; valid") && !text.contains("lower"),
            "{text}"
        );
    }
}

/// The output of `lab report` for a stored report with one field changed.
fn with_field(place: &Place, path: &str, value: Value) -> Output {
    let mut report = launches(true, "6.18");
    let (parent, field) = path.rsplit_once('/').unwrap();
    report.pointer_mut(parent).unwrap()[field] = value;
    place.file("b.json", &report.to_string());
    place.report(&["b.json"])
}

#[test]
fn a_report_whose_samples_are_not_valid_is_not_whatever_it_says() {
    let place = Place::new();
    place.file("a.json", &launches(true, "6.18").to_string());
    let spoilt = "erofast: 1 of the 20 launches in the figures is spoilt (cc was busy)";
    let more = "kernel: 20 of 5 launches in the figures";
    let load = json!({"profile": "fio", "jobs": 2, "burned": false, "failed_because": "too little",
                      "load_cpu_share": 0.1, "busy_cpu_share": 0.5, "stolen_cpu_share": 0.0,
                      "reads_per_second": 50.0});
    for (path, value, reason) in [
        ("/engines/1/samples/7/spoilt", json!("cc was busy"), spoilt),
        ("/iterations", json!(5), more),
        ("/load_seen", load, "load check failed: too little"),
        (
            "/environment/image/changed",
            json!("the image is another one"),
            "the image is another",
        ),
        (
            "/environment/cpu_steal_share",
            json!(0.5),
            "a hypervisor took 50 % of the CPU time",
        ),
    ] {
        let output = with_field(&place, path, value);
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(text.starts_with(&format!("NOT VALID: {reason}")), "{text}");
        assert!(
            !text.contains("; valid") && !text.contains("lower"),
            "{text}"
        );
        assert!(!text.contains("\n5 launches"), "{text}");
        let diff = place.lab(&["diff", "a.json", "b.json"]);
        assert_eq!(diff.status.code(), Some(1), "{diff:?}");
    }
}

#[test]
fn samples_that_no_run_can_have_are_refused() {
    let place = Place::new();
    for (path, value, reason) in [
        (
            "/engines/0/samples/2/launch_us",
            json!(-5),
            "kernel, round 3: launch_us is -5",
        ),
        (
            "/engines/1/samples/0/queue_us",
            json!(-0.5),
            "erofast, round 1: queue_us is -0.5",
        ),
        (
            "/engines/1/samples/4/iteration",
            json!(3),
            "erofast has two samples of round 4",
        ),
    ] {
        let output = with_field(&place, path, value);
        fails(&output, 1, &format!("reading b.json: {reason}"));
    }
}

#[test]
fn engines_of_one_name_keep_their_numbers_in_any_order() {
    let place = Place::new();
    let mut report = with_times(|k| 8_000 + k % 5);
    report["engines"][1]["engine"] = json!("kernel");
    report["engines"][0]["number"] = json!(1);
    report["engines"][1]["number"] = json!(2);
    place.file("a.json", &report.to_string());
    report["engines"].as_array_mut().unwrap().reverse();
    place.file("b.json", &report.to_string());
    let output = place.lab(&["diff", "a.json", "b.json", "--json"]);
    let diff: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rows = diff["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 6, "{diff}");
    for row in rows {
        assert_eq!(row["comparison"]["verdict"], "no-difference", "{row}");
    }
    report["engines"][0]["number"] = json!(1);
    place.file("b.json", &report.to_string());
    let twice = "reading b.json: two engines named kernel have the number 1";
    fails(&place.report(&["b.json"]), 1, twice);
}

#[test]
fn what_is_no_report_is_one_line_with_the_place() {
    let place = Place::new();
    place.file("a.json", &launches(true, "6.18").to_string());
    place.file("half.json", "{\"engines\": [],\n\"iterations\": -1}");
    fails(&place.report(&["half.json"]), 1, "(line 2, column 16)");
    fails(
        &place.report(&["no.json"]),
        1,
        "reading no.json: No such file",
    );
    place.file("other.json", "{\"files\": 1}");
    fails(
        &place.report(&["other.json"]),
        1,
        "reading other.json: not a report of lab launch",
    );
    let hotplug = r#"{"cycles": 1, "requests": 1, "lost": 0, "wrong_bytes": 0, "slowest_us": 1.0,
        "valid": true, "interrupted": false, "engine": "erofast", "cpu": 1, "reference": "kernel",
        "readers": 4, "launches": 0, "environment": {"date": "", "kernel": "", "cpus": "0-1",
        "programs": {}, "image": {"path": "", "bytes": 1, "sha256": ""}}}"#;
    place.file("hotplug.json", hotplug);
    let without = "hotplug.json: reports of lab hotplug have no samples";
    fails(&place.report(&["hotplug.json", "--csv"]), 2, without);
    fails(&place.report(&["hotplug.json", "hotplug.json"]), 2, without);
    fails(
        &place.report(&["a.json", "hotplug.json"]),
        2,
        "a.json is a report of lab launch",
    );
    assert!(place.prints(&["hotplug.json"]).contains("requests"));
    place.file("lost.json", &hotplug.replace("\"lost\": 0", "\"lost\": 1"));
    let lost = "NOT VALID: requests were lost or wrong";
    assert!(place.prints(&["lost.json"]).starts_with(lost));
}

#[test]
fn a_demo_beside_busy_programs_is_marked_and_does_not_fail() {
    let place = Place::new();
    let directory = place.0.path().display();
    place.file("launches", &launches(false, "6.18").to_string());
    // With these stubs the demo builds nothing, and `lab launch` prints the stored report.
    let lab = env!("CARGO_BIN_EXE_erofast-lab");
    let stub = |name: &str, text: &str| {
        let path = place.file(name, &format!("#!/bin/sh\n{text}\n"));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(path, mode).unwrap();
    };
    stub("cargo", "exit 0");
    stub("id", "echo 0");
    std::fs::create_dir(place.0.path().join("release")).unwrap();
    let launch = format!("[ $2 != launch ] || {{ cat '{directory}/launches'; exit 1; }}");
    stub("release/erofast", &format!("{launch}\nexec '{lab}' \"$@\""));
    place.file("compiler.erofs", "an image");
    let output = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/demo"))
        .env(
            "PATH",
            format!("{directory}:{}", std::env::var("PATH").unwrap()),
        )
        .env("CARGO_TARGET_DIR", place.0.path())
        .env("DEMO_DIR", place.0.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(
        text.contains("\nNOT VALID: other programs were busy\n"),
        "{text}"
    );
    assert!(
        text.contains("demo: the figures above are NOT VALID"),
        "{text}"
    );
    assert!(text.trim_end().ends_with("/launches.html"), "{text}");
}

#[test]
fn commands_of_one_name_are_compared_and_named_where_they_differ() {
    let place = Place::new();
    let run = |name: &str, command: &str| {
        let mut report = launches(true, "6.18");
        (report["experiment"], report["command"]) = ("run".into(), json!([]));
        for engine in report["engines"].as_array_mut().unwrap() {
            engine["command"] = json!([command, "a b"]);
        }
        place.file(name, &report.to_string());
    };
    run("a.json", "old");
    run("b.json", "new");
    let text = place.prints(&["a.json"]);
    let sentence = "Against kernel, a launch takes 20 % less time with erofast.\n";
    assert!(text.starts_with(sentence), "{text}");
    assert!(
        text.contains("20 launches per command, load none"),
        "{text}"
    );
    let diff = place.lab(&["diff", "a.json", "b.json"]);
    let text = String::from_utf8(diff.stdout).unwrap();
    assert!(
        text.starts_with("command of kernel differs: old 'a b', in b.json new 'a b'\n"),
        "{text}"
    );
    place.file("c.json", &launches(true, "6.18").to_string());
    let other = place.lab(&["diff", "a.json", "c.json"]);
    let line = String::from_utf8(other.stderr).unwrap();
    assert!(
        line.contains("only reports of the same experiment can be compared"),
        "{line}"
    );
}
