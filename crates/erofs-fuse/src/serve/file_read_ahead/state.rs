//! What the threads that serve requests report, and what the thread that stores takes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use erofs_engine::erofs_format::Nid;
use serde_json::{Value, json};
use sys::pi_condvar::PiCondvar;
use sys::pi_mutex::{PiMutex, PiMutexGuard};

use super::super::on_demand::Demand;
use super::elf::LoaderRanges;
use super::loaders::Loaders;
use super::sequence::Sequence;
use super::streams::{Due, Streams};

/// Largest file that is stored as a whole. The kernel's read-ahead begins with 32 KiB, so that a
/// file of this size costs its reader four requests.
const SMALL_FILE: u64 = 256 << 10;

/// How long the next request of a reader is awaited.
const REQUEST: Duration = Duration::from_millis(10);

/// Read-ahead over the files of one mount.
#[derive(Debug)]
pub(in super::super) struct FileReadAhead {
    /// Guarded by its own lock: held for lookups only.
    state: PiMutex<State>,
    changed: PiCondvar,
    /// The thread that stores.
    pub(super) demand: Demand,
    files: AtomicU64,
    bytes: AtomicU64,
    late: AtomicU64,
    refused: AtomicU64,
    /// Bytes for loaders.
    loader_bytes: AtomicU64,
    /// Atomic: reads may change what is stored for loaders.
    watches: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    sequence: Sequence,
    streams: Streams,
    loaders: Loaders,
    /// The file that is being stored, until a reader asks for it.
    storing: Option<Nid>,
    /// Listings and reads so far.
    requests: u64,
    /// The thread waits for the next of them.
    awaits: bool,
    /// The thread takes nothing unless it is woken: it sleeps, or is not there yet.
    idle: bool,
    closed: bool,
}

/// What the thread has to do.
#[derive(Debug)]
pub(super) enum Job {
    File(File),
    /// Find out what a loader reads of an ELF file.
    Elf(Nid),
    /// Store one of them.
    Part(Nid, Range<u64>),
}

/// A file to store.
#[derive(Debug)]
pub(super) struct File {
    due: Due,
    pub(super) nid: Nid,
}

/// Whether a file is one of those that are stored as a whole.
pub(in super::super) fn is_small_file(mode: u32, size: u64) -> bool {
    mode & libc::S_IFMT == libc::S_IFREG && (1..=SMALL_FILE).contains(&size)
}

impl FileReadAhead {
    pub(in super::super) fn new(demand: Demand) -> Self {
        let state = State {
            idle: true,
            ..State::default()
        };
        Self {
            state: PiMutex::new(state),
            changed: PiCondvar::new(),
            demand,
            files: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            late: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            loader_bytes: AtomicU64::new(0),
            watches: AtomicBool::new(false),
        }
    }

    /// The first page of an ELF file was read.
    pub(in super::super) fn elf_was_opened(&self, nid: Nid) {
        let mut state = self.lock();
        state.loaders.open(nid);
        self.watches.store(true, Ordering::Relaxed);
        self.wake(state);
    }

    /// What a loader reads of a file.
    pub(super) fn loader_reads(&self, nid: Nid, ranges: LoaderRanges) {
        self.lock().loaders.known(nid, ranges);
    }

    /// A part of a file was read.
    pub(in super::super) fn was_read(&self, nid: Nid, offset: u64, length: usize) {
        if self.watches.load(Ordering::Relaxed) {
            let mut state = self.lock();
            let end = offset.saturating_add(length as u64);
            state.loaders.read(nid, &(offset..end));
            let watches = state.loaders.is_watching();
            self.watches.store(watches, Ordering::Relaxed);
            self.wake(state);
        }
    }

