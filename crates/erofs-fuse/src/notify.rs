//! Telling systemd that the mount is ready: the sd_notify(3) protocol is one datagram.

use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends `READY=1` where a service manager asked for it. Whether it arrives is the manager's
/// business: a mount without one is none the worse.
pub(crate) fn ready() {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let address = match name.as_bytes() {
        [b'@', abstract_name @ ..] => SocketAddr::from_abstract_name(abstract_name),
        _ => SocketAddr::from_pathname(&name),
    };
    let (Ok(address), Ok(socket)) = (address, UnixDatagram::unbound()) else {
        return;
    };
    let _ = socket.send_to_addr(b"READY=1", &address);
}
