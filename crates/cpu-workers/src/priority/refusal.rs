//! Explains why the system refused real-time priority, and the remedy.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use rustix::process::{Resource, getrlimit};
use rustix::thread::{CapabilitySet, capabilities};

/// Facts about this thread's right to be real-time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Facts {
    has_sys_nice: bool,
    in_user_namespace: bool,
    /// RLIMIT_RTPRIO; `u64::MAX` is unlimited.
    rtprio_limit: u64,
    /// The cpu cgroup (version 1) and its cpu.rt_runtime_us, in a kernel with RT_GROUP_SCHED.
    group: Option<(PathBuf, i64)>,
    /// The cgroup (version 2), where it is not the root.
    unified: Option<String>,
}

/// What was found before a sandbox that hides it.
static FOUND: OnceLock<Facts> = OnceLock::new();

/// Finds out what decides on real-time priority, for the message of a later refusal. To be called
/// with the rights that the threads will have, while `/proc` and the cgroups can still be read.
pub fn remember_priority_rights() {
    FOUND.get_or_init(Facts::gather);
}

/// One clause without a full stop.
pub(crate) fn explain(error: &io::Error) -> String {
    if error.raw_os_error() != Some(rustix::io::Errno::PERM.raw_os_error()) {
        return error.to_string();
    }
    FOUND.get().cloned().unwrap_or_else(Facts::gather).explain()
}

impl Facts {
    fn gather() -> Self {
        let sets = capabilities(None);
        Facts {
            has_sys_nice: sets.is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_NICE)),
            in_user_namespace: read("/proc/self/uid_map")
                .is_some_and(|map| !is_initial_namespace(&map)),
            rtprio_limit: getrlimit(Resource::Rtprio).current.unwrap_or(u64::MAX),
            group: cpu_group(),
            unified: read("/proc/self/cgroup").as_deref().and_then(unified_group),
        }
    }

    fn explain(&self) -> String {
        // The group refuses every user, root too: check it first.
        if let Some((path, 0)) = &self.group {
            return format!(
                "the cpu cgroup {} has cpu.rt_runtime_us 0 (CONFIG_RT_GROUP_SCHED); set a \
                 budget, e.g. 100000, or start in the root cgroup",
                path.display()
            );
        }
        if !self.has_sys_nice && self.rtprio_limit == 0 {
            return "needs root, CAP_SYS_NICE, or RLIMIT_RTPRIO of 1 or more (ulimit -r)".into();
        }
        if let Some(path) = &self.unified {
            return format!(
                "the kernel refuses although the privilege is there; with CONFIG_RT_GROUP_SCHED \
                 the cpu controller of cgroup {path} has no real-time budget: start in the root \
                 cgroup or boot with rt_group_sched=0"
            );
        }
        if self.in_user_namespace {
            return "CAP_SYS_NICE inside of a user namespace does not count; raise RLIMIT_RTPRIO \
                    (ulimit -r) outside of it"
                .into();
        }
        "the kernel does not permit it (EPERM), though this process seems to have the right".into()
    }
}

fn read(path: impl AsRef<Path>) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The initial user namespace maps every id to itself.
fn is_initial_namespace(uid_map: &str) -> bool {
    uid_map.split_whitespace().eq(["0", "0", "4294967295"])
}

fn cpu_group() -> Option<(PathBuf, i64)> {
    let group = legacy_cpu_group(&read("/proc/self/cgroup")?)?.to_owned();
    let directory = group_directory(&read("/proc/self/mountinfo")?, &group)?;
    let runtime = read(directory.join("cpu.rt_runtime_us"))?;
    Some((directory, runtime.trim().parse().ok()?))
}

/// Lines are `ID:CONTROLLER,CONTROLLER:PATH`.
fn legacy_cpu_group(cgroup: &str) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':');
        let controllers = fields.nth(1)?;
        controllers
            .split(',')
            .any(|name| name == "cpu")
            .then(|| fields.next())?
    })
}

/// The path behind `0::`, unless it is the root.
fn unified_group(cgroup: &str) -> Option<String> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::"))?;
    (path != "/").then(|| path.to_owned())
}

/// Where the cpu controller's hierarchy shows `group`: fields of mountinfo are id, parent, device,
/// root, mount point, options, optional ones, `-`, type, source, super options.
fn group_directory(mountinfo: &str, group: &str) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (place, filesystem) = line.split_once(" - ")?;
        let mut filesystem = filesystem.split(' ');
        let is_cpu = filesystem.next()? == "cgroup"
            && filesystem.nth(1)?.split(',').any(|option| option == "cpu");
        let mut place = place.split(' ').skip(3);
        let (root, mount_point) = (place.next()?, place.next()?);
        let below = Path::new(group).strip_prefix(root).ok()?;
        is_cpu.then(|| Path::new(mount_point).join(below))
    })
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn a_group_without_budget_is_named_even_to_root() {
        let group = Some((PathBuf::from("/sys/fs/cgroup/cpu/box"), 0));
        let facts = Facts {
            has_sys_nice: true,
            group,
            ..Facts::default()
        };
        let line = facts.explain();
        assert!(line.contains("/sys/fs/cgroup/cpu/box") && line.contains("cpu.rt_runtime_us 0"));
    }

    #[test]
    fn a_missing_privilege_is_named_with_the_ways_to_get_it() {
        let line = Facts::default().explain();
        assert!(
            line.contains("root") && line.contains("CAP_SYS_NICE"),
            "{line}"
        );
    }

    #[test]
    fn a_namespace_and_a_unified_group_are_told_apart() {
        let inside = Facts {
            has_sys_nice: true,
            in_user_namespace: true,
            ..Facts::default()
        };
        assert!(inside.explain().contains("user namespace"));
        let unified = Some("/box".to_owned());
        let unified = Facts {
            has_sys_nice: true,
            unified,
            ..Facts::default()
        };
        assert!(unified.explain().contains("cgroup /box"));
    }

    #[test]
    fn other_errors_speak_for_themselves() {
        assert_eq!(explain(&io::Error::other("odd")), "odd");
    }

    #[test]
    fn the_cpu_hierarchy_is_found_under_any_name() {
        let cgroup = "4:memory:/m\n3:cpu,cpuacct:/a/b\n0::/\n";
        assert_eq!(legacy_cpu_group(cgroup), Some("/a/b"));
        assert_eq!(legacy_cpu_group("2:cpuset:/\n1:cpuacct:/\n0::/x\n"), None);
        assert_eq!(unified_group("0::/x\n"), Some("/x".into()));
        assert_eq!(unified_group("0::/\n"), None);
        let mounts = "30 25 0:26 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n\
                      31 25 0:27 /a /cg/cpu rw,nosuid shared:9 - cgroup cgroup rw,cpu,cpuacct\n";
        assert_eq!(group_directory(mounts, "/a/b"), Some("/cg/cpu/b".into()));
        assert_eq!(group_directory(mounts, "/elsewhere"), None);
    }

    #[test]
    fn the_initial_namespace_is_recognised() {
        assert!(is_initial_namespace("         0          0 4294967295\n"));
        assert!(!is_initial_namespace("         0       1000          1\n"));
    }
}
