//! `erofast profile`: showing and trimming launch profiles.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::forged::Forged;
use launch_profile::{
    DecodedIndex, Directory, ImageIdentity, Learned, Name, Profile, Program, RecordedFile, Trim,
    Window,
};

fn erofast(arguments: &[&str], file: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_erofast"));
    command.args(arguments).arg(file);
    command.output().expect("erofast runs")
}

fn profile() -> Profile {
    let file = |name: &str, size| RecordedFile {
        name: Name {
            directory: Some(0),
            name: name.into(),
        },
        size,
    };
    let window = |file, pages, at_ms| Window {
        file,
        number: 0,
        pages,
        at_ms,
    };
    Profile {
        directories: vec![Directory {
            parent: None,
            listed_ms: Some(0),
            name: b"lib".to_vec(),
        }],
        files: vec![file("first", 100_000), file("second", 10)],
        windows: vec![window(0, 0b11, 0), window(1, 0b1, 700)],
        ..Profile::default()
    }
}

fn learned() -> Learned {
    let program = |path: &str, idle_mounts| Program {
        path: path.into(),
        launches: 3,
        idle_mounts,
        trim: Trim::default(),
        profile: profile(),
    };
    Learned {
        image: Some(ImageIdentity::default()),
        programs: vec![program("lib/first", 0), program("bin/other", 2)],
    }
}

#[test]
fn show_tells_what_was_read_and_lists_the_files_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.profile");
    std::fs::write(&file, learned().to_text()).unwrap();
    let shown = erofast(&["profile", "show", "--json"], &file);
    let report: serde_json::Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(
        (&report["pages"], &report["milliseconds"]),
        (&3.into(), &700.into())
    );
    assert_eq!(report["bytes"], 8192 + 10);
    assert_eq!(report["files"][1]["path"], "lib/second");
    assert_eq!(report["files"][1]["bytes"], 10, "of a page");
    let listed = erofast(&["profile", "show", "--list"], &file);
    assert_eq!(listed.stdout, b"lib/first\nlib/second\n");
    let text = String::from_utf8(erofast(&["profile", "show"], &file).stdout).unwrap();
    assert!(
        text.contains("lib/first") && text.contains("2 listed"),
        "{text}"
    );
}

#[test]
fn trim_replaces_the_profile_or_writes_another() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("app.profile");
    std::fs::write(&file, learned().to_text()).unwrap();
    let other = folder.path().join("short.profile");
    let output = [
        "profile",
        "trim",
        "--until",
        "100",
        "-o",
        other.to_str().unwrap(),
    ];
    assert!(erofast(&output, &file).status.success());
    let read = |path: &Path| Learned::parse_any(&std::fs::read(path).unwrap()).unwrap();
    let trimmed = &read(&other).programs[0].profile;
    assert_eq!((trimmed.windows.len(), trimmed.files.len()), (1, 1));
    assert_eq!(read(&file), learned());
    assert!(
        erofast(&["profile", "trim", "--size", "0"], &file)
            .status
            .success()
    );
    assert!(read(&file).programs[0].profile.windows.is_empty());
    let listed = erofast(&["profile", "list"], &file);
    let text = String::from_utf8(listed.stdout).unwrap();
    assert!(text.contains("trimmed to 0 bytes"), "{text}");
    assert_eq!(erofast(&["profile", "trim"], &file).status.code(), Some(2));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
}

#[test]
fn programs_of_a_profile_are_offered_for_removal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image.profile");
    std::fs::write(&file, learned().to_text()).unwrap();
    let file = file.to_str().unwrap();
    let offered = |typed: &[&str]| {
        let words = ["complete", "--", "erofast", "profile", "remove", file];
        let output = erofast(&[&words[..], typed].concat(), Path::new(""));
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        let words = text.lines().filter_map(|line| line.split('\t').next());
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(offered(&[]), ["lib/first", "bin/other"]);
    assert_eq!(offered(&["lib/first"]), ["bin/other"]);
}

