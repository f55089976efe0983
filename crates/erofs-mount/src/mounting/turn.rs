//! Asks the servers of other users one question at a time.
//!
//! A server that takes a request and never answers it blocks the requesting process until the
//! server ends, even if that process is killed. Therefore root asks another user's server only if
//! no other process of root is waiting for that server, so at most one process hangs for each
//! server, however often root asks.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use erofs_engine::remote_image::cache::make_directory;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::place::top_mount;
use crate::lock::lock_within;

/// Folder of the locks. Only root may write to it, so that no other user can take a turn.
const FOLDER: &str = "/run/erofast";

/// How long to wait until another process's question is answered; a question must take less time
/// than this in total.
const LIMIT: Duration = Duration::from_secs(3);

/// The lock held while a server is asked; if the asking process cannot end, its lock stays.
pub(crate) struct Turn(Option<(File, PathBuf)>);

impl Turn {
    /// Takes the turn for the mount at a path. Servers of this user need no turn; if the folder of
    /// the locks is missing, no turn is taken either.
    ///
    /// # Errors
    /// Returns EBUSY if another process is waiting for an answer from this server.
    pub(crate) fn of(path: &Path) -> Result<Self, Errno> {
        let is_root = rustix::process::geteuid().is_root();
        let mount = is_root.then(|| top_mount(path).ok().flatten()).flatten();
        let others = mount.filter(|mount| mount.user_id.is_some_and(|user| user != 0));
        let place = others.map(|mount| place_of(&mount.device));
        let Some((file, place)) = place.and_then(|place| Some((open(&place)?, place))) else {
            return Ok(Self(None));
        };
        match lock_within(LIMIT, &file) {
            true => Ok(Self(Some((file, place)))),
            false => Err(Errno::BUSY),
        }
    }

    /// Whether a process that asked the server of a mount is still waiting. Removes the lock's file
    /// in any case.
    pub(super) fn is_stuck(device: &str) -> bool {
        let place = place_of(device);
        let Ok(file) = File::open(&place) else {
            return false;
        };
        let lock = flock(&file, FlockOperation::NonBlockingLockShared);
        let _ = std::fs::remove_file(place);
        lock.is_err()
    }

    /// Ends the turn after the server has answered.
    pub(crate) fn end(self) {
        if let Some((_, place)) = &self.0 {
            let _ = std::fs::remove_file(place);
        }
    }
}

fn place_of(device: &str) -> PathBuf {
    Path::new(FOLDER).join(format!("asks-{device}"))
}

fn open(place: &Path) -> Option<File> {
    let _ = make_directory(Path::new(FOLDER));
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    options.open(place).ok()
}
