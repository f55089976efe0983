//! Getting a mount, and getting rid of it: by mount(2) as root, else through fusermount3.

mod direct;
mod fusermount;
mod table;

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::UnmountFlags;

use crate::options::MountOptions;
use crate::{Error, FSTYPE, MountRequest};

pub(crate) use table::find;

/// A mount that was made. Whoever holds the descriptor that came with it serves it.
#[derive(Debug)]
pub(crate) struct Mounted {
    /// Where, with nothing relative and no symbolic links.
    pub(crate) mountpoint: PathBuf,
    /// `MAJOR:MINOR`, which tells it from what is mounted there later.
    device_number: Option<String>,
    direct: bool,
}

impl Mounted {
    fn new(mountpoint: PathBuf, direct: bool) -> Self {
        let entry = find(&mountpoint).ok().flatten();
        Self {
            device_number: entry.map(|entry| entry.device),
            mountpoint,
            direct,
        }
    }

    /// Whether it is still what is mounted there.
    pub(crate) fn is_there(&self) -> Result<bool, Error> {
        let now = find(&self.mountpoint)?.map(|entry| entry.device);
        Ok(now.is_some() && now == self.device_number)
    }

    /// Takes the mount out of the tree; programs that use it keep what they have.
    pub(crate) fn detach(&self) -> Result<(), Error> {
        self.leave(UnmountFlags::DETACH, &["-u", "-z"])
    }

    /// Unmounts if it was not used since the last call (as root) or is not in use (else).
    pub(crate) fn expire(&self) -> Result<(), Error> {
        self.leave(UnmountFlags::EXPIRE, &["-u"])
    }

    fn leave(&self, flags: UnmountFlags, arguments: &[&str]) -> Result<(), Error> {
        if !self.direct {
            return fusermount::unmount(&self.mountpoint, arguments);
        }
        let what = || format!("umount {}", self.mountpoint.display());
        rustix::mount::unmount(&self.mountpoint, flags | UnmountFlags::NOFOLLOW)
            .map_err(Error::io(what()))
    }
}

/// What every way to mount needs.
struct Wish<'r> {
    mountpoint: PathBuf,
    source: OsString,
    options: &'r MountOptions,
    checks: bool,
    /// Largest read, in bytes.
    max_read: usize,
}

/// Mounts, without serving. The descriptor is that of `/dev/fuse`, tied to the mount.
pub(crate) fn mount(request: &MountRequest, max_read: usize) -> Result<(Mounted, OwnedFd), Error> {
    let options = &request.options;
    let root = rustix::process::geteuid().is_root();
    let wish = Wish {
        mountpoint: usable_mountpoint(&request.mountpoint)?,
        source: options
            .fsname
            .clone()
            .unwrap_or_else(|| source(&request.image)),
        options,
        checks: options.kernel_checks(root),
        max_read,
    };
    if !root {
        return fusermount::mount(wish);
    }
    match direct::mount(&wish) {
        // Root of a user namespace that does not own the mount namespace.
        Err(Error::Io { source, .. })
            if source.raw_os_error() == Some(Errno::PERM.raw_os_error()) =>
        {
            fusermount::mount(wish)
        }
        other => other,
    }
}

fn source(image: &Path) -> OsString {
    std::fs::canonicalize(image)
        .unwrap_or_else(|_| image.to_owned())
        .into_os_string()
}

fn usable_mountpoint(path: &Path) -> Result<PathBuf, Error> {
    if crate::is_dead_mount(path) {
        let why = "a mount whose daemon died is still there: erofast umount it first";
        return Err(Error::mountpoint(path, why));
    }
    let real = std::fs::canonicalize(path).map_err(|e| Error::mountpoint(path, reason(&e)))?;
    if !real.is_dir() {
        return Err(Error::mountpoint(path, "is not a directory"));
    }
    Ok(real)
}

/// An I/O error without the number behind it.
fn reason(error: &std::io::Error) -> String {
    match error.raw_os_error() {
        Some(2) => "no such directory".to_owned(),
        _ => error.to_string(),
    }
}

/// Unmounts an erofast mount.
///
/// # Errors
/// One line: nothing is mounted there, it is something else, it is busy.
pub fn umount(path: &Path) -> Result<(), Error> {
    let place = place_of(path)?;
    match find(&place)? {
        None => return Err(Error::mountpoint(path, "is not a mount point")),
        Some(entry) if entry.fstype != FSTYPE => {
            return Err(Error::mountpoint(
                path,
                format!("is a mount of type {}, not of erofast", entry.fstype),
            ));
        }
        Some(_) => {}
    }
    if !rustix::process::geteuid().is_root() {
        let lazily: &[&str] = if crate::is_dead_mount(path) {
            &["-u", "-z"]
        } else {
            &["-u"]
        };
        return fusermount::unmount(&place, lazily);
    }
    // A dead mount can be busy only with programs that get errors from it.
    let how = if crate::is_dead_mount(path) {
        UnmountFlags::DETACH
    } else {
        UnmountFlags::empty()
    };
    rustix::mount::unmount(&place, how | UnmountFlags::NOFOLLOW).map_err(|errno| match errno {
        Errno::BUSY => Error::mountpoint(path, busy(&place)),
        other => Error::mountpoint(path, other.to_string()),
    })
}

fn busy(place: &Path) -> String {
    format!(
        "is busy: programs have files open or are in it (fuser -m {} lists them)",
        place.display()
    )
}

/// The absolute path of a mount point, whose last part cannot be looked at when its daemon is dead.
fn place_of(path: &Path) -> Result<PathBuf, Error> {
    if let Ok(real) = std::fs::canonicalize(path) {
        return Ok(real);
    }
    let absolute = std::path::absolute(path).map_err(|e| Error::mountpoint(path, e.to_string()))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(Error::mountpoint(path, "is not a mount point"));
    };
    let parent = std::fs::canonicalize(parent).map_err(|e| Error::mountpoint(path, reason(&e)))?;
    Ok(parent.join(name))
}
