//! The programs that keep a mount busy, as fuser(1) finds them: by what is open, mapped, or the
//! working or root directory of a process.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, StatxFlags, makedev, statx};

/// Programs that are named; there may be more.
const NAMED: usize = 5;

/// `NAME (PID)` of the programs that use the filesystem `MAJOR:MINOR`, of those that this process
/// may inspect; empty if there are none.
pub(super) fn list(device: &str) -> String {
    let Some(device) = parse(device) else {
        return String::new();
    };
    let mut users: Vec<(u32, String)> = pids()
        .filter(|pid| uses(&process(*pid), device))
        .map(|pid| (pid, name(pid)))
        .collect();
    users.sort();
    let more = users.len().saturating_sub(NAMED);
    users.truncate(NAMED);
    let mut names: Vec<String> = users
        .into_iter()
        .map(|(pid, name)| format!("{name} ({pid})"))
        .collect();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}

fn parse(device: &str) -> Option<u64> {
    let (major, minor) = device.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
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

fn uses(process: &Path, device: u64) -> bool {
    let directories = ["cwd", "root", "exe"].map(|name| process.join(name));
    let open = fs::read_dir(process.join("fd")).into_iter().flatten();
    let open = open.flatten().map(|entry| entry.path());
    let mut paths = directories.into_iter().chain(open);
    paths.any(|path| device_of(CWD, &path) == Some(device)) || maps(process, device)
}

/// Asks the kernel only: the server of the mount may not answer.
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

/// Lines of maps: addresses, rights, offset, device in hexadecimal, and so on.
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
        assert!(uses(&own_process, own) && maps(&own_process, own));
        assert!(!uses(&own_process, makedev(4095, 7)));
    }

    #[test]
    fn a_device_that_no_program_uses_has_no_users() {
        assert_eq!(list("4095:7"), "");
        assert_eq!(list("nonsense"), "");
        assert!(name(std::process::id()).len() > 2);
    }
}
