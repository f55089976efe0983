//! Landlock: the files that can still be opened. The image and its devices are open already and
//! cannot be opened by name any more, nor can any other file.

use std::os::fd::{AsFd, OwnedFd};

use landlock::{
    ABI, Access, AccessFs, AccessNet, LandlockStatus, PathBeneath, PathFd, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetStatus, Scope,
};

/// The newest ABI whose rights are known to be unnecessary for a server. Older kernels enforce
/// fewer of them.
const NEWEST: ABI = ABI::V7;

/// Opened by each serving thread, also by those that come with a CPU later. IOCTL_DEV: for the
/// call that ties it to the mount.
const FUSE: &str = "/dev/fuse";

/// Which CPUs are online, which are possible.
const CPUS: &str = "/sys/devices/system/cpu";

/// Read to explain why real-time priority was refused.
const SELF: &str = "/proc/self";

/// Read for the CPU of a reader (`/proc/TID/stat`), which `/dev/fuse` does not report. Landlock
/// still refuses what needs the right to trace another process: its memory, environment and
/// descriptors.
const PROC: &str = "/proc";

/// The restrictions of Landlock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Landlock {
    /// Version of the kernel's interface.
    pub(super) version: i32,
    /// Whether the kernel knows every right that is dropped.
    pub(super) complete: bool,
}

/// The requested version.
pub(super) const NEWEST_VERSION: i32 = NEWEST as i32;

/// Restricts a server: the calling thread and those it makes. `io_uring`: whether requests arrive
/// over it.
pub(super) fn restrict(io_uring: bool) -> Result<Landlock, String> {
    let processes = if io_uring { SELF } else { PROC };
    let read_write = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
    let rules = [
        (FUSE, read_write),
        (CPUS, AccessFs::ReadFile.into()),
        (processes, AccessFs::ReadFile.into()),
    ];
    // What does not exist here needs no permission.
    let places = rules.into_iter().filter_map(|(path, access)| {
        let place = PathFd::new(path).ok()?;
        let place = place.as_fd().try_clone_to_owned().ok()?;
        Some(PathBeneath::new(place, access))
    });
    restrict_to(places.collect())
}

/// Restricts a companion to the mount with this root, if there is one.
pub(super) fn restrict_companion(root: Option<&OwnedFd>) -> Result<Landlock, String> {
    let root = root.map(OwnedFd::try_clone).transpose();
    let root = root.map_err(|error| error.to_string())?;
    let access = AccessFs::ReadFile | AccessFs::ReadDir;
    let place = root.map(|root| PathBeneath::new(root, access));
    restrict_to(place.into_iter().collect())
}

fn restrict_to(places: Vec<PathBeneath<OwnedFd>>) -> Result<Landlock, String> {
    let describe = |error: landlock::RulesetError| error.to_string();
    let mut set = Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))
        .and_then(|set| set.handle_access(AccessNet::from_all(NEWEST)))
        .and_then(|set| set.scope(Scope::from_all(NEWEST)))
        .and_then(Ruleset::create)
        .map_err(describe)?;
    for place in places {
        set = set.add_rule(place).map_err(describe)?;
    }
    let outcome = set.restrict_self().map_err(describe)?;
    let complete = outcome.ruleset == RulesetStatus::FullyEnforced;
    match (outcome.ruleset, outcome.landlock) {
        (
            RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced,
            LandlockStatus::Available {
                effective_abi,
                kernel_abi,
            },
        ) => Ok(Landlock {
            version: kernel_abi.unwrap_or(effective_abi as i32),
            complete,
        }),
        (_, LandlockStatus::NotEnabled) => Err("not enabled in this kernel".to_owned()),
        _ => Err("not in this kernel".to_owned()),
    }
}
