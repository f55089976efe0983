//! The kernel's switch for FUSE over io_uring: mounts made while it is on are offered a ring.
//! Several test programs may use the switch at the same time.

use std::fs::{self, File};
use std::io::Write;

use rustix::fs::{FlockOperation, flock};

/// The file that sets the switch: it contains Y or N.
pub const PARAMETER: &str = "/sys/module/fuse/parameters/enable_uring";

/// Holds the switch, for one process at a time on this machine, and restores it when dropped.
pub struct Switch {
    only: File,
    was_on: bool,
}

impl Switch {
    /// Waits for the switch. `None` if the kernel has no such switch, or this process may not set
    /// it.
    pub fn new() -> Option<Self> {
        File::options().write(true).open(PARAMETER).ok()?;
        let only = File::open("/sys/module/fuse/parameters").ok()?;
        flock(&only, FlockOperation::LockExclusive).ok()?;
        let was_on = is_on();
        Some(Self { only, was_on })
    }

    pub fn set(&self, on: bool) {
        let mut file = File::options().write(true).open(PARAMETER).unwrap();
        flock(&file, FlockOperation::LockExclusive).unwrap();
        file.write_all(if on { b"Y" } else { b"N" }).unwrap();
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.set(self.was_on);
        // Closing would not release the lock while a forked process has a copy of the descriptor.
        let _ = flock(&self.only, FlockOperation::Unlock);
    }
}

/// Whether the switch is on. Waits while another test holds the switch.
pub fn is_on() -> bool {
    let file = File::open(PARAMETER).unwrap();
    flock(&file, FlockOperation::LockShared).unwrap();
    fs::read(PARAMETER).unwrap().first() == Some(&b'Y')
}
