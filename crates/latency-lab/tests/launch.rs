//! Tests the real launch experiment; skips if root, tracefs or the kernel's EROFS is missing. No
//! times are judged here, only whether each step was carried out, counted and undone.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crate::common::{alone, image, skipped};
use latency_lab::launch::{LaunchOptions, LaunchReport, run};
use latency_lab::load::{LoadChoice, missing_fio};
use latency_lab::{LabError, Progress, Silent};

/// Whether this process is root and can start a recorder.
fn can_run() -> bool {
    if !rustix::process::geteuid().is_root() {
        skipped("needs root");
        return false;
    }
    match sched_trace::record::Recorder::start(&sched_trace::record::RecordOptions::default()) {
        Ok(_) => true,
        Err(error) => {
            skipped(error);
            false
        }
    }
}

fn options(engines: &[&str], script: &str) -> LaunchOptions {
    LaunchOptions {
        image: image(),
        erofast: "/no/such/erofast".into(),
        engines: engines
            .iter()
            .map(|engine| engine.parse().unwrap())
            .collect(),
        command: ["sh", "-c", script, "{}"].map(OsString::from).to_vec(),
        iterations: 2,
        load: LoadChoice::None,
        timeout: Duration::from_secs(60),
        // The tests may run beside a build, and they are not about the CPU time of other programs.
        foreign_limit: 1.0,
        ..LaunchOptions::default()
    }
}

fn nothing_is_left() {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ours = format!("erofast-lab-{}-", std::process::id());
    assert!(!mounts.contains(&ours), "{mounts}");
    let loops = Command::new("losetup")
        .arg("-a")
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    assert!(!String::from_utf8_lossy(&loops).contains(image().to_str().unwrap()));
    for place in ["/tmp", "/var/tmp"] {
        let names = std::fs::read_dir(place)
            .unwrap()
            .flatten()
            .map(|entry| entry.file_name());
        assert_eq!(
            names
                .filter(|name| name.to_string_lossy().starts_with(&ours))
                .count(),
            0
        );
    }
    let children = std::fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    assert_eq!(children, "", "children are left");
}

fn run_or_skip(options: &LaunchOptions) -> Option<LaunchReport> {
    match run(options, &mut Silent) {
        Err(error @ LabError::EngineMissing { .. }) => {
            skipped(error);
            None
        }
        other => Some(other.unwrap()).filter(tells_all_switches),
    }
}

/// Whether the kernel recorded all switches. Prints a line if it did not.
fn tells_all_switches(report: &LaunchReport) -> bool {
    let unwritten = |reason: &&String| reason.contains("did not record");
    let mut lines = report.not_valid_because.iter().chain(&report.notices);
    let reason = lines.find(unwritten);
    if let Some(reason) = reason {
        skipped(reason);
    }
    reason.is_none()
}

#[test]
fn kernel_launches_are_counted_and_nothing_is_left() {
    let _alone = alone();
    // The script must not contain `{}`, as find's -exec does: it stands for the mount point.
    let script = "cat $(find \"$0\" -type f) > /dev/null";
    if !can_run() {
        return;
    }
    let Some(report) = run_or_skip(&options(&["kernel-loop", "kernel"], script)) else {
        return;
    };
    assert!(report.valid, "{:?}", report.not_valid_because);
    let json: serde_json::Value = serde_json::to_value(&report).unwrap();
    for engine in json["engines"].as_array().unwrap() {
        assert_eq!(engine["samples"].as_array().unwrap().len(), 2);
        for field in [
            "launch_us",
            "sched_latency_us",
            "wakeup_us",
            "preempted_us",
            "queue_us",
            "wakeups",
        ] {
            assert!(engine["samples"][0][field].is_number(), "{field}");
        }
        for field in ["average", "median", "minimum", "maximum", "stddev"] {
            assert!(
                engine["sched_latency_us"][field].is_number()
                    && engine["launch_us"][field].is_number()
            );
        }
    }
    crate::common::schema::check("lab-launch", &json);
    // A worker that is still running takes the next item without a wake-up, so one launch may have
    // no wake-ups. The reader of a cached file may decompress everything itself.
    let [over_loop, _] = &report.engines[..] else {
        panic!("two engines");
    };
    let samples = || over_loop.samples.iter();
    assert!(
        samples().all(|sample| sample.works > 0) && samples().any(|sample| sample.wakeups > 0),
        "no decompression was seen: {:?}",
        samples().collect::<Vec<_>>()
    );
    let report = latency_lab::Report::Launch(Box::new(report));
    assert!(report.table().contains("deviation"));
    nothing_is_left();
}

#[test]
fn a_program_that_fails_is_quoted_and_nothing_is_left() {
    let _alone = alone();
    if !can_run() {
        return;
    }
    let error = match run(
        &options(&["kernel-loop"], "echo the reason >&2; exit 7"),
        &mut Silent,
    ) {
        Err(error @ LabError::EngineMissing { .. }) => return skipped(error),
        other => other.unwrap_err(),
    };
    assert_eq!(
        error.to_string(),
        "engine kernel-loop: sh: exit status 7: the reason"
    );
    nothing_is_left();
}

