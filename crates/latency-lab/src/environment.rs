//! The environment of a run: everything that is known to affect latencies, stored with the samples.

mod group;
mod image;
mod machine;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sched_trace::SchedulerSettings;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::Watch;
use crate::process::{Machine, cgroup, in_path, machine_ticks, number_in, policy, value_in};
pub(crate) use group::Quota;
pub use image::Image;
use machine::line;

/// Maximum share of the CPU time, in per cent, that a hypervisor may take; if it takes more, the
/// figures depend on the hypervisor.
const MOST_STEAL: f64 = 10.0;

/// The machine, its settings, the programs and the image.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Environment {
    /// When the run started, UTC.
    pub date: String,
    /// Release, version and machine of uname(2).
    pub kernel: String,
    /// Online CPUs, in the kernel's list format.
    pub cpus: String,
    /// The model of the CPUs, if the kernel knows it.
    pub cpu_model: Option<String>,
    /// The frequency governors of the CPUs, if any.
    pub governor: Option<String>,
    /// Whether CPUs share cores, in the kernel's words: "on", "off", "notsupported" and others.
    pub smt: Option<String>,
    /// CPUs that the scheduler leaves alone (`isolcpus`), in the kernel's list format.
    pub isolated_cpus: Option<String>,
    /// "disabled", or "enabled" with the name of the scheduler that a program has loaded; none if
    /// the kernel has no sched_ext.
    pub sched_ext: Option<String>,
    /// How long a thread runs before another of the same priority gets the CPU (EEVDF).
    pub base_slice_ns: Option<u64>,
    /// The kernel's mitigation for each vulnerability of the CPU.
    #[serde(default)]
    pub mitigations: BTreeMap<String, String>,
    /// Swap files and devices with their sizes in KiB.
    #[serde(default)]
    pub swaps: BTreeMap<String, u64>,
    /// The fraction of the CPU time that a hypervisor took during the run; none if the kernel's
    /// counters went backwards.
    pub cpu_steal_share: Option<f64>,
    /// How long real-time threads may run in each `sched_rt_period_us`; -1 means all of it.
    pub sched_rt_runtime_us: Option<i64>,
    /// The period of `sched_rt_runtime_us`.
    pub sched_rt_period_us: Option<i64>,
    /// The kernel's preemption model: "none", "voluntary", "full", "lazy" or "rt"; "dynamic" if it
    /// is chosen at boot and cannot be determined.
    pub preemption: Option<String>,
    /// Whether a thread that is blocked on a mutex may lend its turn to the owner of the mutex
    /// (Linux 6.17); none if unknown, and in reports from early versions.
    pub proxy_execution: Option<bool>,
    /// 1 if each session has its own scheduling group, which changes every figure under load.
    pub sched_autogroup_enabled: Option<i64>,
    /// The lab's nice value, which programs and engines inherit.
    pub nice: Option<i32>,
    /// The lab's scheduling policy, such as "other", or "fifo 1" with the priority of a real-time
    /// policy.
    pub scheduling_policy: Option<String>,
    /// The CPUs that the lab may use, in the kernel's list format.
    pub allowed_cpus: Option<String>,
    /// The cpu cgroup of this process.
    pub cgroup_cpu: Option<String>,
    /// The cgroup's real-time budget, if the kernel has RT_GROUP_SCHED.
    pub cgroup_rt_runtime_us: Option<i64>,
    /// How much CPU time the cgroup may use in each `cgroup_period_us`, by the strictest quota of
    /// the group and its ancestors; none without a quota.
    pub cgroup_quota_us: Option<u64>,
    /// The period of `cgroup_quota_us`.
    pub cgroup_period_us: Option<u64>,
    /// How long the quota in `cgroup_quota_us` throttled threads during the run, summed over all
    /// CPUs.
    pub cgroup_throttled_us: Option<u64>,
    /// Load averages over 1, 5 and 15 minutes, before the run started its own load.
    pub load_average: Option<String>,
    /// Memory of the machine, in KiB.
    pub memory_kib: Option<u64>,
    /// Available memory, in KiB.
    pub memory_available_kib: Option<u64>,
    /// Whether the kernel offers FUSE over io_uring.
    pub fuse_uring_enabled: Option<String>,
    /// The programs involved, each with the version that it prints.
    pub programs: BTreeMap<String, String>,
    /// The measured image, if one is measured.
    #[serde(default, skip_serializing_if = "Image::is_none")]
    pub image: Image,
    /// CPU time at the beginning of the run.
    #[serde(skip)]
    begun: Option<Machine>,
    /// The quota, and how long it had already throttled threads when the run began.
    #[serde(skip)]
    quota: Option<(Quota, u64)>,
}

