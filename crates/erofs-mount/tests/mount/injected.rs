//! Checks what a compromised server can do to the kernel and to the other processes of its mount:
//! calls are injected into a running server (`injected.py`), and another program uses its sockets.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use erofs_mount::{stat, umount};
use serde_json::{Map, Value, json};

use crate::place::{Place, image};
use crate::{Test, mount, pid_of, read_tree, request};

pub const TESTS: &[Test] = tests![
    a_server_that_was_taken_over_gets_nothing_by_injected_calls,
    a_call_by_the_gate_of_32_bit_programs_ends_the_server,
];

const NOBODY: u32 = 65534;

/// Calls that the kernel handles before any filter (uretprobe, uprobe), by sending SIGILL.
const BEFORE_FILTERS: [&str; 2] = ["335", "336"];

/// Calls with arguments that the filter lets through, because the kernel refuses them or they do no
/// more than is allowed.
const LET_THROUGH: [(&str, &str); 5] = [
    ("clone3", "\"ENOSYS\""),
    ("clone CLONE_THREAD and CLONE_NEWUSER", "\"EINVAL\""),
    ("openat O_TMPFILE", "\"EACCES\""),
    ("prctl PR_SET_NAME, high half", "0"),
    ("ioctl of FUSE, high half", "\"EBADF\""),
];

/// Files about a process that every user may read.
const OF_EVERYONE: [&str; 4] = ["stat 0", "status 0", "cgroup 0", "attr/current 0"];

/// Descriptors that the mount helper's answers carry.
const PASSED: [&str; 7] = [
    "/dev/fuse",
    "/memfd",
    "/sys/devices/virtual/bdi/",
    "socket",
    "anon_inode",
    ".decoded",
    ".erofs",
];

fn a_server_that_was_taken_over_gets_nothing_by_injected_calls() {
    if std::env::consts::ARCH != "x86_64" {
        return println!("skipped: injected.py knows the registers of x86-64");
    }
    for options in ["nohipri,io_uring=off,profile=learn", "nohipri,io_uring=on"] {
        let place = Place::new();
        match mount(&request(&image("lzma-1m-dict8m"), &place, options)) {
            Err(error) if options.contains("=on") => {
                println!("skipped: {error}");
                continue;
            }
            mounted => mounted.unwrap(),
        }
        read_tree(&place.path).unwrap();
        let counters = stat(&place.path).unwrap();
        if counters["sandbox"]["missing"] != json!([]) {
            return println!("skipped: lacks {}", counters["sandbox"]["missing"]);
        }
        let Some(answers) = injected(&place, 64) else {
            return;
        };
        let part = |name: &str| answers[name].as_object().unwrap().clone();
        check_calls(
            &part("numbers"),
            &part("arguments"),
            options.contains("=on"),
        );
        check_files(&part("files"), &part("descriptors"));
        check_requests(&part("requests"));
        // The server still serves, and was not replaced.
        read_tree(&place.path).unwrap();
        assert_eq!(stat(&place.path).unwrap()["pid"], counters["pid"]);
        umount(&place.path, false).unwrap();
    }
}

/// The same numbers mean other calls for 32-bit programs. The filter does not know these calls, and
/// kills the process.
fn a_call_by_the_gate_of_32_bit_programs_ends_the_server() {
    if std::env::consts::ARCH != "x86_64" {
        return println!("skipped: injected.py knows the registers of x86-64");
    }
    let place = Place::new();
    let options = "nohipri,io_uring=off";
    mount(&request(&image("lzma-1m-dict8m"), &place, options)).unwrap();
    let counters = stat(&place.path).unwrap();
    if counters["sandbox"]["missing"] != json!([]) {
        return println!("skipped: lacks {}", counters["sandbox"]["missing"]);
    }
    let Some(answers) = injected(&place, 32) else {
        return;
    };
    if answers["ended"] == "SIGSEGV" {
        println!("skipped: this kernel has no such gate");
    } else {
        assert_eq!(answers["ended"], "SIGSYS");
    }
    // Another server has taken over.
    read_tree(&place.path).unwrap();
    assert_ne!(stat(&place.path).unwrap()["pid"], counters["pid"]);
    umount(&place.path, false).unwrap();
}

