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
    let device = device.to_owned();
    let search = move || {
        let all = process::numbers().filter_map(Process::open);
        let mut holders = all.filter(|process| holds(process, &device));
        let first = holders.next()?;
        holders.next().is_none().then_some(first.pid)
    };
    answer_within(SEARCH, search).ok()?
}

/// A stopped process that holds this connection and has no mount helper to end it.
pub(crate) fn stopped_holder(device: &str) -> Option<Pid> {
    let device = device.to_owned();
    let search = move || {
        let all = process::numbers().filter_map(Process::open);
        let stopped = all.filter(|process| matches!(process.state(), Some('T' | 't')));
        let mut holders = stopped.filter(|process| holds(process, &device));
        let alone = holders.find(|process| {
            let parent = process.parent().and_then(Process::open);
            !parent.is_some_and(|parent| holds(&parent, &device))
        });
        alone.map(|process| process.pid)
    };
    answer_within(SEARCH, search).ok()?
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