impl Environment {
    /// Collects all facts about the environment. Reads the whole image once, which also brings it
    /// into the page cache.
    pub fn capture(image: &Path, erofast: &Path) -> Result<Environment> {
        Ok(Environment {
            image: Image::capture(image)?,
            programs: programs(Some(erofast)),
            ..Environment::here()
        })
    }

    /// The environment of a run that measures no image.
    pub(crate) fn here() -> Environment {
        let quota = Quota::find();
        let scheduler = sched_trace::record::scheduler_settings();
        Environment {
            date: date(rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec),
            kernel: kernel(),
            cpus: line("/sys/devices/system/cpu/online").unwrap_or_default(),
            cpu_model: value_in("/proc/cpuinfo", "model name"),
            governor: machine::governors(),
            smt: line("/sys/devices/system/cpu/smt/control"),
            isolated_cpus: line("/sys/devices/system/cpu/isolated"),
            sched_ext: machine::sched_ext(),
            base_slice_ns: sched_trace::record::base_slice_ns(),
            mitigations: machine::mitigations(),
            swaps: machine::swaps(&fs::read_to_string("/proc/swaps").unwrap_or_default()),
            cpu_steal_share: None,
            sched_rt_runtime_us: number("/proc/sys/kernel/sched_rt_runtime_us"),
            sched_rt_period_us: number("/proc/sys/kernel/sched_rt_period_us"),
            preemption: scheduler.preemption,
            proxy_execution: scheduler.proxy_execution,
            sched_autogroup_enabled: number("/proc/sys/kernel/sched_autogroup_enabled"),
            nice: rustix::process::getpriority_process(None).ok(),
            scheduling_policy: policy(),
            allowed_cpus: value_in("/proc/self/status", "Cpus_allowed_list"),
            cgroup_cpu: cpu_cgroup(),
            cgroup_rt_runtime_us: cpu_cgroup()
                .and_then(|group| number(&format!("/sys/fs/cgroup/cpu{group}/cpu.rt_runtime_us"))),
            cgroup_quota_us: quota.as_ref().map(|it| it.quota_us),
            cgroup_period_us: quota.as_ref().map(|it| it.period_us),
            cgroup_throttled_us: None,
            load_average: line("/proc/loadavg")
                .map(|line| line.split(' ').take(3).collect::<Vec<_>>().join(" ")),
            memory_kib: number_in("/proc/meminfo", "MemTotal"),
            memory_available_kib: number_in("/proc/meminfo", "MemAvailable"),
            fuse_uring_enabled: line("/sys/module/fuse/parameters/enable_uring"),
            programs: programs(None),
            image: Image::default(),
            begun: machine_ticks(),
            quota: quota.and_then(|it| it.throttled_us().map(|us| (it, us))),
        }
    }

    /// A watch that checks whether all mounts are mounts of this image.
    pub(crate) fn watch(&self) -> Watch {
        self.image.watch.clone()
    }

    /// Adds the facts that are known only when the run is over.
    pub(crate) fn ended(self) -> Environment {
        let stolen = self.begun.zip(machine_ticks());
        let throttled = |(quota, before): &(Quota, u64)| quota.throttled_us()?.checked_sub(*before);
        Environment {
            cpu_steal_share: stolen.and_then(|(begun, ended)| machine::stolen(begun, ended)),
            cgroup_throttled_us: self.quota.as_ref().and_then(throttled),
            image: self.image.ended(),
            ..self
        }
    }

    /// Why the figures are invalid, if a hypervisor took too much of the CPU time of the run or of
    /// its measured parts.
    pub(crate) fn steal_fault(&self, measured: Option<f64>) -> Option<String> {
        let shares = [measured, self.cpu_steal_share].into_iter().flatten();
        let percent = shares.fold(0.0, f64::max) * 100.0;
        (percent > MOST_STEAL).then(|| format!("a hypervisor took {percent:.0} % of the CPU time"))
    }

    /// How many CPUs the lab was allowed to use; none if unknown.
    pub(crate) fn allowed(&self) -> Option<usize> {
        let list = self.allowed_cpus.as_ref().unwrap_or(&self.cpus);
        let count = |range: &str| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
            (last + 1).checked_sub(first)
        };
        list.trim().split(',').map(count).sum()
    }

    /// Machine, settings and date in one line, which should be quoted with a table.
    pub fn line(&self) -> String {
        let release = self.kernel.split(' ').next().unwrap_or_default();
        let autogroup = self.sched_autogroup_enabled.map(|on| on != 0);
        let settings = SchedulerSettings {
            preemption: self.preemption.clone(),
            autogroup,
            proxy_execution: self.proxy_execution,
        };
        let words = [
            format!("CPUs {}", self.cpus),
            format!("Linux {release}"),
            settings.to_string(),
        ];
        let loaded = self
            .sched_ext
            .as_ref()
            .filter(|state| state.starts_with("enabled"));
        let loaded = loaded.map(|state| format!("sched_ext {state}"));
        let quota = self.cgroup_quota_us.zip(self.cgroup_period_us);
        let quota = quota.map(|(quota, period)| {
            let cpus = quota as f64 / period as f64;
            format!("quota of {cpus:.2} CPUs")
        });
        let words = words
            .into_iter()
            .chain(loaded)
            .chain(quota)
            .chain([self.date.clone()]);
        words
            .filter(|word| !word.is_empty())
            .collect::<Vec<_>>()
            .join(", ")
    }
}

