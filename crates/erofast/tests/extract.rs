//! What is extracted is what the image holds, and nothing outside of the target is touched.

mod common;
#[path = "common/forged.rs"]
mod forged;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::manifest::{self, hex};
use common::{TestImage, all_good_images, bad_images, erofast};
use forged::Forged;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The user `nobody`.
const UNPRIVILEGED: u32 = 65534;
/// Files over this are one hole mostly.
const BIG: u64 = 64 << 20;

/// A directory where every xattr and every time finds room: in memory, if the machine has that.
fn scratch() -> TempDir {
    let shm = Path::new("/dev/shm");
    if shm.is_dir() {
        tempfile::tempdir_in(shm).expect("a directory")
    } else {
        tempfile::tempdir().expect("a directory")
    }
}

fn run(command: &mut Command) -> Output {
    command.output().expect("it starts")
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn extract(image: &TestImage, directory: &Path) -> Command {
    let mut command = erofast();
    command.arg("extract").args(image.arguments());
    command.arg(&image.path).arg(directory);
    command
}

fn is_root() -> bool {
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        println!("skipped: only root may set owners");
    }
    root
}

/// The judge of whole trees, if it is there.
fn verify_tree() -> Option<PathBuf> {
    if Command::new("python3").arg("--version").output().is_err() {
        println!("skipped: python3 is not installed");
        return None;
    }
    Some(common::verify_tree())
}

fn verify(script: &Path, manifest: &Path, tree: &Path, options: &[&str]) -> Result<(), String> {
    let mut command = Command::new("python3");
    command.arg(script).arg("check").arg(manifest).arg(tree);
    let output = run(command.arg("--quiet").args(options));
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    Err(format!("{text}{}", stderr(&output)))
}

/// Compares types, sizes and contents, which every user may extract.
fn content_differences(manifest: &Path, tree: &Path, skip: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in manifest::read(manifest) {
        let path = entry.path();
        let path = tree.join(String::from_utf8_lossy(&path).as_ref());
        if entry.path().iter().any(|byte| !byte.is_ascii()) || skip.contains(&entry.kind) {
            continue;
        }
        let Ok(metadata) = path.symlink_metadata() else {
            found.push(format!("{}: missing", path.display()));
            continue;
        };
        let same = match entry.kind.as_str() {
            "d" => metadata.is_dir(),
            "l" => {
                use std::os::unix::ffi::OsStrExt;
                let target = fs::read_link(&path).expect("a symlink");
                entry.target().as_deref() == Some(target.as_os_str().as_bytes())
            }
            "f" if metadata.len() > BIG => Some(metadata.len()) == entry.size,
            // Its mode may forbid reading.
            "f" if !is_readable(&path) => Some(metadata.len()) == entry.size,
            "f" => {
                let content = fs::read(&path).expect("a file");
                Some(hex(&Sha256::digest(content))) == entry.sha256
            }
            _ => !metadata.is_file(),
        };
        if !same {
            found.push(format!("{}: differs", path.display()));
        }
    }
    found
}

fn is_readable(path: &Path) -> bool {
    fs::File::open(path).is_ok()
}

/// Everything below a directory, but neither `except` nor what is in it: path, type and mode, times, content.
fn listing(directory: &Path, except: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut todo = vec![directory.to_path_buf()];
    while let Some(path) = todo.pop() {
        if path == except {
            continue;
        }
        if path == directory {
            todo.extend(entries_of(&path));
            continue;
        }
        let metadata = path.symlink_metadata().expect("it is there");
        let (mode, mtime) = (metadata.mode(), metadata.mtime_nsec());
        let content = if metadata.is_file() {
            fs::read(&path).expect("a file")
        } else {
            Vec::new()
        };
        let links = metadata.nlink();
        found.push(format!(
            "{} {mode:o} {links} {} {mtime} {content:?}",
            path.display(),
            metadata.uid()
        ));
        if metadata.is_dir() {
            todo.extend(entries_of(&path));
        }
    }
    found.sort();
    found
}

