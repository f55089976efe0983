//! Checks the rights that a daemon still has while it serves, as the kernel reports them.

use std::fs;
use std::path::PathBuf;

use erofs_mount::{stat, umount};
use serde_json::Value;

use crate::{Test, mounted, read_tree};

pub const TESTS: &[Test] = tests![
    every_thread_of_a_daemon_is_in_the_sandbox,
    a_server_that_takes_over_is_no_root_either,
    without_real_time_no_capability_is_left,
    real_time_workers_need_no_capability,
    the_sandbox_can_be_left_out,
    a_strict_sandbox_is_complete_or_an_error,
    a_server_that_was_taken_over_is_refused_everything,
    without_a_sandbox_the_attempts_reach_what_they_are_for,
    allow_root_keeps_other_users_from_counters_links_and_attributes,
];

/// `status` of each thread of a daemon.
fn threads(counters: &Value) -> Vec<String> {
    let tasks = PathBuf::from(format!("/proc/{}/task", counters["pid"]));
    let status = |entry: fs::DirEntry| fs::read_to_string(entry.path().join("status")).unwrap();
    fs::read_dir(tasks)
        .unwrap()
        .map(|entry| status(entry.unwrap()))
        .collect()
}

fn field<'s>(status: &'s str, name: &str) -> &'s str {
    let mut lines = status.lines().filter_map(|line| line.split_once(":\t"));
    lines.find(|(key, _)| *key == name).unwrap().1
}

fn every_thread_of_a_daemon_is_in_the_sandbox() {
    for options in [
        "hipri",
        "io_uring=off",
        "workers=unbound",
        "workers=inline",
        "io_uring=on",
    ] {
        let Some(place) = crate::mounted_or_skipped("kitchen-sink", options) else {
            continue;
        };
        read_tree(&place.path).unwrap();
        let counters = stat(&place.path).unwrap();
        let sandbox = &counters["sandbox"];
        assert_eq!(sandbox["on"], true);
        let missing = sandbox["missing"].as_array().unwrap();
        if !missing.is_empty() {
            println!("skipped: this system lacks {missing:?}");
            return;
        }
        assert!(sandbox["landlock"].as_i64() > Some(0));
        let threads = threads(&counters);
        assert!(threads.len() > 2, "{options}: {}", threads.len());
        for status in threads {
            let name = field(&status, "Name");
            assert_eq!(field(&status, "NoNewPrivs"), "1", "{options}: {name}");
            assert_eq!(field(&status, "Seccomp"), "2", "{options}: {name}");
            let left = u64::from_str_radix(field(&status, "CapEff"), 16).unwrap();
            // The daemon keeps CAP_SYS_NICE if it may not raise its own limits.
            let nice = u64::from(!limits_may_be_set()) << 23;
            assert_eq!(left & !nice, 0, "{options}: {name}: {left:x}");
            assert_eq!(field(&status, "CapEff"), field(&status, "CapPrm"));
            assert_is_no_root(&status, options);
        }
        umount(&place.path, false).unwrap();
    }
}

/// Whether this process has CAP_SYS_RESOURCE.
fn limits_may_be_set() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let has = u64::from_str_radix(field(&status, "CapEff"), 16).unwrap();
    has & (1 << 24) != 0
}

fn real_time_workers_need_no_capability() {
    if !limits_may_be_set() {
        return println!("skipped: limits may not be set here");
    }
    for options in ["hipri,io_uring=off", "hipri,io_uring=on"] {
        let Some(place) = crate::mounted_or_skipped("lz4-4k", options) else {
            continue;
        };
        let mut counters = stat(&place.path).unwrap();
        assert_eq!(counters["sandbox"]["real_time"], "limit", "{options}");
        let refused = counters["notices"].to_string().contains("real-time");
        if !refused {
            crate::soon("real-time workers", || {
                counters = stat(&place.path).unwrap();
                let workers = counters["workers"].as_array().unwrap();
                let pinned = workers.iter().filter(|worker| worker["cpu"].is_u64());
                pinned.clone().count() > 0
                    && pinned.clone().all(|worker| worker["policy"] == "fifo")
            });
        }
        for status in threads(&counters) {
            assert_eq!(field(&status, "CapPrm"), "0000000000000000", "{options}");
        }
        umount(&place.path, false).unwrap();
    }
}

/// Checks that root's server runs as nobody.
fn assert_is_no_root(status: &str, options: &str) {
    if rustix::process::getuid().is_root() {
        for ids in ["Uid", "Gid"] {
            let four = [NOBODY; 4].join("\t");
            assert_eq!(field(status, ids), four, "{options}: {ids}");
        }
        assert_eq!(field(status, "Groups").trim(), "", "{options}");
    }
}

const NOBODY: &str = "65534";

/// Servers that take over start as root, the user of the helper that starts them.
fn a_server_that_takes_over_is_no_root_either() {
    let Some(place) = crate::mounted_or_skipped("kitchen-sink", "") else {
        return;
    };
    let first = stat(&place.path).unwrap();
    if first["restart"]["on"] == false || first["sandbox"]["missing"] != serde_json::json!([]) {
        println!(
            "skipped: {} {}",
            first["restart"], first["sandbox"]["missing"]
        );
        return;
    }
    crate::kill(crate::pid_of(&place), rustix::process::Signal::KILL);
    let second = stat(&place.path).unwrap();
    assert_ne!(first["pid"], second["pid"]);
    for status in threads(&second) {
        assert_is_no_root(&status, "restarted");
    }
    crate::upgrade(&place).unwrap();
    let third = stat(&place.path).unwrap();
    assert_ne!(second["pid"], third["pid"]);
    for status in threads(&third) {
        assert_is_no_root(&status, "upgraded");
    }
    read_tree(&place.path).unwrap();
    umount(&place.path, false).unwrap();
}

