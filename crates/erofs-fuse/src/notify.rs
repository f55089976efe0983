//! Telling whoever started this process that the mount is ready: a service manager by the
//! sd_notify(3) protocol, which is one datagram, or any supervisor by a newline into a descriptor.

use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::fs::{Mode, OFlags};

use crate::Error;

/// Those who want to be told.
pub(crate) struct Manager {
    socket: Option<UnixDatagram>,
    pipe: Option<OwnedFd>,
}

impl Manager {
    /// Connects; later, inside of the sandbox, that is not possible any more.
    pub(crate) fn new(ready_fd: Option<u32>) -> Result<Self, Error> {
        let pipe = ready_fd.map(|number| {
            // Opened once more by its name, since the number alone is nobody's to own.
            let path = format!("/proc/self/fd/{number}");
            rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())
                .map_err(Error::io(format!("ready_fd={number}")))
        });
        Ok(Self {
            socket: connect(),
            pipe: pipe.transpose()?,
        })
    }

    /// Says that the mount can be used. Whether it arrives is the other side's business: a mount
    /// without one is none the worse.
    pub(crate) fn ready(&self) {
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
