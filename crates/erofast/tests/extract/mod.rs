//! Extraction produces what the image contains, and touches nothing outside the target.

mod hostile;
mod resume;
mod tar_stream;

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};

use crate::common::manifest::{self, hex};
use crate::common::{TestImage, all_good_images, bad_images, erofast};
use crate::forged::Forged;
use serde::Deserialize;
use sha2::{Digest, Sha256};
use tempfile::TempDir;

/// The user `nobody`.
const UNPRIVILEGED: u32 = 65534;
/// Files larger than this consist mostly of a hole.
const BIG: u64 = 64 << 20;

/// A directory that can hold every xattr and every time; in memory if the machine has /dev/shm.
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

/// A Python process, one per test, that compares whole trees with manifests.
struct Judge {
    child: Child,
    asked: ChildStdin,
    answers: BufReader<ChildStdout>,
}

/// Takes arguments as a line of JSON, and answers with status and text.
const JUDGE: &str = "
import contextlib, io, json, sys, verify_tree
for line in sys.stdin:
    sys.argv = ['verify_tree', *json.loads(line)]
    with contextlib.redirect_stdout(io.StringIO()) as text:
        status = verify_tree.main()
    print(json.dumps([status, text.getvalue()]), flush=True)
";

impl Judge {
    /// Starts the process. If it cannot be used, prints the reason and returns `None`.
    fn new() -> Option<Self> {
        if !is_root() {
            return None;
        }
        let script = crate::common::verify_tree();
        let mut command = Command::new("python3");
        command
            .args(["-B", "-c", JUDGE])
            .env("PYTHONPATH", script.parent().expect("a folder"));
        let Ok(mut child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
            println!("skipped: python3 is not installed");
            return None;
        };
        Some(Self {
            asked: child.stdin.take()?,
            answers: BufReader::new(child.stdout.take()?),
            child,
        })
    }

    /// Compares a tree with a manifest and returns the differences.
    fn verify(&mut self, manifest: &Path, tree: &Path, options: &[&str]) -> Result<(), String> {
        let mut arguments = vec!["check", text(manifest), text(tree), "--quiet"];
        arguments.extend(options);
        let asked = serde_json::to_string(&arguments).expect("JSON");
        writeln!(self.asked, "{asked}").expect("it listens");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("an answer");
        let (status, found): (i32, String) = serde_json::from_str(&answer).expect("an answer");
        if status == 0 { Ok(()) } else { Err(found) }
    }
}

impl Drop for Judge {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(path: &Path) -> &str {
    path.to_str().expect("a name of ASCII")
}

/// Compares types, sizes and contents, which every user can extract.
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
            // If the mode forbids reading, only the size is compared.
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

/// Everything below a directory except `except` and its contents: path, type and mode, times,
/// content.
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

fn forged_file(image: Vec<u8>) -> (TempDir, PathBuf) {
    let scratch = scratch();
    let path = scratch.path().join("forged.erofs");
    fs::write(&path, image).expect("ours");
    (scratch, path)
}

#[test]
fn every_image_extracts_exactly() {
    let Some(mut judge) = Judge::new() else {
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
        } else if let Err(text) = judge.verify(&image.manifest, &tree, &["--reads"]) {
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
        // Only root may create devices.
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
fn the_time_of_a_symlink_is_kept_without_proc() {
    let mut image = Forged::default();
    let link = image.add(0o120777, b"target");
    let root = image.add_directory(&[("link", link, 7)]);
    let (scratch, path) = forged_file(image.bytes(root));
    let script = "mount -t tmpfs proc /proc || exit 77; exec \"$0\" extract \"$1\" tree";
    let output = Command::new("unshare")
        .args(["-m", "sh", "-c", script])
        .args([Path::new(env!("CARGO_BIN_EXE_erofast")), &path])
        .current_dir(scratch.path())
        .output();
    let output = output.expect("it starts");
    let errors = stderr(&output);
    if output.status.code() == Some(77) || errors.starts_with("unshare:") {
        return println!("skipped: no right to mount a tmpfs");
    }
    assert!(output.status.success(), "{errors}");
    assert!(!errors.contains("not kept: times"), "{errors}");
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
    assert!(stderr(&output).contains(": not empty"));
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

    // Extracts again, over content that is already correct.
    let output = run(erofast()
        .arg("extract")
        .arg("--force")
        .arg(&path)
        .arg(&tree));
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(fs::read(tree.join("dir/f")).expect("there"), b"new");
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