#[test]
fn programs_are_shown_trimmed_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image.profile");
    std::fs::write(&file, learned().to_text()).unwrap();
    let shown = erofast(&["profile", "show"], &file);
    let text = String::from_utf8(shown.stdout).unwrap();
    let path = String::from_utf8(profile().path(&profile().files[0].name)).unwrap();
    for line in [
        format!("program:     {path}: 3 launches"),
        "program:     bin/other".into(),
    ] {
        assert!(text.contains(&line), "{text}");
    }
    let read = || Learned::parse_any(&std::fs::read(&file).unwrap()).unwrap();
    erofast(&["profile", "trim", "--size", "0"], &file);
    assert!(
        read()
            .programs
            .iter()
            .all(|program| program.profile.windows.is_empty())
    );
    std::fs::write(&file, learned().to_text()).unwrap();

    let remove = |programs: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_erofast"));
        let command = command
            .args(["profile", "remove"])
            .arg(&file)
            .args(programs);
        let output = command.output().unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let (status, line) = remove(&["bin/none"]);
    assert!(
        status == Some(1) && line.contains("no profile of bin/none"),
        "{line}"
    );
    let kept = |name: &str, blocks| {
        let image = ImageIdentity {
            blocks,
            ..ImageIdentity::default()
        };
        let path = folder.path().join(name);
        std::fs::write(&path, DecodedIndex::default().into_bytes(7, image)).unwrap();
        path
    };
    let (ours, other) = (kept("ours.decoded", 0), kept("other.decoded", 7));
    assert_eq!(remove(&["bin/other"]), (Some(0), String::new()));
    assert!(
        !ours.exists() && other.exists(),
        "decoded bytes of this image go, too"
    );
    assert_eq!(read().programs.len(), 1);
    assert_eq!(remove(&[&path]), (Some(0), String::new()));
    assert!(!file.exists());
    std::fs::write(&file, learned().to_text()).unwrap();
    assert_eq!(remove(&[]), (Some(0), String::new()));
    assert!(!file.exists());
}

#[test]
fn profiles_of_another_version_are_named_and_no_fault() {
    let home = tempfile::tempdir().unwrap();
    let folder = home.path().join("erofast");
    std::fs::create_dir(&folder).unwrap();
    let (old, new) = (folder.join("old.profile"), folder.join("new.profile"));
    std::fs::write(&new, learned().to_text()).unwrap();
    std::fs::write(&old, b"EROLEARN\x03\0 and what version 3 had").unwrap();
    let output = erofast(&["profile", "list"], &old);
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(0), "{line}");
    let expected = format!("erofast: {}: launch profile of version 3", old.display());
    assert!(line.starts_with(&expected), "{line}");
    // Several profiles are reported on one line.
    let older = folder.join("older.profile");
    std::fs::copy(&old, &older).unwrap();
    let output = erofast(&["profile", "list", older.to_str().unwrap()], &old);
    std::fs::remove_file(older).unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    let end = " (and another one like it; erofast profile remove FILE removes one)\n";
    assert!(line.ends_with(end) && line.lines().count() == 1, "{line}");
    // Root's cache folder is elsewhere.
    if !rustix::process::geteuid().is_root() {
        let mut list = Command::new(env!("CARGO_BIN_EXE_erofast"));
        list.args(["profile", "list"])
            .env("XDG_CACHE_HOME", home.path());
        let output = list.output().unwrap();
        let line = String::from_utf8(output.stderr).unwrap();
        assert!(
            output.status.success() && line.starts_with(&expected),
            "{line}"
        );
        let listed = String::from_utf8(output.stdout).unwrap();
        assert!(listed.contains("new.profile"), "{listed}");
    }
}

#[test]
fn what_is_no_profile_is_one_line_and_status_1() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("letter");
    std::fs::write(&file, "Dear reader").unwrap();
    for command in ["show", "trim"] {
        let mut words = vec!["profile", command];
        words.extend(
            (command == "trim")
                .then_some(["--size", "1"])
                .into_iter()
                .flatten(),
        );
        let output = erofast(&words, &file);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), text.lines().count()),
            (Some(1), 1),
            "{text}"
        );
        assert!(
            text.contains("letter: neither a launch profile nor an EROFS image"),
            "{text}"
        );
    }
}

