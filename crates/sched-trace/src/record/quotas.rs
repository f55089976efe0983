//! How long the quotas of control groups throttle threads while a recording runs, from `cpu.stat`
//! in either version of the interface.

use crate::quotas::TRACK;
use crate::{Kind, Slice, Trace};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Maximum number of groups visited; no real tree has more.
const MOST_GROUPS: usize = 20_000;

/// The effects of a quota since its group was created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Account {
    periods: u64,
    throttled: u64,
    /// Time that threads were throttled, summed over all CPUs.
    stopped_us: u64,
}

/// A group with a quota.
#[derive(Clone, Debug)]
struct Group {
    quota_us: u64,
    period_us: u64,
    account: Account,
    /// Threads of the group and of the groups below it.
    threads: BTreeSet<i32>,
}

/// The groups with a quota at one point in time.
#[derive(Clone, Debug, Default)]
pub(super) struct Quotas {
    top: PathBuf,
    groups: BTreeMap<PathBuf, Group>,
}

impl Quotas {
    /// The quotas of all groups that this process can see.
    pub(super) fn now() -> Self {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let Some(top) = hierarchy(&mounts) else {
            return Self::default();
        };
        let mut quotas = Self::default();
        let (mut left, mut seen) = (vec![top.clone()], 0);
        while let Some(directory) = left.pop() {
            seen += 1;
            left.extend(below(&directory).filter(|_| seen < MOST_GROUPS));
            if let Some(group) = group(&directory) {
                quotas.groups.insert(directory, group);
            }
        }
        quotas.top = top;
        quotas
    }

    /// Notes each thread of the trace that was in a group throttled between `self` and `after`: the
    /// group's threads at either time, and all threads that these created in between.
    pub(super) fn fill_in(&self, after: &Self, trace: &mut Trace) {
        if self.top.as_os_str().is_empty() {
            return;
        }
        let (start_ns, end_ns) = trace.span().unwrap_or_default();
        for (directory, after) in &after.groups {
            let before = self.groups.get(directory);
            let was = before.map(|group| group.account).unwrap_or_default();
            let Some(done) = after.account.since(was).filter(|done| done.stopped_us > 0) else {
                continue;
            };
            let path = directory.strip_prefix(&self.top).unwrap_or(directory);
            let name = title(&Path::new("/").join(path), after, done);
            let earlier = before
                .map(|group| group.threads.clone())
                .unwrap_or_default();
            let threads = with_children(&after.threads | &earlier, trace);
            let there = threads.iter().filter(|pid| trace.threads.contains_key(pid));
            let slices = there.map(|pid| Slice {
                name: name.clone(),
                track: TRACK.into(),
                start_ns,
                end_ns,
                pid: Some(*pid),
            });
            let slices: Vec<Slice> = slices.collect();
            trace.slices.extend(slices);
        }
    }
}

impl Account {
    /// The difference from `before`; `None` if the group was created again in the meantime.
    fn since(self, before: Self) -> Option<Self> {
        Some(Self {
            periods: self.periods.checked_sub(before.periods)?,
            throttled: self.throttled.checked_sub(before.throttled)?,
            stopped_us: self.stopped_us.checked_sub(before.stopped_us)?,
        })
    }

    fn read(directory: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(directory.join("cpu.stat")).ok()?)
    }

    fn parse(text: &str) -> Option<Self> {
        let number = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once(' '));
            let (_, number) = lines.find(|(known, _)| *known == name)?;
            number.trim().parse::<u64>().ok()
        };
        Some(Self {
            periods: number("nr_periods")?,
            throttled: number("nr_throttled")?,
            // Version 1 counts nanoseconds.
            stopped_us: number("throttled_usec")
                .or_else(|| Some(number("throttled_time")? / 1000))?,
        })
    }
}

/// These threads, and those that they created in the trace: a thread that has ended is no longer in
/// any group.
fn with_children(mut threads: BTreeSet<i32>, trace: &Trace) -> BTreeSet<i32> {
    for event in &trace.events {
        if let Kind::Fork {
            parent_pid,
            child_pid,
            ..
        } = event.kind
            && threads.contains(&parent_pid)
        {
            threads.insert(child_pid);
        }
    }
    threads
}

