//! The server's side of its mount helper.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;

use fuse_transport::{InFlight, Restartable, Session};
use rustix::fs::{Mode, OFlags, open};
use rustix::io::Errno;

use super::directory_lister::DirectoryLister;
use super::launch::LaunchHelper;
use super::protocol::{self, Order, Request, Response};
use crate::error::Error;
use crate::request::MountRequest;
use crate::respawn::{self, Role};

/// Mounts once, and unmounts.
pub(crate) struct MountHelper {
    socket: OwnedFd,
}

impl AsFd for MountHelper {
    /// The socket, whose end shows the helper that the server is dead.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl MountHelper {
    /// Starts the helper of one mount.
    pub(crate) fn start(request: &MountRequest) -> Result<Self, Error> {
        let socket = start_process(request)?;
        Ok(Self { socket })
    }

    /// The helper that started this server, with a socket as its standard input.
    pub(crate) fn parent() -> Result<Self, Error> {
        let stdin = rustix::stdio::stdin();
        let socket = rustix::io::fcntl_dupfd_cloexec(stdin, 3).map_err(Error::io("stdin"))?;
        let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
        let null = null.map_err(Error::io("/dev/null"))?;
        rustix::stdio::dup2_stdin(&null).map_err(Error::io("/dev/null"))?;
        Ok(Self { socket })
    }

    /// The helper of a server that took a mount over. The standard output is /dev/null by then.
    pub(crate) fn of_successor() -> Result<Self, Error> {
        let (stdin, stdout) = (rustix::stdio::stdin(), rustix::stdio::stdout());
        let socket = rustix::io::fcntl_dupfd_cloexec(stdin, 3).map_err(Error::io("stdin"))?;
        rustix::stdio::dup2_stdin(stdout).map_err(Error::io("stdin"))?;
        Ok(Self { socket })
    }

    /// The order that has come, when the socket is readable; `None` if the helper is gone.
    pub(crate) fn order(&self) -> Option<Order> {
        Order::receive(&self.socket)
    }

    /// A file of the mount, for reading: the same one for each server.
    pub(crate) fn open(&self, request: &MountRequest, path: &Path) -> io::Result<File> {
        let file = request.files().iter().position(|other| *other == path);
        let file = file.ok_or(io::ErrorKind::NotFound)?;
        match self.ask(Request::Open { file })? {
            Response::Done(Some(file)) => Ok(file.into()),
            Response::Failed(errno) => {
                let errno = errno.parse().map(io::Error::from_raw_os_error);
                Err(errno.unwrap_or_else(|_| io::ErrorKind::InvalidData.into()))
            }
            Response::Done(None) => Err(io::ErrorKind::InvalidData.into()),
        }
    }

    /// Makes the memory for requests in flight.
    pub(crate) fn in_flight(&self) -> Result<(), Error> {
        self.call(Request::InFlight).map(drop)
    }

    /// What a server that replaces this one needs.
    pub(crate) fn restartable(&self) -> Result<Restartable, Error> {
        let in_flight = InFlight::map(self.descriptor(Request::InFlight)?.as_fd());
        Ok(Restartable {
            in_flight: Arc::new(in_flight.map_err(Error::std_io("requests in flight"))?),
            clones: self.clones(cpus())?,
        })
    }

    /// Cloned descriptors for the channels of a server that is not replaced, which by now may not
    /// be allowed to open `/dev/fuse`. None of a mount that the caller made.
    pub(crate) fn channels(&self, session: &Session) -> Vec<OwnedFd> {
        let count = match session.protocol().io_uring {
            // One for what the rings do not carry, and one where the kernel refuses them after all.
            true => 2,
            false => cpus(),
        };
        self.clones(count).unwrap_or_default()
    }

    fn clones(&self, count: usize) -> Result<Vec<OwnedFd>, Error> {
        let clone = |number| self.descriptor(Request::Clone { number });
        (0..count).map(clone).collect()
    }

    /// The mount of a server that is gone.
    pub(crate) fn resume(&self) -> Result<OwnedFd, Error> {
        self.descriptor(Request::Resume)
    }