#[test]
fn a_program_that_never_ends_is_ended() {
    let _alone = alone();
    if !can_run() {
        return;
    }
    let endless = LaunchOptions {
        timeout: Duration::from_millis(200),
        ..options(&["kernel-loop"], "sleep 1000")
    };
    let error = match run(&endless, &mut Silent) {
        Err(error @ LabError::EngineMissing { .. }) => return skipped(error),
        other => other.unwrap_err(),
    };
    assert_eq!(
        error.to_string(),
        "engine kernel-loop: sh: not finished in time"
    );
    nothing_is_left();
}

#[test]
fn a_daemon_that_is_killed_is_one_clear_line_and_nothing_is_left() {
    let _alone = alone();
    if !can_run() {
        return;
    }
    // The program kills the daemon of the mount that it runs from. It recognises the daemon by the
    // mount point among its arguments.
    let killer = "for p in /proc/[0-9]*; do \
         if [ \"$(cat $p/comm)\" = erofsfuse ] && tr '\\0' '\\n' < $p/cmdline | grep -qx \"$0\"; then \
         kill -9 ${p#/proc/}; while [ -e $p ] && ! grep -q ') Z' $p/stat; do :; done; fi; done 2>/dev/null; exit 0";
    let error = match run(&options(&["erofsfuse"], killer), &mut Silent) {
        Err(error @ LabError::EngineMissing { .. }) => return skipped(error),
        other => other.unwrap_err().to_string(),
    };
    assert!(
        error.starts_with("engine erofsfuse: its process "),
        "{error}"
    );
    assert!(error.contains("killed by signal 9"), "{error}");
    nothing_is_left();
}

#[test]
fn a_missing_engine_is_said_and_left_out_only_of_the_default_list() {
    let _alone = alone();
    if !can_run() {
        return;
    }
    let named = options(&["kernel-loop", "erofast:percpu"], "true");
    let error = run(&named, &mut Silent).unwrap_err().to_string();
    if error.starts_with("engine kernel-loop") {
        return skipped(&error);
    }
    assert_eq!(
        error,
        "engine erofast:percpu: /no/such/erofast does not exist"
    );
    let report = run(
        &LaunchOptions {
            engines: Vec::new(),
            ..named
        },
        &mut Silent,
    )
    .unwrap();
    for transport in ["off", "on"] {
        let line = format!("engine erofast:io_uring={transport}: /no/such/erofast does not exist");
        assert!(report.left_out.contains(&line), "{:?}", report.left_out);
    }
    assert!(
        report
            .engines
            .iter()
            .any(|engine| engine.engine == "kernel-loop")
    );
    nothing_is_left();
}

#[test]
fn a_launch_lasts_until_what_the_program_left_behind_has_ended() {
    let _alone = alone();
    if !can_run() {
        return;
    }
    let left = "setsid sh -c 'sleep 0.3; find \"$0\" -type f -exec cat {} +' \"$0\" & exit 0";
    if let Some(report) = run_or_skip(&options(&["kernel-loop"], left)) {
        let short = report.engines[0]
            .samples
            .iter()
            .filter(|it| it.launch_us < 300_000.0);
        assert_eq!(short.count(), 0, "{:?}", report.engines[0].samples);
    }
    let stays = LaunchOptions {
        timeout: Duration::from_secs(1),
        ..options(&["kernel-loop"], "setsid sleep 1000 & exit 0")
    };
    let error = match run(&stays, &mut Silent) {
        Err(error @ LabError::EngineMissing { .. }) => return skipped(error),
        other => other.unwrap_err().to_string(),
    };
    assert!(error.contains("sh: it exited but left s"), "{error}");
    assert!(
        error.contains("a launch lasts until its last process has exited"),
        "{error}"
    );
    nothing_is_left();
}

/// A directory that is removed when the test ends.
struct Place(PathBuf);

