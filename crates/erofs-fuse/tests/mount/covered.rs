//! The end of a daemon unmounts its own mount and no other: not one above, below, beside or in
//! place of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use erofs_fuse::mount;
use rustix::mount::{MountFlags, UnmountFlags, mount as mount_tmpfs, unmount};
use rustix::process::Signal;

use crate::built::Random;
use crate::place::{self, Place, image};
use crate::{Test, kill, pid_of, request, soon};

pub const TESTS: &[Test] = tests![
    a_mount_over_an_ended_one_stays,
    a_mount_in_place_of_an_ended_one_stays,
    other_mounts_stay_in_any_order_of_mount_cover_unmount_and_end,
];

/// A filesystem of its own, and its number in the mount table.
fn cover(path: &Path) -> u64 {
    let before = mount_ids();
    mount_tmpfs("covered", path, "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(path.join("alive"), "yes").unwrap();
    *mount_ids().difference(&before).next().unwrap()
}

/// The ids of all mounts.
fn mount_ids() -> BTreeSet<u64> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let ids = table.lines().map(|line| line.split(' ').next().unwrap());
    ids.map(|id| id.parse().unwrap()).collect()
}

fn end(pid: rustix::process::Pid, signal: Signal) {
    kill(pid, signal);
    soon("the end of the daemon", || place::is_gone(pid));
    // The helper may take a moment longer, to do what it must not.
    std::thread::sleep(std::time::Duration::from_millis(300));
}

fn a_mount_over_an_ended_one_stays() {
    for (options, signal) in [
        ("", Signal::TERM),
        ("auto_unmount,restart=off", Signal::KILL),
    ] {
        let place = Place::new();
        mount(&request(&image("lz4-4k"), &place, options)).unwrap();
        let pid = pid_of(&place);
        cover(&place.path);
        end(pid, signal);
        assert_eq!(fs::read_to_string(place.path.join("alive")).unwrap(), "yes");
        unmount(&place.path, UnmountFlags::empty()).unwrap();
        unmount(&place.path, UnmountFlags::DETACH).unwrap();
    }
}

fn a_mount_in_place_of_an_ended_one_stays() {
    for (options, signal) in [
        ("", Signal::TERM),
        ("auto_unmount,restart=off", Signal::KILL),
    ] {
        let place = Place::new();
        mount(&request(&image("lz4-4k"), &place, options)).unwrap();
        let pid = pid_of(&place);
        let in_use = fs::File::open(place.path.join("text")).unwrap();
        unmount(&place.path, UnmountFlags::DETACH).unwrap();
        cover(&place.path);
        end(pid, signal);
        drop(in_use);
        assert_eq!(fs::read_to_string(place.path.join("alive")).unwrap(), "yes");
        unmount(&place.path, UnmountFlags::empty()).unwrap();
    }
}

/// Fifty seeded orders, over both transports.
fn other_mounts_stay_in_any_order_of_mount_cover_unmount_and_end() {
    let mut covered = 0;
    for seed in 0..50 {
        let mut random = Random::new(seed);
        let transport = ["io_uring=off", "io_uring=on"][random.below(2)];
        let unmounts = ["", ",auto_unmount"][random.below(2)];
        let place = Place::new();
        match mount(&request(
            &image("lz4-4k"),
            &place,
            &format!("restart=off,{transport}{unmounts}"),
        )) {
            Err(error) if transport == "io_uring=on" => {
                println!("skipped over io_uring: {error}");
                continue;
            }
            outcome => outcome.unwrap(),
        }
        covered += one_order(&mut random, &place);
    }
    assert!(covered > 50, "{covered} mounts to be left alone");
}

/// Returns how many other mounts had to stay.
fn one_order(random: &mut Random, place: &Place) -> usize {
    let pid = pid_of(place);
    let text = place.path.join("text");
    // What keeps the daemon alive after a lazy unmount.
    let in_use = fs::File::open(&text).unwrap();
    let beside = Place::new();
    let mut others = vec![(beside.path.clone(), cover(&beside.path))];
    for _ in 0..1 + random.below(3) {
        let at: PathBuf = match random.below(4) {
            0 if text.is_dir() => text.clone(),
            1 if others
                .iter()
                .all(|(path, _)| !path.starts_with(&place.path)) =>
            {
                unmount(&place.path, UnmountFlags::DETACH).unwrap();
                place.path.clone()
            }
            _ => place.path.clone(),
        };
        let id = cover(&at);
        others.push((at, id));
    }
    end(pid, [Signal::TERM, Signal::KILL][random.below(2)]);
    let there = mount_ids();
    for (path, id) in &others {
        assert!(
            there.contains(id),
            "the mount at {} is gone",
            path.display()
        );
    }
    drop(in_use);
    for (path, _) in others.iter().rev() {
        let _ = unmount(path, UnmountFlags::DETACH);
    }
    others.len()
}
