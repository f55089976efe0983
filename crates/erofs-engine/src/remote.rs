//! Stored bytes that have to be fetched over a network before they can be read.
//!
//! A thread that serves requests must not wait for them: its request fails, the bytes that it lacks
//! are remembered, and another thread waits. All other threads wait where they read.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use remote_image::message::RANGES;
use remote_image::{Class, Fetcher, ImageUrl, Options, RemoteFile};
use rustix::fs::MemfdFlags;

/// A reader that was killed is seen within this time.
const TICK: Duration = Duration::from_millis(100);

/// Bytes of a small file that are read: more than any that is valid.
const SMALL: u64 = (64 << 10) + 1;

/// Blocks that a full cache drops before they are read are asked for so often.
const TRIES: usize = 16;

thread_local! {
    /// What the request of this thread lacks; `None`: the thread waits.
    static MISSING: RefCell<Option<Missing>> = const { RefCell::new(None) };
}

/// Bytes that a request lacks.
#[derive(Debug, Default)]
pub struct Missing {
    files: Vec<(Arc<RemoteFile>, Vec<Range<u64>>)>,
    /// Something was missing a moment ago.
    again: bool,
}

impl Missing {
    /// The request was complete.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty() && !self.again
    }

    fn extend(&mut self, other: Missing) {
        for (file, ranges) in other.files {
            ranges.into_iter().for_each(|range| self.add(&file, range));
        }
    }

    pub(crate) fn add(&mut self, file: &Arc<RemoteFile>, range: Range<u64>) {
        let known = self
            .files
            .iter_mut()
            .find(|(other, _)| Arc::ptr_eq(other, file));
        match known {
            Some((_, ranges)) if ranges.len() < RANGES => ranges.push(range),
            // The request is repeated when others have come.
            Some(_) => {}
            None => self.files.push((Arc::clone(file), vec![range])),
        }
    }

    /// Waits until all of it has been fetched. `is_wanted` is called about every 100 ms.
    ///
    /// # Errors
    /// Those of the network, in one line, after the time limit; `Interrupted` when the bytes are
    /// not wanted any more.
    pub fn wait(self, is_wanted: &dyn Fn() -> bool) -> io::Result<()> {
        let ask = |(file, ranges): &(Arc<RemoteFile>, Vec<_>)| file.request(ranges, Class::Demand);
        let asked: Vec<_> = self.files.iter().map(ask).collect::<io::Result<_>>()?;
        for request in asked {
            while !request.wait_for(TICK)? {
                if !is_wanted() {
                    return Err(io::ErrorKind::Interrupted.into());
                }
            }
        }
        Ok(())
    }
}

/// Runs a request in which reads fail rather than wait for a network. Also returns what it lacks:
/// if that is not empty, the result is to be dropped.
pub fn without_waiting<R>(request: impl FnOnce() -> R) -> (R, Missing) {
    let _scope = WithoutWaiting::begin();
    let result = request();
    let missing = MISSING.with_borrow_mut(|missing| missing.take());
    (result, missing.unwrap_or_default())
}

/// Until it is dropped, this thread does not wait for a network.
#[derive(Debug)]
pub(crate) struct WithoutWaiting;

impl WithoutWaiting {
    pub(crate) fn begin() -> Self {
        MISSING.set(Some(Missing::default()));
        Self
    }
}

impl Drop for WithoutWaiting {
    fn drop(&mut self) {
        MISSING.set(None);
    }
}

/// Whether the request of this thread lacks something.
pub fn lacks() -> bool {
    MISSING.with_borrow(|missing| missing.as_ref().is_some_and(|missing| !missing.is_empty()))
}

/// Whether this thread waits for networks.
pub(crate) fn waits() -> bool {
    MISSING.with_borrow(Option::is_none)
}

/// The request of this thread failed since a thread that helped with it does not wait either.
pub(crate) fn repeat() {
    MISSING.with_borrow_mut(|missing| {
        if let Some(missing) = missing {
            missing.again = true;
        }
    });
}