#[test]
fn links_are_followed_modes_are_kept_and_fifos_do_not_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (file, link) = (folder.path().join("real"), folder.path().join("link"));
    std::fs::write(&file, learned().to_text()).unwrap();
    let mode = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(&file, mode).unwrap();
    std::os::unix::fs::symlink("real", &link).unwrap();
    let output = erofast(&["profile", "trim", "--size", "0"], &link);
    assert!(output.status.success(), "{output:?}");
    assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
    let changed = std::fs::metadata(&file).unwrap();
    assert_eq!(changed.permissions().mode() & 0o777, 0o600);
    assert_ne!(std::fs::read_to_string(&file).unwrap(), learned().to_text());
    let piped = erofast(&["profile", "trim", "--size", "1", "-o", "-"], &file);
    assert!(Learned::parse_any(&piped.stdout).is_ok());

    let fifo = folder.path().join("fifo");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, mode).unwrap();
    let output = erofast(&["profile", "show"], &fifo);
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("not a launch profile"), "{text}");
}

/// An image of one script, with a random UUID so that it is not mistaken for any other image.
pub fn image_of_a_script(path: &Path) {
    let mut image = Forged::default();
    let script = image.add(0o100755, b"#!/bin/sh\n");
    let root = image.add_directory(&[(".", 1, 2), ("..", 1, 2), ("script", script, 1)]);
    let mut bytes = image.bytes(root);
    let random = std::fs::read("/proc/sys/kernel/random/uuid").unwrap();
    bytes[1024 + 48..][..16].copy_from_slice(&random[..16]);
    std::fs::write(path, bytes).unwrap();
}

fn launch_of_the_script(image: &Path, place: &Path) {
    let mount = ["mount", "-o", "profile=learn", image.to_str().unwrap()];
    assert!(erofast(&mount, place).status.success());
    std::fs::read(place.join("script")).unwrap();
    assert!(erofast(&["umount"], place).status.success());
}

/// Two images that are built reproducibly may have the same UUID, time, and numbers of blocks and
/// inodes.
#[test]
fn images_that_are_made_reproducibly_have_profiles_of_their_own() {
    let folder = tempfile::tempdir().unwrap();
    let image = |script: &[u8]| {
        let mut image = Forged::default();
        let script = image.add(0o100755, script);
        let root = image.add_directory(&[(".", 1, 2), ("..", 1, 2), ("script", script, 1)]);
        let path = folder.path().join("app.erofs");
        std::fs::write(&path, image.bytes(root)).unwrap();
        let options = erofs_engine::EngineOptions::default();
        let engine = erofs_engine::Engine::open(&path, &options).unwrap();
        erofs_mount::profile_identity(&engine)
    };
    let one = image(b"#!/bin/sh\necho 1\n");
    let other = image(b"#!/bin/sh\necho 2\n");
    assert_eq!((one.uuid, one.build_time), (other.uuid, other.build_time));
    assert_eq!((one.blocks, one.inodes), (other.blocks, other.inodes));
    assert_ne!(one.file_name(None), other.file_name(None));
    assert_eq!(one, image(b"#!/bin/sh\necho 1\n"));
}

