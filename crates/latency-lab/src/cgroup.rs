//! Finds our cgroup in either version of the cgroup interface.

use std::path::{Path, PathBuf};

use crate::mounts::Mount;
use crate::process::cgroup;

/// A mounted hierarchy of cgroups, and this process's group in it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    pub(crate) top: PathBuf,
    pub(crate) own: PathBuf,
}

impl Hierarchy {
    /// In version 1, finds the hierarchy whose options name the controller. `mounts` and `groups`
    /// are the texts of /proc/self/mountinfo and /proc/self/cgroup.
    pub(crate) fn first(mounts: &str, groups: &str, controller: &str) -> Option<Hierarchy> {
        let has = |list: &str| list.split(',').any(|name| name == controller);
        let found = |mount: &Mount<'_>| mount.kind == "cgroup" && has(mount.super_options);
        Hierarchy::of(mounts, found, cgroup(groups, has)?)
    }

    /// In version 2, finds the only hierarchy, which has no list of controllers.
    pub(crate) fn second(mounts: &str, groups: &str) -> Option<Hierarchy> {
        let found = |mount: &Mount<'_>| mount.kind == "cgroup2";
        Hierarchy::of(mounts, found, cgroup(groups, str::is_empty)?)
    }

    /// Finds a mounted hierarchy and the path of our group below its mount point, since a container
    /// may see only part of the hierarchy.
    fn of(mounts: &str, found: impl Fn(&Mount<'_>) -> bool, group: &str) -> Option<Hierarchy> {
        let mount = mounts.lines().filter_map(Mount::parse).find(found)?;
        let below = Path::new(group).strip_prefix(mount.root).ok();
        let (top, below) = (mount.point, below.unwrap_or(Path::new("")));
        let own = top.join(below);
        Some(Hierarchy { top, own })
    }
}
