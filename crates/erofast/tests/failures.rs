//! Each error is one line that names the remedy, with the right exit status, and leaves nothing
//! behind.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::failure::fails;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/fixtures")
        .join(name)
}

fn erofast(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_erofast"))
        .args(arguments)
        .output()
        .expect("erofast starts")
}

/// Whether anything that these tests mounted is still mounted.
fn is_mounted(point: &Path) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("/proc is there");
    mounts
        .lines()
        .any(|line| line.split(' ').nth(1) == point.to_str())
}

#[test]
fn a_file_that_is_no_image_is_said_to_be_none() {
    let image = fixture("manifest.tsv");
    for command in ["info", "ls", "check"] {
        fails(
            &erofast(&[command, &image.display().to_string()]),
            1,
            "not an EROFS image",
        );
    }
}

#[test]
fn an_image_that_is_not_there_is_named() {
    fails(
        &erofast(&["info", "/no/such/image"]),
        1,
        "/no/such/image: No such file",
    );
}

#[test]
fn a_path_that_is_not_in_the_image_is_named() {
    let image = fixture("meta.erofs").display().to_string();
    fails(
        &erofast(&["cat", &image, "no/such/file"]),
        1,
        "no/such/file: no such file or directory",
    );
    fails(&erofast(&["cat", &image, "/"]), 1, "is a directory");
}

#[test]
fn a_flag_for_urls_has_no_effect_on_a_local_file_and_a_line_says_so() {
    let image = fixture("meta.erofs").display().to_string();
    let output = erofast(&["info", "--fetch", "whole", "--cache-size", "1G", &image]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(
        errors,
        "erofast: --fetch, --cache-size: no effect on local files\n"
    );
    assert!(erofast(&["info", &image]).stderr.is_empty());
}

#[test]
fn an_image_and_a_directory_in_the_wrong_order_are_found_out() {
    let (image, folder) = (
        fixture("meta.erofs"),
        tempfile::tempdir().expect("a directory"),
    );
    let (image, folder) = (
        image.display().to_string(),
        folder.path().display().to_string(),
    );
    let line = format!("{folder}: is a directory; the image comes first, then the directory");
    fails(&erofast(&["mount", &folder, &image]), 1, &line);
}

#[test]
fn missing_devices_are_named() {
    let image = fixture("blobdev.erofs").display().to_string();
    fails(
        &erofast(&["info", &image]),
        1,
        "extra devices: the image needs 1, but none was given",
    );
}

#[test]
fn an_unknown_mount_option_says_where_the_list_is_and_mounts_nothing() {
    let point = tempfile::tempdir().expect("a directory");
    let image = fixture("meta.erofs").display().to_string();
    let output = erofast(&[
        "mount",
        "-o",
        "fast",
        &image,
        &point.path().display().to_string(),
    ]);
    fails(
        &output,
        2,
        "unknown mount option 'fast'; erofast mount --help lists",
    );
    assert!(!is_mounted(point.path()));
}

#[test]
fn a_mount_that_fails_says_so_in_the_foreground_and_from_the_background() {
    let point = tempfile::tempdir().expect("a directory");
    let (image, point_text) = (fixture("manifest.tsv"), point.path().display().to_string());
    let image = image.display().to_string();
    for arguments in [&["mount"][..], &["mount", "-f"]] {
        let arguments = [arguments, &[&image, &point_text]].concat();
        fails(&erofast(&arguments), 1, "not an EROFS image");
        assert!(!is_mounted(point.path()));
    }
}

#[test]
fn unmounting_what_is_not_mounted_is_an_error() {
    let point = tempfile::tempdir().expect("a directory");
    let output = erofast(&["umount", &point.path().display().to_string()]);
    fails(&output, 1, "not");
    let output = erofast(&["stat", &point.path().display().to_string()]);
    fails(&output, 1, "not the mount point of an erofast mount");
}

#[test]
fn mount_f_checks_the_image_and_the_directory_and_s_ignores_unknown_options() {
    use std::os::unix::process::CommandExt;
    let point = tempfile::tempdir().expect("a directory");
    let point = point.path().display().to_string();
    let helper = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_erofast"));
        command
            .arg0("mount.erofast")
            .args(arguments)
            .output()
            .expect("it starts")
    };
    let (image, text) = (fixture("meta.erofs"), fixture("manifest.tsv"));
    let (image, text) = (image.display().to_string(), text.display().to_string());
    assert!(helper(&[&image, &point, "-f"]).status.success());
    fails(&helper(&[&text, &point, "-f"]), 1, "not an EROFS image");
    fails(&helper(&[&image, &image, "-f"]), 1, ": not a directory");
    fails(
        &helper(&[&image, &point, "-f", "-o", "nonsense"]),
        1,
        "unknown mount option 'nonsense'",
    );
    assert!(
        helper(&[&image, &point, "-f", "-s", "-o", "nonsense"])
            .status
            .success()
    );
}

