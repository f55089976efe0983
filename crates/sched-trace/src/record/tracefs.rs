//! Finds tracefs, or mounts it privately.

use super::detached::detached;
use crate::{Error, Result};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::fs;
use std::os::fd::AsRawFd;
use std::path::PathBuf;

/// The usual mount point in distributions.
const USUAL: &str = "/sys/kernel/tracing";

/// A tracing directory that can be used during this value's lifetime.
#[derive(Debug)]
pub(super) struct Tracefs {
    pub root: PathBuf,
    /// A private mount attached to no directory; closing the descriptor unmounts it.
    _detached: Option<OwnedFd>,
}

impl Tracefs {
    /// The mounted tracefs, or a private mount if there is none.
    pub fn find() -> Result<Self> {
        let found = mounted(&fs::read_to_string("/proc/self/mounts").unwrap_or_default());
        let tracefs = match found {
            Some(root) => Self {
                root,
                _detached: None,
            },
            None => Self::mount()?,
        };
        match fs::read_dir(&tracefs.root) {
            Ok(_) => Ok(tracefs),
            Err(error) => Err(missing(&format!("{}: {error}", tracefs.root.display()))),
        }
    }

    fn mount() -> Result<Self> {
        let mount = detached("tracefs").map_err(cannot_mount)?;
        Ok(Self {
            root: PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd())),
            _detached: Some(mount),
        })
    }
}

fn cannot_mount(error: Errno) -> Error {
    match error {
        Errno::PERM | Errno::ACCESS => missing(
            "tracefs is not mounted, and mounting it needs \
                                                root",
        ),
        Errno::NOSYS => missing(&format!("run: mount -t tracefs tracefs {USUAL}")),
        Errno::NODEV => missing("this kernel has no tracefs (CONFIG_FTRACE is off)"),
        other => missing(&format!(
            "tracefs is not mounted and cannot be mounted: {other}"
        )),
    }
}

fn missing(reason: &str) -> Error {
    let root = rustix::process::geteuid().is_root();
    let hint = if root {
        ""
    } else {
        " (not root; recording needs root)"
    };
    Error::NoTracefs {
        reason: format!("{reason}{hint}"),
    }
}

/// The tracefs in a mount table, preferably the one at the usual mount point.
fn mounted(table: &str) -> Option<PathBuf> {
    let mut found = None;
    for line in table.lines() {
        let mut words = line.split(' ').skip(1);
        let (Some(place), Some("tracefs")) = (words.next(), words.next()) else {
            continue;
        };
        if place == USUAL {
            return Some(place.into());
        }
        // Spaces are written as \040.
        found.get_or_insert_with(|| PathBuf::from(place.replace("\\040", " ")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_place_is_preferred() {
        let table = "proc /proc proc rw 0 0\nnodev /mnt/a\\040b tracefs rw 0 0\n";
        assert_eq!(mounted(table), Some("/mnt/a b".into()));
        let both = format!("{table}tracefs /sys/kernel/tracing tracefs rw 0 0\n");
        assert_eq!(mounted(&both), Some(USUAL.into()));
        assert_eq!(mounted("proc /proc proc rw 0 0\n"), None);
    }
}
