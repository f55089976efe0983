//! Connects the serving threads, which report requests, with the thread that stores files, which
//! takes jobs.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use erofs_engine::erofs_format::Nid;
use serde::Serialize;
use sys::pi_condvar::PiCondvar;
use sys::pi_mutex::{PiMutex, PiMutexGuard};

use super::super::random_faults::RandomFaultFigures;
use super::sequence::Sequence;
use super::streams::{Due, Streams};
use crate::threads::Demand;

/// Largest file that is stored whole. The kernel's read-ahead begins with 32 KiB, so a file of this
/// size costs its reader four requests.
const SMALL_FILE: u64 = 256 << 10;

/// How long to wait for a reader's next request.
const REQUEST: Duration = Duration::from_millis(10);

figures::figures! {
    /// Small files stored ahead of their readers.
    #[derive(Debug, Default, Serialize)]
    pub(crate) struct ReadAheadFigures counted by struct Counters {
        /// Files stored.
        files,
        /// Bytes in these files.
        prefetched_bytes,
        /// Files that were requested before they were stored.
        late_files,
        /// Files that the kernel did not accept.
        refused_files,
    } and {
        /// Stored bytes that readers used.
        used_bytes: u64,
        /// Stored bytes that no reader used.
        wasted_bytes: u64,
        /// Directories listed ahead of a walk.
        pub(crate) directories: u64,
        /// Windows declined around random faults.
        pub(crate) random_faults: Option<RandomFaultFigures>,
    }
}

/// Read-ahead over the files of one mount.
#[derive(Debug)]
pub(crate) struct FileReadAhead {
    /// Guarded by its own lock: held for lookups only.
    state: PiMutex<State>,
    changed: PiCondvar,
    /// Starts the thread that stores files.
    pub(super) demand: Demand,
    counters: Counters,
}

#[derive(Debug, Default)]
struct State {
    sequence: Sequence,
    streams: Streams,
    /// The file that is being stored, unless a reader has requested it.
    storing: Option<Nid>,
    /// Number of listings and reads so far.
    requests: u64,
    /// Whether the thread is waiting for the next request.
    awaits: bool,
    /// Whether the thread must be woken to take a job: it sleeps or has not started.
    idle: bool,
    closed: bool,
}

/// A file to store.
#[derive(Debug)]
pub(super) struct Job {
    due: Due,
    pub(super) nid: Nid,
}

/// Whether a file is small enough to be stored whole.
pub(crate) fn is_small_file(mode: u32, size: u64) -> bool {
    mode & libc::S_IFMT == libc::S_IFREG && (1..=SMALL_FILE).contains(&size)
}

impl FileReadAhead {
    pub(crate) fn new(demand: Demand) -> Self {
        let state = State {
            idle: true,
            ..State::default()
        };
        Self {
            state: PiMutex::new(state),
            changed: PiCondvar::new(),
            demand,
            counters: Counters::default(),
        }
    }

    /// Notes small files that the kernel is about to learn of. The kernel knows them once the
    /// reader has taken the reply, which the reader's next request shows.
    pub(crate) fn listed(&self, files: &[Nid]) {
        let mut state = self.state.lock();
        self.count_request(&mut state);
        if files.is_empty() {
            return;
        }
        state.sequence.append(files);
        self.wake(state);
    }

    /// Notes that the beginning of a small file was requested.
    pub(crate) fn read(&self, file: Nid) {
        let mut state = self.state.lock();
        self.count_request(&mut state);
        let Some(place) = state.sequence.place(file) else {
            return;
        };
        let is_being_stored = state.storing.take_if(|storing| *storing == file).is_some();
        state.sequence.read(place);
        if !state.streams.read(place) || is_being_stored {
            self.counters.late_files.fetch_add(1, Ordering::Relaxed);
        }
        self.wake(state);
    }

    fn count_request(&self, state: &mut State) {
        state.requests += 1;
        if std::mem::take(&mut state.awaits) {
            self.changed.notify_one();
        }
    }

    /// Number of listings and reads so far.
    pub(super) fn requests(&self) -> u64 {
        self.state.lock().requests
    }

    /// Waits until there are more requests than `seen`; returns false if none arrives for a while.
    pub(super) fn wait_for_request(&self, seen: u64) -> bool {
        let mut state = self.state.lock();
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
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    pub(crate) fn figures(&self) -> ReadAheadFigures {
        let state = self.state.lock();
        let mut figures = ReadAheadFigures {
            used_bytes: state.streams.used,
            wasted_bytes: state.streams.wasted,
            ..ReadAheadFigures::default()
        };
        self.counters.add_to(&mut figures);
        figures
    }

    /// Wakes the thread if there is a job that it does not know of.
    fn wake(&self, mut state: PiMutexGuard<'_, State>) {
        if state.idle && state.streams.is_due(state.sequence.end()) {
            state.idle = false;
            drop(state);
            self.demand.ask();
            self.changed.notify_one();
        }
    }

    /// Waits for the next file to store; `None` when closed.
    pub(super) fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
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

    /// Whether no reader has requested the file meanwhile.
    pub(super) fn is_wanted(&self, job: &Job) -> bool {
        self.state.lock().storing == Some(job.nid)
    }

    /// Notes that the file was stored or, with `None`, that it could not be.
    pub(super) fn done(&self, job: &Job, bytes: Option<u64>) {
        let Some(bytes) = bytes else {
            self.counters.refused_files.fetch_add(1, Ordering::Relaxed);
            return;
        };
        self.counters.files.fetch_add(1, Ordering::Relaxed);
        let prefetched = &self.counters.prefetched_bytes;
        prefetched.fetch_add(bytes, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.sequence.set_cached(job.due.place);
        state.streams.stored(job.due, bytes);
    }
}

impl State {
    fn next(&mut self) -> Option<Job> {
        self.storing = None;
        let end = self.sequence.end();
        while let Some(due) = self.streams.next(end) {
            // A place in a listing that was dropped has no file.
            let nid = self.sequence.file(due.place);
            if let Some(nid) = nid.filter(|_| !self.sequence.is_cached(due.place)) {
                self.storing = Some(nid);
                return Some(Job { due, nid });
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::OnDemand;

    /// Stores all files that are due and returns their numbers.
    fn store(ahead: &FileReadAhead) -> Vec<Nid> {
        let next = || ahead.state.lock().next();
        let jobs = std::iter::from_fn(next).inspect(|job| ahead.done(job, Some(1)));
        jobs.map(|job| job.nid).collect()
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
        // Another reader starts, or the same one returns to the beginning of the directory.
        read(&ahead, [24, 25]);
        assert_eq!(store(&ahead), [26, 27, 28, 29, marker]);
        read(&ahead, [40]);
        store(&ahead);
        read(&ahead, [10, 11]);
        let expected: Vec<Nid> = (12..27).filter(|&file| file != 19).collect();
        assert_eq!(store(&ahead), expected);
    }
}
