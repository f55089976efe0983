//! Pauses after calls that the system refuses temporarily, mostly for lack of memory. The mount
//! continues when memory is available again.

use std::thread;
use std::time::Duration;

use rustix::io::Errno;

const SHORTEST: Duration = Duration::from_millis(1);
const LONGEST: Duration = Duration::from_millis(100);

/// The pauses of one thread.
#[derive(Debug)]
pub(crate) struct BackOff(Duration);

impl BackOff {
    pub(crate) fn new() -> Self {
        Self(SHORTEST)
    }

    /// Notes that a call succeeded, so that the next pause is a short one.
    pub(crate) fn end(&mut self) {
        self.0 = SHORTEST;
    }

    /// Sleeps after a temporary error; returns false for any other error, such as ENODEV for a
    /// mount that is gone.
    pub(crate) fn passes(&mut self, error: Errno) -> bool {
        let passes = matches!(
            error,
            // FAULT: there was no memory for a page of the buffer.
            Errno::AGAIN | Errno::NOMEM | Errno::NOBUFS | Errno::BUSY | Errno::FAULT
        );
        if passes {
            thread::sleep(self.0);
            self.0 = (2 * self.0).min(LONGEST);
        }
        passes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_waited_for_and_no_longer_than_a_tenth_of_a_second() {
        let mut pauses = BackOff::new();
        for errno in [Errno::NOMEM, Errno::AGAIN, Errno::BUSY] {
            assert!(pauses.passes(errno), "{errno}");
        }
        assert_eq!(pauses.0, 8 * SHORTEST);
        (0..5).for_each(|_| assert!(pauses.passes(Errno::NOMEM)));
        assert_eq!(pauses.0, LONGEST);
        pauses.end();
        assert_eq!(pauses.0, SHORTEST);
    }

    #[test]
    fn the_end_of_the_mount_does_not_pass() {
        for errno in [
            Errno::NODEV,
            Errno::CONNABORTED,
            Errno::NOTCONN,
            Errno::BADF,
        ] {
            assert!(!BackOff::new().passes(errno), "{errno}");
        }
    }
}
