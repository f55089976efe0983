//! The daemon finds the numbers of the reclaim events in tracefs: mounted for the run where it is
//! not, as the recorder of the other experiments does for itself.

use std::fs;
use std::path::Path;

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Where distributions mount it.
const USUAL: &str = "/sys/kernel/tracing";

/// Unmounts what it mounted when dropped.
#[derive(Debug)]
pub(super) struct Tracefs {
    ours: bool,
}

impl Tracefs {
    /// Without the right to mount, the run continues, and reports that reclaim was not counted.
    pub(super) fn mounted() -> Tracefs {
        let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let ours = !is_mounted(&table)
            && mount(
                "tracefs",
                Path::new(USUAL),
                "tracefs",
                MountFlags::empty(),
                None,
            )
            .is_ok();
        Tracefs { ours }
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if self.ours {
            // Busy: another program uses it by now.
            let _ = unmount(USUAL, UnmountFlags::empty());
        }
    }
}

fn is_mounted(table: &str) -> bool {
    table
        .lines()
        .any(|line| line.split(' ').nth(2) == Some("tracefs"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mounted_tracefs_is_left_alone() {
        assert!(is_mounted(
            "tracefs /sys/kernel/tracing tracefs rw,nosuid 0 0\n"
        ));
        assert!(!is_mounted("debugfs /sys/kernel/debug debugfs rw 0 0\n"));
    }
}
