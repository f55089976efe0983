//! `erofast umount`.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;

use super::fusermount;
use super::located::Located;
use super::place::{self, mounts_at};
use super::table::{self, Entry};
use super::turn::Turn;
use super::users::Users;
use crate::outside::helper_of;
use erofs_fuse::error::Error;
use erofs_fuse::request::FSTYPE;

/// How long to wait for programs that use a mount only for a moment, such as to read its counters.
const MOMENT: Duration = Duration::from_secs(1);

/// How long a server may take to end after its helper has been killed. A server that is still alive
/// after that belongs to another mount.
const DYING: Duration = Duration::from_secs(2);

/// Unmounts an erofast mount; with `lazy` immediately, even if the mount is busy. Returns the
/// `MAJOR:MINOR` of the filesystem and the user who mounted it.
pub(crate) fn umount(path: &Path, lazy: bool) -> Result<(String, Option<u32>), Error> {
    let entry = match place::top_mount(path)? {
        None => {
            let there = std::fs::symlink_metadata(path);
            there.map_err(|error| Error::no_mountpoint(path, &error))?;
            return Err(Error::mountpoint(path, "not a mount point"));
        }
        Some(entry) if entry.fstype != FSTYPE => {
            let why = format!("a mount of type {}, not of erofast", entry.fstype);
            return Err(Error::mountpoint(path, why));
        }
        Some(entry) => entry,
    };
    let outcome = match unmount(&entry, lazy) {
        // Programs that keep a dead mount busy get only errors from it. Ask the server only now,
        // since it may not answer.
        Err(Error::Busy) if covering(&entry).is_none() && table::is_dead(path) => {
            unmount(&entry, true)
        }
        Err(Error::Busy) => wait_for_users(path, &entry),
        outcome => outcome,
    };
    outcome.map(|()| (entry.device, entry.user_id))
}

/// Whether the filesystem `MAJOR:MINOR` still exists, at any path or at none: overlays keep using
/// their layers after the layers' mounts are gone.
pub(crate) fn is_in_use(device: &str) -> bool {
    Path::new("/sys/class/bdi").join(device).exists()
}

/// Unmounts once programs that use the mount only for a moment are gone: programs with the name of
/// this one, such as `erofast stat`, and programs that end before they are found.
fn wait_for_users(path: &Path, entry: &Entry) -> Result<(), Error> {
    let begin = Instant::now();
    // Searching for the helper takes long: it may be any process of its user.
    let helper = entry
        .user_id
        .and_then(|user| helper_of(&entry.device, user));
    loop {
        let users = Users::of(&entry.device, helper.as_ref());
        let stay = covering(entry).is_some() || !users.have_this_name();
        if !stay && Turn::is_stuck(&entry.device) {
            // No other program uses the mount, but a process that asked the mount's server still
            // waits for the answer, and cannot end before the server does.
            return unmount(entry, true);
        }
        if stay || begin.elapsed() > MOMENT {
            return Err(busy(path, entry, &users));
        }
        match unmount(entry, false) {
            Err(Error::Busy) => thread::sleep(Duration::from_millis(5)),
            outcome => return outcome,
        }
    }
}

/// Unmounts the mounts added at a path since `before`, if their server is dead or dies soon, or if
/// their devices are in `given_up`: a server that was killed in a frozen cgroup is not dead yet.
pub(crate) fn unmount_dead(path: &Path, before: &[Entry], given_up: &[String]) {
    let begin = Instant::now();
    let is_new = |entry: &Entry| entry.fstype == FSTYPE && !before.contains(entry);
    // The topmost mount comes last; servers of mounts below it cannot be asked whether they are
    // dead.
    while let Some(entry) = mounts_at(path).iter().rfind(|entry| is_new(entry)) {
        if given_up.contains(&entry.device) || table::is_dead(&entry.mountpoint) {
            if unmount(entry, true).is_err() {
                return;
            }
        } else if begin.elapsed() > DYING {
            return;
        } else {
            thread::sleep(Duration::from_millis(10));
        }
    }
}

fn unmount(entry: &Entry, detach: bool) -> Result<(), Error> {
    let place = &entry.mountpoint;
    if !rustix::process::geteuid().is_root() {
        let user = rustix::process::getuid().as_raw();
        if let Some(owner) = entry.user_id.filter(|owner| *owner != user) {
            let why = format!("mounted by user {owner}: only that user and root can unmount it");
            return Err(Error::mountpoint(place, why));
        }
        let arguments: &[&str] = if detach { &["-u", "-z"] } else { &["-u"] };
        return fusermount::unmount(place, arguments);
    }
    let found = entry.clone();
    let locate = move || Located::find(&found);
    let Some(located) = place::answers(place, locate)?? else {
        return Err(Error::mountpoint(place, "leads to a different mount now"));
    };
    let unmounted = match detach {
        true => located.detach(),
        false => located.unmount(),
    };
    unmounted.map_err(|errno| match errno {
        Errno::BUSY => Error::Busy,
        // A user namespace may not remove a mount that it was created with, because that would
        // uncover the files below the mount.
        Errno::INVAL => {
            let why = "mounted in another mount namespace; unmount it there";
            Error::mountpoint(place, why)
        }
        other => Error::mountpoint(place, other.to_string()),
    })
}

/// An error that names the programs that keep a mount busy, as far as this user may know.
fn busy(path: &Path, entry: &Entry, users: &Users) -> Error {
    if let Some(other) = covering(entry) {
        return Error::covered(path, &other.mountpoint);
    }
    let is_here = || std::env::current_dir().is_ok_and(|place| place.starts_with(path));
    let why = match users.is_empty() {
        true if is_here() => {
            "busy: the working directory of this command is in it; cd elsewhere first".to_owned()
        }
        true => format!(
            "busy: as root, fuser -m {} shows which processes use it",
            path.display()
        ),
        false => format!("in use by {users}; umount --lazy unmounts it anyway"),
    };
    Error::mountpoint(path, why)
}

/// A mount that is mounted on or below this one, if there is any.
fn covering(entry: &Entry) -> Option<Entry> {
    let table = table::read().unwrap_or_default();
    table.into_iter().find(|other| other.parent == entry.id)
}
