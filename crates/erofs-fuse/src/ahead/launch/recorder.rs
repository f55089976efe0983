//! Records requests until the launch is over.
//!
//! Threads that serve only put a note into a queue, without a lock and without asking the time; the
//! thread that learns takes the notes out.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use erofs_engine::erofs_format::Nid;
use sys::clock::now_ns;
use sys::pi_condvar::PiCondvar;
use sys::pi_mutex::{PiMutex, PiMutexGuard};

use super::recording::Recording;

/// A launch is over after this time without requests.
const QUIET: Duration = Duration::from_secs(2);

/// It is over after this time in any case.
const LONGEST: Duration = Duration::from_secs(30);

/// Directories that are remembered while nothing is recorded.
const RECENT: usize = 64;

/// Notes that wait to be taken out; the thread that has one more takes all of them.
const NOTES: usize = 1024;

/// They are taken out after this time.
const TICK: Duration = Duration::from_millis(50);

/// Until something wakes the thread.
const NEVER: Duration = Duration::from_secs(3600);

/// What a request was about.
#[derive(Debug)]
pub(super) enum Note {
    /// A file was read: offset and length.
    Read(Nid, u64, usize),
    /// A name was looked up in a directory; the name if it is not there.
    LookedUp(Nid, Option<Box<[u8]>>),
    /// A directory was listed.
    Listed(Nid),
    /// A symbolic link was read.
    ReadLink(Nid),
}

#[derive(Debug)]
pub(super) struct Recorder {
    on: AtomicBool,
    /// Atomic: nothing begins any more.
    ended: AtomicBool,
    recent: Recent,
    /// Each with the time of its request, ns of CLOCK_MONOTONIC.
    notes: SyncSender<(u64, Note)>,
    /// Guarded by its own lock.
    log: PiMutex<Log>,
    changed: PiCondvar,
}

#[derive(Debug)]
struct Log {
    recording: Recording,
    launch: Option<UnderWay>,
    notes: Receiver<(u64, Note)>,
}

impl Log {
    fn take_notes(&mut self) {
        while let Ok((at_ns, note)) = self.notes.try_recv() {
            self.add(at_ns, note);
        }
    }

    /// Adds to the record, unless the note is of an earlier launch.
    fn add(&mut self, at_ns: u64, note: Note) {
        let launch = self.launch.as_mut();
        let Some(launch) = launch.filter(|launch| at_ns >= launch.first_ns) else {
            return;
        };
        launch.last_ns = launch.last_ns.max(at_ns);
        let since = at_ns.saturating_sub(launch.began_ns) / 1_000_000;
        let recording = &mut self.recording;
        recording.now_ms = u32::try_from(since).unwrap_or(u32::MAX);
        match note {
            Note::Read(nid, offset, length) => recording.read(nid, offset, length),
            Note::LookedUp(directory, absent) => recording.looked_up(directory, absent),
            Note::Listed(directory) => recording.listed(directory),
            Note::ReadLink(nid) => recording.read_link(nid),
        }
    }
}

/// A launch under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    program: Nid,
    /// When the program was read.
    first_ns: u64,
    /// That time, and the times in which readers waited for the network.
    began_ns: u64,
    /// The last note.
    last_ns: u64,
}

