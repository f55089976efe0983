//! A server process, as its mount helper sees it.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Stdio};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::protocol;
use crate::error::Error;
use crate::request::MountRequest;
use crate::respawn::{self, Role};

/// A server process.
#[derive(Debug)]
pub(super) struct Server {
    /// Its requests. Its end is that of the server: of all threads that serve.
    pub(super) socket: OwnedFd,
    /// `None` for a server that started this process.
    child: Option<Child>,
}

impl Server {
    /// The server that started this process, with a socket as its standard input.
    pub(super) fn parent() -> Result<Self, Error> {
        let stdin = rustix::stdio::stdin();
        let socket = rustix::io::fcntl_dupfd_cloexec(stdin, 3).map_err(Error::io("stdin"))?;
        Ok(Self {
            socket,
            child: None,
        })
    }

    /// Starts a server. The first one has the standard streams of this process, and reports on
    /// them.
    pub(super) fn start(request: &MountRequest, role: Role, at: &Path) -> Result<Self, Error> {
        let stream = || match role {
            Role::Server => Stdio::inherit(),
            _ => Stdio::null(),
        };
        let (ours, theirs) = protocol::socket_pair().map_err(Error::std_io("socketpair"))?;
        let child = respawn::command(role)
            .args(respawn::arguments(request))
            .current_dir(if at.is_dir() { at } else { Path::new("/") })
            .stdin(theirs)
            .stdout(stream())
            .stderr(stream())
            .spawn()
            .map_err(Error::std_io("cannot start the server"))?;
        Ok(Self {
            socket: ours,
            child: Some(child),
        })
    }

    /// Has it unmount and end. One that started this process gets the signals of its caller.
    pub(super) fn end(&self) {
        if let Some(child) = &self.child {
            // It may be dead already; until it is waited for, the number is its own.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
        }
    }

    /// Kills it, and waits for the end of its threads that serve.
    pub(super) fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            // It may be dead already.
            let _ = child.kill();
        }
        while protocol::receive_bytes(&self.socket).is_ok_and(|(packet, _)| !packet.is_empty()) {}
    }

    /// Waits for its end; an error if it died. One that started this process is not waited for.
    /// `reported` is called when it failed with an error, which it has printed itself.
    pub(super) fn outcome(self, reported: fn() -> Result<(), Error>) -> Result<(), Error> {
        let Some(mut child) = self.child else {
            return Ok(());
        };
        let status = child.wait().map_err(Error::std_io("the server"))?;
        if status.success() {
            return Ok(());
        }
        if status.code().is_some() {
            reported()?;
        }
        Err(Error::Daemon(format!("the server died: {status}")))
    }

    /// The process, whose socket has ended.
    pub(super) fn into_child(self) -> Option<Child> {
        self.child
    }

    /// Whether a request, or the end, comes within this time.
    pub(super) fn is_heard_within(&self, limit: &Timespec) -> bool {
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut watched, Some(limit))).is_ok_and(|ready| ready > 0)
    }
}
