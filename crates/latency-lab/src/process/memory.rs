//! Live counters of a daemon, and its resident memory, which must stay below a limit.

use std::io;
use std::path::Path;
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::child::output;
use super::facts::number_in;

/// Memory that a daemon may use in addition to its cache and pool.
const OWN_BYTES: u64 = 16 << 20;

/// Resident memory of an erofast daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonMemory {
    /// Peak resident memory, including program text.
    pub peak_rss_bytes: u64,
    /// Limit of the resident memory: 16 MiB plus the cache and the pool.
    pub bound_bytes: u64,
}

/// The counters of the mount at `point`, as `erofast stat --json` prints them.
///
/// # Errors
/// Returns the error line of `erofast stat` if it fails, for example because `point` is not a mount
/// of erofast.
pub(crate) fn daemon_stat(erofast: &Path, point: &Path) -> io::Result<Value> {
    let text = output(Command::new(erofast).args(["stat", "--json"]).arg(point))?;
    Ok(serde_json::from_str(&text)?)
}

impl DaemonMemory {
    /// The memory of a daemon; none for engines other than erofast.
    pub(crate) fn of(erofast: &Path, daemon: Option<u32>, point: &Path) -> Option<DaemonMemory> {
        let peak_rss_bytes = peak_rss(daemon?)?;
        let counters = daemon_stat(erofast, point).ok()?;
        Some(DaemonMemory {
            peak_rss_bytes,
            bound_bytes: bound(&counters)?,
        })
    }

    /// The memory as text.
    pub(crate) fn text(&self) -> String {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        format!(
            "{:.1} MiB at most; the limit is {:.1} (16 + cache + pool)",
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

/// The peak resident memory of a process in bytes (`VmHWM`).
fn peak_rss(pid: u32) -> Option<u64> {
    Some(number_in(&format!("/proc/{pid}/status"), "VmHWM")? << 10)
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
    fn a_program_that_fails_is_an_error_with_its_own_line() {
        let error = daemon_stat(Path::new("/bin/false"), Path::new("/")).unwrap_err();
        assert_eq!(error.to_string(), "exit status 1");
        assert!(daemon_stat(Path::new("/does/not/exist"), Path::new("/")).is_err());
    }

    #[test]
    fn the_bound_is_16_mib_and_what_was_granted() {
        let counters = json!({"cache": {"budget_bytes": 8 << 20}, "pool": {"reserved_pages": 64}});
        assert_eq!(bound(&counters), Some((24 << 20) + 64 * 4096));
        assert_eq!(bound(&json!({})), None);
    }
}
