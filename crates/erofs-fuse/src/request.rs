//! What to mount, and where.

use std::path::PathBuf;

use crate::options::MountOptions;

/// The filesystem type in `/proc/mounts`.
pub const FSTYPE: &str = "fuse.erofast";

/// What to mount, and where.
#[derive(Clone, Debug)]
pub struct MountRequest {
    /// The image file or block device.
    pub image: PathBuf,
    /// An existing directory.
    pub mountpoint: PathBuf,
    /// The `-o` options.
    pub options: MountOptions,
    /// Serve in the calling process until unmounted, rather than in a daemon. The calling thread
    /// enters the sandbox then, and stays in it.
    pub foreground: bool,
}
