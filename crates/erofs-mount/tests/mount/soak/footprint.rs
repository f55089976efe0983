//! The resources that a process uses.

use std::fs;

use rustix::io::Errno;
use rustix::process::{Pid, WaitOptions, wait};

use crate::soon;

/// Descriptors, threads and memory of one process.
#[derive(Clone, Copy, Debug)]
pub struct Footprint {
    descriptors: usize,
    threads: u64,
    memory_kib: u64,
}

impl Footprint {
    pub fn of(process: Pid) -> Self {
        let process = format!("/proc/{}", process.as_raw_nonzero());
        let status = fs::read_to_string(format!("{process}/status")).unwrap();
        let number = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        Self {
            descriptors: fs::read_dir(format!("{process}/fd")).unwrap().count(),
            threads: number("Threads:"),
            memory_kib: number("RssAnon:"),
        }
    }

    pub fn of_this_process() -> Self {
        // Leave out the memory of this process, which holds the content of the images.
        Self {
            memory_kib: 0,
            ..Self::of(rustix::process::getpid())
        }
    }

    /// Checks for growth. A few more descriptors may exist for a moment, and a few threads may have
    /// been started since the first measurement.
    pub fn has_not_grown(self, first: Self, what: &str, slack_kib: u64) {
        println!("soak: {what}: {first:?}, then {self:?}");
        let few = self.descriptors <= first.descriptors + 6 && self.threads <= first.threads + 5;
        let small = self.memory_kib <= first.memory_kib + slack_kib;
        assert!(few && small, "{what} has grown: {first:?}, now {self:?}");
    }
}

/// Waits for the end of all children.
pub fn children_end() {
    soon("the end of all servers and helpers", || {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some(_)) => {}
                Ok(None) => return false,
                Err(Errno::CHILD) => return true,
                Err(error) => panic!("wait: {error}"),
            }
        }
    });
}