fn entries_of(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).expect("a directory");
    entries
        .map(|entry| entry.expect("an entry").path())
        .collect()
}

fn first_image(name: &str) -> TestImage {
    let found = all_good_images().into_iter().find(|i| i.name == name);
    found.unwrap_or_else(|| panic!("no image {name}"))
}

#[test]
fn every_image_extracts_exactly() {
    let Some(script) = verify_tree().filter(|_| is_root()) else {
        return;
    };
    let mut report = Vec::new();
    let images = all_good_images();
    for image in &images {
        let scratch = scratch();
        let tree = scratch.path().join("tree");
        let output = run(&mut extract(image, &tree));
        if !output.status.success() || !output.stderr.is_empty() {
            report.push(format!("{}: {}", image.name, stderr(&output)));
        } else if let Err(text) = verify(&script, &image.manifest, &tree, &["--reads"]) {
            report.push(format!("{}: {text}", image.name));
        }
    }
    println!("{} images", images.len());
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn every_image_extracts_for_everybody() {
    let mut report = Vec::new();
    for image in &all_good_images() {
        let scratch = scratch();
        fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).expect("ours");
        let tree = scratch.path().join("tree");
        let mut command = extract(image, &tree);
        if is_root() {
            command.uid(UNPRIVILEGED).gid(UNPRIVILEGED);
        }
        let output = match command.output() {
            Ok(output) => output,
            Err(error) => {
                println!("skipped: the user nobody cannot start the program: {error}");
                return;
            }
        };
        let text = stderr(&output);
        let losses: Vec<_> = text.lines().map(|line| line.split('(').next()).collect();
        let mut once = losses.clone();
        once.dedup();
        if !output.status.success()
            || losses != once
            || !text.lines().all(|line| line.contains("not kept: "))
        {
            report.push(format!("{}: {text}", image.name));
        }
        // Devices are for root alone.
        let found = content_differences(&image.manifest, &tree, "cb");
        report.extend(found.iter().take(5).map(|d| format!("{}: {d}", image.name)));
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn no_setuid_program_comes_to_run_as_its_extractor() {
    if !is_root() {
        return;
    }
    let mut image = Forged::default();
    let file = image.add(0o106755, b"program");
    let root = image.add_directory(&[("f", file, 1)]);
    let (scratch, path) = forged_file(image.bytes(root));
    fs::set_permissions(scratch.path(), fs::Permissions::from_mode(0o777)).expect("ours");
    let tree = scratch.path().join("tree");
    let mut command = erofast();
    command.arg("extract").arg(&path).arg(&tree);
    let output = match command.uid(UNPRIVILEGED).gid(UNPRIVILEGED).output() {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: the user nobody cannot start the program: {error}");
            return;
        }
    };
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("not kept: setuid and setgid bits"));
    let mode = fs::metadata(tree.join("f")).expect("a file").mode();
    assert_eq!(mode & 0o7777, 0o755);
}

#[test]
fn holes_and_long_zeros_take_no_room() {
    let mut tested = 0;
    for image in all_good_images() {
        let large = manifest::read(&image.manifest)
            .iter()
            .any(|entry| entry.size.is_some_and(|size| size > 1 << 32));
        if !large {
            continue;
        }
        let scratch = scratch();
        let tree = scratch.path().join("tree");
        let output = run(&mut extract(&image, &tree));
        assert!(output.status.success(), "{}", stderr(&output));
        for entry in fs::read_dir(&tree).expect("a directory") {
            let metadata = entry.expect("an entry").metadata().expect("a file");
            let stored = metadata.blocks() * 512;
            assert!(stored < 16 << 20, "{}: {stored} bytes", image.name);
        }
        tested += 1;
    }
    println!("{tested} images with files over 4 GiB");
}

