//! The ways in which a server dies.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::kill;
use crate::place::is_gone;

/// How long to wait for readers to fill a group's memory, and for a group to become removable.
const ENOUGH: Duration = Duration::from_secs(1);

/// How a server dies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Death {
    /// SIGKILL.
    Killed,
    /// SIGSEGV, as from a fault in a decoder.
    Crashed,
    /// SIGABRT, as from a failed assertion in a C library.
    Aborted,
    /// SIGKILL by the kernel, in a control group that has run out of memory.
    OutOfMemory,
}

impl Death {
    /// Every second death is a kill.
    pub const ALL: &[Self] = &[
        Self::Killed,
        Self::Crashed,
        Self::Killed,
        Self::Aborted,
        Self::Killed,
        Self::OutOfMemory,
    ];

    /// Mount options that make this death possible.
    pub fn options(self) -> &'static str {
        match self {
            // Decoded bytes are kept until there is no memory left.
            Self::OutOfMemory => ",cache=1G",
            _ => "",
        }
    }

    /// Prepares for this death. Call this before starting readers, and keep the result until the
    /// end.
    pub fn prepare(self, server: Pid) -> Option<MemoryGroup> {
        let group = (self == Self::OutOfMemory).then(|| MemoryGroup::without_memory(server));
        group.flatten()
    }

    /// Causes the death. A server without memory may have been killed already because of its
    /// readers.
    pub fn bring(self, server: Pid) {
        let signal = match self {
            Self::Killed => Signal::KILL,
            Self::Crashed => Signal::SEGV,
            Self::Aborted => Signal::ABORT,
            Self::OutOfMemory => {
                let begin = Instant::now();
                while begin.elapsed() < ENOUGH && !is_gone(server) {
                    thread::sleep(Duration::from_millis(1));
                }
                if is_gone(server) {
                    return;
                }
                println!("no death for lack of memory: killed instead");
                Signal::KILL
            }
        };
        kill(server, signal);
        // Rust's handler takes the first signal for a fault and returns to the interrupted
        // instruction, so only another signal kills the server.
        while self == Self::Crashed && !is_gone(server) {
            thread::sleep(Duration::from_millis(1));
            let _ = kill_process(server, signal);
        }
    }
}

/// A control group, removed when dropped.
pub struct MemoryGroup {
    path: PathBuf,
    /// The file of the limit, and the value that means no limit.
    limit: (&'static str, &'static str),
}

impl MemoryGroup {
    /// Moves a process into its own group with almost no memory left; `None` if that is impossible.
    fn without_memory(process: Pid) -> Option<Self> {
        Self::with(process, 1 << 20)
    }

    /// Like `without_memory`, but with just enough memory for a server to survive.
    pub fn with_little_memory(process: Pid) -> Option<Self> {
        Self::with(process, 24 << 20)
    }

    fn with(process: Pid, bytes: u64) -> Option<Self> {
        let name = format!("erofs-mount-test-{}", process.as_raw_nonzero());
        let old = Path::new("/sys/fs/cgroup/memory");
        let (root, limit) = match old.is_dir() {
            true => (old, ("memory.limit_in_bytes", "-1")),
            false => (Path::new("/sys/fs/cgroup"), ("memory.max", "max")),
        };
        let path = root.join(name);
        fs::create_dir(&path).ok()?;
        let group = Self { path, limit };
        let write = |file: &str, value: String| fs::write(group.path.join(file), value).ok();
        write(limit.0, bytes.to_string())?;
        write("cgroup.procs", process.as_raw_nonzero().to_string())?;
        Some(group)
    }

    /// Removes the limit.
    pub fn release(&self) {
        let (file, none) = self.limit;
        fs::write(self.path.join(file), none).unwrap();
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        // The group is busy until the last thread of a killed process is gone.
        let begin = Instant::now();
        while fs::remove_dir(&self.path).is_err() && begin.elapsed() < ENOUGH {
            thread::sleep(Duration::from_millis(5));
        }
    }
}
