//! Finds the programs that keep a mount busy, as fuser(1) does: by open files, mappings, and the
//! working and root directories of processes.
//!
//! Reading `/proc/PID/maps` blocks if a thread of the process holds the lock of its address space
//! while it waits for a page, such as a page of a mount whose server has stopped. So a separate
//! thread reads the file, and is left behind if it takes too long.

use std::fmt::{self, Display, Formatter};
use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

use super::table;
use crate::outside::HelperProcess;

/// Maximum number of programs that are listed by name.
const NAMED: usize = 5;

/// Time limit, far longer than reading `/proc` takes if nothing blocks.
const LIMIT: Duration = Duration::from_secs(1);

/// The programs that use a filesystem, as far as this process may inspect them. This process, the
/// process of this command that waits for it, and the processes of the mount are left out.
pub(crate) struct Users(Vec<(u32, String)>);

impl Users {
    /// The users of the filesystem `MAJOR:MINOR`, whose mount has this helper.
    pub(crate) fn of(filesystem: &str, helper: Option<&HelperProcess>) -> Self {
        let Some(device) = table::device_number(filesystem) else {
            return Self(Vec::new());
        };
        let own = std::process::id();
        let parent = std::os::unix::process::parent_id();
        let is_own = |pid: u32| pid == own || (pid == parent && name(pid) == name(own));
        let others = pids().filter(|pid| !is_own(*pid)).collect();
        let of_mount = || helper.map_or_else(Vec::new, HelperProcess::processes);
        let before = of_mount();
        let mut users = within(LIMIT, move |found| scan(others, device, found));
        if !users.is_empty() {
            // Processes of the mount may start and end during the scan.
            let after = of_mount();
            users.retain(|(pid, _)| !before.contains(pid) && !after.contains(pid));
        }
        users.sort();
        Self(users)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether all these programs have the same name as this process.
    pub(crate) fn have_this_name(&self) -> bool {
        let own = name(std::process::id());
        self.0.iter().all(|(_, name)| *name == own)
    }
}

/// Lists each program as `NAME (PID)`.
impl Display for Users {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for (number, (pid, name)) in self.0.iter().take(NAMED).enumerate() {
            let comma = if number > 0 { ", " } else { "" };
            write!(f, "{comma}{name} ({pid})")?;
        }
        match self.0.len().saturating_sub(NAMED) {
            0 => Ok(()),
            more => write!(f, ", {more} more"),
        }
    }
}

/// Collects the items that `work` sends until it ends or `limit` has passed. In the latter case the
/// thread of `work` is left behind.
fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce(&Sender<T>) + Send + 'static,
) -> Vec<T> {
    let deadline = Instant::now() + limit;
    let (sender, receiver) = mpsc::channel();
    // If no thread can be created, no program is found.
    let _ = thread::Builder::new().spawn(move || work(&sender));
    let left = || deadline.saturating_duration_since(Instant::now());
    std::iter::from_fn(|| receiver.recv_timeout(left()).ok()).collect()
}

/// Sends the programs that use the filesystem. Mappings come last, since reading them may wait.
fn scan(pids: Vec<u32>, device: u64, found: &Sender<(u32, String)>) {
    let mut others = pids;
    for uses in [has_open as fn(&Path, u64) -> bool, maps] {
        others.retain(|pid| {
            let is_user = uses(&process(*pid), device);
            if is_user {
                // Sending fails only after the time limit.
                let _ = found.send((*pid, name(*pid)));
            }
            !is_user
        });
    }
}

fn pids() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn process(pid: u32) -> PathBuf {
    format!("/proc/{pid}").into()
}

fn name(pid: u32) -> String {
    let name = fs::read_to_string(process(pid).join("comm")).unwrap_or_default();
    name.trim_end().to_owned()
}

fn has_open(process: &Path, device: u64) -> bool {
    let directories = ["cwd", "root", "exe"].map(|name| process.join(name));
    let open = fs::read_dir(process.join("fd")).into_iter().flatten();
    let open = open.flatten().map(|entry| entry.path());
    let mut paths = directories.into_iter().chain(open);
    paths.any(|path| device_of(CWD, &path) == Some(device))
}

/// Queries only the kernel: the server of the mount may not answer.
fn device_of(directory: impl AsFd, path: &Path) -> Option<u64> {
    let status = statx(
        directory,
        path,
        AtFlags::STATX_DONT_SYNC,
        StatxFlags::empty(),
    )
    .ok()?;
    Some(makedev(status.stx_dev_major, status.stx_dev_minor))
}

/// Whether the process has a mapping of a file on this device. Fields of a line: addresses, rights,
/// offset, device in hexadecimal, and more.
fn maps(process: &Path, device: u64) -> bool {
    let maps = fs::read(process.join("maps")).unwrap_or_default();
    let number = |text| u32::from_str_radix(text, 16).ok();
    String::from_utf8_lossy(&maps).lines().any(|line| {
        let field = line.split_ascii_whitespace().nth(3);
        field
            .and_then(|field| field.split_once(':'))
            .and_then(|(major, minor)| Some(makedev(number(major)?, number(minor)?)))
            == Some(device)
    })
}

#[cfg(test)]
mod tests {
    use std::os::linux::fs::MetadataExt;

    use super::*;

    #[test]
    fn this_program_uses_the_filesystem_it_was_started_from() {
        let own = fs::metadata("/proc/self/exe").unwrap().st_dev();
        let own_process = process(std::process::id());
        assert!(has_open(&own_process, own) && maps(&own_process, own));
        let none = makedev(4095, 7);
        assert!(!has_open(&own_process, none) && !maps(&own_process, none));
    }

    #[test]
    fn what_was_found_counts_when_the_rest_never_ends() {
        let (end, never) = mpsc::channel::<()>();
        let found = within(Duration::from_millis(50), move |found| {
            found.send(7).unwrap();
            let _ = never.recv();
        });
        assert_eq!(found, [7]);
        drop(end);
    }

    #[test]
    fn a_program_is_found_once() {
        let own = fs::metadata("/proc/self/exe").unwrap().st_dev();
        let pid = std::process::id();
        let found = within(LIMIT, move |found| scan(vec![pid], own, found));
        assert_eq!(found, [(pid, name(pid))]);
    }

    #[test]
    fn five_programs_are_named() {
        let of = |count| Users((1..=count).map(|pid| (pid, "sh".to_owned())).collect());
        assert_eq!(of(2).to_string(), "sh (1), sh (2)");
        assert!(of(7).to_string().ends_with(", sh (5), 2 more"));
        assert!(!of(1).have_this_name() && of(0).have_this_name());
    }

    #[test]
    fn a_device_that_no_program_uses_has_no_users() {
        assert!(Users::of("4095:7", None).is_empty());
        assert!(Users::of("nonsense", None).is_empty());
        assert!(name(std::process::id()).len() > 2);
    }
}
