//! The server's side of the protocol with its mount helper.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use erofs_engine::Version;
use erofs_engine::cpu_workers::plugged_in_cpus;
use fuse_transport::{RequestsInFlight, Restartable, Session};
use look_ahead::Events;
use rustix::io::Errno;

use super::decoded::DecodedWriter;
use super::messages::{Order, Request, Response, receive_order};
use crate::error::{Error, LINE_CHARS};
use crate::request::MountRequest;

/// The connection of a server to its mount helper.
#[derive(Debug)]
pub struct MountHelper {
    socket: OwnedFd,
    has_companion: bool,
    /// Atomic: number of devices listed by a manifest that have been opened.
    listed: AtomicUsize,
    /// Set once the handshake is done, if there is a watcher. The open descriptor shows that this
    /// server is alive.
    alive: OnceLock<OwnedFd>,
}

impl AsFd for MountHelper {
    /// The socket; when it closes, the helper knows that the server is dead.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl MountHelper {
    fn new(socket: OwnedFd, has_companion: bool) -> Self {
        Self {
            socket,
            has_companion,
            listed: AtomicUsize::new(0),
            alive: OnceLock::new(),
        }
    }

    /// Connects to the helper that started this server. The server's standard input is the socket
    /// to the helper; `null` takes its place. `has_companion` says whether the helper answers the
    /// requests for a companion.
    ///
    /// # Errors
    /// Returns an error if standard input cannot be replaced.
    pub fn parent(null: impl AsFd, has_companion: bool) -> Result<Self, Error> {
        let stdin = rustix::stdio::stdin();
        let socket = rustix::io::fcntl_dupfd_cloexec(stdin, 3).map_err(Error::io("stdin"))?;
        rustix::stdio::dup2_stdin(null).map_err(Error::io("stdin"))?;
        Ok(Self::new(socket, has_companion))
    }

    /// Whether the helper has a companion for this server.
    pub(crate) fn has_companion(&self) -> bool {
        self.has_companion
    }

    /// Receives an order, once the socket is readable; `None` if the helper is gone.
    pub(crate) fn order(&self) -> Option<Order> {
        receive_order(&self.socket).ok()
    }

    /// Opens a file of the mount for reading: the same file for each server, with the version that
    /// it had when the first server got it.
    pub(crate) fn open(
        &self,
        request: &MountRequest,
        path: &Path,
    ) -> io::Result<(File, Option<Version>)> {
        let files = request.files();
        let file = files.iter().position(|other| *other == path);
        // Devices listed in a manifest come after the files; each is opened once, in the order of
        // the manifest.
        let listed = || files.len() + self.listed.fetch_add(1, Ordering::Relaxed);
        let file = file.unwrap_or_else(listed);
        let versioned = true;
        let answer = self.ask(Request::Open { file, versioned })??;
        let file = answer.descriptor.ok_or(io::ErrorKind::InvalidData)?;
        Ok((file.into(), answer.version))
    }

    /// Opens the file of decoded bytes that launches from the image read; `None` if there is no
    /// file yet.
    ///
    /// # Errors
    /// Returns an error if decoded bytes are not kept.
    pub(crate) fn decoded(&self) -> Result<Option<File>, Error> {
        Ok(self.call(Request::Decoded)?.map(File::from))
    }

    /// Gets the memory for the requests in flight and the cloned descriptors, with which another
    /// server can replace this one.
    pub(crate) fn restartable(&self) -> Result<Restartable, Error> {
        let in_flight = RequestsInFlight::map(self.descriptor(Request::InFlight)?.as_fd());
        Ok(Restartable {
            in_flight: Arc::new(in_flight.map_err(Error::std_io("requests in flight"))?),
            clones: self.clones(cpus())?,
        })
    }

    /// Returns cloned descriptors for the channels of a server that is not replaced and may no
    /// longer be allowed to open `/dev/fuse`. If the caller made the mount, there are none.
    pub(crate) fn channels(&self, session: &Session) -> Vec<OwnedFd> {
        let count = match session.protocol().io_uring {
            // One channel for requests that rings do not carry.
            true => 1,
            false => cpus(),
        };
        self.clones(count).unwrap_or_default()
    }

    fn clones(&self, count: usize) -> Result<Vec<OwnedFd>, Error> {
        let clone = |number| self.descriptor(Request::Clone { number });
        (0..count).map(clone).collect()
    }

