//! Readiness notification: to a service manager by the sd_notify(3) protocol, which is one
//! datagram, or to any supervisor by a newline into a descriptor.

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;

/// The receivers of the notification.
pub(super) struct Readiness {
    socket: Option<UnixDatagram>,
    pipe: Option<OwnedFd>,
}

impl Readiness {
    /// Connects, which the sandbox forbids later.
    pub(super) fn new(ready_fd: Option<u32>) -> Result<Self, Error> {
        let pipe = ready_fd.map(|number| {
            // Opened again by name: a bare number cannot be owned.
            let path = format!("/proc/self/fd/{number}");
            rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).map_err(
                |errno| match errno {
                    Errno::NOENT => Error::ReadyFd { number },
                    other => Error::io(format!("ready_fd={number}"))(other),
                },
            )
        });
        Ok(Self {
            socket: connect(),
            pipe: pipe.transpose()?,
        })
    }

    /// Announces that the mount can be used. A failure does not concern the mount.
    pub(super) fn announce(&self) {
        if let Some(socket) = &self.socket {
            let _ = rustix::io::write(socket, b"READY=1");
        }
        if let Some(pipe) = &self.pipe {
            let _ = rustix::io::write(pipe, b"\n");
        }
    }
}

fn connect() -> Option<UnixDatagram> {
    let name = std::env::var_os("NOTIFY_SOCKET")?;
    let address = match name.as_bytes() {
        [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
        _ => SocketAddr::from_pathname(&name),
    };
    let socket = UnixDatagram::unbound().ok()?;
    socket.connect_addr(&address.ok()?).ok()?;
    Some(socket)
}
