//! The socket, and the message that tells the service manager that the snapshotter is ready.

use std::fs::{self, Permissions};
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::Path;

use crate::folder::{if_there, make_private};

/// Listens at the path, which only root may open. This process has the database open, so an
/// existing socket was left by a program that was killed.
pub fn listen(path: &Path) -> io::Result<UnixListener> {
    match if_there(fs::symlink_metadata(path))? {
        Some(old) if old.file_type().is_socket() => fs::remove_file(path)?,
        Some(_) => return Err(io::Error::other("it exists and is not a socket")),
        None => {}
    }
    path.parent().map_or(Ok(()), make_private)?;
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Notifies systemd (`Type=notify`).
pub fn report_ready() {
    let Ok(name) = std::env::var("NOTIFY_SOCKET") else {
        return;
    };
    let address = match name.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&name),
    };
    let sent =
        address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(b"READY=1", &address));
    if let Err(error) = sent {
        eprintln!("erofast-snapshotter: NOTIFY_SOCKET={name}: {error}");
    }
}
