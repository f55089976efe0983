//! Finds where a cgroup with a memory limit can be made, in either version of the cgroup interface.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cgroup::Hierarchy;
use crate::error::Doing;
use crate::{LabError, Result};

/// Files of the memory controller's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Interface {
    pub(super) limit: &'static str,
    /// The file that limits swap; a limit of 0 allows no swap.
    pub(super) swap: &'static str,
    pub(super) peak: &'static str,
}

const FIRST: Interface = Interface {
    limit: "memory.limit_in_bytes",
    swap: "memory.swappiness",
    peak: "memory.max_usage_in_bytes",
};
const SECOND: Interface = Interface {
    limit: "memory.max",
    swap: "memory.swap.max",
    peak: "memory.peak",
};

/// A directory in which groups with a memory limit can be made.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) interface: Interface,
    pub(super) parent: PathBuf,
    /// The file in which the controller must first be enabled for child groups.
    pub(super) switch: Option<PathBuf>,
}

impl Place {
    pub(super) fn find() -> Result<Place> {
        let read = |path: &str| fs::read_to_string(path).doing("reading", path);
        let (mounts, groups) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
        Place::of(&mounts, &groups).ok_or_else(|| {
            LabError::Privilege(
                "lab pressure: no cgroup with a memory controller was found (mount one: mount -t \
                 cgroup -o memory none DIR, or cgroup2)"
                    .into(),
            )
        })
    }

    fn of(mounts: &str, groups: &str) -> Option<Place> {
        if let Some(Hierarchy { own, .. }) = Hierarchy::first(mounts, groups, "memory") {
            return Some(Place {
                interface: FIRST,
                parent: own,
                switch: None,
            });
        }
        let hierarchy = Hierarchy::second(mounts, groups)?;
        let place = |parent: &Path, switch| Place {
            interface: SECOND,
            parent: parent.to_owned(),
            switch,
        };
        // A group that has processes cannot have children with controllers. The new group is
        // therefore a sibling of our own group or of an ancestor; it is a child only if our group
        // is the root group, to which that rule does not apply.
        let gives = |group: &&Path| lists_memory(&group.join("cgroup.subtree_control"));
        let above = hierarchy.own.ancestors();
        let mut above = above.take_while(|group| group.starts_with(&hierarchy.top));
        match above.find(gives) {
            Some(parent) => Some(place(parent, None)),
            None => lists_memory(&hierarchy.top.join("cgroup.controllers")).then(|| {
                let switch = hierarchy.top.join("cgroup.subtree_control");
                place(&hierarchy.top, Some(switch))
            }),
        }
    }
}

fn lists_memory(file: &Path) -> bool {
    fs::read_to_string(file)
        .is_ok_and(|text| text.split_ascii_whitespace().any(|name| name == "memory"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    const MOUNTS: &str = "25 30 0:23 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n\
        26 30 0:24 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
        27 30 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n";

    #[test]
    fn the_first_version_is_taken_where_it_has_the_controller() {
        let groups = "4:memory:/user/one\n3:cpu:/\n0::/\n";
        let place = Place::of(MOUNTS, groups).unwrap();
        assert_eq!(place.interface, FIRST);
        assert_eq!(place.parent, Path::new("/sys/fs/cgroup/memory/user/one"));
    }

    #[test]
    fn a_container_sees_a_part_of_the_hierarchy() {
        let mounts = "26 30 0:24 /box /cg rw - cgroup none rw,memory\n";
        let parent = |group: &str| {
            Place::of(mounts, &format!("4:memory:{group}\n"))
                .unwrap()
                .parent
        };
        assert_eq!(parent("/box/inner"), Path::new("/cg/inner"));
        assert_eq!(parent("/elsewhere"), Path::new("/cg"));
    }

    #[test]
    fn the_second_version_needs_a_group_that_gives_the_controller_to_its_children() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let top = scratch.path().join("top");
        let own = top.join("slice/session");
        fs::create_dir_all(&own).unwrap();
        let mounts = format!("27 30 0:25 / {} rw - cgroup2 none rw\n", top.display());
        let place = || Place::of(&mounts, "0::/slice/session\n");
        assert_eq!(place(), None, "no controller at all");
        fs::write(top.join("cgroup.controllers"), "cpu memory\n").unwrap();
        let switch = Some(top.join("cgroup.subtree_control"));
        let at_the_top = place().unwrap();
        assert_eq!((&at_the_top.parent, at_the_top.switch), (&top, switch));
        fs::write(top.join("slice/cgroup.subtree_control"), "memory pids\n").unwrap();
        let beside = place().unwrap();
        assert_eq!((beside.parent, beside.switch), (top.join("slice"), None));
        fs::remove_dir_all(&top).unwrap();
    }
}
