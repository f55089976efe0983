//! Resident memory of a daemon, and its limit.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::daemon_stat::daemon_stat;

/// What a daemon may use in addition to its cache and its pool.
const OWN_BYTES: u64 = 16 << 20;

/// Resident memory of an erofast daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonMemory {
    /// At its highest, program text included.
    pub peak_rss_bytes: u64,
    /// Its limit: 16 MiB, the cache and the pool.
    pub bound_bytes: u64,
}

impl DaemonMemory {
    /// None for other engines than erofast.
    pub(crate) fn of(erofast: &Path, daemon: Option<u32>, point: &Path) -> Option<DaemonMemory> {
        let peak_rss_bytes = peak_rss(daemon?)?;
        let counters = daemon_stat(erofast, point).ok()?;
        Some(DaemonMemory {
            peak_rss_bytes,
            bound_bytes: bound(&counters)?,
        })
    }

    /// As text.
    pub(crate) fn text(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "{:.1} MiB at most, the bound is {:.1} (16 + cache + pool)",
            mib(self.peak_rss_bytes),
            mib(self.bound_bytes)
        )
    }
}

fn bound(counters: &Value) -> Option<u64> {
    let cache = counters.get("cache")?.get("budget_bytes")?.as_u64()?;
    let pages = counters.get("pool")?.get("reserved_pages")?.as_u64()?;
    Some(OWN_BYTES + cache + pages * 4096)
}

/// `VmHWM` of a process.
fn peak_rss(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_process_has_a_highest_resident_size() {
        assert!(peak_rss(std::process::id()).is_some_and(|bytes| bytes > 100_000));
        assert_eq!(peak_rss(u32::MAX), None);
    }

    #[test]
    fn the_bound_is_16_mib_and_what_was_granted() {
        let counters = json!({"cache": {"budget_bytes": 8 << 20}, "pool": {"reserved_pages": 64}});
        assert_eq!(bound(&counters), Some((24 << 20) + 64 * 4096));
        assert_eq!(bound(&json!({})), None);
    }
}