/// Describes a quota and its effects, for example "/build: 50 of 100 ms (cpu.max), its threads were
/// throttled for 1203 ms in 12 of 20 periods".
fn title(path: &Path, group: &Group, done: Account) -> String {
    let ms = |us: u64| us as f64 / 1000.0;
    format!(
        "{}: {} of {} ms (cpu.max), its threads were throttled for {:.0} ms in {} of {} periods",
        path.display(),
        ms(group.quota_us),
        ms(group.period_us),
        ms(done.stopped_us),
        done.throttled,
        done.periods
    )
}

/// The hierarchy in which groups have quotas: that of version 1 with the CPU controller, otherwise
/// that of version 2.
fn hierarchy(mounts: &str) -> Option<PathBuf> {
    let place = |kind: &str, option: &str| {
        mounts.lines().find_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let mut after = after.split(' ');
            let is_kind = after.next() == Some(kind);
            let options = after.nth(1).unwrap_or_default();
            let has = option.is_empty() || options.split(',').any(|it| it == option);
            let point = before.split(' ').nth(4)?;
            (is_kind && has).then(|| PathBuf::from(point.replace("\\040", " ")))
        })
    };
    place("cgroup", "cpu").or_else(|| place("cgroup2", ""))
}

fn below(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    directories.map(|entry| entry.path())
}

/// The quota and the threads of a group; `None` if the group has no quota.
fn group(directory: &Path) -> Option<Group> {
    let (quota_us, period_us) = quota_us(directory)?;
    Some(Group {
        quota_us,
        period_us,
        account: Account::read(directory)?,
        threads: threads(directory),
    })
}

/// The CPU time that a control group may use in each period, and the period, in microseconds;
/// `None` without a quota.
pub fn quota_us(directory: &Path) -> Option<(u64, u64)> {
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let (quota, period) = match read("cpu.max") {
        Some(line) => {
            let (quota, period) = line.split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
        None => (read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?),
    };
    // "max", and -1 in version 1, mean no quota.
    Some((quota.trim().parse().ok()?, period.trim().parse().ok()?))
}

/// How long the quota of a control group has throttled threads, in microseconds.
pub fn throttled_us(directory: &Path) -> Option<u64> {
    Some(Account::read(directory)?.stopped_us)
}

fn threads(directory: &Path) -> BTreeSet<i32> {
    let (mut left, mut found) = (vec![directory.to_owned()], BTreeSet::new());
    while let Some(directory) = left.pop() {
        let list = ["cgroup.threads", "tasks"].map(|name| fs::read_to_string(directory.join(name)));
        let list = list.into_iter().find_map(Result::ok).unwrap_or_default();
        found.extend(list.lines().filter_map(|line| line.parse::<i32>().ok()));
        left.extend(below(&directory));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_keep_the_same_account() {
        let second =
            "usage_usec 9\nnr_periods 20\nnr_throttled 12\nthrottled_usec 1500\nnr_bursts 0\n";
        let first = "nr_periods 20\nnr_throttled 12\nthrottled_time 1500000\n";
        let [second, first] = [second, first].map(|text| Account::parse(text).unwrap());
        assert_eq!(first, second);
        assert_eq!(first.since(Account::default()), Some(first));
        assert_eq!(Account::default().since(first), None);
        let group = Group {
            quota_us: 50_000,
            period_us: 100_000,
            account: first,
            threads: BTreeSet::new(),
        };
        let text = title(Path::new("/build"), &group, first);
        assert!(text.starts_with("/build: 50 of 100 ms (cpu.max)"), "{text}");
        assert!(
            text.ends_with("throttled for 2 ms in 12 of 20 periods"),
            "{text}"
        );
    }

    #[test]
    fn the_hierarchy_is_that_of_the_controller() {
        let mixed = "30 24 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                     31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
                     32 24 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(hierarchy(mixed), Some("/sys/fs/cgroup/cpu,cpuacct".into()));
        let second = "32 24 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
        assert_eq!(hierarchy(second), Some("/sys/fs/cgroup".into()));
        assert_eq!(hierarchy(""), None);
    }
}