#[test]
fn a_target_that_is_a_file_or_lacks_its_parent_is_said_to_be_so() {
    let folder = tempfile::tempdir().expect("a directory");
    let image = fixture("meta.erofs").display().to_string();
    let below = folder.path().join("no/such");
    let output = erofast(&["extract", &image, &image]);
    fails(&output, 1, "meta.erofs: not a directory");
    let output = erofast(&["extract", &image, below.to_str().expect("text")]);
    fails(&output, 1, "its parent directory does not exist");
    assert!(!folder.path().join("no").exists());
}

#[test]
fn an_offset_without_an_image_says_where_was_looked() {
    let image = fixture("meta.erofs").display().to_string();
    let size = std::fs::metadata(&image).expect("it is there").len();
    fails(
        &erofast(&["info", "--offset", "99999999", &image]),
        1,
        &format!("meta.erofs: offset 99999999 is past the end of the file (byte {size})"),
    );
    fails(
        &erofast(&["info", "--offset", "99999999999999999999", &image]),
        2,
        "the number is too large",
    );
    let text = fixture("manifest.tsv").display().to_string();
    let size = std::fs::metadata(&text).expect("it is there").len();
    fails(
        &erofast(&["ls", "--offset", "auto", &text]),
        1,
        &format!("no EROFS image begins at a multiple of 512 in its {size} bytes"),
    );
}

#[test]
fn an_image_that_was_cut_short_is_said_to_be() {
    let folder = tempfile::tempdir().expect("a directory");
    let (cut, tree) = (folder.path().join("cut.erofs"), folder.path().join("tree"));
    let mut bytes = std::fs::read(fixture("lz4-4k.erofs")).expect("it is there");
    let whole = bytes.len();
    bytes.truncate(whole - 4096);
    std::fs::write(&cut, &bytes).expect("written");
    let what = format!(
        "the superblock says {whole} bytes, but the file has {}",
        bytes.len()
    );
    let (cut, tree) = (cut.display().to_string(), tree.display().to_string());
    let info = erofast(&["info", &cut]);
    assert!(info.status.success());
    let text = String::from_utf8_lossy(&info.stdout);
    assert_eq!(text.matches(&what).count(), 1, "{text}");
    let check = erofast(&["check", &cut]);
    let text = String::from_utf8_lossy(&check.stdout);
    assert_eq!(
        (check.status.code(), text.matches(&what).count()),
        (Some(1), 1),
        "{text}"
    );
    let extract = erofast(&["extract", &cut, &tree]);
    let text = String::from_utf8_lossy(&extract.stderr);
    assert_eq!(text.matches(&what).count(), 1, "{text}");
    // Nothing is reported about an intact image.
    let image = fixture("lz4-4k.erofs").display().to_string();
    let text = String::from_utf8_lossy(&erofast(&["info", &image]).stdout).into_owned();
    assert!(!text.contains("superblock says"), "{text}");
}

