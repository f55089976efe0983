//! Tests that an error is one line that names a remedy, and that the exit status is right.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::failure::fails;

fn image() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures/meta.erofs")
}

fn is_root() -> bool {
    let me = std::fs::read_to_string("/proc/self/status").expect("/proc is there");
    me.lines().any(|line| line.starts_with("Uid:\t0\t"))
}

fn erofast_lab(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_erofast-lab"))
        .args(arguments)
        .output()
        .expect("erofast-lab starts")
}

#[test]
fn engines_loads_and_tests_that_do_not_exist_are_usage_errors() {
    let image = image().display().to_string();
    let lab = |more: &[&str]| {
        erofast_lab(&[&["lab", "launch", &image], more, &["--", "/bin/true"]].concat())
    };
    fails(&lab(&["--engine", "ext4"]), 2, "engine ext4: unknown");
    fails(&lab(&["--load", "heavy"]), 2, "heavy");
    for seconds in ["0", "18446744073709551615"] {
        let output = lab(&["--timeout", seconds]);
        fails(&output, 2, "must be from 1 to 1000000");
    }
    let output = erofast_lab(&["lab", "read", &image, "--test", "write"]);
    fails(
        &output,
        2,
        "--test write: must be seq, rand, tree, meta or list",
    );
}

#[test]
fn a_closed_standard_output_is_an_error_before_anything_is_done() {
    let output = Command::new("sh")
        .args(["-c", "exec \"$0\" trace latency /nonexistent >&-"])
        .arg(env!("CARGO_BIN_EXE_erofast-lab"))
        .output()
        .expect("sh starts");
    fails(&output, 1, "standard output is closed");
}

#[test]
fn what_cannot_be_printed_or_buffered_is_one_line_with_its_name() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let mut help = Command::new(env!("CARGO_BIN_EXE_erofast-lab"));
    help.args(["trace", "--help"])
        .stdout(full.expect("/dev/full"));
    let output = help.output().expect("erofast-lab starts");
    fails(&output, 1, "standard output: No space left on device");
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("trace");
    let record = |kib: &str| {
        let file = file.to_str().expect("text");
        erofast_lab(&["trace", "record", "--buffer", kib, "-o", file, "--", "true"])
    };
    for kib in ["0", "63", "-1", "many"] {
        let output = record(kib);
        let line = String::from_utf8_lossy(&output.stderr);
        assert!(line.starts_with("erofast: "), "{line}");
        assert_eq!((output.status.code(), line.lines().count()), (Some(2), 1));
    }
    let output = record("99999999999");
    let line = String::from_utf8_lossy(&output.stderr);
    if line.contains("tracefs") && !line.contains("buffer_size_kb") {
        return println!("skipped: no tracefs, or no right to it");
    }
    fails(
        &output,
        1,
        "--buffer 99999999999: not enough memory for that many KiB per CPU",
    );
}

#[test]
fn a_broken_pattern_is_a_usage_error() {
    let output = erofast_lab(&["trace", "latency", "/nonexistent", "--match", "("]);
    fails(
        &output,
        2,
        "--match (: not a regular expression: unclosed group",
    );
}

#[test]
fn a_missing_program_and_a_missing_fio_are_said_before_the_first_launch() {
    if !is_root() {
        println!("skipped: not root");
        return;
    }
    let launch = |command: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_erofast-lab"))
            .args(["lab", "launch", "--engine", "erofast:percpu"])
            .args(["--iterations", "1"])
            .arg(image())
            .arg("--")
            .args(command)
            .env("PATH", "/no/programs/here")
            .output()
            .expect("erofast-lab starts")
    };
    let fio = "fio is not installed (Debian package: fio)";
    fails(&launch(&["ls", "{}"]), 1, fio);
    fails(
        &launch(&["{}/bin/true"]),
        1,
        "no such file in the image: bin/true",
    );
}

#[test]
fn without_root_the_lab_and_the_recorder_say_that_they_need_it() {
    let binary = Path::new(env!("CARGO_BIN_EXE_erofast-lab"));
    // The binary is copied, because build directories are often private and another user must be
    // able to reach it.
    let public = tempfile::tempdir().expect("a directory");
    let copy = public.path().join("erofast-lab");
    let as_nobody = |arguments: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(&copy)
            .args(arguments)
            .current_dir("/")
            .output()
            .expect("setpriv is part of util-linux")
    };
    if !is_root() {
        println!("skipped: only root can become another user");
        return;
    }
    std::fs::copy(binary, &copy).expect("copied");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(public.path(), mode).expect("ours");
    let copied = public.path().join("image.erofs");
    std::fs::copy(image(), &copied).expect("copied");
    let image = copied.display().to_string();
    let output = as_nobody(&[
        "lab",
        "launch",
        &image,
        "--load",
        "none",
        "--",
        "{}/bin/true",
    ]);
    fails(&output, 1, "needs root");
    let output = as_nobody(&["trace", "record", "-o", "/dev/null", "--", "/bin/true"]);
    fails(&output, 1, "needs root");
}

