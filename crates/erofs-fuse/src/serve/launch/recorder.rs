//! Records requests until the launch is over.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sys::pi_condvar::PiCondvar;
use sys::pi_mutex::{PiMutex, PiMutexGuard};

use super::recording::Recording;

/// A launch is over after this time without requests.
const QUIET: Duration = Duration::from_secs(2);

/// It is over after this time in any case.
const LONGEST: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) struct Recorder {
    on: AtomicBool,
    /// L: held for one note.
    log: PiMutex<Log>,
    changed: PiCondvar,
}

#[derive(Debug, Default)]
struct Log {
    recording: Recording,
    /// Times of the first and the last note.
    began: Option<Instant>,
    last: Option<Instant>,
    /// The mount ends.
    ended: bool,
}

impl Recorder {
    pub(super) fn new() -> Self {
        Self {
            on: AtomicBool::new(true),
            log: PiMutex::default(),
            changed: PiCondvar::new(),
        }
    }

    pub(super) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Adds to the record.
    pub(super) fn note(&self, add: impl FnOnce(&mut Recording)) {
        if self.is_on() && self.adds(add) {
            self.changed.notify_all();
        }
    }

    /// Whether [`wait`](Self::wait) has to find out anew how long: at the first note, and at the
    /// first that makes the record one of a launch.
    fn adds(&self, add: impl FnOnce(&mut Recording)) -> bool {
        let now = Instant::now();
        let mut log = self.lock();
        let before = (log.began.is_some(), log.recording.windows.is_empty());
        let began = *log.began.get_or_insert(now);
        log.last = Some(now);
        let since = now.saturating_duration_since(began).as_millis();
        log.recording.now_ms = u32::try_from(since).unwrap_or(u32::MAX);
        add(&mut log.recording);
        before != (true, log.recording.windows.is_empty())
    }

    /// The mount ends: what was recorded until now is all.
    pub(super) fn end(&self) {
        self.lock().ended = true;
        self.changed.notify_all();
    }

    /// Waits until the launch is over; returns its requests.
    pub(super) fn wait(&self) -> Recording {
        let mut log = self.lock();
        loop {
            let Some(wait) = log.remaining() else {
                self.on.store(false, Ordering::Relaxed);
                return std::mem::take(&mut log.recording);
            };
            log = self.changed.wait_timeout(log, wait);
        }
    }

    fn lock(&self) -> PiMutexGuard<'_, Log> {
        self.log.lock()
    }
}

impl Log {
    /// How long to wait at least until it can be over; `None` when it is.
    fn remaining(&self) -> Option<Duration> {
        if self.ended {
            return None;
        }
        let Some((began, last)) = self.began.zip(self.last) else {
            // Nothing yet; the first note wakes.
            return Some(Duration::from_secs(3600));
        };
        let quiet = QUIET.checked_sub(last.elapsed());
        let whole = LONGEST.checked_sub(began.elapsed());
        // Names alone are no launch: a shell that searches for commands does it all day.
        match self.recording.windows.is_empty() {
            true => whole,
            false => quiet.min(whole),
        }
        .filter(|wait| !wait.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_name_and_the_first_page_are_worth_a_wake_up() {
        let recorder = Recorder::new();
        let name = |recording: &mut Recording| recording.looked_up(1, b"name", true);
        let page = |recording: &mut Recording| recording.read(2, 0, 4096);
        assert!(recorder.adds(name) && !recorder.adds(name));
        // Names alone may last much longer than pages.
        assert!(recorder.adds(page));
        assert!(!recorder.adds(page) && !recorder.adds(name));
        let other = Recorder::new();
        assert!(other.adds(page) && !other.adds(page));
    }
}
