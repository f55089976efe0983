//! The recorder's own tracing instance, with separate buffers and separate events.

use super::options::RecordOptions;
use super::tracefs::Tracefs;
use crate::ftrace::format::{EventFormat, PageLayout};
use crate::ftrace::loss::Loss;
use crate::schema::{EVENTS, Need};
use crate::{Error, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Number of instances that this process has created, so that each recorder has its own directory.
static INSTANCES: AtomicU32 = AtomicU32::new(0);

/// The clock of the time stamps: CLOCK_MONOTONIC, as [`now_ns`](super::now_ns) reads it.
pub(super) const CLOCK: &str = "mono";
/// Prefix of the instances' names.
const PREFIX: &str = "erofast-";

/// The directory `instances/erofast-PID.NUMBER`; disabled and removed on drop.
#[derive(Debug)]
pub(super) struct Instance {
    /// Tells recorders in other PID namespaces that this recorder is alive.
    _lock: Option<File>,
    dir: PathBuf,
    // Declared after `dir`: the instance is removed before its filesystem is unmounted.
    tracefs: Tracefs,
}

impl Instance {
    /// Creates the directory, after removing the directories of recorders that were killed.
    pub fn create(tracefs: Tracefs) -> Result<Self> {
        let instances = tracefs.root.join("instances");
        remove_orphans(&instances);
        let serial = INSTANCES.fetch_add(1, Ordering::Relaxed);
        let pid = std::process::id();
        let name = format!("{PREFIX}{pid}.{serial}");
        let dir = instances.join(&name);
        fs::create_dir(&dir).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => Error::NoTracefs {
                reason: format!("creating a tracing instance needs root: {source}"),
            },
            io::ErrorKind::NotFound => Error::NoTracefs {
                reason: "this kernel has no tracing instances (it needs Linux 4.3 or later)".into(),
            },
            _ => Error::Tracefs {
                path: format!("instances/{name}"),
                source,
            },
        })?;
        let lock = lock(&dir);
        Ok(Self {
            _lock: lock,
            dir,
            tracefs,
        })
    }

    /// Sets clock and buffer and enables the events; tracing stays off.
    pub fn configure(&self, options: &RecordOptions) -> Result<()> {
        self.set("tracing_on", "0")?;
        // Names come with the events; keeping a table of them costs time at every switch.
        let _ = self.set("options/record-cmd", "0");
        self.set("trace_clock", CLOCK)?;
        let kib = options.buffer_kib_per_cpu.max(64);
        self.set("buffer_size_kb", &kib.to_string())?;
        for event in &EVENTS {
            let wanted = match event.need {
                Need::Requests => options.requests,
                Need::Blocks => options.blocks,
                Need::Interrupts => options.interrupts,
                Need::Always | Need::IfThere => true,
            };
            let enable = event.file("enable");
            if wanted && (event.need == Need::Always || self.path(&enable).exists()) {
                self.set(&enable, "1")?;
            }
        }
        Ok(())
    }

    /// Turns tracing on or off.
    pub fn switch(&self, on: bool) -> Result<()> {
        self.set("tracing_on", if on { "1" } else { "0" })
    }

    /// The formats of the events that are read.
    pub fn formats(&self) -> Result<Vec<EventFormat>> {
        let mut formats = Vec::new();
        for event in &EVENTS {
            match self.get(&event.file("format")) {
                Ok(text) => formats.extend(EventFormat::parse(&text)),
                Err(error) if event.need == Need::Always => return Err(error),
                Err(_) => {}
            }
        }
        Ok(formats)
    }

    /// The layout of the buffer's pages.
    pub fn page_layout(&self) -> PageLayout {
        let places = [&self.dir, &self.tracefs.root].into_iter();
        let mut texts =
            places.filter_map(|at| fs::read_to_string(at.join("events/header_page")).ok());
        let layout = texts.next().and_then(|text| PageLayout::parse(&text));
        layout.unwrap_or(PageLayout::USUAL)
    }

    /// The CPUs that have a buffer, in order.
    pub fn cpus(&self) -> Result<Vec<u32>> {
        let list =
            fs::read_dir(self.path("per_cpu")).map_err(|source| self.error("per_cpu", source))?;
        let number = |name: &str| name.strip_prefix("cpu")?.parse().ok();
        let numbers = list
            .flatten()
            .filter_map(|entry| number(entry.file_name().to_str()?));
        let mut cpus: Vec<u32> = numbers.collect();
        cpus.sort_unstable();
        Ok(cpus)
    }

    /// Opens the binary buffer of a CPU, non-blocking.
    pub fn open_raw(&self, cpu: u32) -> Result<File> {
        let name = format!("per_cpu/cpu{cpu}/trace_pipe_raw");
        let mut options = OpenOptions::new();
        options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
        let opened = options.read(true).open(self.path(&name));
        opened.map_err(|source| self.error(&name, source))
    }

    /// Events that the kernel lost on a CPU since the instance was created.
    pub fn lost(&self, cpu: u32) -> u64 {
        self.get(&format!("per_cpu/cpu{cpu}/stats"))
            .map_or(0, |text| Loss::of(&text).total())
    }

    /// Path of the instance, until it is removed.
    #[cfg(test)]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    fn get(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.path(name)).map_err(|source| self.error(name, source))
    }

    fn set(&self, name: &str, value: &str) -> Result<()> {
        let file = OpenOptions::new().write(true).open(self.path(name));
        file.and_then(|mut file| file.write_all(value.as_bytes()))
            .map_err(|source| self.error(name, source))
    }

    fn error(&self, name: &str, source: io::Error) -> Error {
        let instance = self.dir.file_name().unwrap_or_default().to_string_lossy();
        Error::Tracefs {
            path: format!("instances/{instance}/{name}"),
            source,
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        let _ = self.switch(false);
        let _ = fs::remove_dir(&self.dir);
    }
}

