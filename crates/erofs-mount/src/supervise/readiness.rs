//! Announces that programs can use the mount: to the process that waits for a mount in the
//! background, to a service manager by the sd_notify(3) protocol (one datagram), and to any other
//! receiver as a newline written to a descriptor.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::fs::{OFlags, fcntl_getfl};
use rustix::io::Errno;

use erofs_fuse::error::Error;

/// The message for the process that waits for the mount. That process may read it twice.
pub(crate) const READY: &[u8] = b"ready\n";

/// Informs the process that waits for the mount. That process continues when every copy of the pipe
/// is closed.
pub(crate) fn report_ready(null: &OwnedFd) -> Result<(), Error> {
    let mut pipe = std::io::stdout();
    pipe.write_all(READY)
        .and_then(|()| pipe.flush())
        .map_err(Error::std_io("reply to the parent"))?;
    rustix::stdio::dup2_stdout(null).map_err(Error::io("/dev/null"))
}

/// The other receivers of the announcement.
pub(crate) struct Readiness {
    socket: Option<UnixDatagram>,
    pipe: Option<OwnedFd>,
}

impl Readiness {
    /// Connects to the receivers.
    ///
    /// # Errors
    /// Returns an error if the descriptor is not open for writing, or if it is a standard stream
    /// and the mount is in the background, where it uses these streams itself.
    pub(crate) fn new(ready_fd: Option<u32>, foreground: bool) -> Result<Self, Error> {
        if let Some(number) = ready_fd.filter(|number| *number < 3 && !foreground) {
            let why = format!("ready_fd={number}: must be 3 or more for a background mount");
            return Err(Error::Server(why));
        }
        Ok(Self {
            socket: connect(),
            pipe: ready_fd.map(duplicate).transpose()?,
        })
    }

    /// Announces that the mount can be used. A failure does not affect the mount.
    pub(crate) fn announce(&self) {
        if let Some(socket) = &self.socket {
            let _ = rustix::io::write(socket, b"READY=1");
        }
        if let Some(pipe) = &self.pipe {
            let _ = rustix::io::write(pipe, b"\n");
        }
    }
}

/// Duplicates a descriptor that the caller passed by number.
fn duplicate(number: u32) -> Result<OwnedFd, Error> {
    let pipe = sys::inherited::duplicate(number.try_into().unwrap_or(-1));
    let pipe = pipe.map_err(|error| match Errno::from_io_error(&error) {
        Some(Errno::BADF) => Error::ReadyFd(number),
        _ => Error::std_io(format!("ready_fd={number}"))(error),
    })?;
    let flags = fcntl_getfl(&pipe).map_err(Error::io(format!("ready_fd={number}")))?;
    if flags & OFlags::RWMODE == OFlags::RDONLY {
        let why = format!("ready_fd={number}: descriptor {number} is not open for writing");
        return Err(Error::Server(why));
    }
    Ok(pipe)
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
