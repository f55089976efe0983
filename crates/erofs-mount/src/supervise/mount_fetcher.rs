//! The process that fetches the files of a mount from URLs, kept running by the mount helper.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use erofs_engine::remote_image::{Event, Fetcher, ImageUrl, Options, Parts};

use erofs_fuse::error::Error;
use erofs_fuse::log::Log;

/// Pause between the death of a fetcher and its next start: initial, and maximal if it keeps dying
/// at once.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_secs(1)];

/// The fetcher of one mount.
#[derive(Debug)]
pub(crate) struct MountFetcher {
    /// Set once a file of the mount is at a URL.
    kept: Option<Kept>,
    ends: Vec<OwnedFd>,
}

#[derive(Debug)]
struct Kept {
    fetcher: Fetcher,
    /// The fetcher's numbers of the mount's files.
    images: BTreeMap<usize, usize>,
    /// The files listed by the manifests of images in addition to the images, in the order in which
    /// they were opened.
    listed: Vec<PathBuf>,
    /// If it died, the time at which it is started again.
    due: Option<Instant>,
    started: Instant,
    pause: Duration,
    /// Why the last one could not be started.
    failure: String,
}

impl MountFetcher {
    /// Creates it. Once one of `ends` can be read or its other end is closed, nobody waits for an
    /// image.
    pub(crate) fn new(ends: Vec<OwnedFd>) -> Self {
        Self { kept: None, ends }
    }

    /// Takes the launch profiles that came with the image, once.
    pub(crate) fn take_launches(&mut self) -> Option<OwnedFd> {
        self.kept.as_mut()?.fetcher.take_launches()
    }

    /// The mount is served: files opened from now on are for its readers.
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
    ) -> Result<OwnedFd, Error> {
        let parts = self.parts(number, source, options);
        let descriptor = parts.and_then(Parts::into_descriptor);
        descriptor.map_err(|error| Error::Server(error.to_string()))
    }

    fn parts(&mut self, number: usize, source: &ImageUrl, options: &Options) -> io::Result<Parts> {
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
        kept.fetcher.client_of(image)
    }

    /// URLs of devices and layers listed by the manifests of images, in the order in which a server
    /// opens them.
    pub(crate) fn listed(&self) -> impl Iterator<Item = &PathBuf> {
        self.kept.iter().flat_map(|kept| &kept.listed)
    }

    /// Readable if it has a message, or is dead.
    pub(crate) fn watched(&self) -> Option<BorrowedFd<'_>> {
        let alive = self.kept.as_ref().filter(|kept| kept.due.is_none());
        alive.map(|kept| kept.fetcher.as_fd())
    }

    /// Time until it should be started again.
    pub(crate) fn limit(&self) -> Option<Duration> {
        let due = self.kept.as_ref()?.due?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    /// Has the next [`attend`](Self::attend) start another fetcher: the current one belongs to a
    /// mount helper that is dead, and ends once its sockets are closed.
    pub(crate) fn is_orphaned(&mut self) {
        if let Some(kept) = &mut self.kept {
            kept.due = Some(Instant::now());
        }
    }

    /// Takes its message, which may be a line for the log, once it is readable.
    pub(crate) fn hear(&mut self, log: &Log) {
        let Some(kept) = &mut self.kept else { return };
        match kept.fetcher.event() {
            // Without a log there is nowhere to report that either.
            Ok(Event::Note(line)) => drop(log.line(&line)),
            Ok(Event::Launches) => {}
            Ok(Event::Died) => kept.rest(),
            Err(error) => kept.fail(log, &error.to_string()),
        }
    }

    /// Logs its messages from while a file was opened, and starts it again when it is time.
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
    /// Creates it with the first file, which has this number in the mount.
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

    /// Logs the reason, unless the previous one failed for the same reason.
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
