//! What the threads that serve requests report, and what the thread that stores takes.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use erofs_engine::erofs_format::Nid;
use serde_json::{Value, json};
use sys::pi_condvar::PiCondvar;
use sys::pi_mutex::{PiMutex, PiMutexGuard};

use super::super::on_demand::Demand;
use super::sequence::Sequence;
use super::streams::{Due, Streams};

/// Largest file that is stored as a whole. The kernel's read-ahead begins with 32 KiB, so that a
/// file of this size costs its reader four requests.
const SMALL_FILE: u64 = 256 << 10;

/// Bytes that are stored at once for a loader.
const PART: u64 = 128 << 10;

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
    /// Atomic: there are parts, of which reads are to be left out.
    has_parts: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    sequence: Sequence,
    streams: Streams,
    /// ELF files of which the first page was read.
    programs: Vec<Nid>,
    /// Parts of them to store, the next one last. The file that was opened last comes first: a
    /// loader opens all libraries, and then begins with the last.
    parts: Vec<(Nid, Range<u64>)>,
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
    /// Find the parts of an ELF file that its loader reads.
    Program(Nid),
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
            has_parts: AtomicBool::new(false),
        }
    }

    /// The first page of an ELF file was read.
    pub(in super::super) fn program_begins(&self, nid: Nid) {
        let mut state = self.lock();
        state.programs.push(nid);
        self.wake(state);
    }

    /// What a loader reads of a file.
    pub(super) fn add_parts(&self, nid: Nid, ranges: &[Range<u64>]) {
        let part = |at: u64, range: &Range<u64>| {
            let end = (at + 1).next_multiple_of(PART);
            (nid, at..end.min(range.end))
        };
        let parts = ranges.iter().flat_map(|range| {
            let next = |at: &u64| Some((at + 1).next_multiple_of(PART));
            let starts = std::iter::successors(Some(range.start), next);
            starts
                .take_while(|at| *at < range.end)
                .map(move |at| part(at, range))
        });
        let mut parts: Vec<_> = parts.collect();
        parts.reverse();
        let mut state = self.lock();
        state.parts.append(&mut parts);
        self.has_parts.store(true, Ordering::Relaxed);
    }

    /// A file was read: parts inside of the range are not to be stored any more.
    pub(in super::super) fn was_read(&self, nid: Nid, offset: u64, length: usize) {
        if self.has_parts.load(Ordering::Relaxed) {
            let end = offset.saturating_add(length as u64);
            let is_inside = |part: &Range<u64>| offset <= part.start && part.end <= end;
            let mut state = self.lock();
            state
                .parts
                .retain(|(file, part)| *file != nid || !is_inside(part));
            self.has_parts
                .store(!state.parts.is_empty(), Ordering::Relaxed);
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
        let waits = !self.programs.is_empty() || !self.parts.is_empty();
        waits || self.streams.is_due(self.sequence.end())
    }

    fn next(&mut self) -> Option<Job> {
        self.storing = None;
        if let Some(nid) = self.programs.pop() {
            return Some(Job::Program(nid));
        }
        if let Some((nid, part)) = self.parts.pop() {
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

    #[test]
    fn parts_for_a_loader_that_opened_last_come_first_and_those_that_were_read_are_left_out() {
        let ahead = FileReadAhead::new(OnDemand::new().unwrap().demand());
        ahead.add_parts(7, &[PART - 1..2 * PART, 0..10]);
        ahead.add_parts(8, std::slice::from_ref(&(0..2 * PART)));
        ahead.was_read(8, 0, PART as usize);
        ahead.was_read(7, 1, PART as usize);
        let next = || ahead.lock().next();
        let parts = std::iter::from_fn(next).map(|job| match job {
            Job::Part(nid, part) => (nid, part),
            other => panic!("{other:?}"),
        });
        let expected = [(8, PART..2 * PART), (7, PART..2 * PART), (7, 0..10)];
        assert_eq!(parts.collect::<Vec<_>>(), expected);
    }
}
