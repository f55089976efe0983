//! `erofast upgrade`: another server for a mount, of the program that is installed now.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::error::Error;
use crate::serve::stat;

/// Longer than any server takes to open its image.
const LIMIT: Duration = Duration::from_secs(60);

/// Has the mount helper of a mount start the program that is installed now, which takes the mount
/// over. Returns when it serves.
///
/// # Errors
/// One line: it is no erofast mount, its server cannot be replaced, or the new one did not start;
/// then the old one still serves.
pub fn upgrade(mountpoint: &Path) -> Result<(), Error> {
    let before = stat(mountpoint)?;
    let refused = |why: &str| Error::mountpoint(mountpoint, format!("cannot be upgraded: {why}"));
    let restart = &before["restart"];
    if restart["on"] != true {
        return Err(refused(
            restart["reason"]
                .as_str()
                .unwrap_or("its server is too old"),
        ));
    }
    let helper = helper(&before).ok_or_else(|| refused("its mount helper is gone"))?;
    match kill_process(helper, Signal::USR1) {
        Err(Errno::PERM) => {
            return Err(refused(
                "only root and the user that mounted it may do that",
            ));
        }
        outcome => outcome.map_err(Error::io("its mount helper"))?,
    }
    let begin = Instant::now();
    while stat(mountpoint)?["pid"] == before["pid"] {
        if begin.elapsed() > LIMIT {
            return Err(refused(
                "the new server did not start; the system log may say why",
            ));
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The process that starts the servers. It is still there if the server is its child.
fn helper(counters: &Value) -> Option<Pid> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", counters["pid"])).ok()?;
    let parent = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:\t"))?;
    let helper = counters["restart"]["helper"].as_i64()?;
    let is_parent = parent.trim().parse() == Ok(helper) && helper > 1;
    Pid::from_raw(i32::try_from(helper).ok()?).filter(|_| is_parent)
}
