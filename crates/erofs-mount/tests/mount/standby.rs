//! With `-o standby` a mount outlives its mount helper, too, and no reader notices.
//!
//! `EROFS_FUSE_SOAK` is the number of kills (default 12).

use std::fs;
use std::thread;
use std::time::Duration;

use erofs_mount::{mount, stat, umount};
use rustix::process::{Pid, Signal, kill_process};

use crate::built::Random;
use crate::place::{self, Place, image};
use crate::restarted::{is_restarted, number_of_deaths, under_readers};
use crate::{Test, request, soon};

pub const TESTS: &[Test] = tests![
    whatever_is_killed_of_a_mount_with_a_standby_no_reader_notices,
    signals_to_a_standby_end_nothing_once_it_takes_over,
    a_standby_does_not_keep_the_companion_of_a_dead_helper,
    a_standby_is_refused_where_it_could_replace_nothing,
];

/// The processes that keep a mount alive.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Processes {
    helper: Pid,
    server: Pid,
    standby: Pid,
}

impl Processes {
    /// The processes of the mount; `None` while one is missing.
    fn of(place: &Place) -> Option<Self> {
        let stat = stat(&place.path).ok()?;
        let pid = |value: &serde_json::Value| Pid::from_raw(value.as_i64()?.try_into().ok()?);
        let helper = pid(&stat["restart"]["helper"])?;
        Some(Self {
            helper,
            server: pid(&stat["pid"])?,
            standby: child(helper, "erofs_standby")?,
        })
    }

    /// The processes of the mount, once none of `dead` is among them.
    fn without(place: &Place, dead: &[Pid]) -> Self {
        let mut found = None;
        soon("the replacement of the killed processes", || {
            found = Self::of(place).filter(|now| {
                let all = [now.helper, now.server, now.standby];
                all.iter()
                    .all(|pid| !dead.contains(pid) && !place::is_gone(*pid))
            });
            found.is_some()
        });
        found.unwrap()
    }
}

/// The last child named `name` of the process `parent`.
fn child(parent: Pid, name: &str) -> Option<Pid> {
    let raw = parent.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{raw}/task/{raw}/children")).ok()?;
    let has_name = |child: &&str| {
        let found = fs::read_to_string(format!("/proc/{child}/comm"));
        found.is_ok_and(|found| found.trim_end() == name)
    };
    let child = children.split_whitespace().rfind(has_name)?;
    Pid::from_raw(child.parse().ok()?)
}

/// Kills one process, or two at the same time.
fn whatever_is_killed_of_a_mount_with_a_standby_no_reader_notices() {
    let place = Place::new();
    let options = "standby,cache=64M";
    match mount(&request(&image("lzma-1m-dict8m"), &place, options)) {
        Err(error) => return println!("skipped: {error}"),
        Ok(()) => assert!(is_restarted(&place)),
    }
    let mut now = Processes::without(&place, &[]);
    under_readers(&place, 11, |_| {
        let mut random = Random::new(11);
        for kill in 0..number_of_deaths() {
            let Processes {
                helper,
                server,
                standby,
            } = now;
            let kinds: [&[Pid]; 6] = [
                &[helper],
                &[helper, server],
                &[standby],
                &[server],
                &[server, helper],
                &[server, standby],
            ];
            let killed = kinds[kill as usize % kinds.len()];
            thread::sleep(Duration::from_millis(random.below(100) as u64));
            for pid in killed {
                // A standby may just have been renewed.
                let _ = kill_process(*pid, Signal::KILL);
            }
            now = Processes::without(&place, killed);
        }
    });
    // Read-ahead may use the mount for a moment longer.
    soon("the unmounting", || umount(&place.path, false).is_ok());
    for pid in [now.helper, now.server, now.standby] {
        soon("the end of its processes", || place::is_gone(pid));
    }
}

fn signals_to_a_standby_end_nothing_once_it_takes_over() {
    let place = Place::new();
    match mount(&request(&image("lz4-4k"), &place, "standby")) {
        Err(error) => return println!("skipped: {error}"),
        Ok(()) => assert!(is_restarted(&place)),
    }
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut before = Processes::without(&place, &[]);
        // The helper renews its standby until it has answered the server's last request, so the
        // standby that was found may have been replaced by now.
        soon("a signal to the last standby", || {
            before = Processes::without(&place, &[]);
            let is_sent = kill_process(before.standby, signal).is_ok();
            is_sent && Processes::of(&place) == Some(before)
        });
        kill_process(before.helper, Signal::KILL).unwrap();
        let after = Processes::without(&place, &[before.helper]);
        assert!(fs::read_dir(&place.path).unwrap().count() > 3);
        assert_ne!(before.helper, after.helper);
    }
    soon("the unmounting", || umount(&place.path, false).is_ok());
}

/// The standby is stopped, so the companion ends only if the standby does not hold the pipe that
/// tells the companion of its helper's end.
fn a_standby_does_not_keep_the_companion_of_a_dead_helper() {
    let place = Place::new();
    match mount(&request(&image("lz4-4k"), &place, "standby,profile=learn")) {
        Err(error) => return println!("skipped: {error}"),
        Ok(()) => assert!(is_restarted(&place)),
    }
    let mut now = Processes::without(&place, &[]);
    let mut companion = None;
    // The helper renews its standby once, soon after the mount can be read.
    soon("the last standby stops", || {
        now = Processes::without(&place, &[]);
        companion = child(now.helper, "erofs_companion");
        let stopped = kill_process(now.standby, Signal::STOP).is_ok();
        thread::sleep(Duration::from_millis(200));
        let is_last = Processes::of(&place).is_some_and(|still| still.standby == now.standby);
        stopped && is_last && companion.is_some()
    });
    let companion = companion.unwrap();
    let standby_is = |state| soon("a standby", || place::state(now.standby) == Some(state));
    standby_is('T');
    kill_process(now.helper, Signal::KILL).unwrap();
    soon("the end of the companion", || place::is_gone(companion));
    standby_is('T');
    kill_process(now.standby, Signal::CONT).unwrap();
    Processes::without(&place, &[now.helper]);
    soon("the unmounting", || umount(&place.path, false).is_ok());
    soon("the end of the standby", || place::is_gone(now.standby));
}

fn a_standby_is_refused_where_it_could_replace_nothing() {
    for (options, foreground, why) in [
        ("standby", true, "standby: cannot be used with -f"),
        ("standby,restart=off", false, "standby: restart=off"),
    ] {
        let place = Place::new();
        let mut request = request(&image("kitchen-sink"), &place, options);
        request.foreground = foreground;
        let error = mount(&request).unwrap_err().to_string();
        assert_eq!(error, why);
        assert!(place.mount_line().is_none());
    }
}