fn kernel() -> String {
    let uname = rustix::system::uname();
    let words = [uname.release(), uname.version(), uname.machine()];
    words.map(|word| word.to_string_lossy()).join(" ")
}

fn number(path: &str) -> Option<i64> {
    line(path)?.parse().ok()
}

/// The path of our cgroup: the one of the version 1 cpu controller if there is one, otherwise the
/// one of version 2.
fn cpu_cgroup() -> Option<String> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let first = cgroup(&groups, |list| list.split(',').any(|name| name == "cpu"));
    first
        .or_else(|| cgroup(&groups, str::is_empty))
        .map(str::to_owned)
}

/// Versions of the load's programs and, if `erofast` is given, of the programs that mount.
fn programs(erofast: Option<&Path>) -> BTreeMap<String, String> {
    let erofsfuse = erofast.and_then(|_| in_path("erofsfuse"));
    let programs = [
        ("fio", in_path("fio")),
        ("erofsfuse", erofsfuse),
        ("erofast", erofast.map(Path::to_owned)),
    ];
    let version = |(name, path): (&str, Option<PathBuf>)| Some((name.into(), version(&path?)?));
    programs.into_iter().filter_map(version).collect()
}

/// The first line that a program prints about its version, on either stream.
fn version(program: &Path) -> Option<String> {
    let mut command = Command::new(program);
    let output = command
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines().map(str::trim);
    Some(lines.find(|line| !line.is_empty())?.to_owned())
}

/// Seconds since 1970 in the format of RFC 3339. The calculation lets years begin in March, so that
/// a leap day is the last day of a year.
fn date(seconds: i64) -> String {
    let (days, rest) = (seconds.div_euclid(86400), seconds.rem_euclid(86400));
    let day = days + 719_468; // days since 1 March of the year 0
    let (era, day) = (day.div_euclid(146_097), day.rem_euclid(146_097));
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let from_march = (5 * day + 2) / 153;
    let day = day - (153 * from_march + 2) / 5 + 1;
    let month = (from_march + 2) % 12 + 1;
    let year = era * 400 + year + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_right_over_leap_years() {
        assert_eq!(date(0), "1970-01-01T00:00:00Z");
        assert_eq!(date(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(date(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(date(1_700_000_000), "2023-11-14T22:13:20Z");
    }

    #[test]
    fn the_machine_and_the_image_are_named() {
        let scratch = crate::scratch::Scratch::new(&std::env::temp_dir()).unwrap();
        let path = scratch.path().join("image");
        fs::write(&path, "abc").unwrap();
        let environment = Environment::capture(&path, Path::new("/no/such/erofast")).unwrap();
        assert_eq!(environment.image.bytes, 3);
        assert!(environment.image.sha256.starts_with("ba7816bf8f01cfea"));
        assert!(environment.memory_kib.is_some() && !environment.kernel.is_empty());
        assert!(!environment.programs.contains_key("erofast"));
        assert!(environment.nice.is_some() && environment.scheduling_policy.is_some());
        assert!(
            environment
                .allowed_cpus
                .as_ref()
                .unwrap()
                .contains(char::is_numeric)
        );
        assert!(
            environment
                .image
                .filesystem
                .as_ref()
                .unwrap()
                .contains(" on ")
        );
        assert_eq!(environment.cpu_steal_share, None);
        let line = |state: &str| {
            let sched_ext = Some(state.into());
            let environment = environment.clone();
            Environment {
                sched_ext,
                ..environment
            }
            .line()
        };
        assert!(line("enabled: scx_rusty").contains("sched_ext enabled: scx_rusty"));
        assert!(!line("disabled").contains("sched_ext"));
        let limited = Environment {
            cgroup_quota_us: Some(50_000),
            cgroup_period_us: Some(100_000),
            ..environment.clone()
        };
        assert!(limited.line().contains("quota of 0.50 CPUs"));
        assert_eq!(environment.steal_fault(Some(0.09)), None);
        let stolen = Environment {
            cpu_steal_share: Some(0.14),
            ..environment.clone()
        };
        assert!(stolen.steal_fault(None).unwrap().contains("took 14 %"));
        let steal = environment.ended().cpu_steal_share.unwrap_or_default();
        assert!((0.0..=1.0).contains(&steal), "{steal}");
    }
}
