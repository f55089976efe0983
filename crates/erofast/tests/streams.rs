//! If standard error cannot be written to, nothing else changes. If the reader of standard output
//! goes away, a command ends quietly, with the status of its work. A closed standard output is an
//! error.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// An image with several files that cannot be decoded.
fn damaged(folder: &Path) -> PathBuf {
    let fixture =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/zstd-48bit-unaligned.erofs");
    let mut bytes = fs::read(fixture).expect("a fixture");
    let half = bytes.len() / 2;
    bytes[half..].fill(0xff);
    let path = folder.join("damaged.erofs");
    fs::write(&path, bytes).expect("room");
    path
}

/// A pipe whose reading end is closed.
fn closed_pipe() -> Stdio {
    let (reader, writer) = io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn full_disk() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .expect("/dev/full")
        .into()
}

fn run(arguments: &[&str], stdout: Stdio, stderr: Stdio) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_erofast"));
    command.args(arguments).stdout(stdout).stderr(stderr);
    command
        .spawn()
        .and_then(std::process::Child::wait_with_output)
        .expect("erofast runs")
}

/// Paths of a tree, sorted.
fn listing(tree: &Path) -> Vec<PathBuf> {
    let mut found = vec![tree.to_owned()];
    let mut next = 0;
    while let Some(path) = found.get(next).cloned() {
        if path
            .symlink_metadata()
            .is_ok_and(|metadata| metadata.is_dir())
        {
            let entries = fs::read_dir(&path).expect("a directory");
            found.extend(entries.map(|entry| entry.expect("an entry").path()));
        }
        next += 1;
    }
    let mut names: Vec<PathBuf> = found
        .iter()
        .map(|path| path.strip_prefix(tree).expect("below").to_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn extraction_goes_on_when_the_standard_error_cannot_be_written() {
    let folder = tempfile::tempdir().expect("a directory");
    let image = damaged(folder.path());
    let mut trees = Vec::new();
    for (name, stderr) in [
        ("plain", Stdio::null()),
        ("closed", closed_pipe()),
        ("full", full_disk()),
    ] {
        let tree = folder.path().join(name);
        let output = run(
            &[
                "extract",
                image.to_str().expect("text"),
                tree.to_str().expect("text"),
            ],
            Stdio::piped(),
            stderr,
        );
        assert_eq!(output.status.code(), Some(1), "{name}");
        let summary = String::from_utf8_lossy(&output.stdout);
        assert!(
            summary.contains("failure") && !summary.contains(" 0 failure"),
            "{name}: {summary}"
        );
        trees.push(listing(&tree));
    }
    assert!(trees[0].len() > 3, "{:?}", trees[0]);
    assert_eq!(trees[0], trees[1]);
    assert_eq!(trees[0], trees[2]);
}

#[test]
fn errors_keep_their_status_when_they_cannot_be_said() {
    for (arguments, status) in [
        (&["info", "/no/such/image"][..], 1),
        (&["cat", "/no/such/image", "x"], 1),
        (&["mount", "-o", "workers=many", "/no/such/image", "/"], 2),
        (&["ls", "--nonsense"], 2),
    ] {
        for stderr in [closed_pipe(), full_disk()] {
            let output = run(arguments, Stdio::null(), stderr);
            assert_eq!(output.status.code(), Some(status), "{arguments:?}");
        }
    }
}

#[test]
fn a_closed_standard_output_hides_no_failure() {
    let folder = tempfile::tempdir().expect("a directory");
    let image = damaged(folder.path());
    let tree = folder.path().join("tree");
    let image = image.to_str().expect("text");
    for arguments in [
        &["check", image][..],
        &["extract", image, tree.to_str().expect("text")],
    ] {
        let output = run(arguments, closed_pipe(), Stdio::null());
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
    }
    let good = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/meta.erofs");
    let output = run(
        &["ls", "-R", good.to_str().expect("text")],
        closed_pipe(),
        Stdio::piped(),
    );
    assert_eq!((output.status.code(), output.stderr.len()), (Some(0), 0));
    let output = run(
        &["ls", "-R", good.to_str().expect("text")],
        full_disk(),
        Stdio::piped(),
    );
    assert_eq!(output.status.code(), Some(1));
}

/// Under each of its names, the program reports in one line that standard output is full.
#[test]
fn a_standard_output_that_is_full_is_named_on_one_line() {
    let folder = tempfile::tempdir().expect("a directory");
    let good = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/meta.erofs");
    let image = good.to_str().expect("text");
    let (ours, of_erofs_utils) = ("erofast: ", "<E> erofs: ");
    for (name, arguments, prefix) in [
        ("erofast", &["ls", "-R", image][..], ours),
        ("erofast", &["ls", "--json", image], ours),
        ("erofast", &["info", image], ours),
        ("erofast", &["info", "--json", image], ours),
        ("erofast", &["check", image], ours),
        ("erofast", &["extract", image, "-"], ours),
        ("erofast", &["completions", "bash"], ours),
        ("erofast", &["--help"], ours),
        ("erofast", &["--version"], ours),
        ("erofast", &["ls", "--help"], ours),
        ("mount.erofast", &["--help"], ours),
        ("erofsfuse", &["--help"], ours),
        ("fsck.erofs", &["-V"], of_erofs_utils),
        ("dump.erofs", &["-V"], of_erofs_utils),
        ("dump.erofs", &[image], of_erofs_utils),
        ("dump.erofs", &["--ls", "--path=/", image], of_erofs_utils),
    ] {
        let link = folder.path().join(name);
        let _ = std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_erofast"), &link);
        let mut command = Command::new(&link);
        let command = command.args(arguments).stdout(full_disk());
        let output = command.stderr(Stdio::piped()).output().expect("it starts");
        let line = String::from_utf8_lossy(&output.stderr);
        let expected = format!("{prefix}standard output: No space left on device");
        assert!(line.starts_with(&expected), "{name} {arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{name} {arguments:?}: {line}");
        assert_ne!(output.status.code(), Some(0), "{name} {arguments:?}");
    }
}

/// Standard output has no descriptor at all, unlike a pipe whose reader went away.
#[test]
fn a_standard_output_that_is_no_descriptor_is_an_error_before_anything_is_done() {
    let good = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/meta.erofs");
    for command in [
        "ls -R \"$1\"",
        "check \"$1\"",
        "cat \"$1\" /",
        "info \"$1\"",
    ] {
        let output = Command::new("sh")
            .args(["-c", &format!("exec \"$0\" {command} >&-")])
            .arg(env!("CARGO_BIN_EXE_erofast"))
            .arg(&good)
            .output()
            .expect("a shell");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{command}: {stderr}");
        assert_eq!(stderr, "erofast: standard output is closed\n");
    }
}
