//! Files, descriptors and memory that the helper keeps so that another server can take over after a
//! death.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use erofs_engine::cpu_workers::plugged_in_cpus;
use erofs_engine::{RootHash, Version, remote};
use fuse_transport::RequestsInFlight;
use rustix::io::fcntl_dupfd_cloexec;

use super::mount_fetcher::MountFetcher;
use crate::companion::travelling_file;
use erofs_fuse::error::Error;
use erofs_fuse::request::MountRequest;

/// Files, cloned descriptors of the device, and the memory for requests in flight.
#[derive(Debug)]
pub(crate) struct Replaceable {
    /// Opened files: those of [`MountRequest::files`] in order, then those listed in the image's
    /// manifest.
    files: Vec<Option<FirstOpened>>,
    /// Cloned descriptors. The kernel keeps the requests taken through a descriptor until the last
    /// copy is closed.
    clones: Vec<OwnedFd>,
    in_flight: Option<(OwnedFd, RequestsInFlight)>,
    /// The fetcher for files at URLs.
    pub(crate) fetcher: MountFetcher,
    /// Whether the mount is served.
    pub(crate) served: bool,
}

/// A file as the first server got it.
#[derive(Debug)]
struct FirstOpened {
    file: OwnedFd,
    version: Option<Version>,
}

impl From<File> for FirstOpened {
    fn from(file: File) -> Self {
        let version = Version::of(&file);
        Self {
            file: file.into(),
            version,
        }
    }
}

impl Replaceable {
    pub(crate) fn new(fetcher: MountFetcher) -> Self {
        Self {
            files: Vec::new(),
            clones: Vec::new(),
            in_flight: None,
            fetcher,
            served: false,
        }
    }

    /// Opens a file of the mount, the same one for each server.
    pub(crate) fn file(&mut self, request: &MountRequest, number: usize) -> Result<OwnedFd, Error> {
        let mut paths = request.files();
        // The server numbers a listed file only if the file has no number yet.
        let listed = self.fetcher.listed();
        let listed: Vec<_> = listed
            .filter(|path| !paths.contains(path))
            .cloned()
            .collect();
        paths.extend(listed);
        let none = || Error::Protocol(format!("there is no file {number}"));
        let path = paths.get(number).ok_or_else(none)?;
        let url = remote::url(path).transpose().map_err(Error::Server)?;
        let engine = &request.options.engine;
        let small = engine.is_small_file(&request.image, path);
        let name = || remote::shown(path);
        let opened = match url {
            Some(url) if !small => {
                let root = self.root_hash(request, path, &paths)?;
                let mut options = engine.fetching(&request.image, &url, root.as_ref());
                options.launches = number == 0 && travelling_file::is_wanted(request);
                options.ahead = request.options.prefetch.ahead();
                let client = self.fetcher.client(number, &url, &options);
                return client.map_err(|error| Error::Server(error.to_string()));
            }
            _ if self.files.get(number).is_some_and(Option::is_some) => None,
            Some(url) => {
                let options = engine.fetching(&request.image, &url, None);
                let opened = remote::open_small(&self.fetcher.ends(), &url, &options);
                Some(opened.map_err(|error| Error::Server(remote::about(path, &error))))
            }
            None => Some(erofs_engine::open_file(path).map_err(Error::std_io(name()))),
        };
        self.files.resize_with(paths.len(), || None);
        if let Some(file) = opened {
            self.files[number] = Some(file?.into());
        }
        let file = self.files[number].as_ref().ok_or_else(none)?;
        fcntl_dupfd_cloexec(&file.file, 0).map_err(Error::io(name()))
    }

    /// The version of a file of the mount when it was opened; `None` for one at a URL.
    pub(crate) fn version(&self, number: usize) -> Option<Version> {
        self.files.get(number)?.as_ref()?.version
    }

    /// The root hash of the image whose first file this is. With it, the same image at another URL
    /// uses the same cache.
    fn root_hash(
        &mut self,
        request: &MountRequest,
        image: &Path,
        paths: &[PathBuf],
    ) -> Result<Option<RootHash>, Error> {
        let engine = &request.options.engine;
        let Some(options) = engine.of_first_file(&request.image, image) else {
            return Ok(None);
        };
        let verity = options.verity.of_image(image);
        let path = verity.root_hash_file.as_ref();
        let number = path.and_then(|path| paths.iter().position(|other| other == path));
        let file = number
            .map(|number| self.file(request, number))
            .transpose()?;
        let file = file.map(File::from);
        let open = |_: &Path| match &file {
            Some(file) => file.try_clone(),
            None => Err(io::ErrorKind::NotFound.into()),
        };
        verity.root(&open).map_err(Error::Server)
    }

    /// A cloned descriptor, the same for each server.
    pub(crate) fn clone(&mut self, device: &OwnedFd, number: usize) -> Result<OwnedFd, Error> {
        let possible = plugged_in_cpus().map_or(1, |cpus| cpus.len().max(1));
        if number > self.clones.len() || number >= possible {
            return Err(Error::Protocol(format!("there is no clone {number}")));
        }
        if number == self.clones.len() {
            self.clones.push(cloned(device)?);
        }
        fcntl_dupfd_cloexec(&self.clones[number], 0).map_err(Error::io("/dev/fuse"))
    }

    /// The memory for requests in flight.
    pub(crate) fn shared(&mut self) -> Result<OwnedFd, Error> {
        const WHAT: &str = "requests in flight";
        let (file, _) = match &mut self.in_flight {
            Some(made) => made,
            none => {
                let file = RequestsInFlight::create().map_err(Error::std_io(WHAT))?;
                let mapped = RequestsInFlight::map(file.as_fd()).map_err(Error::std_io(WHAT))?;
                none.insert((file, mapped))
            }
        };
        fcntl_dupfd_cloexec(file, 0).map_err(Error::io(WHAT))
    }

    /// The requests in flight, if the server can be replaced: only such a server stores the outcome
    /// of the handshake.
    pub(crate) fn in_flight(&self) -> Option<&RequestsInFlight> {
        let shared = self.in_flight.as_ref().filter(|_| self.served);
        let shared = shared.map(|(_, in_flight)| in_flight);
        shared.filter(|in_flight| in_flight.protocol().is_some())
    }
}

/// A descriptor of the device with its own request list; a duplicate if this process may not open
/// `/dev/fuse`, which fusermount3 opened for it.
fn cloned(device: &OwnedFd) -> Result<OwnedFd, Error> {
    match fuse_transport::clone_of(device.as_fd()) {
        Ok(clone) => Ok(clone),
        Err(_) => fcntl_dupfd_cloexec(device, 0).map_err(Error::io("/dev/fuse")),
    }
}
