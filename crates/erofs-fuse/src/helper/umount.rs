//! `erofast umount`.

use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use super::{fusermount, table};
use crate::error::Error;
use crate::request::FSTYPE;

/// Unmounts an erofast mount.
///
/// # Errors
/// One line: nothing is mounted there, it is another filesystem, it is busy.
pub fn umount(path: &Path) -> Result<(), Error> {
    let place = absolute(path)?;
    match table::top(&place)? {
        None => return Err(Error::mountpoint(path, "is not a mount point")),
        Some(entry) if entry.fstype != FSTYPE => {
            return Err(Error::mountpoint(
                path,
                format!("is a mount of type {}, not of erofast", entry.fstype),
            ));
        }
        Some(_) => {}
    }
    // A dead mount can be busy only with programs that get errors from it.
    let dead = table::is_dead(path);
    if !rustix::process::geteuid().is_root() {
        let arguments: &[&str] = if dead { &["-u", "-z"] } else { &["-u"] };
        return fusermount::unmount(&place, arguments);
    }
    let flags = if dead {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    rustix::mount::unmount(&place, flags | UnmountFlags::NOFOLLOW).map_err(|errno| match errno {
        Errno::BUSY => Error::busy(path),
        other => Error::mountpoint(path, other.to_string()),
    })
}

/// The absolute path of a mount point, whose last component cannot be resolved when its daemon is
/// dead.
fn absolute(path: &Path) -> Result<PathBuf, Error> {
    if let Ok(real) = std::fs::canonicalize(path) {
        return Ok(real);
    }
    let absolute = std::path::absolute(path).map_err(|e| Error::mountpoint(path, e.to_string()))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(Error::mountpoint(path, "is not a mount point"));
    };
    let parent = std::fs::canonicalize(parent).map_err(|e| Error::no_mountpoint(path, &e))?;
    Ok(parent.join(name))
}
