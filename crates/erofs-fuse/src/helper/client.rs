//! The server's side of its mount helper.

use std::io;
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::protocol::{Request, Response};
use super::state::MountState;
use crate::error::Error;
use crate::request::MountRequest;
use crate::respawn::{self, Role};

/// Mounts once, and unmounts.
pub(crate) struct MountHelper(Kind);

enum Kind {
    /// Without a sandbox the server does it itself.
    InProcess(Box<MountState>),
    /// The socket of a process of its own.
    Process(OwnedFd),
}

impl MountHelper {
    /// The helper of one mount.
    pub(crate) fn start(request: &MountRequest) -> Result<Self, Error> {
        let options = &request.options;
        Ok(Self(if options.sandbox || options.auto_unmount {
            Kind::Process(start_process(request)?)
        } else {
            Kind::InProcess(Box::new(MountState::new(request.clone())))
        }))
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

    /// Removes the mount from the tree; programs that use it keep what they have open.
    pub(crate) fn detach(&mut self) -> Result<(), Error> {
        self.call(Request::Detach).map(drop)
    }

    /// Unmounts if it was not used since the last call (as root) or is not in use (otherwise).
    pub(crate) fn expire(&mut self) -> Result<(), Error> {
        self.call(Request::Expire).map(drop)
    }

    fn call(&mut self, request: Request) -> Result<Option<OwnedFd>, Error> {
        match &mut self.0 {
            Kind::InProcess(state) => state.handle(request),
            Kind::Process(socket) => call_process(socket, request),
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

fn call_process(socket: &OwnedFd, request: Request) -> Result<Option<OwnedFd>, Error> {
    request.send(socket).map_err(gone)?;
    match Response::receive(socket).map_err(gone)? {
        Response::Done(device) => Ok(device),
        Response::Failed(line) => Err(Error::Daemon(line)),
    }
}

fn gone(error: io::Error) -> Error {
    Error::std_io("the mount helper process is gone")(error)
}
