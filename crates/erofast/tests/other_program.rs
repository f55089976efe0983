//! A program built in another way, possibly for another architecture, prints what ours prints.
//!
//! scripts/test-program runs this, and the tests of images, extraction and checks, with such a
//! program.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::{all_good_images, bad_images, other_program};

/// Ours and the other one; none where there is no other one.
fn both() -> Option<[Command; 2]> {
    let Some(other) = other_program() else {
        println!("skipped: EROFAST_PROGRAM names no other program (see scripts/test-program)");
        return None;
    };
    Some([Command::new(env!("CARGO_BIN_EXE_erofast")), other])
}

/// What both say when they are asked the same, the name of the program left out.
fn answers(arguments: &[&str]) -> Option<[(Option<i32>, String, String); 2]> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let answer = |mut command: Command| {
        let Output {
            status,
            stdout,
            stderr,
        } = command.args(arguments).output().expect("it starts");
        (status.code(), text(&stdout), text(&stderr))
    };
    Some(both()?.map(answer))
}

/// Complains where the answers differ.
fn compare(arguments: &[&str], report: &mut Vec<String>) {
    let Some([ours, other]) = answers(arguments) else {
        return;
    };
    if ours != other {
        report.push(format!("{arguments:?}: {ours:?} and {other:?}"));
    }
}

#[test]
fn it_says_the_same_of_every_good_image() {
    if both().is_none() {
        return;
    }
    let mut report = Vec::new();
    for image in all_good_images() {
        let options = image.arguments();
        let path = image.path.display().to_string();
        for command in [["info", "--json"], ["ls", "-lR"], ["check", "--json"]] {
            let words = command
                .into_iter()
                .chain(options.iter().map(String::as_str));
            let arguments: Vec<_> = words.chain([path.as_str()]).collect();
            compare(&arguments, &mut report);
        }
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn it_says_the_same_of_every_malformed_image() {
    if both().is_none() {
        return;
    }
    let bad = bad_images();
    let mut report = Vec::new();
    for entry in bad.read_dir().expect("a directory") {
        let path = entry.expect("an entry").path();
        if path.extension().is_some_and(|name| name == "erofs") {
            compare(
                &["check", "--json", &path.display().to_string()],
                &mut report,
            );
        }
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn it_says_the_same_of_every_trace() {
    if both().is_none() {
        return;
    }
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../sched-trace/tests/fixtures");
    let scratch = tempfile::tempdir().expect("a directory");
    let mut report = Vec::new();
    let mut traces = 0;
    for entry in fixtures.read_dir().expect("a directory") {
        let packed = entry.expect("an entry").path();
        if packed.extension().is_none_or(|name| name != "z") {
            continue;
        }
        let bytes = std::fs::read(&packed).expect("a fixture");
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib(&bytes).expect("zlib");
        let trace = scratch.path().join(packed.file_stem().expect("a name"));
        std::fs::write(&trace, bytes).expect("ours");
        let trace = trace.display().to_string();
        for by in ["task", "comm", "workqueue"] {
            let arguments = ["trace", "latency", "--json", "--by", by, &trace];
            if let Some([(status, stdout, stderr), _]) = answers(&arguments) {
                assert!(status == Some(0) && stdout.starts_with('{'), "{stderr}");
            }
            compare(&arguments, &mut report);
        }
        traces += 1;
    }
    assert!(traces >= 8, "{traces} traces");
    assert!(report.is_empty(), "{}", report.join("\n"));
}
