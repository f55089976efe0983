//! Landlock: the files that can still be opened. The image and its devices are already open, and
//! cannot be opened by name again.

use std::path::Path;

use confinement::files::{AccessFs, Landlock, beneath, restrict_to};

/// Opened by each serving thread, including threads of CPUs that are plugged in later. IOCTL_DEV
/// permits the ioctl that binds the new descriptor to the mount.
const FUSE: &str = "/dev/fuse";

/// Lists the CPUs that are online and those that are possible.
const CPUS: &str = "/sys/devices/system/cpu";

/// Read to explain why real-time priority was refused.
const SELF: &str = "/proc/self";

/// `/proc/TID/stat` shows which CPU a reader is on, which `/dev/fuse` does not report. Landlock
/// still denies access that needs the right to trace another process, such as access to its memory,
/// environment and descriptors.
const PROC: &str = "/proc";

/// Restricts a server: the calling thread and those it creates. `io_uring` says whether requests
/// arrive over io_uring.
pub(super) fn restrict(io_uring: bool) -> Result<Landlock, String> {
    let processes = if io_uring { SELF } else { PROC };
    let read_write = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let rules = [
        (FUSE, read_write),
        (CPUS, AccessFs::ReadFile.into()),
        (processes, AccessFs::ReadFile.into()),
    ];
    let rules = rules.map(|(path, access)| (Path::new(path), access));
    restrict_to(beneath(&rules))
}
