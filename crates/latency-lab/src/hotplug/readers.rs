//! Threads that read at random places through the mount and check every byte.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rustix::fs::{Advice, fadvise};
use sched_trace::record::now_ns;
use sched_trace::stats::us;
use serde::{Deserialize, Serialize};

use crate::engine::{Engine, Site, missing, mount_point};
use crate::error::Doing;
use crate::process::DaemonMemory;
use crate::read::Content;
use crate::{Interrupt, LabError, Result};

/// Maximum number of bytes that are kept in memory for comparison.
const REFERENCE: u64 = 64 << 20;
/// Largest read.
const LONGEST: u64 = 128 << 10;

/// The bytes that the readers must see: the contents of the biggest files.
#[derive(Debug, Clone)]
pub(super) struct Reference {
    files: Arc<Vec<(PathBuf, Vec<u8>)>>,
    /// The engine through which the reference was read.
    pub(super) source: String,
}

impl Reference {
    /// Reads the reference through the kernel's EROFS if it can mount the image, so that a fault of
    /// `engine` shows; otherwise through `engine` itself.
    pub(super) fn load(
        site: &Site,
        engine: &Engine,
        points: &Path,
        interrupt: &Interrupt,
    ) -> Result<Self> {
        let point = mount_point(points, "reference")?;
        let mut last = None;
        for other in [Engine::Kernel, Engine::KernelLoop, engine.clone()] {
            if missing(&other, site).is_some() {
                continue;
            }
            match other.mount(site, &point, interrupt) {
                Err(error) => last = Some(error),
                Ok(mounted) => {
                    let files = contents(&point).doing("reading", &point)?;
                    mounted.unmount()?;
                    return match files.is_empty() {
                        true => Err(LabError::Usage(
                            "lab hotplug: the image has no file with content".into(),
                        )),
                        false => Ok(Reference {
                            files: Arc::new(files),
                            source: other.to_string(),
                        }),
                    };
                }
            }
        }
        Err(last.unwrap_or_else(|| LabError::Usage(format!("engine {engine}: cannot mount"))))
    }
}

fn contents(point: &Path) -> io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let parts = Content::find(point, REFERENCE)?.parts;
    let read = |part: crate::read::Part| {
        let mut bytes = vec![0; part.length as usize];
        File::open(point.join(&part.path))?.read_exact_at(&mut bytes, 0)?;
        Ok((part.path, bytes))
    };
    parts.into_iter().map(read).collect()
}

/// The counts of all cycles. In each cycle, a CPU goes offline and comes back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct HotplugCounts {
    /// Completed cycles.
    pub cycles: usize,
    /// Reads issued.
    pub requests: u64,
    /// Number of reads that failed or never returned, and of launches that failed.
    pub lost: u64,
    /// Number of wrong bytes in all reads.
    pub wrong_bytes: u64,
    /// Duration of the slowest read.
    pub slowest_us: f64,
    /// Whether the user stopped the run.
    pub interrupted: bool,
    /// The first failure.
    pub first_fault: Option<String>,
    /// Number of launches while the CPU was offline.
    pub launches: u64,
    /// Memory of the daemon, if the engine is erofast.
    pub memory: Option<DaemonMemory>,
}

/// The counts of all readers.
#[derive(Debug, Clone, Default)]
pub(super) struct Counts(Arc<Mutex<HotplugCounts>>);

impl Counts {
    pub(super) fn lock(&self) -> MutexGuard<'_, HotplugCounts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl HotplugCounts {
    pub(super) fn fault(&mut self, text: String) {
        self.first_fault.get_or_insert(text);
    }
}

/// The running readers. They are not scoped threads, because the lab must be able to report a
/// reader that hangs.
#[derive(Debug)]
pub(super) struct Readers {
    pub(super) counts: Counts,
    stop: Arc<AtomicBool>,
    threads: Vec<(JoinHandle<()>, Arc<AtomicU64>)>,
}

impl Readers {
    pub(super) fn start(
        number: usize,
        point: &Path,
        reference: &Reference,
        seed: u64,
    ) -> io::Result<Readers> {
        let (counts, stop) = (Counts::default(), Arc::new(AtomicBool::new(false)));
        let mut threads = Vec::new();
        for reader in 0..number {
            let since = Arc::new(AtomicU64::new(0));
            let mut work = Reader {
                files: open(point, reference)?,
                reference: reference.clone(),
                counts: counts.clone(),
                stop: stop.clone(),
                since: since.clone(),
                random: Rng::with_seed(seed.wrapping_add(reader as u64)),
            };
            let thread = std::thread::Builder::new().spawn(move || work.run())?;
            threads.push((thread, since));
        }
        Ok(Readers {
            counts,
            stop,
            threads,
        })
    }

