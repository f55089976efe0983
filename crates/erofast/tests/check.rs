//! `erofast check --manifest`, and its progress display, which is shown only on a terminal.

use std::path::Path;
use std::process::{Command, Output};

use crate::common::manifest::{self, Expected};
use crate::common::{TestImage, all_good_images, erofast, fixtures};
use erofs_engine::{Engine, EngineOptions};
use serde_json::Value;

/// Runs `check --json`; returns its output and status.
fn check(image: &TestImage, manifest: &Path) -> (Value, Output) {
    let mut command = erofast();
    command
        .args(["check", "--json", "--manifest"])
        .arg(manifest);
    let output = command.args(image.arguments()).arg(&image.path).output();
    let output = output.expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let report = serde_json::from_slice(&output.stdout);
    (
        report.unwrap_or_else(|error| panic!("{error}: {stderr}")),
        output,
    )
}

/// The lines that sha256sum would print for an image's files, except huge ones.
fn sums(files: &[Expected]) -> Vec<Vec<u8>> {
    let line = |file: &Expected| {
        let sum = file.sha256.clone()?;
        let path = file.path();
        let odd = path
            .iter()
            .any(|byte| matches!(byte, b'\\' | b'\n' | b'\r'));
        let mut line = if odd { vec![b'\\'] } else { Vec::new() };
        line.extend(sum.bytes().chain(*b"  ./"));
        for byte in path {
            match byte {
                b'\\' => line.extend(b"\\\\"),
                b'\n' => line.extend(b"\\n"),
                b'\r' => line.extend(b"\\r"),
                other => line.push(other),
            }
        }
        Some(line)
    };
    files
        .iter()
        .filter(|f| f.size.unwrap_or(0) < 64 << 20)
        .filter_map(line)
        .collect()
}

fn write(lines: &[Vec<u8>]) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let mut text = lines.join(&b'\n');
    text.push(b'\n');
    std::fs::write(file.path(), text).expect("room");
    file
}

#[test]
fn every_image_has_the_sums_of_its_manifest() {
    let mut compared = 0;
    for image in all_good_images() {
        let lines = sums(&manifest::read(&image.manifest));
        if lines.is_empty() {
            continue;
        }
        let (report, output) = check(&image, write(&lines).path());
        let counts = &report["manifest"];
        assert!(
            output.status.success(),
            "{}: {}",
            image.name,
            report["faults"]
        );
        assert_eq!(counts["listed"], lines.len(), "{}", image.name);
        assert_eq!(counts["matched"], lines.len(), "{}", image.name);
        compared += lines.len();
    }
    println!("{compared} files");
    assert!(compared > 100);
}

#[test]
fn what_does_not_fit_is_a_fault_each() {
    let image = all_good_images()
        .into_iter()
        .find(|image| image.name == "lz4-full-index-64k");
    let image = image.expect("a fixture");
    let files = manifest::read(&image.manifest);
    let mut lines = sums(&files);
    let all = lines.len();
    let unlisted = lines.pop().expect("a line");
    let wrong = lines[0].clone();
    lines[0][0] = if wrong[0] == b'0' { b'1' } else { b'0' };
    let directory = files
        .iter()
        .find(|f| f.kind == "d" && !f.path().is_empty())
        .expect("one");
    for name in [&b"nowhere"[..], &directory.path()] {
        lines.push([&unlisted[..66], name].concat());
    }
    let (report, output) = check(&image, write(&lines).path());
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report["manifest"]["matched"], all - 2);
    assert_eq!(report["manifest"]["unlisted"], 1);
    let faults = report["faults"].as_array().expect("faults");
    let errors: Vec<&str> = faults.iter().filter_map(|f| f["error"].as_str()).collect();
    assert_eq!(errors.len(), 3, "{errors:?}");
    for what in ["expected ", "not a regular file", "not in the image"] {
        assert!(
            errors.iter().any(|error| error.contains(what)),
            "{what}: {errors:?}"
        );
    }
}