#[test]
fn usage_errors_are_one_line_that_names_the_help() {
    for (arguments, part) in [
        (
            &["mount"][..],
            "<IMAGE> <MOUNTPOINT>; see erofast mount --help",
        ),
        (
            &["umount", "--lzay", "/mnt"],
            "a similar argument exists: '--lazy'",
        ),
        (&["stat", "--watch=x", "/mnt"], "invalid value 'x'"),
        (&["nonsense"], "unrecognized subcommand 'nonsense'; see "),
        (
            &["help", "mout"],
            "a similar command exists: erofast mount; see ",
        ),
        (&["launch"], "; the command is erofast lab launch; see "),
        (
            &["help", "launhc"],
            "'launhc'; a similar command exists: erofast lab launch; see ",
        ),
        (&["version"], "; erofast --version shows it; see "),
        (&["fsck", "a"], "; erofast check verifies an image; see "),
        (
            &["mkfs.erofs"],
            "; mkfs.erofs of erofs-utils makes images; see ",
        ),
        (
            &["mount", "-o", "reserved_pages=99999999999", "a", "b"],
            "reserved_pages=99999999999: ",
        ),
    ] {
        fails(&erofast(arguments), 2, part);
    }
}

#[test]
fn directories_in_the_place_of_files_are_named() {
    let image = fixture("lz4-4k.erofs").display().to_string();
    fails(
        &erofast(&["cat", &image, "/"]),
        1,
        "lz4-4k.erofs: /: is a directory",
    );
    fails(
        &erofast(&["profile", "show", "/"]),
        1,
        "/: not a launch profile: /: is a directory",
    );
    fails(
        &erofast(&["profile", "list", "/"]),
        1,
        "/: is a directory; name a profile by the path of its image",
    );
    let all = erofast(&["ls", "-la", &image]);
    assert_eq!(all.stdout, erofast(&["ls", "-l", &image]).stdout);
}

#[test]
fn a_fifo_is_no_image_and_nothing_waits_for_its_writer() {
    let folder = tempfile::tempdir().expect("a directory");
    let (fifo, point) = (folder.path().join("fifo"), folder.path().join("mnt"));
    std::fs::create_dir(&point).expect("a mount point");
    let made = Command::new("mkfifo").arg(&fifo).status();
    assert!(made.expect("mkfifo starts").success());
    let (fifo, point) = (fifo.display().to_string(), point.display().to_string());
    let why = "neither a regular file nor a block device";
    fails(&erofast(&["check", &fifo]), 1, why);
    if std::fs::File::open("/dev/fuse").is_ok() {
        fails(&erofast(&["mount", "-o", "silent", &fifo, &point]), 1, why);
    }
}

