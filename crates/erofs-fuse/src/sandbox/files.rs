//! Landlock: the files that can still be opened. The image and its devices are already open and can
//! no longer be opened by name, nor can any other file.

use std::path::Path;

use confinement::files::{AccessFs, Landlock, beneath, restrict_to};

/// Opened by each serving thread, even by those for a CPU that comes later. IOCTL_DEV is for the
/// call that binds it to the mount.
const FUSE: &str = "/dev/fuse";

/// Lists the CPUs that are online and those that are possible.
const CPUS: &str = "/sys/devices/system/cpu";

/// Read to explain why real-time priority was refused.
const SELF: &str = "/proc/self";

/// Read for the CPU of a reader (`/proc/TID/stat`), which `/dev/fuse` does not report. Landlock
/// still refuses what needs the right to trace another process: its memory, environment and
/// descriptors.
const PROC: &str = "/proc";

/// Restricts a server: the calling thread and those it creates. `io_uring` says whether requests
/// arrive over it.
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
