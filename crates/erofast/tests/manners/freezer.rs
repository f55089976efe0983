//! Cgroups that freeze processes and threads.

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use super::site::{LONG, soon};

/// A cgroup of this test, whose processes can be frozen.
pub struct Freezer {
    folder: PathBuf,
    is_second: bool,
}

impl Freezer {
    /// Creates a cgroup, of version 2 if `is_second` is true, otherwise of version 1. If that is
    /// impossible, prints the reason and returns `None`.
    pub fn new(is_second: bool, name: &str) -> Option<Self> {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let root = mounts.lines().find_map(|line| {
            let fields: Vec<&str> = line.split(' ').collect();
            let has_freezer = fields[3].split(',').any(|option| option == "freezer");
            let is_it = match is_second {
                true => fields[2] == "cgroup2",
                false => fields[2] == "cgroup" && has_freezer,
            };
            is_it.then(|| PathBuf::from(fields[1]))
        });
        let Some(root) = root else {
            println!("skipped: no cgroup freezer (of version 2: {is_second})");
            return None;
        };
        let folder = root.join(format!("erofast-{name}-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&folder) {
            println!("skipped: {}: {error}", folder.display());
            return None;
        }
        let this = Self { folder, is_second };
        if is_second && !this.folder.join("cgroup.freeze").exists() {
            println!("skipped: this kernel cannot freeze cgroups of version 2");
            return None;
        }
        Some(this)
    }

    pub fn add(&self, pid: u64) {
        fs::write(self.folder.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    /// Adds a single thread, which only version 1 can freeze separately.
    pub fn add_thread(&self, tid: u64) {
        fs::write(self.folder.join("tasks"), tid.to_string()).unwrap();
    }

    pub fn freeze(&self, freeze: bool) {
        let (file, states) = match self.is_second {
            true => ("cgroup.freeze", ["0", "1"]),
            false => ("freezer.state", ["THAWED", "FROZEN"]),
        };
        fs::write(self.folder.join(file), states[usize::from(freeze)]).unwrap();
        if freeze {
            let (file, line) = match self.is_second {
                true => ("cgroup.events", "frozen 1"),
                false => ("freezer.state", "FROZEN"),
            };
            let state = || fs::read_to_string(self.folder.join(file)).unwrap();
            soon("freezing", || state().lines().any(|one| one == line));
        }
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        self.freeze(false);
        let gone = Instant::now() + LONG;
        while fs::remove_dir(&self.folder).is_err() && Instant::now() < gone {
            thread::sleep(Duration::from_millis(20));
        }
    }
}
