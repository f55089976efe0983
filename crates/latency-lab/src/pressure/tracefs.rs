//! The daemon finds the numbers of the reclaim events in tracefs: it is mounted for the run if
//! necessary, as the recorder of the other experiments does.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::mounts::is_mounted;

/// The usual mount point in distributions.
const USUAL: &str = "/sys/kernel/tracing";

/// Unmounts what it mounted when dropped.
#[derive(Debug)]
pub(super) struct Tracefs {
    ours: bool,
}

impl Tracefs {
    /// Mounts tracefs if necessary. Without the right to mount, the run continues, and reports that
    /// reclaim was not counted.
    pub(super) fn mounted() -> Tracefs {
        let tracefs = || mount("tracefs", USUAL, "tracefs", MountFlags::empty(), None);
        Tracefs {
            ours: !is_mounted(USUAL.as_ref()) && tracefs().is_ok(),
        }
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
