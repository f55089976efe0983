//! Waits until there is work, until the mount helper ends the companion, or until the mount is
//! gone.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::json;

use super::{Companion, LAST_NAMES, is_expected_by};
use crate::reader::Reader;
use crate::surroundings::Settings;

/// Time between checks for events during a launch or a replay.
const NAP: Duration = Duration::from_millis(20);

/// How long a copy of the mount is kept when nothing needs it.
const KEPT: Duration = Duration::from_millis(50);

impl Companion {
    /// Whether there is work to do before anything happens in the mount. `file` holds what was
    /// learned from launches.
    pub fn has_work(reader: &Reader, file: Option<&File>, settings: &Settings) -> bool {
        settings.learns && (travels(reader) || file.is_some_and(is_expected_by))
    }

    /// Waits until there is work, before anything untrusted is read; returns false if the mount
    /// ends first.
    pub fn wait_for_work(reader: &Reader, settings: &Settings, end: BorrowedFd<'_>) -> bool {
        let mut report = json!({"state": "learning", "programs": []});
        if let Some(line) = &settings.trouble {
            report["error"] = json!(line);
        }
        reader.publish(report.to_string().as_bytes());
        let any = settings.learns && settings.any_file;
        let woken = !reader.may_sleep(any) || {
            let watched = [(reader.as_fd(), PollFlags::IN), (end, PollFlags::IN)];
            wait(&watched, None);
            // Checked even if the mount is ending: an event recorded by then may begin a launch.
            !reader.may_sleep(any) || settings.learns && travels(reader)
        };
        reader.awake();
        woken
    }

    /// Sleeps until there may be work; returns true if the mount has ended.
    pub(super) fn rest(&mut self, end: BorrowedFd<'_>) -> bool {
        let replaying = self.replays.iter().any(|replay| replay.is_running());
        let is_busy = replaying || self.launch.is_some();
        if is_busy {
            self.used = Instant::now();
        }
        let changes = self.mount.changes();
        let limit = match is_busy {
            true => Some(NAP),
            false => changes.is_some().then_some(KEPT),
        };
        let any = self.settings.learns && self.settings.any_file && !self.launched_once;
        let watched = [
            (Some(end), PollFlags::IN),
            (Some(self.reader.as_fd()), PollFlags::IN),
            (changes.as_deref().map(AsFd::as_fd), PollFlags::PRI),
        ];
        let watched = watched.into_iter();
        let watched: Vec<_> = watched
            .filter_map(|(fd, events)| Some((fd?, events)))
            .collect();
        let may_sleep = self.reader.may_sleep(any);
        let ready = wait(
            &watched,
            if may_sleep {
                limit
            } else {
                Some(Duration::ZERO)
            },
        );
        self.reader.awake();
        let is_ready = |place: usize| ready.get(place).copied().unwrap_or(false);
        if changes.is_some() && self.mount.is_gone(is_ready(2)) {
            self.mount_has_gone();
        } else if changes.is_some() && self.used.elapsed() > KEPT {
            self.mount.release();
        }
        is_ready(0)
    }

    /// The launch in progress may need names that only the mount has, so spend a moment on finding
    /// them.
    fn mount_has_gone(&mut self) {
        if let Some(root) = self.mount.kept().filter(|_| self.launch.is_some()) {
            self.drain();
            self.find_names(&root, Instant::now() + LAST_NAMES);
        }
        self.mount.release();
    }
}

/// Whether a profile that came with the image has arrived.
fn travels(reader: &Reader) -> bool {
    reader.arrivals() > 0 || reader.is_inside() == Some(true)
}

/// Which of the descriptors have an event.
fn wait(watched: &[(BorrowedFd<'_>, PollFlags)], limit: Option<Duration>) -> Vec<bool> {
    let polled = watched.iter();
    let polled = polled.map(|(fd, events)| PollFd::from_borrowed_fd(*fd, *events));
    let mut polled: Vec<_> = polled.collect();
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    // A signal ends the wait early, which does no harm.
    if poll(&mut polled, limit.as_ref()).is_err() {
        return Vec::new();
    }
    polled.iter().map(|fd| !fd.revents().is_empty()).collect()
}
