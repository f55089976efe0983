//! Mounts tracefs for the run if necessary, as the recorder of the other experiments does, because
//! the daemon reads the numbers of the reclaim events from tracefs.

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::mounts::is_mounted;

/// The usual mount point in distributions.
const USUAL: &str = "/sys/kernel/tracing";

/// Access to tracefs. Dropping it unmounts tracefs if it was mounted for this run.
#[derive(Debug)]
pub(super) struct Tracefs {
    ours: bool,
}

impl Tracefs {
    /// Mounts tracefs if necessary. If mounting is refused, the run continues, and reports that
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
            // If tracefs is busy, another program has begun to use it, and it stays mounted.
            let _ = unmount(USUAL, UnmountFlags::empty());
        }
    }
}