    /// Bytes were stored for a loader.
    pub(super) fn stored_part(&self, bytes: u64) {
        self.loader_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// The kernel is about to know these small files: when the reader has taken the reply, which
    /// its next request shows.
    pub(in super::super) fn listed(&self, files: &[Nid]) {
        let mut state = self.lock();
        self.count_request(&mut state);
        if files.is_empty() {
            return;
        }
        state.sequence.append(files);
        self.wake(state);
    }

    /// The beginning of a small file was asked for.
    pub(in super::super) fn read(&self, file: Nid) {
        let mut state = self.lock();
        self.count_request(&mut state);
        let Some(place) = state.sequence.place(file) else {
            return;
        };
        let is_being_stored = state.storing.take_if(|storing| *storing == file).is_some();
        state.sequence.read(place);
        if !state.streams.read(place) || is_being_stored {
            self.late.fetch_add(1, Ordering::Relaxed);
        }
        self.wake(state);
    }

    fn count_request(&self, state: &mut State) {
        state.requests += 1;
        if std::mem::take(&mut state.awaits) {
            self.changed.notify_one();
        }
    }

    /// Listings and reads so far.
    pub(super) fn requests(&self) -> u64 {
        self.lock().requests
    }

    /// Waits until there are more requests than `seen`; false if there are none for long.
    pub(super) fn wait_for_request(&self, seen: u64) -> bool {
        let mut state = self.lock();
        state.awaits = state.requests == seen;
        let end = Instant::now() + REQUEST;
        while state.requests == seen && !state.closed {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.changed.wait_timeout(state, left);
        }
        state.awaits = false;
        state.requests != seen
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_all();
    }

    /// For the counters.
    pub(in super::super) fn report(&self) -> Value {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let state = self.lock();
        json!({
            "files": load(&self.files),
            "prefetched_bytes": load(&self.bytes),
            "late_files": load(&self.late),
            "refused_files": load(&self.refused),
            "loader_bytes": load(&self.loader_bytes),
            "used_bytes": state.streams.used,
            "wasted_bytes": state.streams.wasted,
        })
    }

    /// Wakes the thread if it has something to do and does not know that.
    fn wake(&self, mut state: PiMutexGuard<'_, State>) {
        let wake = state.idle && state.has_work();
        if wake {
            state.idle = false;
            drop(state);
            self.demand.ask();
            self.changed.notify_one();
        }
    }

    /// Waits for the next file to store; `None` when closed.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if state.closed {
                return None;
            }
            if let Some(job) = state.next() {
                return Some(job);
            }
            state.idle = true;
            state = self.changed.wait(state);
        }
    }

    /// Whether no reader asked for the file meanwhile.
    pub(super) fn is_wanted(&self, job: &File) -> bool {
        self.lock().storing == Some(job.nid)
    }

    /// The file was stored; `None`: it could not be.
    pub(super) fn done(&self, job: &File, bytes: Option<u64>) {
        let Some(bytes) = bytes else {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.files.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let mut state = self.lock();
        state.sequence.set_cached(job.due.place);
        state.streams.stored(job.due, bytes);
    }

    fn lock(&self) -> PiMutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn has_work(&self) -> bool {
        let Loaders { unknown, parts, .. } = &self.loaders;
        let waits = !unknown.is_empty() || !parts.is_empty();
        waits || self.streams.is_due(self.sequence.end())
    }

    fn next(&mut self) -> Option<Job> {
        self.storing = None;
        if let Some(nid) = self.loaders.unknown.pop() {
            return Some(Job::Elf(nid));
        }
        if let Some((nid, part)) = self.loaders.parts.pop() {
            return Some(Job::Part(nid, part));
        }
        let end = self.sequence.end();
        while let Some(due) = self.streams.next(end) {
            // A place of a listing that was forgotten has no file.
            let nid = self.sequence.file(due.place);
            if let Some(nid) = nid.filter(|_| !self.sequence.is_cached(due.place)) {
                self.storing = Some(nid);
                return Some(Job::File(File { due, nid }));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::on_demand::OnDemand;
    use super::*;

    /// The numbers of all files that are to be stored, which they are.
    fn store(ahead: &FileReadAhead) -> Vec<Nid> {
        let next = || ahead.lock().next();
        let jobs = std::iter::from_fn(next).map(|job| match job {
            Job::File(file) => file,
            other => panic!("{other:?}"),
        });
        let jobs = jobs.inspect(|file| ahead.done(file, Some(1)));
        jobs.map(|file| file.nid).collect()
    }

    fn read<const N: usize>(ahead: &FileReadAhead, files: [Nid; N]) {
        files.into_iter().for_each(|file| ahead.read(file));
    }

    #[test]
    fn files_that_the_kernel_has_are_not_stored_again_until_it_drops_them() {
        let demand = OnDemand::new().unwrap().demand();
        let ahead = FileReadAhead::new(demand);
        ahead.listed(&(0..100).collect::<Vec<Nid>>());
        read(&ahead, [30, 31]);
        let marker = 39;
        let expected: Vec<Nid> = (32..47).filter(|&file| file != marker).collect();
        assert_eq!(store(&ahead), expected);
        // Another reader, or the same one that comes back to the beginning of the directory.
        read(&ahead, [24, 25]);
        assert_eq!(store(&ahead), [26, 27, 28, 29, marker]);
        read(&ahead, [40]);
        store(&ahead);
        read(&ahead, [10, 11]);
        let expected: Vec<Nid> = (12..27).filter(|&file| file != 19).collect();
        assert_eq!(store(&ahead), expected);
    }
}
