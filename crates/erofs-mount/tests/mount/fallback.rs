//! Mounts in which a step of creating a channel fails, or calls fail for lack of memory.

use std::fs;
use std::process::Command;
use std::thread;

use erofs_mount::{mount, stat, umount};

use crate::place::{Place, image};
use crate::switch::{Switch, is_on};
use crate::{Test, mounted, read_tree, request};

pub const TESTS: &[Test] = tests![
    a_step_on_the_way_to_a_ring_that_fails_is_one_line_and_leaves_nothing,
    io_uring_is_had_unless_a_step_fails,
    io_uring_is_for_mounts_that_ask_for_it,
    mounts_at_the_same_time_enable_io_uring_for_each_other,
    servers_whose_descriptor_cannot_be_cloned_serve,
    a_mount_outlives_calls_that_fail_for_want_of_memory,
    the_root_is_read_over_either_transport,
    many_readers_are_served_by_one_server,
];

/// An environment variable that the daemon reads: see `fuse-transport/src/fail_points.rs`.
const FAILS: &str = "FUSE_TRANSPORT_FAILS";

fn a_step_on_the_way_to_a_ring_that_fails_is_one_line_and_leaves_nothing() {
    for step in ["setup", "memory", "offer", "register", "cpu"] {
        with_a_failure("io_uring_is_had_unless_a_step_fails", step);
    }
}

/// A failure produces one line and no mount, and leaves the kernel's switch unchanged.
fn io_uring_is_had_unless_a_step_fails() {
    let fails = std::env::var_os(FAILS);
    let switch = Switch::new();
    let before = switch.as_ref().map(|_| is_on());
    let place = Place::new();
    let request = request(&image("kitchen-sink"), &place, "io_uring=on");
    match (mount(&request), &fails) {
        (Ok(()), step) => {
            assert_eq!(*step, None);
            assert_eq!(stat(&place.path).unwrap()["transport"], "io_uring");
            umount(&place.path, false).unwrap();
        }
        (Err(error), step) => {
            let line = error.to_string();
            assert!(line.contains("io_uring") && !line.contains('\n'), "{line}");
            assert_eq!(place.mount_line(), None);
            if step.is_none() {
                println!("skipped: {line}");
            }
        }
    }
    assert_eq!(switch.as_ref().map(|_| is_on()), before);
}

/// Runs one test with servers that fail at `step`.
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

/// The threads of such a server share one descriptor, and its successors get duplicates of that
/// descriptor.
fn servers_whose_descriptor_cannot_be_cloned_serve() {
    for test in [
        "many_readers_are_served_by_one_server",
        "a_server_that_dies_is_replaced_and_no_reader_notices",
    ] {
        with_a_failure(test, "clone");
    }
}

/// Every second call by which a thread takes requests from the device or enters its ring fails.
fn a_mount_outlives_calls_that_fail_for_want_of_memory() {
    for step in ["read", "enter"] {
        with_a_failure("the_root_is_read_over_either_transport", step);
    }
}

fn the_root_is_read_over_either_transport() {
    for options in ["restart=off", "io_uring=on"] {
        let Some(place) = crate::mounted_or_skipped("kitchen-sink", options) else {
            continue;
        };
        assert!(fs::read_dir(&place.path).unwrap().count() > 1);
        umount(&place.path, false).unwrap();
    }
}

fn many_readers_are_served_by_one_server() {
    for options in ["restart=off", "io_uring=on"] {
        let Some(place) = crate::mounted_or_skipped("kitchen-sink", options) else {
            continue;
        };
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

/// Whether the kernel's switch is on or off makes no difference.
fn io_uring_is_for_mounts_that_ask_for_it() {
    let Some(switch) = Switch::new() else {
        println!("skipped: this kernel has no FUSE over io_uring");
        return;
    };
    for is_set in [true, false] {
        switch.set(is_set);
        for (options, transport) in [
            ("io_uring=on", "io_uring"),
            ("io_uring=auto,restart=off", "dev_fuse"),
            ("", "dev_fuse"),
            ("", "dev_fuse"),
        ] {
            let place = mounted("kitchen-sink", options);
            read_tree(&place.path).unwrap();
            let counters = stat(&place.path).unwrap();
            assert_eq!(counters["transport"], transport, "{options}");
            assert_eq!(is_on(), is_set, "{options}: the switch is changed");
            umount(&place.path, false).unwrap();
        }
    }
}

/// A mount must not rely on the switch being enabled while another mount is about to disable it
/// again.
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
