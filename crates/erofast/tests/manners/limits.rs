//! Limits and settings of the caller: a mount succeeds, or fails with one clear line.

use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use super::site::{Site, fine, signal, soon};

/// Runs a shell script, with the program as `$0`.
fn by_shell(site: &Site, script: &str) -> Output {
    Command::new("sh")
        .args(["-c", script, env!("CARGO_BIN_EXE_erofast")])
        .current_dir(site.directory.path())
        .output()
        .unwrap()
}

fn lines(output: &Output) -> Vec<String> {
    let stderr = String::from_utf8_lossy(&output.stderr);
    stderr.lines().map(str::to_owned).collect()
}

#[test]
fn a_limit_of_file_sizes_ends_no_mount() {
    let Some(site) = Site::new() else { return };
    let script = "ulimit -f 1; \"$0\" mount image.erofs mnt && ls mnt >/dev/null";
    fine(&by_shell(&site, script));
    let counters = site.run(&["stat", "--json", "mnt"]);
    let text = String::from_utf8_lossy(&counters.stdout).into_owned();
    let is_replaced = text.contains("\"restart\": {\n    \"helper\": null,\n    \"on\": false");
    assert!(is_replaced, "{text}");
    assert!(text.contains("no read-ahead for launches: "), "{text}");
    fine(&site.run(&["umount", "mnt"]));
}

#[test]
fn too_few_open_files_are_one_line_that_says_so() {
    let Some(site) = Site::new() else { return };
    for most in 5..24 {
        let script = format!("ulimit -n {most}; \"$0\" mount image.erofs mnt");
        let output = by_shell(&site, &script);
        if output.status.success() {
            fine(&site.run(&["umount", "mnt"]));
            continue;
        }
        let lines = lines(&output);
        let is_clear = lines.len() == 1 && lines[0].contains("Too many open files");
        // With even fewer descriptors, the shell itself or the C library's loader may print
        // something.
        assert!(is_clear || most < 6, "{most}: {lines:?}");
        assert!(!site.is_mounted(), "{most}");
    }
}

#[test]
fn a_caller_that_ignores_its_children_gets_the_reason() {
    let Some(site) = Site::new() else { return };
    let script = "trap '' CHLD; exec \"$0\" mount /dev/null mnt";
    let lines = lines(&by_shell(&site, script));
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("/dev/null: "), "{lines:?}");
    assert!(!lines[0].contains("child"), "{lines:?}");
}

#[test]
fn names_in_messages_stay_on_one_line() {
    let Some(site) = Site::new() else { return };
    let name = "new\nline\x1b[31m";
    for arguments in [
        &["mount", name, "mnt"][..],
        &["umount", name],
        &["info", name],
    ] {
        let output = site.run(arguments);
        assert!(!output.status.success());
        let lines = lines(&output);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].contains("new\\x0aline\\x1b[31m"), "{lines:?}");
    }
    std::fs::rename(site.image(), site.path(name)).unwrap();
    fine(&site.run(&["mount", name, "mnt"]));
    let page = site.run(&["stat", "mnt"]);
    let text = String::from_utf8_lossy(&page.stdout).into_owned();
    assert!(text.contains("new\\x0aline\\x1b[31m on "), "{text}");
    fine(&site.run(&["umount", "mnt"]));
}

/// At whatever moment of its start the mount helper is killed, the mount is served afterwards or
/// does not exist.
#[test]
fn a_mount_whose_helper_is_killed_is_served_or_gone() {
    let Some(site) = Site::new() else { return };
    let (mut served, mut gone) = (0, 0);
    for half_milliseconds in 0..40 {
        let mut mount = site.command(&["mount", "image.erofs", "mnt"]);
        let mut mount = mount.stderr(std::process::Stdio::null()).spawn().unwrap();
        thread::sleep(Duration::from_micros(half_milliseconds * 500));
        let pid = u64::from(mount.id());
        let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let helper = children
            .unwrap_or_default()
            .split(' ')
            .next()
            .map(str::to_owned);
        if let Some(helper) = helper.and_then(|text| text.parse().ok()) {
            // The helper may have ended with its parent.
            let _ = std::panic::catch_unwind(|| signal("-KILL", helper));
        }
        let status = mount.wait().unwrap();
        match status.success() {
            true => {
                assert!(std::fs::read_dir(site.point()).unwrap().count() > 0);
                fine(&site.run(&["umount", "mnt"]));
                served += 1;
            }
            false => gone += 1,
        }
        assert!(
            !site.is_mounted(),
            "after {half_milliseconds} half milliseconds"
        );
    }
    println!("{served} served, {gone} gone");
    soon("the end", || !site.is_mounted());
}

