//! The time that is left for what was learned when the mount ends.
//!
//! The last launch needs its names, for which a hostile image may take any time; and the thread
//! that learns may have to wait for a CPU of a busy machine. So its own time on a CPU is limited,
//! and not the time that passes.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use sys::clock::ThreadClock;

/// Time on a CPU for the names of the last launch.
const NAMES: Duration = Duration::from_millis(300);

/// Interval between looks. They are counted, and not the time: this process may be stopped, or
/// wait for a CPU, as well.
const STEP: Duration = Duration::from_millis(10);

/// Looks until the thread must end that keeps what was decoded.
const DECODED: u32 = 30;

/// Looks until files are given up that do not answer: those of the image, or of the profile.
const LONGEST: u32 = 300;

/// What the thread that learns says.
#[derive(Debug)]
pub(super) enum Sign {
    /// It has begun: its clock.
    Began(Option<ThreadClock>),
    /// What it has learned is written.
    Written,
}

/// Says that the calling thread learns.
pub(super) fn begin(signs: &Sender<Sign>) {
    // The mount may have ended meanwhile.
    let _ = signs.send(Sign::Began(ThreadClock::of_this_thread()));
}

/// Returns when the thread that learns has ended, or its time.
pub(super) fn wait(signs: &Receiver<Sign>) {
    let (mut clock, mut before) = (None, Duration::ZERO);
    let (mut steps, mut is_written) = (0, false);
    let used = |clock: Option<ThreadClock>| clock.and_then(ThreadClock::used);
    while steps < LONGEST {
        match signs.recv_timeout(STEP) {
            Ok(Sign::Began(began)) => {
                clock = began;
                before = used(clock).unwrap_or_default();
            }
            Ok(Sign::Written) => is_written = true,
            Err(RecvTimeoutError::Timeout) => steps += 1,
            Err(RecvTimeoutError::Disconnected) => return,
        }
        let is_late = used(clock).is_some_and(|used| used.saturating_sub(before) > NAMES);
        if is_late || is_written && steps >= DECODED {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_thread_that_waits_for_a_cpu_has_its_time_all_the_same() {
        let (sender, signs) = channel();
        let written = Arc::new(AtomicBool::new(false));
        let late = Arc::clone(&written);
        let learner = thread::spawn(move || {
            begin(&sender);
            // Off the CPU, as one that others keep from it.
            thread::sleep(2 * STEP * DECODED);
            late.store(true, Ordering::Relaxed);
            sender.send(Sign::Written).unwrap();
        });
        wait(&signs);
        assert!(written.load(Ordering::Relaxed));
        learner.join().unwrap();
    }

    #[test]
    fn one_that_takes_longer_than_any_sound_image_is_given_up() {
        let (sender, signs) = channel();
        let end = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&end);
        let learner = thread::spawn(move || {
            begin(&sender);
            let begun = Instant::now();
            while !ends.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
            begun.elapsed()
        });
        wait(&signs);
        end.store(true, Ordering::Relaxed);
        assert!(learner.join().unwrap() >= NAMES);
    }

    #[test]
    fn one_that_has_ended_is_not_waited_for() {
        let (sender, signs) = channel();
        sender.send(Sign::Written).unwrap();
        drop(sender);
        wait(&signs);
        // Nor one that never began.
        let (sender, signs) = channel();
        drop(sender);
        wait(&signs);
    }
}
