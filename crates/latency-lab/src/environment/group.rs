//! The CPU quota of our cgroup: the strictest quota of the group and its ancestors.

use std::fs;
use std::path::{Path, PathBuf};

use sched_trace::record::{quota_us, throttled_us};

use crate::cgroup::Hierarchy;
use crate::mounts::mountinfo;

/// A quota that limits this process.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Quota {
    pub(super) quota_us: u64,
    pub(super) period_us: u64,
    /// The group that imposes the quota.
    directory: PathBuf,
}

impl Quota {
    /// Finds the quota that limits this process; none if there is no quota.
    pub(crate) fn find() -> Option<Quota> {
        let (mounts, groups) = (mountinfo(), fs::read_to_string("/proc/self/cgroup").ok()?);
        let first = Hierarchy::first(&mounts, &groups, "cpu");
        let Hierarchy { top, own } = first.or_else(|| Hierarchy::second(&mounts, &groups))?;
        Quota::above(&own, &top)
    }

    fn above(group: &Path, root: &Path) -> Option<Quota> {
        let groups = group
            .ancestors()
            .take_while(|group| group.starts_with(root));
        let quotas = groups.filter_map(|group| {
            let (quota_us, period_us) = quota_us(group)?;
            Some(Quota {
                quota_us,
                period_us,
                directory: group.into(),
            })
        });
        quotas.min_by(|a, b| a.cpus().total_cmp(&b.cpus()))
    }

    /// The quota as a number of CPUs.
    fn cpus(&self) -> f64 {
        self.quota_us as f64 / self.period_us as f64
    }

    /// How long the quota has throttled threads so far, in microseconds.
    pub(crate) fn throttled_us(&self) -> Option<u64> {
        throttled_us(&self.directory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strictest_quota_of_the_group_and_those_above_binds() {
        let scratch = crate::scratch::Scratch::new(&std::env::temp_dir()).unwrap();
        let root = scratch.path();
        let group = root.join("a/b");
        fs::create_dir_all(&group).unwrap();
        let write = |path: &str, text: &str| fs::write(root.join(path), text).unwrap();
        assert_eq!(Quota::above(&group, root), None);
        write("cpu.max", "max 100000\n");
        write("a/cpu.max", "50000 100000\n");
        write(
            "a/cpu.stat",
            "nr_periods 9\nnr_throttled 3\nthrottled_usec 700\n",
        );
        write("a/b/cpu.max", "200000 100000\n");
        let quota = Quota::above(&group, root).unwrap();
        assert_eq!((quota.quota_us, quota.period_us), (50_000, 100_000));
        assert_eq!(quota.throttled_us(), Some(700));
        // Version 1 reports throttled time in nanoseconds.
        fs::remove_file(group.join("cpu.max")).unwrap();
        write("a/b/cpu.cfs_quota_us", "-1\n");
        write("a/b/cpu.cfs_period_us", "100000\n");
        assert_eq!(quota_us(&group), None);
        write("a/b/cpu.cfs_quota_us", "25000\n");
        let stat = "nr_periods 9\nnr_throttled 3\nthrottled_time 5000000\n";
        write("a/b/cpu.stat", stat);
        let quota = Quota::above(&group, root).unwrap();
        assert_eq!((quota.quota_us, quota.throttled_us()), (25_000, Some(5000)));
    }
}