fn without_real_time_no_capability_is_left() {
    let place = mounted("lz4-4k", "nohipri");
    let counters = stat(&place.path).unwrap();
    for status in threads(&counters) {
        assert_eq!(field(&status, "CapEff"), "0000000000000000");
        assert_eq!(field(&status, "CapPrm"), "0000000000000000");
    }
    assert_eq!(counters["sandbox"]["capabilities"], serde_json::json!([]));
}

fn the_sandbox_can_be_left_out() {
    let place = mounted("lz4-4k", "sandbox=off");
    let counters = stat(&place.path).unwrap();
    assert_eq!(counters["sandbox"]["on"], false);
    let before = fs::read_to_string("/proc/self/status").unwrap();
    for status in threads(&counters) {
        for name in ["Seccomp", "NoNewPrivs", "CapEff"] {
            assert_eq!(field(&status, name), field(&before, name), "{name}");
        }
    }
    let notices = counters["notices"].to_string();
    assert!(notices.contains("sandbox=off"), "{notices}");
    // Unmounting does not depend on the sandbox.
    let pid = crate::pid_of(&place);
    crate::kill(pid, rustix::process::Signal::TERM);
    crate::soon("the unmounting", || place.mount_line().is_none());
}

/// The result of each attempt by the server; null if the attempt was refused.
fn attempts(place: &crate::place::Place) -> serde_json::Map<String, Value> {
    let mut value = vec![0; 1 << 16];
    let length =
        rustix::fs::getxattr(&place.path, erofs_mount::ATTEMPTS_XATTR, &mut value).unwrap();
    let value: Value = serde_json::from_slice(&value[..length]).unwrap();
    value.as_object().unwrap().clone()
}

fn a_server_that_was_taken_over_is_refused_everything() {
    for options in [
        "io_uring=off",
        "io_uring=on",
        "workers=inline",
        "nohipri",
        "nohipri,io_uring=on",
    ] {
        let Some(place) = crate::mounted_or_skipped("kitchen-sink", options) else {
            continue;
        };
        let counters = stat(&place.path).unwrap();
        let missing = counters["sandbox"]["missing"].as_array().unwrap();
        if !missing.is_empty() {
            println!("skipped: this system lacks {missing:?}");
            return;
        }
        let attempts = attempts(&place);
        assert!(attempts.len() > 30);
        // CAP_SYS_NICE is the only capability that may have to be kept.
        let nice = counters["sandbox"]["capabilities"] != serde_json::json!([]);
        assert!(!nice || !(limits_may_be_set() || options.contains("nohipri")));
        for (name, outcome) in attempts {
            let allowed = nice && name.ends_with("of the helper");
            assert_eq!(
                outcome == Value::Null,
                !allowed,
                "{options}: {name}: {outcome}"
            );
        }
        umount(&place.path, false).unwrap();
    }
}

/// Proves that the test above can fail.
fn without_a_sandbox_the_attempts_reach_what_they_are_for() {
    let place = mounted("lz4-4k", "sandbox=off");
    let attempts = attempts(&place);
    for name in [
        "read /etc/shadow",
        "make a socket",
        "make a ring",
        "map executable memory",
    ] {
        assert_ne!(attempts[name], Value::Null, "{name}");
    }
    let reached = attempts.values().filter(|outcome| !outcome.is_null());
    assert!(reached.count() > 20, "{attempts:?}");
}

fn a_strict_sandbox_is_complete_or_an_error() {
    let place = crate::place::Place::new();
    let image = crate::place::image("lz4-4k");
    match erofs_mount::mount(&crate::request(&image, &place, "sandbox=strict")) {
        Err(error) => assert!(error.to_string().contains("sandbox=strict"), "{error}"),
        Ok(()) => {
            let counters = stat(&place.path).unwrap();
            assert_eq!(counters["sandbox"]["missing"], serde_json::json!([]));
        }
    }
}

/// Programs reach the root of the mount without a lookup, so refusing lookups does not protect the
/// root.
fn allow_root_keeps_other_users_from_counters_links_and_attributes() {
    use std::os::unix::process::CommandExt;
    const NOBODY: u32 = 65534;
    // The query for the counters.
    const PROGRAM: &str = "import fcntl, os, sys
def counters(p):
    fcntl.ioctl(os.open(p, os.O_RDONLY), 0xfe804501, bytearray(16000))
for call in (counters, os.listxattr):
    try:
        call(sys.argv[1])
        sys.exit('not refused')
    except PermissionError:
        pass";
    let place = mounted("lz4-4k", "allow_root");
    stat(&place.path).unwrap();
    let output = std::process::Command::new("/usr/bin/python3")
        .args(["-c", PROGRAM])
        .arg(&place.path)
        .uid(NOBODY)
        .output();
    match output {
        Err(error) => println!("skipped: /usr/bin/python3: {error}"),
        Ok(output) => assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        ),
    }
}