/// Runs a program under a filter that refuses unshare(2), as those of container engines do.
const WITHOUT_UNSHARE: &str = r#"
import ctypes, os, platform, struct, sys
unshare = {"x86_64": 272}.get(platform.machine(), 97)
steps = [(0x20, 0, 0, 0), (0x15, 0, 1, unshare), (0x06, 0, 0, 0x50001), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code))
libc = ctypes.CDLL(None, use_errno=True)
assert libc.prctl(38, 1, 0, 0, 0) == 0
if libc.prctl(22, 2, program, 0, 0) != 0:
    sys.exit("skipped: no filters here")
os.execv(sys.argv[1], sys.argv[1:])
"#;

/// The threads that store pages need their own descriptor table; without one, a killed server might
/// not end.
#[test]
fn where_unshare_is_refused_a_mount_only_reads_no_files_ahead() {
    let Some(site) = Site::new() else { return };
    let program = env!("CARGO_BIN_EXE_erofast");
    let mut mount = Command::new("python3");
    mount.args([
        "-c",
        WITHOUT_UNSHARE,
        program,
        "mount",
        "image.erofs",
        "mnt",
    ]);
    let output = match mount.current_dir(site.directory.path()).output() {
        Ok(output) => output,
        Err(error) => return println!("skipped: python3: {error}"),
    };
    let lines = lines(&output);
    if lines.iter().any(|line| line.starts_with("skipped: ")) {
        return println!("{}", lines[0]);
    }
    assert!(output.status.success(), "{lines:?}");
    let notice = "files are not read ahead: unshare: Operation not permitted";
    let count = lines.iter().filter(|line| line.contains(notice)).count();
    assert_eq!(count, 1, "{lines:?}");
    let mut find = Command::new("find");
    fine(
        &find
            .arg(site.point())
            .args(["-type", "f", "-exec", "cat", "{}", "+"])
            .output()
            .unwrap(),
    );
    let counters = site.run(&["stat", "--json", "mnt"]);
    let text = String::from_utf8_lossy(&counters.stdout);
    assert!(text.contains(notice), "{text}");
    fine(&site.run(&["umount", "mnt"]));
}

/// Runs a program as a user who may start no process and no thread.
const ALONE: &str = r#"
import os, resource, shutil, sys
program = "./erofast"
shutil.copy(sys.argv[1], program)
os.chmod(program, 0o755)
os.setgroups([])
os.setresgid(54321, 54321, 54321)
os.setresuid(54321, 54321, 54321)
resource.setrlimit(resource.RLIMIT_NPROC, (1, 1))
try:
    os.execv(program, sys.argv[1:])
except OSError as error:
    sys.exit(f"skipped: {program}: {error}")
"#;

/// The mount answers; it is the command that cannot ask.
#[test]
fn a_limit_of_processes_is_not_blamed_on_a_mount() {
    let Some(site) = Site::new() else { return };
    fine(&site.run(&["mount", "image.erofs", "mnt"]));
    for command in ["stat", "umount", "upgrade"] {
        let mut alone = Command::new("python3");
        alone.args(["-c", ALONE, env!("CARGO_BIN_EXE_erofast"), command, "mnt"]);
        let output = match alone.current_dir(site.directory.path()).output() {
            Ok(output) => output,
            Err(error) => {
                println!("skipped: python3: {error}");
                break;
            }
        };
        let lines = lines(&output);
        if lines.iter().any(|line| line.starts_with("skipped: ")) {
            println!("{}", lines[0]);
            break;
        }
        assert_eq!(output.status.code(), Some(1), "{command}: {lines:?}");
        let why = "erofast: mnt: cannot start a thread: Resource temporarily unavailable";
        let is_clear = lines.len() == 1 && lines[0].starts_with(why);
        assert!(is_clear, "{command}: {lines:?}");
    }
    fine(&site.run(&["umount", "mnt"]));
}
