//! Reads settings of the machine from /proc and /sys.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::process::Machine;

/// The first line of a file.
pub(super) fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.lines().next()?.trim().to_owned())
}

/// The names of the CPUs' frequency governors, each once.
pub(super) fn governors() -> Option<String> {
    let cpus = fs::read_dir("/sys/devices/system/cpu").ok()?.flatten();
    let governors: BTreeSet<String> = cpus
        .filter_map(|cpu| {
            let path = cpu.path().join("cpufreq/scaling_governor");
            line(&path.to_string_lossy())
        })
        .collect();
    let names: Vec<String> = governors.into_iter().collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// The state of sched_ext, with the name of the loaded scheduler, if any.
pub(super) fn sched_ext() -> Option<String> {
    let state = line("/sys/kernel/sched_ext/state")?;
    let name = line("/sys/kernel/sched_ext/root/ops").map(|name| format!(": {name}"));
    Some(state + &name.unwrap_or_default())
}

/// The kernel's mitigation for each vulnerability that this CPU has.
pub(super) fn mitigations() -> BTreeMap<String, String> {
    let directory = fs::read_dir("/sys/devices/system/cpu/vulnerabilities");
    let files = directory.into_iter().flatten().flatten();
    files
        .filter_map(|file| {
            let text = line(&file.path().to_string_lossy())?;
            let name = file.file_name().to_string_lossy().into_owned();
            (text != "Not affected").then_some((name, text))
        })
        .collect()
}

/// Parses /proc/swaps, whose lines contain path, type, size and more.
pub(super) fn swaps(table: &str) -> BTreeMap<String, u64> {
    let lines = table.lines().skip(1);
    let swap = |line: &str| {
        let mut words = line.split_whitespace();
        Some((words.next()?.to_owned(), words.nth(1)?.parse().ok()?))
    };
    lines.filter_map(swap).collect()
}

/// The fraction of the CPU time that a hypervisor took between two moments; none if it is unknown.
pub(super) fn stolen(begun: Machine, ended: Machine) -> Option<f64> {
    let spent = ended.since(&begun)?;
    let stolen = spent.stolen() as f64;
    let total = spent.total() as f64 + stolen;
    Some((stolen / total.max(1.0) * 1000.0).round() / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swaps_have_their_sizes() {
        let table = "Filename\t\t\tType\t\tSize\t\tUsed\t\tPriority\n\
                     /dev/zram0      partition\t4194300\t\t0\t\t100\n";
        assert_eq!(swaps(table), [("/dev/zram0".to_owned(), 4_194_300)].into());
        assert!(swaps("").is_empty());
    }
}