/// Waits for all these bytes at once, which are not cached, or remembers that they are missing.
pub(crate) fn need(missing: Missing) -> io::Result<()> {
    let waits = waits();
    match missing.is_empty() {
        true => Ok(()),
        false if waits => missing.wait(&|| true),
        false => {
            MISSING.with_borrow_mut(|all| all.get_or_insert_default().extend(missing));
            Err(io::ErrorKind::WouldBlock.into())
        }
    }
}

/// Fills `buf` from byte `position` of the file.
pub(crate) fn read(file: &Arc<RemoteFile>, buf: &mut [u8], position: u64) -> io::Result<()> {
    let range = position..position + buf.len() as u64;
    for _ in 0..TRIES {
        if file.read_cached(buf, position)? {
            return Ok(());
        }
        let mut missing = Missing::default();
        missing.add(file, range.clone());
        need(missing)?;
    }
    Err(io::Error::other(
        "fetched blocks leave the cache before they are read",
    ))
}

/// The URL that stands in the place of a path, if there is one. The error is one line.
pub fn url(path: &Path) -> Option<Result<ImageUrl, String>> {
    ImageUrl::parse(path.to_str()?)
}

/// A file beside an image: its path or URL with `suffix`.
pub(crate) fn beside(image: &Path, suffix: &str) -> PathBuf {
    match url(image) {
        Some(Ok(source)) => source.beside(suffix).url().into(),
        _ => {
            let mut path = image.as_os_str().to_owned();
            path.push(suffix);
            path.into()
        }
    }
}

/// A message about a file, in one line that names it. Those of URLs do already.
pub fn about(path: &Path, error: &dyn std::fmt::Display) -> String {
    let (name, error) = (shown(path), error.to_string());
    match error.starts_with(&name) {
        true => error,
        false => format!("{name}: {error}"),
    }
}

/// The process that fetches all files of one image; none until the first is opened.
#[derive(Debug, Default)]
pub(crate) struct ImageFetcher(RefCell<Option<Fetcher>>);

impl ImageFetcher {
    /// Opens a URL for reading: a socket with [`Parts`](remote_image::Parts).
    pub(crate) fn open(&self, source: &ImageUrl, options: &Options) -> io::Result<File> {
        let mut fetcher = self.0.borrow_mut();
        let (fetcher, number) = match fetcher.as_mut() {
            Some(fetcher) => {
                let number = fetcher.open(&[], source, options)?;
                (fetcher, number)
            }
            None => (fetcher.insert(Fetcher::start(&[], source, options)?), 0),
        };
        Ok(fetcher.client_of(number)?.into_descriptor()?.into())
    }

    /// All files are open: the fetcher goes on until they are closed.
    pub(crate) fn watch(self) -> io::Result<()> {
        let fetcher = self.0.into_inner();
        fetcher.map_or(Ok(()), |fetcher| fetcher.watch(|_| {}))
    }
}

/// Opens a small file at a URL, such as a root hash, as a file in memory. No process and no thread
/// remain. `waiting`: see [`Fetcher::start`].
///
/// # Errors
/// One line without secrets; [`io::ErrorKind::NotFound`]: the server has no such file.
pub fn open_small(
    waiting: &[BorrowedFd],
    source: &ImageUrl,
    options: &Options,
) -> io::Result<File> {
    let options = Options {
        keep: false,
        ..options.clone()
    };
    let mut fetcher = Fetcher::start(waiting, source, &options)?;
    let whole = RemoteFile::new(fetcher.client()?);
    let all = 0..whole.length().min(SMALL);
    let mut bytes = vec![0; all.end as usize];
    while !whole.read_cached(&mut bytes, 0)? {
        let asked = whole.request(std::slice::from_ref(&all), Class::Demand)?;
        asked.wait()?;
    }
    let memory = rustix::fs::memfd_create("erofast", MemfdFlags::CLOEXEC)?;
    let mut file = File::from(memory);
    file.write_all(&bytes)?;
    Ok(file)
}

/// The name of an image in messages: its path, or its URL without secrets.
pub fn shown(path: &Path) -> String {
    match url(path) {
        Some(Ok(source)) => source.to_string(),
        Some(Err(_)) => "a URL".to_owned(),
        None => path.display().to_string(),
    }
}