    /// Reports that the mount is served: from then on a server that dies is replaced, if possible.
    /// Returns false if the helper was killed before it answered. The helper may have reported the
    /// mount by then, so the mount must not end.
    pub fn served(&self) -> Result<bool, Error> {
        let Ok(outcome) = self.ask(Request::Served) else {
            return Ok(false);
        };
        self.hold(outcome?.descriptor);
        Ok(true)
    }

    /// Holds the descriptor until this process ends.
    fn hold(&self, alive: Option<OwnedFd>) {
        if let Some(alive) = alive {
            let _ = self.alive.set(alive);
        }
    }

    /// The descriptors that are closed when this server dies, which is how other processes notice
    /// its death. A thread with its own descriptor table must close its copies.
    pub(crate) fn signs_of_life(&self) -> Vec<RawFd> {
        let held = [Some(&self.socket), self.alive.get()];
        held.into_iter().flatten().map(AsRawFd::as_raw_fd).collect()
    }

    /// Reports that the handshake is complete. The helper then applies settings that need the
    /// kernel's side of the mount.
    pub(crate) fn handshake_done(&self) -> Result<(), Error> {
        self.hold(self.call(Request::HandshakeDone)?);
        Ok(())
    }

    /// The writer for the decoded bytes of launches. Call this once.
    pub(crate) fn decoded_writer(&self) -> Result<DecodedWriter, Error> {
        let socket = self.descriptor(Request::KeepDecoded);
        socket.map(DecodedWriter::new)
    }

    /// Gets the memory in which this server records events for the companion of the mount. The
    /// first server calls this before it mounts, because the companion starts during the handshake.
    pub(crate) fn events(&self) -> Result<Events, Error> {
        let file = self.descriptor(Request::Events)?;
        let wake = self.descriptor(Request::Wake)?;
        Events::map(file.as_fd(), wake).map_err(Error::std_io("memory for a companion"))
    }

    /// The file that sets the kernel's read-ahead of the mount, in KiB; `None` if access is
    /// refused. Call this when the handshake is complete.
    pub(crate) fn read_ahead(&self) -> Result<Option<OwnedFd>, Error> {
        self.call(Request::ReadAhead)
    }

    /// Sends a request whose answer carries nothing.
    pub(crate) fn tell(&self, request: Request) -> Result<(), Error> {
        self.call(request).map(drop)
    }

    /// Sends a request whose answer carries a descriptor.
    pub(crate) fn descriptor(&self, request: Request) -> Result<OwnedFd, Error> {
        let missing = || Error::Protocol("the mount helper sent no descriptor".to_owned());
        self.call(request)?.ok_or_else(missing)
    }

    fn call(&self, request: Request) -> Result<Option<OwnedFd>, Error> {
        Ok(self.ask(request).map_err(gone)??.descriptor)
    }

    fn ask(&self, request: Request) -> io::Result<Response> {
        request.ask(&self.socket, b"")
    }

    /// Reports that this server ends with an error.
    pub fn failed(&self, error: &Error) {
        let line: String = error.to_string().chars().take(LINE_CHARS).collect();
        // Sending fails only if the helper is gone.
        let _ = Request::Failed.send(&self.socket, line.as_bytes());
    }
}

/// Number of CPUs that are plugged in, online or not. The worker of a CPU that is plugged in later
/// shares a descriptor with another worker.
fn cpus() -> usize {
    plugged_in_cpus().map_or(1, |cpus| cpus.into_iter().filter(|there| *there).count())
}

fn gone(error: io::Error) -> Error {
    Error::std_io(match Errno::from_io_error(&error) {
        Some(Errno::MFILE) => "cannot receive a descriptor from the mount helper",
        _ => "the mount helper process is gone",
    })(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_knows_that_the_helper_was_killed_before_it_answered() {
        let (socket, theirs) = crate::packets::socket_pair().unwrap();
        let helper = MountHelper::new(socket, true);
        std::thread::scope(|scope| {
            let served = scope.spawn(|| helper.served());
            let request = super::super::receive(&theirs).unwrap().0;
            assert_eq!(request, Request::Served);
            drop(theirs);
            assert!(!served.join().unwrap().unwrap());
        });
    }
}