/// Removes instances of dead processes, which would record forever. An instance in use is busy, so
/// it stays.
fn remove_orphans(instances: &Path) {
    for entry in fs::read_dir(instances).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = |name: &str| {
            name.strip_prefix(PREFIX)?
                .split('.')
                .next()?
                .parse::<u32>()
                .ok()
        };
        let pid = name.to_str().and_then(number);
        let dead = pid.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists());
        // A recorder in another PID namespace is not in our /proc, but holds the lock of its
        // instance.
        if dead && lock(&entry.path()).is_some() {
            let _ = fs::write(entry.path().join("tracing_on"), "0");
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// The lock of an instance's directory, unless its recorder is alive.
fn lock(dir: &Path) -> Option<File> {
    let dir = File::open(dir).ok()?;
    rustix::fs::flock(&dir, rustix::fs::FlockOperation::NonBlockingLockExclusive).ok()?;
    Some(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorders_of_another_pid_namespace_are_left_alone_and_dead_ones_removed() {
        let instances = std::env::temp_dir().join(format!("erofast-test-{}", std::process::id()));
        // These numbers exceed Linux's largest pid, so no process here has them.
        let [elsewhere, dead] = ["4194305", "4194306.1"].map(|pid| {
            let dir = instances.join(format!("{PREFIX}{pid}"));
            fs::create_dir_all(&dir).unwrap();
            dir
        });
        let held = lock(&elsewhere).unwrap();
        remove_orphans(&instances);
        assert!(elsewhere.exists(), "its recorder lives");
        drop(held);
        let left = fs::read_dir(&dead).map_or(0, Iterator::count);
        fs::remove_dir_all(&instances).unwrap();
        // In tracefs an instance's files are removed with it; in this ordinary directory
        // `tracing_on` remains.
        assert_eq!(left, 1, "the instance of a dead recorder is switched off");
    }
}
