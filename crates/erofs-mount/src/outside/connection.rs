//! Finds the processes that hold the FUSE connection of a mount, by their `fdinfo`. Used if the
//! mount helper, which has a record of the mount, is gone. Needs Linux 6.9.

use std::time::Duration;

use rustix::process::Pid;

use super::process::{self, Process};
use crate::mounting::answer_within;

/// Time limit of the search, far longer than reading `/proc` takes.
const SEARCH: Duration = Duration::from_secs(2);

/// The only process that holds the connection of the mount `MAJOR:MINOR`; `None` if there are
/// several, or none that this process may inspect.
pub(crate) fn only_holder(device: &str) -> Option<Pid> {
    let mut holders = holders(device, |_| true).into_iter();
    let first = holders.next()?;
    holders.next().is_none().then_some(first.pid)
}

/// A stopped process that holds this connection and has no mount helper to end it.
pub(crate) fn stopped_holder(device: &str) -> Option<Pid> {
    let is_stopped = |process: &Process| matches!(process.state(), Some('T' | 't'));
    let has_helper = |process: &Process| {
        let parent = process.parent().and_then(Process::open);
        parent.is_some_and(|parent| holds(&parent, device))
    };
    let mut holders = holders(device, is_stopped).into_iter();
    Some(holders.find(|process| !has_helper(process))?.pid)
}

/// The processes that satisfy `wanted` and hold the connection; none if the search takes too long.
fn holders(device: &str, wanted: fn(&Process) -> bool) -> Vec<Process> {
    let device = device.to_owned();
    let search = move || {
        let all = process::numbers().filter_map(Process::open);
        let wanted = all.filter(wanted);
        wanted.filter(|process| holds(process, &device)).collect()
    };
    answer_within(SEARCH, search).unwrap_or_default()
}

/// Whether a process holds the connection of the mount `MAJOR:MINOR`.
pub(super) fn holds(process: &Process, device: &str) -> bool {
    // The kernel shows the device number of the filesystem, whose major number is 0.
    let minor = device.strip_prefix("0:");
    minor.is_some_and(|minor| connections(process).any(|number| number == minor))
}

fn connections(process: &Process) -> impl Iterator<Item = String> {
    let paths = process.descriptors("/dev/fuse").into_iter();
    paths.filter_map(|path| {
        let info = process.text(&path.replacen("fd/", "fdinfo/", 1));
        let mut lines = info.lines();
        let number = lines.find_map(|line| line.strip_prefix("fuse_connection:"));
        Some(number?.trim().to_owned())
    })
}