/// Runs the program and returns the object that it prints. Prints a line and returns `None` if the
/// program cannot be run.
fn injected(place: &Place, bits: u32) -> Option<Value> {
    let server = pid_of(place).as_raw_nonzero().get();
    let mut sleeper = Command::new("sleep");
    sleeper.arg("1000").uid(NOBODY).gid(NOBODY);
    let mut sleeper = sleeper.env("SECRET", "x").spawn().unwrap();
    let others = json!({
        "bits": bits,
        "allowed": confinement::calls::allowed_calls(),
        "helper": crate::life::parent_of(pid_of(place)).as_raw_nonzero().get(),
        "sleeper": sleeper.id(),
        "image": image("lzma-1m-dict8m"),
        "mountpoint": place.path,
        "secret": "/etc/shadow",
    });
    let program = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/mount/injected.py");
    let mut python = Command::new("python3");
    python
        .arg(program)
        .arg(server.to_string())
        .arg(others.to_string());
    let output = python.stderr(Stdio::piped()).output();
    sleeper.kill().unwrap();
    sleeper.wait().unwrap();
    let output = match output {
        Ok(output) => output,
        Err(error) => {
            println!("skipped: python3: {error}");
            return None;
        }
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    if stderr.contains("Operation not permitted") {
        println!("skipped: {}", stderr.lines().last().unwrap_or_default());
        return None;
    }
    assert!(output.status.success(), "{stderr}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

fn is_refused(answer: &Value) -> bool {
    matches!(answer.as_str(), Some("EPERM" | "EACCES"))
}

fn check_calls(numbers: &Map<String, Value>, arguments: &Map<String, Value>, io_uring: bool) {
    assert!(numbers.len() > 1000);
    for (number, answer) in numbers {
        let is_known = BEFORE_FILTERS.contains(&number.as_str());
        assert!(is_refused(answer) || is_known, "call {number}: {answer}");
    }
    assert!(arguments.len() > 40);
    for (name, answer) in arguments {
        let text = answer.to_string();
        let is_known = LET_THROUGH.contains(&(name, &text));
        assert!(
            is_refused(answer) || is_known,
            "{name}: {answer} {io_uring}"
        );
    }
}

fn check_files(files: &Map<String, Value>, descriptors: &Map<String, Value>) {
    let mut read = 0;
    for (name, answer) in files.iter().filter(|(_, answer)| **answer == "read") {
        let is_public = OF_EVERYONE
            .iter()
            .any(|file| name.ends_with(&format!("/{file}")));
        let is_own = name.starts_with("open /proc/self/") && name.ends_with(" 0");
        let is_again = name.starts_with("open again /proc/") && name.ends_with(" 0");
        let is_device = name.ends_with("/dev/fuse 2") || name.ends_with("/dev/fuse 0");
        assert!(
            is_public || is_own || is_again || is_device,
            "{name}: {answer}"
        );
        read += 1;
    }
    assert!(read > 3, "{files:?}");
    assert!(descriptors.len() > 100);
    for (name, answer) in descriptors {
        let has_no_memory = name.starts_with("mmap to write") && *answer == "ENODEV";
        assert!(is_refused(answer) || has_no_memory, "{name}: {answer}");
    }
}

fn check_requests(requests: &Map<String, Value>) {
    for (request, answer) in requests {
        let text = answer.as_str().unwrap();
        let passed = text.strip_prefix("{\"Ok\":null}").map_or("", str::trim);
        assert!(
            passed.is_empty() || PASSED.iter().any(|known| passed.contains(known)),
            "{request}: {text}"
        );
    }
    let refused = [
        "\"Mount\"",
        "18446744073709551615",
        "4095",
        "../x.pro",
        "/etc/passwd",
        "xff",
    ];
    for part in refused {
        let mut those = requests
            .iter()
            .filter(|(request, _)| request.contains(part));
        assert!(
            those.all(|(_, answer)| answer.as_str().unwrap().contains("Err")),
            "{part}"
        );
    }
    assert!(requests.len() > 15, "{requests:?}");
}