    /// To be called in the background when the mount is served: from now on a server that dies is
    /// replaced, if it can be. False if the helper was killed before it answered: it may have
    /// reported that the mount is there, so that the mount must not end.
    pub(crate) fn served(&self) -> Result<bool, Error> {
        match self.ask(Request::Served) {
            Ok(Response::Done(_)) => Ok(true),
            Ok(Response::Failed(line)) => Err(Error::Daemon(line)),
            Err(_) => Ok(false),
        }
    }

    /// Mounts. The descriptor of `/dev/fuse` will bring the kernel's first request.
    pub(crate) fn mount(&mut self, max_read: usize) -> Result<OwnedFd, Error> {
        self.descriptor(Request::Mount { max_read })
    }

    /// To be called when the handshake is complete: settings that need the kernel's side of the
    /// mount are made then.
    pub(crate) fn handshake_done(&mut self) -> Result<(), Error> {
        self.call(Request::HandshakeDone).map(drop)
    }

    /// Helps with a launch profile, which must have been asked for. To be called when the handshake
    /// is complete.
    pub(crate) fn launch(&mut self) -> Result<LaunchHelper, Error> {
        self.descriptor(Request::Launch).map(LaunchHelper::new)
    }

    /// The file that sets the kernel's read-ahead of the mount, in KiB, unless that is refused. To
    /// be called when the handshake is complete.
    pub(crate) fn read_ahead(&mut self) -> Result<Option<OwnedFd>, Error> {
        self.call(Request::ReadAhead)
    }

    /// Lists directories ahead of readers. To be called when the handshake is complete.
    pub(crate) fn directory_lister(&mut self) -> Result<DirectoryLister, Error> {
        self.descriptor(Request::Launch)
            .and_then(DirectoryLister::new)
    }

    /// Removes the mount from the tree; programs that use it keep what they have open.
    pub(crate) fn detach(&mut self) -> Result<(), Error> {
        self.call(Request::Detach).map(drop)
    }

    /// Marks the mount as unused; an error if it is in use. Without root nothing is marked.
    pub(crate) fn mark(&mut self) -> Result<(), Error> {
        self.call(Request::Mark).map(drop)
    }

    /// Unmounts if it was not used since [`mark`](Self::mark) (as root) or is not in use
    /// (otherwise).
    pub(crate) fn expire(&mut self) -> Result<(), Error> {
        self.call(Request::Expire).map(drop)
    }

    fn descriptor(&self, request: Request) -> Result<OwnedFd, Error> {
        let missing = || Error::Daemon("the mount helper sent no descriptor".to_owned());
        self.call(request)?.ok_or_else(missing)
    }

    fn call(&self, request: Request) -> Result<Option<OwnedFd>, Error> {
        match self.ask(request).map_err(gone)? {
            Response::Done(device) => Ok(device),
            Response::Failed(line) => Err(Error::Daemon(line)),
        }
    }

    fn ask(&self, request: Request) -> io::Result<Response> {
        request.send(&self.socket)?;
        Response::receive(&self.socket)
    }
}

/// Those that are there, online or not. A worker of one that is plugged in later shares a
/// descriptor.
fn cpus() -> usize {
    sys::cpu_list::present().map_or(1, |cpus| cpus.len())
}

fn start_process(request: &MountRequest) -> Result<OwnedFd, Error> {
    let (ours, theirs) = protocol::socket_pair().map_err(Error::std_io("socketpair"))?;
    // Never waited for: it exits after this process, and init reaps it.
    respawn::command(Role::MountHelper)
        .args(respawn::arguments(request))
        .stdin(theirs)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(Error::std_io("cannot start the mount helper"))?;
    Ok(ours)
}

fn gone(error: io::Error) -> Error {
    Error::std_io(match Errno::from_io_error(&error) {
        Some(Errno::MFILE) => "a descriptor of the mount helper",
        _ => "the mount helper process is gone",
    })(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_knows_that_the_helper_was_killed_before_it_answered() {
        let (socket, theirs) = protocol::socket_pair().unwrap();
        let helper = MountHelper { socket };
        std::thread::scope(|scope| {
            let served = scope.spawn(|| helper.served());
            assert_eq!(Request::receive(&theirs), Some(Request::Served));
            drop(theirs);
            assert!(!served.join().unwrap().unwrap());
        });
    }
}