#[test]
fn a_part_is_extracted_as_its_own_tree() {
    let image = first_image("meta");
    let scratch = scratch();
    let entries = manifest::read(&image.manifest);
    let paths: Vec<_> = entries
        .iter()
        .map(|entry| String::from_utf8_lossy(&entry.path()).into_owned())
        .collect();
    let directory = "deep";
    let tree = scratch.path().join("tree");
    let output = run(extract(&image, &tree).args(["--path", directory]));
    assert!(output.status.success(), "{}", stderr(&output));
    let below: Vec<_> = paths
        .iter()
        .filter_map(|path| path.strip_prefix("deep/"))
        .collect();
    assert!(!below.is_empty());
    for path in &below {
        assert!(tree.join(path).symlink_metadata().is_ok(), "{path}");
    }
    let file = entries.iter().find(|entry| entry.kind == "f").expect("one");
    let path = String::from_utf8_lossy(&file.path()).into_owned();
    let alone = scratch.path().join("alone");
    let output = run(extract(&image, &alone).args(["--path", &path]));
    assert!(output.status.success(), "{}", stderr(&output));
    let names: Vec<_> = fs::read_dir(&alone)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(names, [Path::new(&path).file_name().expect("a name")]);

    let output = run(extract(&image, &alone).args(["--path", "there/is/no/such/path"]));
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stderr(&output).lines().count(), 1);
}

#[test]
fn what_is_in_the_way_is_replaced_only_by_force_and_never_followed() {
    let mut image = Forged::default();
    let file = image.add(0o100644, b"new");
    let inner = image.add_directory(&[("f", file, 1)]);
    let root = image.add_directory(&[("dir", inner, 2), ("hard", file, 1), ("soft", file, 1)]);
    let (scratch, path) = forged_file(image.bytes(root));
    let tree = scratch.path().join("tree");
    let outside = scratch.path().join("outside");
    fs::create_dir_all(&outside).expect("ours");
    fs::write(outside.join("f"), "old").expect("ours");
    fs::create_dir(&tree).expect("ours");
    symlink(&outside, tree.join("dir")).expect("ours");
    symlink(outside.join("f"), tree.join("soft")).expect("ours");
    fs::hard_link(outside.join("f"), tree.join("hard")).expect("ours");
    fs::write(tree.join("kept"), "kept").expect("ours");

    let before = listing(scratch.path(), Path::new(""));
    let output = run(erofast().arg("extract").arg(&path).arg(&tree));
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is not empty"));
    assert_eq!(before, listing(scratch.path(), Path::new("")));

    let output = run(erofast()
        .arg("extract")
        .arg("--force")
        .arg(&path)
        .arg(&tree));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(outside.join("f")).expect("there"), b"old");
    assert_eq!(fs::read_dir(&outside).expect("there").count(), 1);
    for name in ["dir/f", "hard", "soft"] {
        assert_eq!(fs::read(tree.join(name)).expect("there"), b"new", "{name}");
    }
    assert!(!tree.join("dir").is_symlink());
    assert_eq!(fs::read(tree.join("kept")).expect("there"), b"kept");

    // Once more, over what is right already.
    let output = run(erofast()
        .arg("extract")
        .arg("--force")
        .arg(&path)
        .arg(&tree));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(tree.join("dir/f")).expect("there"), b"new");
}

fn forged_file(image: Vec<u8>) -> (TempDir, PathBuf) {
    let scratch = scratch();
    let path = scratch.path().join("forged.erofs");
    fs::write(&path, image).expect("ours");
    (scratch, path)
}

/// Two names that are the same: one leads out of the tree, the other one wants to be below it.
fn twins(symlink_first: bool) -> Vec<u8> {
    let mut image = Forged::default();
    let link = image.add(0o120777, b"../outside");
    let file = image.add(0o100644, b"hostile");
    let inner = image.add_directory(&[("f", file, 1)]);
    let (first, second) = if symlink_first {
        (("a", link, 7), ("a", inner, 2))
    } else {
        (("a", inner, 2), ("a", link, 7))
    };
    let root = image.add_directory(&[first, second, ("b", file, 1)]);
    image.bytes(root)
}

