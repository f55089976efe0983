//! A daemon that ends unmounts only its own mount, and no mount above, below, beside or in place of
//! it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use erofs_mount::mount;
use rustix::mount::{MountFlags, UnmountFlags, mount as mount_tmpfs, unmount};
use rustix::process::Signal;

use crate::built::Random;
use crate::place::{self, Place, image};
use crate::{Test, kill, mounted_or_skipped, pid_of, request, soon};

pub const TESTS: &[Test] = tests![
    a_mount_over_an_ended_one_stays,
    a_mount_in_place_of_an_ended_one_stays,
    other_mounts_stay_in_any_order_of_mount_cover_unmount_and_end,
];

/// Mounts another filesystem, and returns its ID in the mount table.
fn cover(path: &Path) -> u64 {
    mount_tmpfs("covered", path, "tmpfs", MountFlags::empty(), None).unwrap();
    fs::write(path.join("alive"), "yes").unwrap();
    let table = mounts();
    // The table lists mounts in the order in which they were made.
    let (id, _) = table.iter().rfind(|(_, place)| place == path).unwrap();
    *id
}

/// The IDs and places of all mounts.
fn mounts() -> Vec<(u64, PathBuf)> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let fields = table
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>());
    fields
        .map(|fields| (fields[0].parse().unwrap(), fields[4].into()))
        .collect()
}

fn end(pid: rustix::process::Pid, signal: Signal) {
    kill(pid, signal);
    soon("the end of the daemon", || place::is_gone(pid));
    // Wait, because the helper might unmount another mount only a moment later.
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

/// Runs fifty seeded orders of steps over both transports. They run in parallel, because each
/// spends most of its time waiting for a busy mount.
fn other_mounts_stay_in_any_order_of_mount_cover_unmount_and_end() {
    let next = AtomicU64::new(0);
    let work = || -> usize {
        let seeds = std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)));
        seeds.take_while(|seed| *seed < 50).map(seeded_order).sum()
    };
    let covered: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..10).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    assert!(covered > 50, "{covered} mounts to be left alone");
}

fn seeded_order(seed: u64) -> usize {
    let mut random = Random::new(seed);
    let transport = ["io_uring=off", "io_uring=on"][random.below(2)];
    let unmounts = ["", ",auto_unmount"][random.below(2)];
    let options = format!("restart=off,{transport}{unmounts}");
    mounted_or_skipped("lz4-4k", &options).map_or(0, |place| one_order(&mut random, &place))
}

/// Runs one order of steps; returns how many other mounts it has made and found to exist after the
/// daemon's end.
fn one_order(random: &mut Random, place: &Place) -> usize {
    let pid = pid_of(place);
    let text = place.path.join("text");
    // An open file keeps the daemon alive after a lazy unmount.
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
    let there = mounts();
    for (path, id) in &others {
        assert!(
            there.iter().any(|(there, _)| there == id),
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
