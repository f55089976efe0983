//! Threads that read at random places through the mount and check every byte.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};
use sched_trace::record::now_ns;

use crate::engine::{Engine, Site, missing, mount_point};
use crate::read::Content;
use crate::statistics::Random;
use crate::{Interrupt, LabError, Result};

/// Kept in memory to compare with, at most.
const REFERENCE: u64 = 64 << 20;
/// A read asks for up to this much.
const LONGEST: u64 = 128 << 10;

/// The reference: content of the biggest files.
#[derive(Debug, Clone)]
pub(super) struct Reference {
    files: Arc<Vec<(PathBuf, Vec<u8>)>>,
    source: String,
}

impl Reference {
    /// From another engine where one can mount the image, so that a fault of `engine` shows.
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
                    let files = contents(&point)
                        .map_err(|source| LabError::io("reading", &point, source))?;
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

    /// The engine that the reference was read from.
    pub(super) fn source(&self) -> &str {
        &self.source
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

/// Counters shared by all readers.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) requests: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) wrong_bytes: AtomicU64,
    pub(super) slowest_ns: AtomicU64,
    pub(super) first_fault: Mutex<Option<String>>,
    stop: AtomicBool,
}

impl Counts {
    pub(super) fn fault(&self, text: String) {
        let mut first = self
            .first_fault
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        first.get_or_insert(text);
    }
}

/// The running readers. Not scoped threads: the lab must be able to report one that hangs.
#[derive(Debug)]
pub(super) struct Readers {
    pub(super) counts: Arc<Counts>,
    threads: Vec<(JoinHandle<()>, Arc<AtomicU64>)>,
}

impl Readers {
    pub(super) fn start(
        number: usize,
        point: &Path,
        reference: &Reference,
        seed: u64,
    ) -> io::Result<Readers> {
        let counts = Arc::new(Counts::default());
        let mut threads = Vec::new();
        for reader in 0..number {
            let since = Arc::new(AtomicU64::new(0));
            let mut work = Reader {
                files: open(point, reference)?,
                reference: reference.clone(),
                counts: counts.clone(),
                since: since.clone(),
                random: Random::new(seed.wrapping_add(reader as u64)),
            };
            threads.push((std::thread::spawn(move || work.run()), since));
        }
        Ok(Readers { counts, threads })
    }

    /// Stops them; how many are still inside of a request after `patience`.
    pub(super) fn stop(self, patience: Duration) -> u64 {
        self.counts.stop.store(true, Ordering::Relaxed);
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
                let start = since.load(Ordering::Relaxed);
                self.counts
                    .slowest_ns
                    .fetch_max(now_ns().saturating_sub(start), Ordering::Relaxed);
                self.counts.fault(format!(
                    "a request did not come back within {} s",
                    patience.as_secs()
                ));
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
    counts: Arc<Counts>,
    /// When the request that is under way began; 0 between requests.
    since: Arc<AtomicU64>,
    random: Random,
}

impl Reader {
    fn run(&mut self) {
        let mut buffer = vec![0; LONGEST as usize];
        while !self.counts.stop.load(Ordering::Relaxed) {
            self.request(&mut buffer);
        }
    }

    fn request(&mut self, buffer: &mut [u8]) {
        let number = self.random.below(self.files.len());
        let (path, right) = &self.reference.files[number];
        let offset = self.random.below(right.len());
        let length = (1 + self.random.below(LONGEST as usize)).min(right.len() - offset);
        let file = &self.files[number];
        // Drops the range from the page cache, so that the engine serves it; pages in use stay.
        let _ = fadvise(file, 0, None, Advice::DontNeed);
        let start = now_ns();
        self.since.store(start, Ordering::Relaxed);
        let result = file.read_exact_at(&mut buffer[..length], offset as u64);
        let took = now_ns() - start;
        self.since.store(0, Ordering::Relaxed);
        self.counts.requests.fetch_add(1, Ordering::Relaxed);
        self.counts.slowest_ns.fetch_max(took, Ordering::Relaxed);
        match result {
            Err(error) => {
                self.counts.failed.fetch_add(1, Ordering::Relaxed);
                self.counts.fault(format!(
                    "{}, {length} bytes at {offset}: {error}",
                    path.display()
                ));
            }
            Ok(()) => {
                let wrong = differing(&buffer[..length], &right[offset..offset + length]);
                if wrong > 0 {
                    self.counts.wrong_bytes.fetch_add(wrong, Ordering::Relaxed);
                    self.counts.fault(format!(
                        "{}, {length} bytes at {offset}: {wrong} are wrong",
                        path.display()
                    ));
                }
            }
        }
    }
}

fn differing(read: &[u8], right: &[u8]) -> u64 {
    if read == right {
        return 0;
    }
    read.iter()
        .zip(right)
        .filter(|(read, right)| read != right)
        .count() as u64
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A copy of the reference with one byte changed.
    fn run(change: Option<usize>) -> Arc<Counts> {
        let directory = std::env::temp_dir().join(format!(
            "erofast-lab-readers-{}-{change:?}",
            std::process::id()
        ));
        fs::create_dir_all(&directory).unwrap();
        let right: Vec<u8> = (0..50_000u32).map(|byte| byte as u8).collect();
        let mut stored = right.clone();
        change.into_iter().for_each(|place| stored[place] ^= 1);
        fs::write(directory.join("file"), &stored).unwrap();
        let reference = Reference {
            files: Arc::new(vec![("file".into(), right)]),
            source: String::new(),
        };
        let readers = Readers::start(2, &directory, &reference, 1).unwrap();
        let counts = readers.counts.clone();
        while counts.requests.load(Ordering::Relaxed) < 200 {
            std::thread::yield_now();
        }
        assert_eq!(readers.stop(Duration::from_secs(60)), 0);
        fs::remove_dir_all(&directory).unwrap();
        counts
    }

    #[test]
    fn right_bytes_are_right() {
        let counts = run(None);
        assert_eq!(counts.wrong_bytes.load(Ordering::Relaxed), 0);
        assert_eq!(counts.failed.load(Ordering::Relaxed), 0);
        assert!(counts.slowest_ns.load(Ordering::Relaxed) > 0);
    }

    #[test]
    fn one_wrong_byte_is_found() {
        let counts = run(Some(25_000));
        assert!(counts.wrong_bytes.load(Ordering::Relaxed) > 0);
        assert!(
            counts
                .first_fault
                .lock()
                .unwrap()
                .as_ref()
                .unwrap()
                .ends_with("1 are wrong")
        );
    }
}
