//! `erofast upgrade`: another server for a mount, of the program that is installed now.

use std::io::ErrorKind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::helper::UpgradableMount;
use crate::serve::stat;

/// Longer than the mount helper waits for a new server.
const LIMIT: Duration = Duration::from_secs(90);

/// Interval between looks for the outcome.
const INTERVAL: Duration = Duration::from_millis(20);

/// Has the mount helper of a mount start the program that is installed now, which takes the mount
/// over. Returns when it serves. A server that does not answer is replaced, too.
///
/// # Errors
/// One line: it is no erofast mount, its server cannot be replaced, or the new one did not start;
/// then the old one still serves.
pub fn upgrade(mountpoint: &Path) -> Result<(), Error> {
    let Some(mount) = UpgradableMount::find(mountpoint)? else {
        return Err(reason(mountpoint)?);
    };
    let cannot = |error: Error| {
        let why = format!("cannot be upgraded: {error}");
        Error::mountpoint(mountpoint, why)
    };
    let before = mount.begin().map_err(cannot)?;
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        match mount.outcome(before).map_err(cannot)? {
            Some(Ok(())) => return Ok(()),
            Some(Err(why)) => {
                let why = format!("was not upgraded: {why}; the old server serves on");
                return Err(Error::mountpoint(mountpoint, why));
            }
            None => thread::sleep(INTERVAL),
        }
    }
    let why = "cannot be upgraded: its mount helper does not answer";
    Err(Error::mountpoint(mountpoint, why))
}

/// Why a mount without a record cannot be upgraded.
fn reason(mountpoint: &Path) -> Result<Error, Error> {
    let restart = &stat(mountpoint)?["restart"];
    let why = match restart["on"] == true {
        true => no_record(&format!("/proc/{}/fd", restart["helper"])),
        false => restart["reason"]
            .as_str()
            .unwrap_or("its server is too old"),
    };
    let why = format!("cannot be upgraded: {why}");
    Ok(Error::mountpoint(mountpoint, why))
}

/// Why a mount helper with these descriptors shows no record.
fn no_record(descriptors: &str) -> &'static str {
    match std::fs::read_dir(descriptors) {
        Ok(_) => "its mount helper is of another version; mount again to use the new program",
        Err(error) if error.kind() == ErrorKind::NotFound => "its mount helper is gone",
        Err(_) => "only root and the user that mounted it may do that",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_helper_of_another_version_is_no_question_of_rights() {
        assert!(no_record("/proc/self/fd").contains("of another version"));
        assert!(no_record("/proc/0/fd").contains("gone"));
    }
}