/// The filter excludes names by their hashes; with all bits set it hides every attribute in a
/// mount.
#[test]
fn a_filter_that_hides_an_attribute_is_a_warning() {
    let image = fixtures().join("lz4-64k.erofs");
    let engine = Engine::open(&image, &EngineOptions::default()).expect("a good image");
    let inode = engine.resolve(b"data/text-150001", false).expect("a file");
    let mut bytes = std::fs::read(&image).expect("readable");
    let slot = u64::from(engine.image().superblock().meta_block) * 4096 + inode.nid * 32;
    let filter = slot as usize + if inode.extended { 64 } else { 32 };
    bytes[filter..filter + 4].fill(0xff);
    let changed = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(changed.path(), bytes).expect("room");
    let output = erofast().arg("check").arg(changed.path()).output();
    let output = output.expect("it starts");
    let stdout = String::from_utf8_lossy(&output.stdout);
    let line = "attribute user.comment is listed, but not found by name";
    assert!(stdout.contains(line), "{stdout}");
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn a_symlink_stands_for_what_it_leads_to() {
    let images = all_good_images();
    for image in images {
        let files = manifest::read(&image.manifest);
        let link = files.iter().find_map(|link| {
            let target = link.target()?;
            let path = link.path();
            let target = String::from_utf8(target).ok()?;
            let beside = Path::new(std::str::from_utf8(&path).ok()?)
                .parent()?
                .join(target);
            let file = files
                .iter()
                .find(|f| f.path() == beside.to_string_lossy().as_bytes())?;
            Some((path, file.sha256.clone()?))
        });
        let Some((path, sum)) = link else { continue };
        let line = [sum.as_bytes(), b"  ", &path].concat();
        let (report, output) = check(&image, write(&[line]).path());
        assert!(
            output.status.success(),
            "{}: {}",
            image.name,
            report["faults"]
        );
        assert_eq!(report["manifest"]["matched"], 1, "{}", image.name);
        return;
    }
    println!("skipped: no image has a symlink to a file beside it");
}

#[test]
fn a_manifest_that_is_none_is_one_line_and_status_1() {
    let image = all_good_images().remove(0);
    let manifest = write(&[b"nothing of the kind".to_vec()]);
    let mut command = erofast();
    command.args(["check", "--manifest"]).arg(manifest.path());
    let output = command.arg(&image.path).output().expect("it starts");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        stderr.lines().count() == 1 && stderr.contains(":1: not a line of sha256sum"),
        "{stderr}"
    );
}

/// Runs a command with all of its output going to a terminal.
fn on_a_terminal(command: &str, variables: &[(&str, &str)]) -> Option<String> {
    let mut script = Command::new("script");
    script
        .args(["-qec", command, "/dev/null"])
        .envs(variables.iter().copied());
    match script.output() {
        Ok(output) if output.status.success() => {
            Some(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        other => {
            println!("skipped: no script(1) to make a terminal: {other:?}");
            None
        }
    }
}

#[test]
fn progress_is_for_terminals_that_can_show_it() {
    let image = all_good_images()
        .into_iter()
        .find(|image| image.name == "lz4-full-index-64k");
    let image = image.expect("a fixture").path;
    let program = env!("CARGO_BIN_EXE_erofast");
    let line = format!("{program} check {}", image.display());
    let quiet = Command::new(program)
        .arg("check")
        .arg(&image)
        .output()
        .expect("it starts");
    assert!(
        quiet.stderr.is_empty(),
        "{}",
        String::from_utf8_lossy(&quiet.stderr)
    );
    let Some(shown) = on_a_terminal(&line, &[("TERM", "xterm")]) else {
        return;
    };
    assert!(
        shown.contains("check ") && shown.contains("left)"),
        "{shown:?}"
    );
    let dumb = on_a_terminal(&line, &[("TERM", "dumb")]).expect("as before");
    assert!(
        !dumb.contains("left)") && !dumb.contains('\x1b'),
        "{dumb:?}"
    );
    let plain = [("TERM", "xterm"), ("NO_COLOR", "1")];
    for command in [line, format!("{program} check --help")] {
        let shown = on_a_terminal(&command, &plain).expect("as before");
        let colours = shown.split("\x1b[").skip(1).filter(|rest| {
            rest.trim_start_matches(|c: char| c.is_ascii_digit() || c == ';')
                .starts_with('m')
        });
        assert_eq!(colours.count(), 0, "{shown:?}");
    }
}