#[test]
fn a_symlink_with_a_nul_byte_in_its_target_is_a_fault() {
    let mut image = std::fs::read(fixture("lz4-full-index-64k.erofs")).expect("an image");
    let target = image.windows(5).rposition(|bytes| bytes == b"t/s50");
    image[target.expect("it has a link") + 1] = 0;
    // Clears the flag for the superblock's checksum, which covers the first block.
    image[1024 + 8] &= !1;
    let folder = tempfile::tempdir().expect("a directory");
    let (path, tree) = (folder.path().join("nul.erofs"), folder.path().join("tree"));
    std::fs::write(&path, image).expect("an image is written");
    let (path, tree) = (path.display().to_string(), tree.display().to_string());
    for arguments in [
        &["check", &path][..],
        &["extract", &path, &tree],
        &["extract", &path, "-"],
    ] {
        let output = erofast(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let both = [output.stdout, output.stderr].concat();
        let printed = String::from_utf8_lossy(&both);
        assert!(printed.contains("NUL byte"), "{arguments:?}: {printed}");
    }
}

#[test]
fn threads_and_blocks_are_numbers_within_their_range() {
    let image = fixture("meta.erofs").display().to_string();
    for threads in ["0", "100000", "many"] {
        let output = erofast(&["check", "--threads", threads, &image]);
        fails(&output, 2, "must be a whole number from 1 to 1024");
    }
    let output = erofast(&["info", "--block", "first", &image]);
    fails(&output, 2, "must be a whole number, 0 or more");
}

#[test]
fn times_that_the_target_cannot_hold_are_reported_as_not_kept() {
    // ext4 supports 1901 to 2038 with inodes of 128 bytes, and 1901 to 2446 with larger ones.
    let folder = tempfile::tempdir().expect("a directory");
    let far = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(40_000_000_000);
    let probe = std::fs::File::create(folder.path().join("probe")).expect("a file");
    probe.set_modified(far).expect("a time is set");
    let held = probe
        .metadata()
        .expect("metadata")
        .modified()
        .expect("a time");
    let (image, tree) = (folder.path().join("far.erofs"), folder.path().join("tree"));
    let source = folder.path().join("source");
    std::fs::create_dir(&source).expect("a directory");
    let made = Command::new("mkfs.erofs")
        .args(["--quiet", "-T40000000000"])
        .args([&image, &source])
        .output();
    if !made.is_ok_and(|made| made.status.success()) {
        println!("skipped: no mkfs.erofs that takes such a time");
        return;
    }
    let (image, tree) = (image.display().to_string(), tree.display().to_string());
    let output = erofast(&["extract", &image, &tree]);
    let printed = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        printed.contains("not kept: times"),
        held != far,
        "{printed}"
    );
}

/// Tries memory limits in small steps, from one that just lets the program start to one that is
/// enough for a tool.
#[test]
fn a_tool_without_memory_says_so_in_one_line() {
    let image = fixture("lz4-64k.erofs");
    let starts = |kib: &i32| {
        let script = format!("ulimit -v {kib} && \"$0\" --version");
        let output = Command::new("sh")
            .args(["-c", &script, env!("CARGO_BIN_EXE_erofast")])
            .output()
            .expect("a shell");
        output.status.success()
    };
    let first = (10_000..60_000).step_by(250).find(starts);
    let first = first.expect("a limit that is enough");
    for kib in (first..first + 16_000).step_by(250) {
        for command in ["check \"$1\"", "extract \"$1\" - >/dev/null"] {
            let script = format!("ulimit -v {kib} && \"$0\" {command}");
            let output = Command::new("sh")
                .args(["-c", &script, env!("CARGO_BIN_EXE_erofast")])
                .arg(&image)
                .output()
                .expect("a shell");
            let text = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                // Success, or the loader could not start the program (127).
                Some(0 | 127) => {}
                Some(1) => assert!(
                    text.lines().any(|line| line.starts_with("erofast: ")),
                    "{text}"
                ),
                // glibc itself aborts if it cannot register a thread's exit handler.
                _ => assert!(
                    text.contains("glibc error: failed to register TLS destructor"),
                    "{kib} KiB, {command}: {}: {text}",
                    output.status
                ),
            }
        }
    }
}

#[test]
fn wrong_use_of_urls_names_what_was_typed() {
    let url = "http://127.0.0.1:1/a.erofs";
    for (arguments, line) in [
        (&["info", "--fetch", "all", url][..], "--fetch=all: must be"),
        (
            &["ls", "--cache-size", "1X", url],
            "--cache-size=1X: must be",
        ),
        (
            &["cat", "--timeout-read=x", url, "a"],
            "--timeout-read=x: must be",
        ),
        (
            &["cache", "prune", "--cache-size=x"],
            "--cache-size=x: must be",
        ),
        (
            &["cache", "fetch", "a.erofs"],
            "a.erofs: not an http://, https:// or oci:// URL",
        ),
    ] {
        fails(&erofast(arguments), 2, line);
    }
    let others = "ftp://: only http://, https:// and oci:// URLs are supported";
    fails(&erofast(&["info", "ftp://host/a.erofs"]), 1, others);
}
