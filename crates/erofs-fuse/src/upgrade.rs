//! `erofast upgrade`: another server for a mount, of the program that is installed now.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::error::Error;
use crate::helper::UpgradableMount;
use crate::serve::stat;

/// Longer than the mount helper waits for a new server.
const LIMIT: Duration = Duration::from_secs(90);

/// Interval between looks for the outcome.
const INTERVAL: Duration = Duration::from_millis(20);

/// How long a server may take to answer, where it has to be asked.
const ANSWER: Duration = Duration::from_secs(10);

/// Has the mount helper of a mount start the program that is installed now, which takes the mount
/// over. Returns when it serves. A server that does not answer is replaced, too.
///
/// # Errors
/// One line: it is no erofast mount, its server cannot be replaced, or the new one did not start;
/// then the old one still serves.
pub fn upgrade(mountpoint: &Path) -> Result<(), Error> {
    match UpgradableMount::find(mountpoint)? {
        Some(mount) => by_record(mountpoint, &mount),
        None => by_pid(mountpoint),
    }
}

fn by_record(mountpoint: &Path, mount: &UpgradableMount) -> Result<(), Error> {
    let before = mount.begin()?;
    let begin = Instant::now();
    while begin.elapsed() < LIMIT {
        match mount.outcome(before)? {
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

/// Where the mount cannot be upgraded, for the reason; and with a mount helper that keeps no
/// record.
fn by_pid(mountpoint: &Path) -> Result<(), Error> {
    let before = stat_in_time(mountpoint)?;
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
    while stat_in_time(mountpoint)?["pid"] == before["pid"] {
        if begin.elapsed() > LIMIT {
            return Err(refused(
                "the new server did not start; the system log may say why",
            ));
        }
        thread::sleep(INTERVAL);
    }
    Ok(())
}

/// The counters; an error where the server does not answer. The thread that asks it is left then.
fn stat_in_time(mountpoint: &Path) -> Result<Value, Error> {
    let (sender, answer) = mpsc::channel();
    let asked = mountpoint.to_owned();
    thread::spawn(move || sender.send(stat(&asked)));
    answer.recv_timeout(ANSWER).unwrap_or_else(|_| {
        let why = format!("its server did not answer for {} s", ANSWER.as_secs());
        Err(Error::mountpoint(mountpoint, why))
    })
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
