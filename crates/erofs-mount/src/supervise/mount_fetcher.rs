//! The process that fetches the files of a mount from URLs, kept running by the mount helper.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use erofs_engine::remote_image::{Event, Fetcher, ImageUrl, Options};

use erofs_fuse::log::Log;

/// Initial and maximum pause between the death of a fetcher and the next start; the pause grows if
/// fetchers keep dying immediately.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];

/// The fetcher of one mount.
#[derive(Debug)]
pub(crate) struct MountFetcher {
    /// Set once a file at a URL has been opened.
    kept: Option<Kept>,
    ends: Vec<OwnedFd>,
}

#[derive(Debug)]
struct Kept {
    fetcher: Fetcher,
    /// Maps each file's number in the mount to its number in the fetcher.
    images: BTreeMap<usize, usize>,
    /// The additional files that the manifests of images list, in the order in which they were
    /// opened.
    listed: Vec<PathBuf>,
    /// When to start the fetcher again, if it died.
    due: Option<Instant>,
    started: Instant,
    pause: Duration,
    /// The last logged reason why a fetcher failed.
    failure: String,
}

impl MountFetcher {
    /// Starts no process yet: a fetcher is started when the first file is opened. When no process
    /// waits for the mount any more, one of `ends` becomes readable, or the other end of one of
    /// them is closed.
    pub(crate) fn new(ends: Vec<OwnedFd>) -> Self {
        Self { kept: None, ends }
    }

    /// Takes the launch profiles that came with the image; only the first call returns them.
    pub(crate) fn take_launches(&mut self) -> Option<OwnedFd> {
        self.kept.as_mut()?.fetcher.take_launches()
    }

    /// Notes that the mount is served: files opened from now on are for its readers.
    pub(crate) fn is_served(&mut self) {
        self.ends.clear();
    }

    pub(crate) fn ends(&self) -> Vec<BorrowedFd<'_>> {
        self.ends.iter().map(AsFd::as_fd).collect()
    }

    /// The connection through which a server reads a file at a URL.
    pub(crate) fn client(
        &mut self,
        number: usize,
        source: &ImageUrl,
        options: &Options,
    ) -> io::Result<OwnedFd> {
        let ends: Vec<_> = self.ends.iter().map(AsFd::as_fd).collect();
        let kept = match &mut self.kept {
            Some(kept) => kept,
            none => none.insert(Kept::new(Fetcher::start(&ends, source, options)?, number)),
        };
        if kept.due.is_some() {
            kept.due = Some(Instant::now());
        }
        let image = match kept.images.entry(number) {
            Entry::Occupied(image) => *image.get(),
            Entry::Vacant(place) => {
                let image = kept.fetcher.open(&ends, source, options)?;
                kept.listed.extend(listed(&kept.fetcher, image));
                *place.insert(image)
            }
        };
        kept.fetcher.client_of(image)?.into_descriptor()
    }

    /// URLs of devices and layers listed by the manifests of images, in the order in which a server
    /// opens them.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &PathBuf> {
        self.kept.iter().flat_map(|kept| &kept.listed)
    }

    /// The descriptor of the fetcher; it is readable if the fetcher has sent a message or is dead.
    /// `None` if no fetcher is running.
    pub(crate) fn watched(&self) -> Option<BorrowedFd<'_>> {
        let alive = self.kept.as_ref().filter(|kept| kept.due.is_none());
        alive.map(|kept| kept.fetcher.as_fd())
    }

    /// Time until the fetcher should be started again.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let due = self.kept.as_ref()?.due?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Makes the next [`attend`](Self::attend) start another fetcher, because the current one
    /// belongs to a mount helper that is dead. The current one ends once its sockets are closed.
    pub(crate) fn is_orphaned(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.due = Some(Instant::now());
        }
    }

    /// Takes a message, such as a line for the log, from the fetcher. Call this when
    /// [`watched`](Self::watched) is readable.
    pub(crate) fn hear(&mut self, log: &Log) {
        let Some(kept) = &mut self.kept else { return };
        match kept.fetcher.event() {
            // If the log cannot be written, there is nowhere to report that.
            Ok(Event::Note(line)) => drop(log.line(&line)),
            Ok(Event::Launches) => {}
            Ok(Event::Died) => kept.rest(),
            Err(error) => kept.fail(log, &error.to_string()),
        }
    }

    /// Logs the messages that the fetcher sent while a file was being opened, and restarts the
    /// fetcher when that is due.
    pub(crate) fn attend(&mut self, log: &Log) {
        let Some(kept) = &mut self.kept else { return };
        while let Some(line) = kept.fetcher.heard() {
            log.line(&line);
        }
        let now = Instant::now();
        if kept.due.is_none_or(|due| due > now) {
            return;
        }
        kept.started = now;
        kept.due = None;
        if let Err(error) = kept.fetcher.restart() {
            kept.fail(log, &error.to_string());
        }
    }
}

fn listed(fetcher: &Fetcher, image: usize) -> impl Iterator<Item = PathBuf> {
    fetcher.listed(image).map(|url| url.url().into())
}

impl Kept {
    /// Wraps a new fetcher and its first file, whose number in the mount is `number`.
    fn new(fetcher: Fetcher, number: usize) -> Kept {
        Kept {
            listed: listed(&fetcher, 0).collect(),
            fetcher,
            images: BTreeMap::from([(number, 0)]),
            due: None,
            started: Instant::now(),
            pause: PAUSES[0],
            failure: String::new(),
        }
    }

    /// Logs why a fetcher failed, unless the previous one failed for the same reason.
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