impl Place {
    fn new() -> Place {
        let path = std::env::temp_dir().join(format!("erofast-second-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Place(path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An EROFS image of this program, which compresses to a few hundred pclusters; the error is a
/// reason to skip.
fn large_image(place: &Path) -> Result<PathBuf, String> {
    let (tree, image) = (place.join("tree"), place.join("image"));
    let copied = std::fs::create_dir(&tree)
        .and_then(|()| std::fs::copy(std::env::current_exe()?, tree.join("file")));
    copied.map_err(|error| error.to_string())?;
    let mut mkfs = Command::new("mkfs.erofs");
    let output = mkfs.arg("-zlz4").arg(&image).arg(&tree).output();
    match output {
        Ok(output) if output.status.success() => Ok(image),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(error) => Err(format!("mkfs.erofs: {error}")),
    }
}

/// Repeatedly mounts an image and reads it, until dropped. Each pass ends by creating the file
/// `passed`.
struct SecondMount {
    reader: Child,
    end: PathBuf,
}

/// $1 is the image, $2 the mount point, $3 the file that reports a pass, $4 the file that ends the
/// loop.
const READER: &str = "
    until [ -e \"$4\" ]; do
        device=$(losetup -f --show -r \"$1\") && mount -t erofs -o ro \"$device\" \"$2\" || exit 1
        cat \"$2/file\" > /dev/null || exit 2
        until umount \"$2\" 2> /dev/null; do sleep 0.01; done
        losetup -d \"$device\"
        : > \"$3\"
    done";

impl SecondMount {
    fn start(image: &Path, passed: &Path) -> SecondMount {
        let [point, end] = ["point", "end"].map(|name| passed.with_extension(name));
        std::fs::create_dir(&point).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", READER, "sh"]);
        let reader = shell.args([image, &point, passed, &end]).spawn().unwrap();
        SecondMount { reader, end }
    }
}

impl Drop for SecondMount {
    fn drop(&mut self) {
        std::fs::write(&self.end, "").unwrap();
        let ended = self.reader.wait().unwrap();
        assert!(ended.success() || std::thread::panicking(), "{ended}");
    }
}

#[test]
fn what_the_kernel_decompresses_for_a_second_mount_changes_no_count() {
    let _alone = alone();
    if !can_run() {
        return;
    }
    let place = Place::new();
    let image = match large_image(&place.0) {
        Ok(image) => image,
        Err(reason) => return skipped(reason),
    };
    let passed = place.0.join("passed");
    // A launch lasts until the second mount has been read twice, so at least one of these passes
    // begins and ends during the launch.
    let script = "cat \"$0\"/file > /dev/null
        for pass in 1 2; do rm -f PASSED; until [ -e PASSED ]; do sleep 0.01; done; done";
    let script = script.replace("PASSED", &passed.display().to_string());
    let beside = LaunchOptions {
        image: image.clone(),
        ..options(&["kernel-loop", "kernel", "kernel-loop"], &script)
    };
    let alone = LaunchOptions {
        image: image.clone(),
        ..options(&["kernel-loop"], "cat \"$0\"/file > /dev/null")
    };
    let Some(own) = run_or_skip(&alone) else {
        return;
    };
    let second = SecondMount::start(&image, &passed);
    let report = run_or_skip(&beside);
    drop(second);
    let Some(report) = report else {
        return;
    };
    let works = |report: &LaunchReport, engine: usize| -> Vec<u64> {
        report.engines[engine]
            .samples
            .iter()
            .map(|it| it.works)
            .collect()
    };
    let others = |engine: usize| -> u64 {
        report.engines[engine]
            .samples
            .iter()
            .map(|it| it.other_works)
            .sum()
    };
    assert_eq!(
        works(&report, 1),
        [0, 0],
        "a file is decompressed by its reader"
    );
    assert!(
        report.engines[1]
            .samples
            .iter()
            .all(|it| it.sched_latency_us == 0.0)
    );
    assert_eq!(report.engines[2].number, 2);
    if works(&own, 0) == [0, 0] {
        return skipped("this kernel decompresses in the thread that reads");
    }
    assert!(others(0) > 0 && others(1) > 0, "the second mount was read");
    let most = works(&own, 0).into_iter().max().unwrap();
    for engine in [0, 2] {
        let works = works(&report, engine);
        assert!(
            works.iter().all(|it| (1..=2 * most).contains(it)),
            "{works:?}, alone {most}"
        );
    }
    let note = report
        .notices
        .iter()
        .any(|it| it.contains("other EROFS mounts were read"));
    assert!(note, "{:?}", report.notices);
    nothing_is_left();
}

/// Stops the run, as Ctrl-C does, once launches are being measured.
struct CtrlC;

impl Progress for CtrlC {
    fn step(&mut self, done: u64, note: &str) {
        if done == 3 && note == "kernel-loop" {
            let _ = signal_hook::low_level::raise(signal_hook::consts::SIGINT);
        }
    }
}

#[test]
fn ctrl_c_keeps_what_was_gathered_and_leaves_nothing() {
    let _alone = alone();
    if !can_run() {
        return;
    }
    let long = LaunchOptions {
        iterations: 1000,
        ..options(&["kernel-loop"], "true")
    };
    let report = match run(&long, &mut CtrlC) {
        Err(error @ LabError::EngineMissing { .. }) => return skipped(error),
        other => other.unwrap(),
    };
    assert!(report.interrupted && !report.valid);
    assert_eq!(report.engines[0].samples.len(), 2);
    nothing_is_left();
}

#[test]
fn the_load_burns_and_is_gone_afterwards() {
    let _alone = alone();
    if !can_run() {
        return;
    }
    if let Some(missing) = missing_fio() {
        return skipped(missing);
    }
    let loaded = LaunchOptions {
        load: LoadChoice::Fio,
        // The launch takes long enough for the load to get CPU time beside other programs.
        ..options(&["kernel-loop"], "sleep 2")
    };
    match run_or_skip(&loaded) {
        Some(report) => assert!(
            report
                .load_seen
                .is_some_and(|load| load.load_cpu_share > 0.0)
        ),
        None => return,
    }
    nothing_is_left();
}
