//! `io_uring=auto` serves whatever step on the way to a ring fails, and every server does where its
//! descriptor of `/dev/fuse` cannot be cloned.

use std::fs;
use std::process::Command;
use std::thread;

use erofs_fuse::{stat, umount};

use crate::switch::{Switch, is_on};
use crate::{Test, mounted, read_tree};

pub const TESTS: &[Test] = tests![
    io_uring_auto_serves_whatever_step_fails,
    io_uring_auto_serves,
    without_restart_io_uring_auto_enables_io_uring_for_its_own_mount,
    mounts_at_the_same_time_enable_io_uring_for_each_other,
    servers_whose_descriptor_cannot_be_cloned_serve,
    a_mount_outlives_calls_that_fail_for_want_of_memory,
    the_root_is_read_over_either_transport,
    many_readers_are_served_by_one_server,
];

/// Read by the daemon: see `fuse-transport/src/fail_points.rs`.
const FAILS: &str = "FUSE_TRANSPORT_FAILS";

/// The steps, with the transport that is left and whether a notice says why.
const STEPS: &[(&str, &str, bool)] = &[
    ("setup", "dev_fuse", true),
    ("memory", "dev_fuse", true),
    ("offer", "dev_fuse", false),
    ("register", "dev_fuse", true),
    ("cpu", "io_uring", false),
];

fn io_uring_auto_serves_whatever_step_fails() {
    for (step, _, _) in STEPS {
        with_a_failure("io_uring_auto_serves", step);
    }
}

/// Runs one test whose servers fail at `step`.
fn with_a_failure(test: &str, step: &str) {
    let inner = Command::new(std::env::current_exe().unwrap())
        .arg(test)
        .arg("--exact")
        .env(FAILS, step)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&inner.stdout);
    assert!(inner.status.success(), "{test}, {step}: {text}");
    let skipped = text.lines().find(|line| line.starts_with("skipped"));
    skipped.into_iter().for_each(|line| println!("{line}"));
}

/// Its threads share one descriptor, and its successors get duplicates of the same.
fn servers_whose_descriptor_cannot_be_cloned_serve() {
    for test in [
        "many_readers_are_served_by_one_server",
        "a_server_that_dies_is_replaced_and_no_reader_notices",
    ] {
        with_a_failure(test, "clone");
    }
}

/// Every other time that a thread takes requests from the device, or enters its ring.
fn a_mount_outlives_calls_that_fail_for_want_of_memory() {
    for step in ["read", "enter"] {
        with_a_failure("the_root_is_read_over_either_transport", step);
    }
}

fn the_root_is_read_over_either_transport() {
    for io_uring in ["off", "auto"] {
        let enabled = enabled();
        let place = mounted("kitchen-sink", &format!("restart=off,io_uring={io_uring}"));
        drop(enabled);
        assert!(fs::read_dir(&place.path).unwrap().count() > 1);
        umount(&place.path, false).unwrap();
    }
}

fn many_readers_are_served_by_one_server() {
    for io_uring in ["off", "auto"] {
        let enabled = enabled();
        let place = mounted("kitchen-sink", &format!("restart=off,io_uring={io_uring}"));
        drop(enabled);
        thread::scope(|scope| {
            let read = || (0..10).for_each(|_| read_tree(&place.path).unwrap());
            let readers: Vec<_> = (0..8).map(|_| scope.spawn(read)).collect();
            for reader in readers {
                reader.join().unwrap();
            }
        });
        umount(&place.path, false).unwrap();
    }
}

/// The kernel's switch is on; restored at the end.
pub fn enabled() -> Option<Switch> {
    let switch = Switch::new()?;
    switch.set(true);
    Some(switch)
}

/// The kernel's switch is off before and after, and no server is to be replaced.
fn without_restart_io_uring_auto_enables_io_uring_for_its_own_mount() {
    let Some(switch) = Switch::new() else {
        println!("skipped: this kernel has no FUSE over io_uring");
        return;
    };
    switch.set(false);
    for (options, transport) in [
        ("io_uring=auto,restart=off", "io_uring"),
        ("io_uring=auto", "dev_fuse"),
        ("io_uring=off,restart=off", "dev_fuse"),
        ("io_uring=auto,restart=off,workers=unbound", "dev_fuse"),
    ] {
        let place = mounted("kitchen-sink", options);
        read_tree(&place.path).unwrap();
        let counters = stat(&place.path).unwrap();
        assert_eq!(counters["transport"], transport, "{options}");
        let notices = counters["notices"].to_string();
        let says = notices.contains("enables io_uring");
        assert_eq!(says, transport == "io_uring", "{options}: {notices}");
        assert!(!is_on(), "{options}: the switch stays on");
        umount(&place.path, false).unwrap();
    }
}

/// One must not take the switch for on while another one is about to turn it off again.
fn mounts_at_the_same_time_enable_io_uring_for_each_other() {
    let Some(switch) = Switch::new() else {
        println!("skipped: this kernel has no FUSE over io_uring");
        return;
    };
    switch.set(false);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..40 {
                    let place = mounted("kitchen-sink", "io_uring=on,restart=off");
                    umount(&place.path, false).unwrap();
                }
            });
        }
    });
    assert!(!is_on());
}

fn io_uring_auto_serves() {
    let Some(enabled) = enabled() else {
        println!("skipped: this kernel has no FUSE over io_uring");
        return;
    };
    let place = mounted("kitchen-sink", "io_uring=auto");
    drop(enabled);
    let step = std::env::var(FAILS).unwrap_or_default();
    let step = STEPS.iter().find(|(name, _, _)| *name == step);
    let (name, transport, noticed) = step.copied().unwrap_or(("none", "io_uring", false));
    read_tree(&place.path).unwrap();
    let counters = stat(&place.path).unwrap();
    assert_eq!(counters["transport"], transport, "{name}");
    let notices = counters["notices"].to_string();
    let says = notices.contains("io_uring cannot be used");
    assert_eq!(says, noticed, "{name}: {notices}");
    umount(&place.path, false).unwrap();
}
