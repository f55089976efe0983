//! The processes that fetch images from URLs, as the mount helper keeps them running.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use erofs_engine::remote_image::{Event, Fetcher, ImageUrl, Options};

use crate::error::Error;
use crate::log::Log;

/// Between the deaths of one and its next start: at first, and at most where it dies at once again
/// and again.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];

/// The fetchers of one mount, by the number of their file.
#[derive(Debug, Default)]
pub(super) struct Fetchers(BTreeMap<usize, Kept>);

#[derive(Debug)]
struct Kept {
    fetcher: Fetcher,
    /// When it died, it is started again at this time.
    due: Option<Instant>,
    started: Instant,
    pause: Duration,
    /// Why the last one could not be started.
    failure: String,
}

impl Fetchers {
    /// What a server reads a file at a URL from.
    pub(super) fn client(
        &mut self,
        number: usize,
        source: &ImageUrl,
        options: &Options,
    ) -> Result<OwnedFd, Error> {
        let failed = |error: io::Error| Error::Server(error.to_string());
        let kept = match self.0.entry(number) {
            Entry::Occupied(kept) => kept.into_mut(),
            Entry::Vacant(place) => place.insert(Kept {
                fetcher: Fetcher::start(&waiting(), source, options).map_err(failed)?,
                due: None,
                started: Instant::now(),
                pause: PAUSES[0],
                failure: String::new(),
            }),
        };
        if kept.due.is_some() {
            kept.due = Some(Instant::now());
        }
        let parts = kept.fetcher.client().map_err(failed)?;
        parts.into_descriptor().map_err(failed)
    }

    /// URLs of the devices that the manifest of the image lists, the first file of the mount.
    pub(super) fn listed_devices(&self) -> impl Iterator<Item = PathBuf> {
        let listed = self.0.get(&0).map(|image| image.fetcher.devices());
        listed
            .into_iter()
            .flatten()
            .map(|device| device.url().into())
    }

    /// Readable when one has something to say, or is dead.
    pub(super) fn watched(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let alive = self.0.values().filter(|kept| kept.due.is_none());
        alive.map(|kept| kept.fetcher.as_fd())
    }

    /// Time until one is to be started again.
    pub(super) fn limit(&self) -> Option<Duration> {
        let due = self.0.values().filter_map(|kept| kept.due).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Takes what the watched one with this index says; which may be a line for the log.
    pub(super) fn hear(&mut self, index: usize, log: &Log) {
        let mut alive = self.0.values_mut().filter(|kept| kept.due.is_none());
        let Some(kept) = alive.nth(index) else { return };
        match kept.fetcher.event() {
            // Without a log there is nowhere to report that either.
            Ok(Event::Note(line)) => drop(log.line(&line)),
            Ok(Event::Died) => kept.rest(),
            Err(error) => kept.fail(log, &error.to_string()),
        }
    }

    /// Starts those again whose time has come.
    pub(super) fn start_due(&mut self, log: &Log) {
        let now = Instant::now();
        let due = self
            .0
            .values_mut()
            .filter(|kept| kept.due.is_some_and(|due| due <= now));
        for kept in due {
            kept.started = now;
            kept.due = None;
            if let Err(error) = kept.fetcher.restart() {
                kept.fail(log, &error.to_string());
            }
        }
    }
}

/// Until the mount is served: the server in the foreground, whose socket is the standard input, and
/// the process that waits for one in the background, which reads the standard output.
pub(super) fn waiting() -> [BorrowedFd<'static>; 2] {
    [rustix::stdio::stdin(), rustix::stdio::stdout()]
}

impl Kept {
    /// Logs why, unless the one before failed of the same.
    fn fail(&mut self, log: &Log, why: &str) {
        if self.failure != why {
            log.line(why);
            why.clone_into(&mut self.failure);
        }
        self.rest();
    }

    fn rest(&mut self) {
        let [shortest, longest] = PAUSES;
        let soon = self.started.elapsed() < longest;
        self.pause = if soon {
            longest.min(self.pause * 2)
        } else {
            shortest
        };
        self.due = Some(Instant::now() + self.pause);
    }
}
