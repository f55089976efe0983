//! Records requests until the launch is over.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use erofs_engine::erofs_format::Nid;
use sys::pi_condvar::PiCondvar;
use sys::pi_mutex::{PiMutex, PiMutexGuard};

use super::recording::Recording;

/// A launch is over after this time without requests.
const QUIET: Duration = Duration::from_secs(2);

/// It is over after this time in any case.
const LONGEST: Duration = Duration::from_secs(30);

/// Directories that are remembered while nothing is recorded.
const RECENT: usize = 64;

/// Until something wakes the thread.
const NEVER: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct Recorder {
    on: AtomicBool,
    /// Atomic: nothing begins any more.
    ended: AtomicBool,
    recent: Recent,
    /// Guarded by its own lock: held for one note.
    log: PiMutex<Log>,
    changed: PiCondvar,
}

#[derive(Debug, Default)]
struct Log {
    recording: Recording,
    launch: Option<UnderWay>,
}

/// A launch under way.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    program: Nid,
    began: Instant,
    /// The last note.
    last: Instant,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self {
            on: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            recent: Recent::default(),
            log: PiMutex::default(),
            changed: PiCondvar::new(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// A program was read from its beginning: a launch begins, unless one is under way.
    pub(super) fn begin(&self, program: Nid) {
        if self.is_on() || self.has_ended() {
            return;
        }
        let mut log = self.lock();
        if log.launch.is_some() {
            return;
        }
        let now = Instant::now();
        log.launch = Some(UnderWay {
            program,
            began: now,
            last: now,
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

    /// Adds to the record.
    pub(super) fn note(&self, add: impl FnOnce(&mut Recording)) {
        if !self.is_on() {
            return;
        }
        let now = Instant::now();
        let mut log = self.lock();
        let Some(launch) = &mut log.launch else {
            return;
        };
        launch.last = now;
        let since = now.saturating_duration_since(launch.began).as_millis();
        log.recording.now_ms = u32::try_from(since).unwrap_or(u32::MAX);
        add(&mut log.recording);
    }

    /// A reader waits for the network: time of neither the launch nor its quiet end.
    pub(super) fn waits(&self) {
        if !self.is_on() {
            return;
        }
        if let Some(launch) = &mut self.lock().launch {
            let now = Instant::now();
            launch.began += now.saturating_duration_since(launch.last);
            launch.last = now;
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
            let remaining = log.launch.and_then(UnderWay::remaining);
            let Some(wait) = remaining.filter(|_| !self.has_ended()) else {
                self.on.store(false, Ordering::Relaxed);
                log.launch = None;
                return std::mem::take(&mut log.recording);
            };
            log = self.changed.wait_timeout(log, wait);
        }
    }

    fn lock(&self) -> PiMutexGuard<'_, Log> {
        self.log.lock()
    }
}

impl UnderWay {
    /// How long to wait at least until the launch can be over; `None` when it is.
    fn remaining(self) -> Option<Duration> {
        let quiet = QUIET.checked_sub(self.last.elapsed())?;
        let whole = LONGEST.checked_sub(self.began.elapsed())?;
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
        recorder.begin(7);
        let later = |launch: &mut UnderWay| {
            (launch.began, launch.last) = (launch.began - LONGEST, launch.last - LONGEST);
            *launch
        };
        let before = later(recorder.lock().launch.as_mut().unwrap());
        assert_eq!(before.remaining(), None);
        recorder.waits();
        let launch = recorder.lock().launch.unwrap();
        assert!(launch.last >= before.last + LONGEST);
        let took = |launch: UnderWay| launch.last - launch.began;
        assert_eq!(took(launch), took(before));
    }

    #[test]
    fn a_launch_begins_with_its_program_and_knows_the_directories_before() {
        let recorder = Recorder::new();
        recorder.note(|recording| recording.read(2, 0, 4096));
        for directory in (0..100).chain([99, 0]) {
            recorder.visited(directory);
        }
        recorder.begin(7);
        recorder.begin(8);
        recorder.note(|recording| recording.read(7, 0, 4096));
        assert_eq!(recorder.wait_for_program(), Some(7));
        recorder.end();
        let recording = recorder.wait();
        assert_eq!(recording.windows.len(), 1);
        let directories: Vec<Nid> = (37..100).chain([0]).collect();
        assert_eq!(recording.directories, directories);
        assert!(recording.listed.is_empty());
        // The mount has ended.
        assert!(!recorder.is_on());
        recorder.begin(9);
        assert_eq!(recorder.wait_for_program(), None);
    }
}
