//! How this machine's kernel schedules.

use super::detached::detached;
use crate::SchedulerSettings;
use crate::settings::is_built_with_proxy;
use std::fs;
use std::os::fd::AsRawFd;

/// The settings of this machine, as far as this process may read them.
pub fn scheduler_settings() -> SchedulerSettings {
    let built = SchedulerSettings::of_version(&version());
    let autogroup = read("/proc/sys/kernel/sched_autogroup_enabled");
    SchedulerSettings {
        preemption: dynamic().or_else(at_boot).or(built.preemption),
        autogroup: autogroup.map(|text| text.trim() != "0"),
        proxy_execution: proxy_execution(),
    }
}

/// Whether proxy execution is built in and not disabled by its boot parameter; the default is on.
fn proxy_execution() -> Option<bool> {
    let release = read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let config = read(&format!("/boot/config-{}", release.trim())).unwrap_or_default();
    let chosen = config
        .lines()
        .any(|line| line == "CONFIG_SCHED_PROXY_EXEC=y");
    let built = chosen || is_built_with_proxy(&fs::read("/proc/kallsyms").ok()?);
    Some(built && !is_switched_off(&read("/proc/cmdline").unwrap_or_default()))
}

fn is_switched_off(command_line: &str) -> bool {
    let mut words = command_line.split_whitespace();
    words.any(|word| {
        let value = word.strip_prefix("sched_proxy_exec=");
        let off = ["0", "n", "no", "off", "f", "false"];
        value.is_some_and(|it| off.contains(&it.to_ascii_lowercase().as_str()))
    })
}

/// `uname -v`.
pub(super) fn version() -> String {
    read("/proc/sys/kernel/version")
        .unwrap_or_default()
        .trim()
        .into()
}

/// The kernel's current preemption mode if it can be switched (PREEMPT_DYNAMIC), from debugfs.
fn dynamic() -> Option<String> {
    chosen(&debugfs("sched/preempt")?)
}

/// How long a thread runs before another of the same priority gets the CPU, in nanoseconds, if the
/// kernel schedules by slices (EEVDF).
pub fn base_slice_ns() -> Option<u64> {
    debugfs("sched/base_slice_ns")?.trim().parse().ok()
}

/// Reads a file of debugfs, mounted or not.
fn debugfs(file: &str) -> Option<String> {
    read(&format!("/sys/kernel/debug/{file}")).or_else(|| {
        let debugfs = detached("debugfs").ok()?;
        read(&format!("/proc/self/fd/{}/{file}", debugfs.as_raw_fd()))
    })
}

/// The word in parentheses, as in "none voluntary (full) lazy".
fn chosen(text: &str) -> Option<String> {
    let (_, rest) = text.split_once('(')?;
    rest.split_once(')').map(|(mode, _)| mode.to_owned())
}

/// The boot parameter `preempt=`.
fn at_boot() -> Option<String> {
    let line = read("/proc/cmdline")?;
    let mode = line
        .split_whitespace()
        .find_map(|word| word.strip_prefix("preempt="));
    mode.map(str::to_owned)
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_parameter_switches_proxy_execution_off() {
        assert!(is_switched_off("quiet sched_proxy_exec=0 ro"));
        assert!(!is_switched_off("sched_proxy_exec=1") && !is_switched_off("sched_proxy_exec"));
    }

    #[test]
    fn the_mode_in_parentheses_is_the_one_that_applies() {
        assert_eq!(
            chosen("none (voluntary) full \n").as_deref(),
            Some("voluntary")
        );
        assert_eq!(
            chosen("(none) voluntary full lazy").as_deref(),
            Some("none")
        );
        assert_eq!(chosen("none voluntary"), None);
    }
}
