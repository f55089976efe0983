//! The server's side of its mount helper.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::Stdio;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::launch::LaunchHelper;
use super::protocol::{Request, Response};
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

    /// Mounts. The descriptor of `/dev/fuse` will bring the kernel's first request.
    pub(crate) fn mount(&mut self, max_read: usize) -> Result<OwnedFd, Error> {
        let device = self.call(Request::Mount { max_read })?;
        device.ok_or_else(|| Error::Daemon("the mount helper sent no descriptor".to_owned()))
    }

    /// To be called when the handshake is complete: settings that need the kernel's side of the
    /// mount are made then.
    pub(crate) fn handshake_done(&mut self) -> Result<(), Error> {
        self.call(Request::HandshakeDone).map(drop)
    }

    /// Helps with a launch profile, which must have been asked for. To be called when the handshake
    /// is complete.
    pub(crate) fn launch(&mut self) -> Result<LaunchHelper, Error> {
        let socket = self.call(Request::Launch)?;
        let missing = || Error::Daemon("the mount helper sent no descriptor".to_owned());
        Ok(LaunchHelper::new(socket.ok_or_else(missing)?))
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

    fn call(&mut self, request: Request) -> Result<Option<OwnedFd>, Error> {
        request.send(&self.socket).map_err(gone)?;
        match Response::receive(&self.socket).map_err(gone)? {
            Response::Done(device) => Ok(device),
            Response::Failed(line) => Err(Error::Daemon(line)),
        }
    }
}

fn start_process(request: &MountRequest) -> Result<OwnedFd, Error> {
    let (ours, theirs) = socketpair(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .map_err(Error::io("socketpair"))?;
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
    Error::std_io("the mount helper process is gone")(error)
}
