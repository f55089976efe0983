//! One question at a time for the mounts of other users.
//!
//! A server that takes a request and never answers it keeps the process that asked, whatever signal
//! that gets, until the server ends. So root asks the server of another user only when nothing else
//! of root waits for it: one process is left behind at most, however often it is asked.

use std::fs::{DirBuilder, File, OpenOptions};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::place::top_mount;

/// Root alone writes there, so that no other user can take a turn.
const FOLDER: &str = "/run/erofast";

/// How long another question may take; less than this one may take with it.
const LIMIT: Duration = Duration::from_secs(3);

/// Interval between looks.
const INTERVAL: Duration = Duration::from_millis(10);

/// Held while a server is asked; the lock of a process that cannot end stays.
pub(crate) struct Turn(Option<(File, PathBuf)>);

impl Turn {
    /// The turn at the mount at a path. Servers of this user need none, and without the folder
    /// there is none.
    ///
    /// # Errors
    /// EBUSY: another process waits for an answer of this server.
    pub(crate) fn of(path: &Path) -> Result<Self, Errno> {
        let is_root = rustix::process::geteuid().is_root();
        let mount = is_root.then(|| top_mount(path).ok().flatten()).flatten();
        let others = mount.filter(|mount| mount.user_id.is_some_and(|user| user != 0));
        let Some(mount) = others else {
            return Ok(Self(None));
        };
        let place = place_of(&mount.device);
        let Some(file) = open(&place) else {
            return Ok(Self(None));
        };
        let begin = Instant::now();
        while flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            if begin.elapsed() > LIMIT {
                return Err(Errno::BUSY);
            }
            thread::sleep(INTERVAL);
        }
        Ok(Self(Some((file, place))))
    }

    /// Whether a process that asked the server of a mount still waits. What it left goes.
    pub(super) fn is_stuck(device: &str) -> bool {
        let place = place_of(device);
        let Ok(file) = File::open(&place) else {
            return false;
        };
        let lock = flock(&file, FlockOperation::NonBlockingLockShared);
        let _ = std::fs::remove_file(place);
        lock.is_err()
    }

    /// The server has answered.
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
    let _ = DirBuilder::new().mode(0o700).create(FOLDER);
    let mut options = OpenOptions::new();
    let options = options.write(true).create(true).truncate(false).mode(0o600);
    options.open(place).ok()
}