#[test]
fn a_symlink_of_the_image_is_not_a_way_out() {
    for symlink_first in [true, false] {
        for force in [true, false] {
            let (scratch, path) = forged_file(twins(symlink_first));
            let outside = scratch.path().join("outside");
            let tree = scratch.path().join("tree");
            fs::create_dir(&outside).expect("ours");
            let before = listing(scratch.path(), &tree);
            let mut command = erofast();
            command.arg("extract").arg(&path).arg(&tree);
            if force {
                command.arg("--force");
            }
            let output = run(&mut command);
            let text = stderr(&output);
            let after = listing(scratch.path(), &tree);
            assert_eq!(before, after, "{symlink_first} {force}");
            assert_eq!(
                fs::read(tree.join("b")).expect("there"),
                b"hostile",
                "{text}"
            );
            if !force {
                assert_eq!(output.status.code(), Some(1), "{text}");
                assert!(text.contains("a: "), "{text}");
            }
        }
    }
}

#[test]
fn paths_longer_than_a_system_call_takes_are_no_limit() {
    let mut image = Forged::default();
    let name = "d".repeat(200);
    let mut inner = image.add(0o100600, b"bottom");
    let mut kind = 1;
    for _ in 0..60 {
        inner = image.add_directory(&[(&name, inner, kind)]);
        kind = 2;
    }
    let (scratch, path) = forged_file(image.bytes(inner));
    let tree = scratch.path().join("tree");
    let output = run(erofast().arg("extract").arg(&path).arg(&tree));
    assert!(output.status.success(), "{}", stderr(&output));
    let sizes = Command::new("find")
        .arg(&tree)
        .args(["-type", "f", "-printf", "%d %s\n"])
        .output()
        .expect("find");
    assert_eq!(String::from_utf8_lossy(&sizes.stdout), "60 6\n");
    // What the test's own cleaning up may not be able to remove.
    let removed = Command::new("rm").arg("-rf").arg(&tree).status();
    assert!(removed.expect("rm").success());
}

/// A malformed image and what must come of it.
#[derive(Debug, Deserialize)]
struct Case {
    image: String,
    expect: String,
    paths: Vec<String>,
}