#[test]
fn a_program_without_its_separator_and_an_unwritable_report_are_refused_before_the_run() {
    let image = image().display().to_string();
    let output = erofast_lab(&["lab", "launch", &image, "{}/bin/app"]);
    fails(&output, 2, "give a program and its arguments after --");
    let output = erofast_lab(&["lab", "launch", &image, "--", "/bin/app"]);
    fails(&output, 2, "the command does not contain {}");
    for option in ["--html", "--svg"] {
        let file = "/nonexistent/report";
        let output = erofast_lab(&["lab", "launch", &image, option, file, "--", "{}/app"]);
        fails(&output, 1, "cannot write /nonexistent/report");
    }
    let output = erofast_lab(&["trace", "record", "-o", "/nonexistent/t", "--", "true"]);
    fails(&output, 1, "cannot write /nonexistent/t");
    let output = erofast_lab(&["lab", "hotplug", &image, "--", "/bin/app"]);
    fails(&output, 2, "the command does not contain {}");
}

#[test]
fn the_directory_the_preparation_and_all_errors_of_a_program_are_its_users() {
    if !is_root() {
        println!("skipped: not root");
        return;
    }
    let image = image().display().to_string();
    let launch = |more: &[&str]| {
        let common = [
            "lab",
            "launch",
            &image,
            "--engine",
            "kernel-loop",
            "--load",
            "none",
        ];
        let counts = ["--runs", "1", "--warmup", "0"];
        erofast_lab(&[&common[..], &counts, more].concat())
    };
    let fail = "pwd >&2; echo 'the reason' >&2; exit 3 # {}";
    let output = launch(&["--chdir", "/proc", "--", "sh", "-c", fail]);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    if errors.contains("recording the scheduler") || errors.contains("outside of containers") {
        println!("skipped: {errors}");
        return;
    }
    assert!(
        errors.contains("sh wrote:\n/proc\nthe reason\n"),
        "{errors}"
    );
    assert!(
        errors.ends_with("sh: exit status 3: the reason\n"),
        "{errors}"
    );
    let output = launch(&["--prepare", "exit 7", "--", "ls", "{}"]);
    fails(&output, 1, "--prepare exit 7: exit status 7");
}

#[test]
fn a_time_limit_ends_a_real_time_program_on_the_only_cpu_of_the_lab() {
    if !is_root() {
        println!("skipped: not root");
        return;
    }
    let real_time = |command: &mut Command| {
        command.args(["-c", "0", "chrt", "-f", "20"]);
    };
    let mut probe = Command::new("taskset");
    real_time(&mut probe);
    if !probe
        .arg("true")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        println!("skipped: no real-time priority here, or no taskset and chrt");
        return;
    }
    let mut lab = Command::new("taskset");
    real_time(&mut lab);
    lab.arg(env!("CARGO_BIN_EXE_erofast-lab"))
        .args(["lab", "launch", "--engine", "kernel-loop", "--load", "none"])
        .args(["--iterations", "1", "--timeout", "1"])
        .arg(image())
        .args(["--", "sh", "-c", "while :; do :; done # {}"])
        .stderr(std::process::Stdio::piped());
    let mut lab = lab.spawn().expect("taskset starts");
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(300);
    while lab.try_wait().expect("a child").is_none() {
        if std::time::Instant::now() > deadline {
            // Killing the lab ends all processes that it started, except the launched program.
            let _ = lab.kill();
            panic!("the lab does not end");
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let output = lab.wait_with_output().expect("it has ended");
    let errors = String::from_utf8_lossy(&output.stderr);
    let elsewhere = [
        "recording the scheduler",
        "outside of containers",
        "engine kernel-loop: th",
    ];
    if elsewhere.iter().any(|reason| errors.contains(reason)) {
        println!("skipped: {errors}");
        return;
    }
    assert!(errors.ends_with("sh: not finished in time\n"), "{errors}");
    assert_eq!(output.status.code(), Some(1));
}
