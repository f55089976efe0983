//! What the helper keeps, so that another server can take the place of one that died.

use std::os::fd::{AsFd, OwnedFd};

use fuse_transport::InFlight;
use rustix::io::{Errno, fcntl_dupfd_cloexec};

use crate::error::Error;
use crate::request::MountRequest;

/// Clones beside those of the CPUs: a mount over io_uring with one CPU takes two.
const OTHER_CLONES: usize = 1;

/// Files, cloned descriptors of the device, and the memory for requests in flight.
#[derive(Debug, Default)]
pub(super) struct Replaceable {
    /// In the order of [`MountRequest::files`].
    files: Vec<Option<OwnedFd>>,
    /// The kernel keeps the requests that were taken through a descriptor until it is released.
    clones: Vec<OwnedFd>,
    in_flight: Option<(OwnedFd, InFlight)>,
    /// The mount is served.
    pub(super) served: bool,
}

impl Replaceable {
    /// A file of the mount. An error is the number of the kernel's.
    pub(super) fn file(&mut self, request: &MountRequest, number: usize) -> Result<OwnedFd, Error> {
        let paths = request.files();
        let refused = |errno: Errno| Error::Daemon(errno.raw_os_error().to_string());
        let path = paths.get(number).ok_or_else(|| refused(Errno::INVAL))?;
        self.files.resize_with(paths.len(), || None);
        if self.files[number].is_none() {
            let file = erofs_engine::open_file(path)
                .map_err(|error| refused(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
            self.files[number] = Some(file.into());
        }
        let file = self.files[number].as_ref();
        let file = file.ok_or_else(|| refused(Errno::BADF))?;
        fcntl_dupfd_cloexec(file, 0).map_err(refused)
    }

    /// A cloned descriptor, the same one for each server.
    pub(super) fn clone(&mut self, device: &OwnedFd, number: usize) -> Result<OwnedFd, Error> {
        if number > self.clones.len() || number >= possible_cpus() + OTHER_CLONES {
            return Err(Error::Daemon(format!("there is no clone {number}")));
        }
        if number == self.clones.len() {
            self.clones.push(cloned(device)?);
        }
        fcntl_dupfd_cloexec(&self.clones[number], 0).map_err(Error::io("/dev/fuse"))
    }

    /// The memory for requests in flight.
    pub(super) fn shared(&mut self) -> Result<OwnedFd, Error> {
        let failed = Error::std_io;
        if self.in_flight.is_none() {
            let file = InFlight::create().map_err(failed("requests in flight"))?;
            let mapped = InFlight::map(file.as_fd()).map_err(failed("requests in flight"))?;
            self.in_flight = Some((file, mapped));
        }
        let file = self.in_flight.as_ref().map(|(file, _)| file);
        let file = file.ok_or_else(|| Error::Daemon("no requests in flight".into()))?;
        fcntl_dupfd_cloexec(file, 0).map_err(Error::io("requests in flight"))
    }

    /// The requests in flight of a mount that is served by a server that can be replaced: only such
    /// a one has stored the outcome of the handshake.
    pub(super) fn in_flight(&self) -> Option<&InFlight> {
        let shared = self.in_flight.as_ref().filter(|_| self.served);
        let shared = shared.map(|(_, in_flight)| in_flight);
        shared.filter(|in_flight| in_flight.protocol().is_some())
    }
}

fn possible_cpus() -> usize {
    // Two for a ring.
    sys::cpu_list::possible().map_or(1, |cpus| cpus.len().max(1))
}

/// A descriptor with a list of its own; where `/dev/fuse` cannot be opened (fusermount3 opened it),
/// a duplicate.
fn cloned(device: &OwnedFd) -> Result<OwnedFd, Error> {
    match fuse_transport::clone_of(device.as_fd()) {
        Ok(clone) => Ok(clone),
        Err(_) => fcntl_dupfd_cloexec(device, 0).map_err(Error::io("/dev/fuse")),
    }
}