#[test]
fn what_mounts_of_an_image_learned_is_found_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let (image, place) = (folder.path().join("app.erofs"), folder.path().join("mnt"));
    image_of_a_script(&image);
    std::fs::create_dir(&place).unwrap();
    let profile = |command: &str, more: &[&str]| {
        let mut erofast = crate::common::erofast();
        let output = erofast
            .args(["profile", command])
            .arg(&image)
            .args(more)
            .output();
        let output = output.unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            output.status.code(),
            text(output.stdout),
            text(output.stderr),
        )
    };
    let (status, _, line) = profile("show", &[]);
    assert!(
        status == Some(1) && line.contains("no launches have been learned"),
        "{line}"
    );

    let mounted = erofast(
        &["mount", "-o", "profile=learn", image.to_str().unwrap()],
        &place,
    );
    if !mounted.status.success() {
        return println!("skipped: {}", String::from_utf8_lossy(&mounted.stderr));
    }
    std::fs::read(place.join("script")).unwrap();
    assert!(erofast(&["umount"], &place).status.success());
    // The profile's file appears a moment later.
    let learned = || {
        std::thread::sleep(std::time::Duration::from_millis(10));
        profile("show", &[]).0 == Some(0)
    };
    assert!((0..3000).any(|_| learned()));
    let (status, listed, _) = profile("list", &["--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
    assert_eq!(status, Some(0));
    assert_eq!(listed["images"].as_array().unwrap().len(), 1);
    assert_eq!(listed["images"][0]["programs"][0]["path"], "script");
    assert_eq!(profile("show", &["--list"]).1, "script\n");
    // All commands accept the profile's file as well as the image.
    let file = listed["images"][0]["file"].as_str().unwrap();
    let by_file = erofast(&["profile", "list", "--json"], Path::new(file)).stdout;
    assert_eq!(
        serde_json::from_slice::<serde_json::Value>(&by_file).unwrap(),
        listed
    );
    // A launch adds nothing to a trimmed profile.
    assert_eq!(profile("trim", &["--size", "0"]).0, Some(0));
    let bytes = || -> Vec<serde_json::Value> {
        let listed = profile("list", &["--json"]).1;
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let program = &listed["images"][0]["programs"][0];
        ["launches", "bytes", "bytes_at_most"]
            .map(|key| program[key].clone())
            .into()
    };
    assert_eq!(bytes(), [1, 0, 0]);
    launch_of_the_script(&image, &place);
    assert!((0..3000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        bytes()[0] == 2
    }));
    assert_eq!(bytes(), [2, 0, 0]);
    assert_eq!(profile("trim", &["--until", "4294967295"]).0, Some(0));
    assert_eq!(bytes()[2], serde_json::Value::Null);
    // Once the limit has been lifted, the launch is learned again.
    launch_of_the_script(&image, &place);
    assert!((0..3000).any(|_| {
        std::thread::sleep(std::time::Duration::from_millis(10));
        profile("show", &["--list"]).1 == "script\n"
    }));
    let (status, _, line) = profile("remove", &["other"]);
    assert!(
        status == Some(1) && line.contains("no profile of other"),
        "{line}"
    );
    let file = Path::new(listed["images"][0]["file"].as_str().unwrap());
    let bytes = std::fs::read(file).unwrap();
    let is_named = |command: &str, more: &[&str], why: &str| {
        let (status, listed, line) = profile(command, more);
        assert_eq!((status, listed.as_str()), (Some(1), ""), "{command}");
        let found = line.contains(file.to_str().unwrap()) && line.contains(why);
        assert!(found && line.lines().count() == 1, "{command}: {line}");
    };
    let spoilt = String::from_utf8(bytes.clone())
        .unwrap()
        .replace("read ", "read x");
    let damaged = [
        ("erofast-", "truncated"),
        ("Dear reader", "not a launch profile"),
    ];
    let damaged = damaged.map(|(text, why)| (text.as_bytes(), why));
    for (text, why) in damaged.into_iter().chain([(spoilt.as_bytes(), "damaged")]) {
        std::fs::write(file, text).unwrap();
        is_named("list", &[], why);
        is_named("show", &[], why);
        is_named("remove", &["script"], why);
        assert_eq!(profile("remove", &[]).0, Some(0), "{why}");
        assert!(!file.exists(), "{why}");
        std::fs::write(file, text).unwrap();
        assert!(erofast(&["profile", "remove"], file).status.success());
        assert!(!file.exists(), "{why}");
    }
    // A mount does not follow a symlink in place of the profile.
    let real = folder.path().join("real");
    std::fs::write(&real, &bytes).unwrap();
    std::os::unix::fs::symlink(&real, file).unwrap();
    is_named("list", &[], "symbolic link");
    is_named("show", &[], "symbolic link");
    assert_eq!(profile("remove", &[]).0, Some(0));
    assert!(!file.is_symlink() && real.exists());
    std::fs::write(file, bytes).unwrap();
    assert_eq!(profile("remove", &["script"]).0, Some(0));
    let none = format!("{}: no launches have been learned\n", image.display());
    assert_eq!(profile("list", &[]), (Some(0), none, String::new()));
    assert!(!file.exists());
}
