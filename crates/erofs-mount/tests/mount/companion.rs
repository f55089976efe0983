//! The companion of a mount may die, be stopped, or outlive servers, and has few rights.

use launch_profile::Learned;
use rustix::process::{Pid, Signal};

use super::*;
use crate::built::BuiltImage;
use crate::life::parent_of;
use crate::read_ahead::counters;

pub(super) const TESTS: &[Test] = tests![
    a_companion_that_dies_or_stops_is_started_again,
    a_companion_outlives_its_server,
    a_companion_has_few_rights,
    a_walk_starts_a_companion_with_profile_off,
];

/// The process of the companion, if it exists.
fn companion_of(helper: Pid) -> Option<Pid> {
    let helper = helper.as_raw_nonzero();
    let children = fs::read_to_string(format!("/proc/{helper}/task/{helper}/children")).ok()?;
    let mut children = children.split_whitespace();
    let is_one = |pid: &&str| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|it| it == "erofs_companion\n")
    };
    Pid::from_raw(children.find(is_one)?.parse().ok()?)
}

/// A mount that stores what it learns in a file, which is removed at the end.
struct Learning {
    place: Place,
    file: std::path::PathBuf,
    helper: Pid,
}

impl Learning {
    fn new(name: &str) -> Self {
        let file = format!("erofs-mount-test-{}-{name}.profile", std::process::id());
        let file = std::env::temp_dir().join(file);
        let options = format!("io_uring=off,read_ahead_kb=0,profile={}", file.display());
        let place = mounted("lz4-64k", &options);
        let helper = parent_of(pid_of(&place));
        Self {
            place,
            file,
            helper,
        }
    }

    fn companion(&self) -> Pid {
        let mut found = None;
        soon("a companion", || {
            found = companion_of(self.helper);
            found.is_some()
        });
        found.unwrap()
    }

    /// Reads a file, ends the mount, and returns what the mount has learned about the file.
    fn learned(self) -> Learned {
        let path = self.place.path.join("data/mixed-200000");
        assert_eq!(fs::read(path).unwrap().len(), 200_000);
        let (file, helper) = (self.file.clone(), self.helper);
        drop(self.place);
        soon("the daemon ends", || place::is_gone(helper));
        let text = fs::read(&file);
        let _ = fs::remove_file(&file);
        Learned::parse_any(&text.expect("something learned")).unwrap()
    }
}

/// Nothing is learned, but directories are listed ahead.
fn a_walk_starts_a_companion_with_profile_off() {
    let Some(built) = BuiltImage::of_directories("profile-off", 400) else {
        return;
    };
    let one_cpu = std::thread::available_parallelism().is_ok_and(|cpus| cpus.get() == 1);
    if one_cpu || !rustix::process::getuid().is_root() {
        println!("skipped: directories are listed ahead for root, by other CPUs");
        return;
    }
    let place = Place::new();
    let options = "io_uring=off,nohipri,profile=off";
    mount(&request(&built.image(), &place, options)).unwrap();
    let helper = parent_of(pid_of(&place));
    for directory in fs::read_dir(&place.path).unwrap() {
        for below in fs::read_dir(directory.unwrap().path()).unwrap() {
            let below = below.unwrap().path();
            assert!(!below.is_dir() || fs::read_dir(below).unwrap().count() > 0);
        }
    }
    if counters(&place)["directories"] == 0 {
        println!("skipped: other programs keep the CPUs busy");
        return;
    }
    soon("a companion", || companion_of(helper).is_some());
}

fn a_companion_that_dies_or_stops_is_started_again() {
    for signal in [Signal::KILL, Signal::STOP] {
        let learning = Learning::new("again");
        let first = learning.companion();
        kill(first, signal);
        soon("the companion is gone", || place::is_gone(first));
        soon("another companion", || {
            assert!(learning.place.path.join("data").is_dir(), "the mount works");
            companion_of(learning.helper).is_some_and(|companion| companion != first)
        });
        let learned = learning.learned();
        assert_eq!(learned.programs[0].path, b"data/mixed-200000");
    }
}

fn a_companion_outlives_its_server() {
    let learning = Learning::new("outlives");
    let companion = learning.companion();
    let server = pid_of(&learning.place);
    kill(server, Signal::KILL);
    soon("another server", || {
        stat(&learning.place.path).is_ok_and(|counters| {
            counters["pid"] != server.as_raw_nonzero().get()
                && counters["profile"]["state"] == "learning"
        })
    });
    assert_eq!(learning.companion(), companion);
    let learned = learning.learned();
    assert_eq!(learned.programs[0].launches, 1);
}

fn a_companion_has_few_rights() {
    let learning = Learning::new("rights");
    if stat(&learning.place.path).unwrap()["sandbox"]["missing"] != serde_json::json!([]) {
        return println!("skipped: the sandbox is not complete here");
    }
    let companion = learning.companion().as_raw_nonzero();
    let _ = fs::read(learning.place.path.join("data/mixed-200000")).unwrap();
    let status = |name: &str| {
        let status = fs::read_to_string(format!("/proc/{companion}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.unwrap().trim().to_owned()
    };
    soon("its sandbox", || status("Seccomp:") == "2");
    assert_eq!(status("NoNewPrivs:"), "1");
    // CAP_DAC_READ_SEARCH.
    assert_eq!(status("CapEff:"), "0000000000000004");
    let links = fs::read_dir(format!("/proc/{companion}/fd")).unwrap();
    let links = links.map(|link| fs::read_link(link.unwrap().path()).unwrap());
    let names: Vec<String> = links.map(|link| link.display().to_string()).collect();
    let image = image("lz4-64k").display().to_string();
    let is_forbidden = |name: &&String| **name == image || name.contains("/dev/fuse");
    assert_eq!(names.iter().find(is_forbidden), None);
    drop(learning.learned());
}