#[test]
fn malformed_images_give_their_outcome_and_touch_nothing_else() {
    let bad = bad_images();
    let script = verify_tree().filter(|_| is_root());
    let text = fs::read_to_string(bad.join("manifest.jsonl")).expect("manifest.jsonl");
    let mut report = Vec::new();
    for line in text.lines() {
        let case: Case = serde_json::from_str(line).expect("a case");
        let scratch = scratch();
        let (tree, beside) = (scratch.path().join("tree"), scratch.path().join("beside"));
        fs::create_dir(&tree).expect("ours");
        fs::create_dir(&beside).expect("ours");
        fs::write(beside.join("x"), "x").expect("ours");
        let before = listing(scratch.path(), &tree);
        let image = bad.join(&case.image);
        let output = run(erofast().arg("extract").arg(&image).arg(&tree));
        let text = stderr(&output);
        let mut complain = |what: String| report.push(format!("{}: {what}", case.image));
        if before != listing(scratch.path(), &tree) {
            complain("something outside of the target changed".to_owned());
        }
        match (case.expect.as_str(), output.status.code()) {
            ("intact", Some(0)) | ("survive", Some(0 | 1)) => {}
            ("reject", Some(1)) if text.lines().count() == 1 => continue,
            ("error", Some(1)) => {
                for path in &case.paths {
                    if !text.contains(&format!("erofast: {path}: ")) {
                        complain(format!("{path} is not named: {text}"));
                    }
                    if tree.join(path).is_file() {
                        complain(format!("{path} is there"));
                    }
                }
            }
            (expect, status) => complain(format!("{expect}: status {status:?}, {text}")),
        }
        let Some(script) = &script else { continue };
        // A directory that lost a subdirectory to its fault has a link less.
        let mut options = vec!["--no-nlink"];
        for path in &case.paths {
            options.extend(["--skip", path]);
        }
        if let Err(text) = verify(script, &bad.join("mini.jsonl"), &tree, &options) {
            complain(text);
        }
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}

/// Runs `erofast extract IMAGE - | tar ARGS`.
fn through_tar(image: &TestImage, args: &[&str], directory: &Path) -> (Output, Output) {
    let mut first = extract(image, Path::new("-"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("erofast starts");
    let stream = first.stdout.take().expect("a pipe");
    let second = Command::new("tar")
        .args(args)
        .current_dir(directory)
        .stdin(stream)
        .output()
        .expect("tar starts");
    (first.wait_with_output().expect("our child"), second)
}

#[test]
fn the_tar_stream_holds_the_tree() {
    let Some(script) = verify_tree().filter(|_| is_root()) else {
        return;
    };
    if Command::new("tar").arg("--version").output().is_err() {
        println!("skipped: there is no tar");
        return;
    }
    let mut report = Vec::new();
    for image in &all_good_images() {
        let sizes = manifest::read(&image.manifest);
        if sizes
            .iter()
            .any(|e| e.size.is_some_and(|size| size > 1 << 30))
        {
            continue;
        }
        let scratch = scratch();
        let args = [
            "--xattrs",
            "--xattrs-include=*",
            "--numeric-owner",
            "--warning=no-timestamp",
            "-xpf",
            "-",
        ];
        let (ours, theirs) = through_tar(image, &args, scratch.path());
        let errors = stderr(&ours).replace("not kept: sockets", "");
        if !ours.status.success() || errors.contains("not kept") || !theirs.stderr.is_empty() {
            report.push(format!("{}: {errors}{}", image.name, stderr(&theirs)));
            continue;
        }
        if let Err(text) = verify(&script, &image.manifest, scratch.path(), &["--no-special"]) {
            report.push(format!("{}: {text}", image.name));
        }
    }
    assert!(report.is_empty(), "{}", report.join("\n"));
}

#[test]
fn a_broken_file_leaves_the_tar_stream_whole() {
    let bad = bad_images();
    let image = TestImage {
        name: "zstd-garbage".to_owned(),
        path: bad.join("zstd-garbage.erofs"),
        devices: Vec::new(),
        offset: 0,
        manifest: bad.join("mini.jsonl"),
    };
    let (ours, theirs) = through_tar(&image, &["-tf", "-"], &bad);
    assert_eq!(ours.status.code(), Some(1));
    assert!(stderr(&ours).starts_with("erofast: text: "));
    assert!(theirs.status.success(), "{}", stderr(&theirs));
    let names = String::from_utf8_lossy(&theirs.stdout).into_owned();
    assert!(!names.lines().any(|name| name == "./text"), "{names}");
    assert!(names.lines().any(|name| name == "./noise"), "{names}");
}

#[test]
fn a_reader_that_closes_the_tar_stream_has_seen_enough() {
    let image = first_image("kitchen-sink");
    let mut child = extract(&image, Path::new("-"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("erofast starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("our child");
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn the_counts_are_those_of_the_manifest() {
    let image = first_image("meta");
    let scratch = scratch();
    let output = run(extract(&image, &scratch.path().join("tree")).arg("--json"));
    let summary: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let entries = manifest::read(&image.manifest);
    let count = |kinds: &str| entries.iter().filter(|e| kinds.contains(&e.kind)).count();
    let number = |name: &str| summary[name].as_u64().expect("a number") as usize;
    assert_eq!(number("directories"), count("d"));
    let leaves = ["files", "symlinks", "others", "hard_links"];
    if is_root() {
        assert_eq!(leaves.map(number).iter().sum::<usize>(), count("flcbps"));
    }
    assert_eq!(summary["failures"], serde_json::json!([]));
}