    /// Stops the readers; returns how many are still waiting for the end of a request after
    /// `patience`.
    pub(super) fn stop(self, patience: Duration) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        let deadline = Instant::now() + patience;
        let mut hanging = 0;
        for (thread, since) in self.threads {
            while !thread.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            if thread.is_finished() {
                let _ = thread.join();
            } else {
                hanging += 1;
                let took = now_ns().saturating_sub(since.load(Ordering::Relaxed));
                let seconds = patience.as_secs();
                let mut counts = self.counts.lock();
                counts.requests += 1;
                counts.lost += 1;
                counts.slowest_us = counts.slowest_us.max(us(took));
                counts.fault(format!("a request was not answered within {seconds} s"));
            }
        }
        hanging
    }
}

fn open(point: &Path, reference: &Reference) -> io::Result<Vec<File>> {
    reference
        .files
        .iter()
        .map(|(path, _)| File::open(point.join(path)))
        .collect()
}

struct Reader {
    files: Vec<File>,
    reference: Reference,
    counts: Counts,
    stop: Arc<AtomicBool>,
    /// When the current request began; 0 between requests.
    since: Arc<AtomicU64>,
    random: Rng,
}

impl Reader {
    fn run(&mut self) {
        let mut buffer = vec![0; LONGEST as usize];
        while !self.stop.load(Ordering::Relaxed) {
            self.request(&mut buffer);
        }
    }

    fn request(&mut self, buffer: &mut [u8]) {
        let number = self.random.usize(..self.files.len());
        let (path, right) = &self.reference.files[number];
        let offset = self.random.usize(..right.len());
        let length = (1 + self.random.usize(..LONGEST as usize)).min(right.len() - offset);
        let file = &self.files[number];
        // Drops the file from the page cache, so that the engine must serve the range. Pages in use
        // stay cached.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
        let start = now_ns();
        self.since.store(start, Ordering::Relaxed);
        let result = file.read_exact_at(&mut buffer[..length], offset as u64);
        let took = now_ns() - start;
        self.since.store(0, Ordering::Relaxed);
        let wrong = differing(&buffer[..length], &right[offset..offset + length]);
        let what = || format!("{}, {length} bytes at {offset}", path.display());
        let mut counts = self.counts.lock();
        counts.requests += 1;
        counts.slowest_us = counts.slowest_us.max(us(took));
        match result {
            Err(error) => {
                counts.lost += 1;
                counts.fault(format!("{}: {error}", what()));
            }
            Ok(()) if wrong > 0 => {
                counts.wrong_bytes += wrong;
                counts.fault(format!("{}: {wrong} are wrong", what()));
            }
            Ok(()) => {}
        }
    }
}

fn differing(read: &[u8], right: &[u8]) -> u64 {
    // Comparing whole slices is faster, and they rarely differ.
    if read == right {
        return 0;
    }
    let pairs = read.iter().zip(right);
    pairs.filter(|(read, right)| read != right).count() as u64
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::scratch::Scratch;

    /// Runs two readers on a file in which the byte at `change`, if any, differs from the
    /// reference.
    fn run(change: Option<usize>) -> HotplugCounts {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let right: Vec<u8> = (0..50_000u32).map(|byte| byte as u8).collect();
        let mut stored = right.clone();
        change.into_iter().for_each(|place| stored[place] ^= 1);
        fs::write(scratch.path().join("file"), &stored).unwrap();
        let reference = Reference {
            files: Arc::new(vec![("file".into(), right)]),
            source: String::new(),
        };
        let readers = Readers::start(2, scratch.path(), &reference, 1).unwrap();
        let counts = readers.counts.clone();
        while counts.lock().requests < 200 {
            std::thread::yield_now();
        }
        assert_eq!(readers.stop(Duration::from_secs(60)), 0);
        counts.lock().clone()
    }

    #[test]
    fn right_bytes_are_right() {
        let counts = run(None);
        assert_eq!((counts.wrong_bytes, counts.lost), (0, 0));
        assert!(counts.slowest_us > 0.0);
    }

    #[test]
    fn one_wrong_byte_is_found() {
        let counts = run(Some(25_000));
        assert!(counts.wrong_bytes > 0);
        assert!(counts.first_fault.unwrap().ends_with("1 are wrong"));
    }
}
