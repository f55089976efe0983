//! Tests the real `lab run`, which runs commands side by side without image and mount. The tests
//! are skipped without root or tracefs. No times are judged here, only what must hold on any
//! machine.

use std::ffi::OsString;
use std::time::Duration;

use crate::common::{alone, skipped};
use latency_lab::launch::{LaunchOptions, LaunchReport, Scan, commands, run};
use latency_lab::load::LoadChoice;
use latency_lab::{LabError, Report, Silent};

fn words(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn options(line: &[&str], names: &[&str], scans: &[&str]) -> LaunchOptions {
    let names: Vec<String> = names.iter().map(|it| (*it).into()).collect();
    let scans: Vec<Scan> = scans.iter().map(|it| it.parse().unwrap()).collect();
    LaunchOptions {
        commands: commands(&words(line), &names, &[], &scans).unwrap(),
        iterations: 2,
        load: LoadChoice::None,
        timeout: Duration::from_secs(60),
        // The tests may run beside a build.
        foreign_limit: 1.0,
        ..LaunchOptions::default()
    }
}

/// Runs the experiment; returns no report if this machine cannot record, or if its kernel omitted
/// switches.
fn report(options: &LaunchOptions) -> Option<LaunchReport> {
    let report = match run(options, &mut Silent) {
        Err(error @ (LabError::Privilege(_) | LabError::Recorder(_))) => {
            skipped(error);
            return None;
        }
        other => other.unwrap(),
    };
    let mut lines = report.not_valid_because.iter().chain(&report.notices);
    let unwritten = lines.find(|line| line.contains("did not record"));
    unwritten
        .inspect(|line| skipped(line))
        .is_none()
        .then_some(report)
}

#[test]
fn commands_have_times_waits_and_cpu_time_without_an_image() {
    let _alone = alone();
    let busy = "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done";
    let commands = ["sleep", "0.1", "--", "sh", "-c", busy];
    let Some(report) = report(&options(&commands, &["", "busy"], &[])) else {
        return;
    };
    assert!(report.valid, "{:?}", report.not_valid_because);
    let [sleeper, busy] = &report.engines[..] else {
        panic!("two commands")
    };
    assert_eq!((&*sleeper.engine, &*busy.engine), ("sleep 0.1", "busy"));
    for sample in &sleeper.samples {
        assert!(sample.launch_us >= 100_000.0 && sample.program_blocked_us >= 90_000.0);
        assert!(sample.cpu_us > 0.0 && sample.cpu_us < sample.launch_us);
    }
    // The program's duration consists of nothing but its CPU time and its waits.
    for sample in &busy.samples {
        let waits = sample.sched_latency_us + sample.program_blocked_us;
        assert!(sample.cpu_us > 0.0 && sample.cpu_us + waits > 0.5 * sample.launch_us);
        let interrupted: f64 = sample.interrupts.iter().map(|it| it.total_us).sum();
        assert!(interrupted < sample.cpu_us, "{:?}", sample.interrupts);
    }
    let json = serde_json::to_value(&report).unwrap();
    crate::common::schema::check("lab-run", &json);
    assert!(json["environment"].get("image").is_none());
    let text = Report::Launch(Box::new(report)).table();
    assert!(text.contains("2 launches per command, load none"), "{text}");
    let again = Report::from_json(json.to_string().as_bytes()).unwrap();
    assert_eq!(again.table(), text);
}

#[test]
fn a_parameter_and_a_preparation_reach_the_command() {
    let _alone = alone();
    let place = std::env::temp_dir().join(format!("erofast-run-{}", std::process::id()));
    std::fs::create_dir_all(&place).unwrap();
    let mut options = options(&["cp prepared {to}"], &[], &["to=a,b"]);
    options.directory = Some(place.clone());
    options.commands.iter_mut().for_each(|side| {
        side.prepare = Some(format!("echo x >> {}/prepared", place.display()).into());
    });
    let report = report(&options);
    let length = |name: &str| std::fs::metadata(place.join(name)).map_or(0, |it| it.len());
    let lengths = [length("a"), length("b"), length("prepared")];
    std::fs::remove_dir_all(&place).unwrap();
    if let Some(report) = report {
        let names: Vec<&str> = report.engines.iter().map(|it| it.engine.as_str()).collect();
        assert_eq!(names, ["to=a", "to=b"]);
        // Three rounds of two launches, each after a preparation; the last launch copies all lines.
        assert!(
            lengths[2] >= 12 && lengths[..2].contains(&lengths[2]),
            "{lengths:?}"
        );
    }
}

#[test]
fn a_command_that_fails_is_quoted_unless_that_counts() {
    let _alone = alone();
    let failing = options(&["echo the reason >&2; exit 7"], &["fails"], &[]);
    let error = match run(&failing, &mut Silent) {
        Err(error @ (LabError::Privilege(_) | LabError::Recorder(_))) => return skipped(error),
        other => other.unwrap_err(),
    };
    assert_eq!(
        error.to_string(),
        "the command failed: fails: exit status 7 (--ignore-failure continues): the reason"
    );
    let ignored = LaunchOptions {
        ignore_failure: true,
        ..failing
    };
    if let Some(report) = report(&ignored) {
        assert_eq!(report.engines[0].samples.len(), 2);
    }
    let missing = options(&["no-such-program", "x"], &[], &[]);
    let error = run(&missing, &mut Silent).unwrap_err().to_string();
    assert_eq!(error, "lab run: no-such-program: no such program");
}

#[test]
fn a_load_of_the_users_own_runs_beside_the_commands_and_must_not_end() {
    let _alone = alone();
    let beside = LaunchOptions {
        load: "while :; do :; done".into(),
        ..options(&["sleep", "0.05"], &[], &[])
    };
    let Some(report) = report(&beside) else {
        return;
    };
    let load = report.load_seen.unwrap();
    assert!(load.burned && load.load_cpu_share > 0.0, "{load:?}");
    assert!(report.engines[0].samples.iter().any(|it| it.load_us > 0.0));
    let ending = LaunchOptions {
        load: "true".into(),
        ..options(&["sleep", "0.05"], &[], &[])
    };
    let error = run(&ending, &mut Silent).unwrap_err().to_string();
    assert!(
        error.starts_with("load: true ended: exit status: 0"),
        "{error}"
    );
}
