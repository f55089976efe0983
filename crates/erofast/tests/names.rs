//! Names of arbitrary bytes are accepted on the command line unchanged, or as `ls` shows them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Output};

use crate::forged::Forged;
use tempfile::TempDir;

const NAMES: [&[u8]; 4] = [b"\xff", b"back\\slash", b"line\nbreak", b"plain"];

/// An image with one file per name, whose content is its name, and a dangling symlink.
fn image() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a directory");
    let mut image = Forged::default();
    let files: Vec<_> = NAMES.iter().map(|name| image.add(0o100644, name)).collect();
    let dangling = image.add(0o120777, b"nowhere");
    let below = image.add_directory(&[("inner", files[3], 1)]);
    let mut entries: Vec<(&[u8], u64, u8)> = NAMES
        .iter()
        .zip(&files)
        .map(|(name, file)| (*name, *file, 1))
        .collect();
    entries.push((b"dangling", dangling, 7));
    entries.push((b"dir", below, 2));
    entries.sort();
    let root = image.add_directory(&entries);
    let path = folder.path().join("names.erofs");
    std::fs::write(&path, image.bytes(root)).expect("room");
    (folder, path)
}

fn erofast(command: &str, image: &PathBuf, more: &[&[u8]]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_erofast"))
        .arg(command)
        .arg(image)
        .args(more.iter().map(|bytes| OsStr::from_bytes(bytes)))
        .output()
        .expect("erofast starts")
}

#[test]
fn every_name_is_accepted_as_it_is_and_as_it_is_shown() {
    let (_folder, image) = image();
    let listing = erofast("ls", &image, &[]);
    assert!(listing.status.success(), "{listing:?}");
    let listing = String::from_utf8(listing.stdout).expect("text");
    for (name, shown) in NAMES
        .iter()
        .zip(["\\xff", "back\\\\slash", "line\\x0abreak", "plain"])
    {
        assert!(
            listing.lines().any(|line| line == shown),
            "{shown} in {listing}"
        );
        for path in [name, shown.as_bytes()] {
            let output = erofast("cat", &image, &[path]);
            assert_eq!(output.stdout, *name, "{output:?}");
            for command in ["--extents", "--path"] {
                let subcommand = if command == "--path" {
                    "extract"
                } else {
                    "info"
                };
                let target = image.with_file_name("tree");
                let mut more = vec![command.as_bytes(), path];
                if subcommand == "extract" {
                    more.push(target.as_os_str().as_bytes());
                }
                let output = erofast(subcommand, &image, &more);
                assert!(output.status.success(), "{output:?}");
                let _ = std::fs::remove_dir_all(&target);
            }
        }
    }
    assert_eq!(erofast("cat", &image, &[b"?"]).stdout, b"\xff");
    assert_eq!(
        erofast("cat", &image, &[b"back\\\\*"]).stdout,
        b"back\\slash"
    );
}

#[test]
fn json_has_names_and_not_what_a_terminal_shows() {
    let (_folder, image) = image();
    let listing = String::from_utf8(erofast("ls", &image, &[b"--json"]).stdout).expect("text");
    let entries: Vec<serde_json::Value> = listing
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let has = |key: &str, value: &str| {
        assert!(
            entries.iter().any(|e| e[key] == value),
            "{value}: {listing}"
        )
    };
    has("path_hex", "ff");
    has("path", "back\\slash");
    has("path", "line\nbreak");
    has("target", "nowhere");
}

#[test]
fn cat_names_what_it_cannot_write_and_goes_on() {
    let (_folder, image) = image();
    let output = erofast("cat", &image, &[b"missing", b"plain", b"dir", b"plain"]);
    assert_eq!(output.stdout, b"plainplain");
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr.lines().count(), 2, "{stderr}");
    assert!(stderr.contains("missing: no such file") && stderr.contains("dir: is a directory"));
    let output = erofast("cat", &image, &[b"d*"]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(1) && stderr.contains("dangling"),
        "{stderr}"
    );
    let output = erofast("cat", &image, &[b"dir/**"]);
    assert_eq!(
        (output.stdout.as_slice(), output.status.code()),
        (&b"plain"[..], Some(0)),
        "{output:?}"
    );
}