impl Recorder {
    pub(super) fn new() -> Self {
        let (sender, notes) = sync_channel(NOTES);
        Self {
            on: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            recent: Recent::default(),
            notes: sender,
            log: PiMutex::new(Log {
                recording: Recording::default(),
                launch: None,
                notes,
            }),
            changed: PiCondvar::new(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// A program was read from its beginning at this time: a launch begins, if none is under way.
    pub(super) fn begin(&self, program: Nid, now_ns: u64) {
        if self.is_on() || self.has_ended() {
            return;
        }
        let mut log = self.lock();
        if log.launch.is_some() {
            return;
        }
        log.launch = Some(UnderWay {
            program,
            first_ns: now_ns,
            began_ns: now_ns,
            last_ns: now_ns,
        });
        for directory in self.recent.directories() {
            log.recording.saw(directory);
        }
        self.on.store(true, Ordering::Relaxed);
        drop(log);
        self.changed.notify_all();
    }

    /// Waits for the beginning of a launch; `None` when the mount ends.
    pub(super) fn wait_for_program(&self) -> Option<Nid> {
        let mut log = self.lock();
        loop {
            if log.launch.is_some() || self.has_ended() {
                return log.launch.map(|launch| launch.program);
            }
            log = self.changed.wait_timeout(log, NEVER);
        }
    }

    /// A name was looked up in a directory, or it was listed, whether or not that is recorded: a
    /// launch reads files below directories that were known before.
    pub(super) fn visited(&self, directory: Nid) {
        self.recent.add(directory);
    }

    /// Notes a request of this time, if a launch is recorded.
    pub(super) fn note(&self, at_ns: u64, note: impl FnOnce() -> Note) {
        if !self.is_on() {
            return;
        }
        if let Err(TrySendError::Full((at_ns, note))) = self.notes.try_send((at_ns, note())) {
            let mut log = self.lock();
            log.take_notes();
            log.add(at_ns, note);
        }
    }

    /// A reader waits for the network: time of neither the launch nor its quiet end.
    pub(super) fn waits(&self) {
        if !self.is_on() {
            return;
        }
        let mut log = self.lock();
        log.take_notes();
        if let Some(launch) = &mut log.launch {
            let now_ns = now_ns();
            launch.began_ns += now_ns.saturating_sub(launch.last_ns);
            launch.last_ns = now_ns;
        }
    }

    /// The mount ends: what was recorded until now is all.
    pub(super) fn end(&self) {
        // Under the lock, so that no thread begins to wait meanwhile.
        let log = self.lock();
        self.ended.store(true, Ordering::Relaxed);
        drop(log);
        self.changed.notify_all();
    }

    fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// Waits until the launch is over; returns its requests. Another one may begin then.
    pub(super) fn wait(&self) -> Recording {
        let mut log = self.lock();
        loop {
            log.take_notes();
            let remaining = log.launch.and_then(UnderWay::remaining);
            let Some(wait) = remaining.filter(|_| !self.has_ended()) else {
                self.on.store(false, Ordering::Relaxed);
                log.launch = None;
                return std::mem::take(&mut log.recording);
            };
            log = self.changed.wait_timeout(log, wait.min(TICK));
        }
    }

    fn lock(&self) -> PiMutexGuard<'_, Log> {
        self.log.lock()
    }
}

impl UnderWay {
    /// How long to wait at least until the launch can be over; `None` when it is.
    fn remaining(self) -> Option<Duration> {
        let now_ns = now_ns();
        let since = |then: u64| Duration::from_nanos(now_ns.saturating_sub(then));
        let quiet = QUIET.checked_sub(since(self.last_ns))?;
        let whole = LONGEST.checked_sub(since(self.began_ns))?;
        Some(quiet.min(whole)).filter(|wait| !wait.is_zero())
    }
}

/// Directories, those that were used last. Requests write them without a lock.
#[derive(Debug)]
struct Recent {
    /// Atomic: inode numbers plus one.
    places: [AtomicU64; RECENT],
    next: AtomicUsize,
}

impl Default for Recent {
    fn default() -> Self {
        Self {
            places: std::array::from_fn(|_| AtomicU64::new(0)),
            next: AtomicUsize::new(0),
        }
    }
}

impl Recent {
    fn add(&self, directory: Nid) {
        let stored = directory.wrapping_add(1);
        let last = self.next.load(Ordering::Relaxed);
        if self.places[last % RECENT].load(Ordering::Relaxed) != stored {
            let next = self.next.fetch_add(1, Ordering::Relaxed) + 1;
            self.places[next % RECENT].store(stored, Ordering::Relaxed);
        }
    }

    fn directories(&self) -> impl Iterator<Item = Nid> {
        let first = self.next.load(Ordering::Relaxed) + 1;
        let places = (first..first + RECENT).map(|at| &self.places[at % RECENT]);
        places.filter_map(|place| place.load(Ordering::Relaxed).checked_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_readers_wait_for_the_network_is_none_of_the_launch() {
        let recorder = Recorder::new();
        recorder.begin(7, now_ns());
        let longest = LONGEST.as_nanos() as u64;
        let later = |launch: &mut UnderWay| {
            launch.began_ns = launch.began_ns.saturating_sub(longest);
            launch.last_ns = launch.began_ns;
            *launch
        };
        let before = later(recorder.lock().launch.as_mut().unwrap());
        assert_eq!(before.remaining(), None);
        recorder.waits();
        let launch = recorder.lock().launch.unwrap();
        assert!(launch.last_ns > before.last_ns);
        let took = |launch: UnderWay| launch.last_ns - launch.began_ns;
        assert_eq!(took(launch), took(before));
    }

    #[test]
    fn a_launch_begins_with_its_program_and_knows_the_directories_before() {
        let recorder = Recorder::new();
        let now_ns = now_ns();
        recorder.note(now_ns, || Note::Read(2, 0, 4096));
        for directory in (0..100).chain([99, 0]) {
            recorder.visited(directory);
        }
        recorder.begin(7, now_ns);
        recorder.begin(8, now_ns);
        recorder.note(now_ns - 1, || Note::Read(3, 0, 4096));
        recorder.note(now_ns, || Note::Read(7, 0, 4096));
        assert_eq!(recorder.wait_for_program(), Some(7));
        recorder.end();
        let recording = recorder.wait();
        assert_eq!(recording.windows.len(), 1);
        let directories: Vec<Nid> = (37..100).chain([0]).collect();
        assert_eq!(recording.directories, directories);
        assert!(recording.listed.is_empty());
        // The mount has ended.
        assert!(!recorder.is_on());
        recorder.begin(9, now_ns);
        assert_eq!(recorder.wait_for_program(), None);
    }

    #[test]
    fn notes_beyond_the_queue_are_recorded_too_in_their_order() {
        let (recorder, now_ns) = (Recorder::new(), now_ns());
        recorder.begin(7, now_ns);
        let count = 2 * NOTES as u64 + 3;
        for number in 0..count {
            let at_ns = now_ns + 1_000_000 * number;
            recorder.note(at_ns, || Note::Read(100 + number, 0, 4096));
        }
        recorder.end();
        let windows = recorder.wait().windows;
        let files: Vec<Nid> = windows.iter().map(|window| window.nid).collect();
        let times: Vec<u64> = windows.iter().map(|window| window.at_ms.into()).collect();
        assert_eq!(files, Vec::from_iter(100..100 + count));
        assert_eq!(times, Vec::from_iter(0..count));
    }
}
