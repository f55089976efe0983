//! Stored bytes that must be fetched over a network before they can be read.
//!
//! A thread that serves requests must not wait for these bytes: its [`Request`] records which are
//! missing and fails, and another thread waits. Any other request waits while it reads.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use remote_image::registry::Version;
use remote_image::{Class, Fetcher, ImageUrl, Options, RemoteFile};
use rustix::fs::MemfdFlags;

use crate::request::budget::Request;
use crate::request::missing::Missing;

/// Maximum number of bytes that are read from a small file: more than any valid one has.
const SMALL: u64 = (64 << 10) + 1;

/// How many times blocks are requested again when a full cache drops them before they are read.
const TRIES: usize = 16;

/// Fills `buf` from byte `position` of the file.
pub(crate) fn read(
    request: &Request<'_>,
    file: &Arc<RemoteFile>,
    buf: &mut [u8],
    position: u64,
) -> io::Result<()> {
    let range = position..position + buf.len() as u64;
    for _ in 0..TRIES {
        if file.read_cached(buf, position)? {
            return Ok(());
        }
        let mut missing = Missing::default();
        missing.add(file, range.clone());
        request.need(missing)?;
    }
    Err(io::Error::other(
        "fetched blocks are evicted from the cache before they are read",
    ))
}

/// The URL, if one was specified instead of a path. The error is one line.
pub fn url(path: &Path) -> Option<Result<ImageUrl, String>> {
    ImageUrl::parse(path.to_str()?)
}

/// Whether the path is a URL in a registry.
pub(crate) fn is_in_registry(path: &Path) -> bool {
    let source = url(path).and_then(Result::ok);
    source.is_some_and(|source| source.reference().is_some())
}

/// Whether the path is a URL with a tag or a digest in a registry, and not the URL of a layer.
pub(crate) fn is_image_of_registry(path: &Path) -> bool {
    let reference = url(path).and_then(Result::ok);
    let reference = reference.and_then(|source| source.reference());
    let version = reference.map(|reference| reference.version);
    matches!(version, Some(Version::Tag(_) | Version::Digest(_)))
}

/// The path or URL of a file beside an image: that of the image with `suffix` appended.
pub fn beside(image: &Path, suffix: &str) -> PathBuf {
    match url(image) {
        Some(Ok(source)) => source.beside(suffix).url().into(),
        _ => {
            let mut path = image.as_os_str().to_owned();
            path.push(suffix);
            path.into()
        }
    }
}

/// A message about a file, on one line that begins with the file's name. Messages about URLs
/// already begin with the URL.
pub fn about(path: &Path, error: &dyn std::fmt::Display) -> String {
    let (name, error) = (shown(path), error.to_string());
    match error.starts_with(&name) {
        true => error,
        false => format!("{name}: {error}"),
    }
}

/// The process that fetches all files of one image; `None` until the first file is opened.
#[derive(Debug, Default)]
pub(crate) struct ImageFetcher(RefCell<Option<Fetcher>>);

impl ImageFetcher {
    /// Opens a URL for reading, as a descriptor from which [`Parts`](remote_image::Parts) can be
    /// restored.
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

    /// Tells the fetcher that all files are open: it continues until they are closed.
    pub(crate) fn watch(self) -> io::Result<()> {
        let fetcher = self.0.into_inner();
        fetcher.map_or(Ok(()), |fetcher| fetcher.watch(|_| {}))
    }
}

/// Opens a small file at a URL, such as a root hash, as a file in memory. No process or thread
/// remains afterwards. For `waiting`, see [`Fetcher::start`].
///
/// # Errors
/// One line without secrets; [`io::ErrorKind::NotFound`] if the server has no such file.
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
