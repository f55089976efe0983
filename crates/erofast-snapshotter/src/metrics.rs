//! Figures for Prometheus, and lines for the log.

use std::collections::HashSet;
use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Upper bounds of the buckets in the histogram of the times until a mount is ready, in seconds.
const BOUNDS: [f64; 10] = [0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0];

/// The outcome for a layer that containerd asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The layer was mounted from the registry.
    Mounted,
    /// The layer was already mounted.
    Shared,
    /// The layer was converted, and mounted.
    Converted,
    /// The layer is not EROFS: containerd unpacks it.
    Unpacked,
    /// The layer could not be mounted: containerd tries to unpack it.
    Failed,
}

impl Outcome {
    const ALL: [(Self, &str); 5] = [
        (Self::Mounted, "mounted"),
        (Self::Shared, "shared"),
        (Self::Converted, "converted"),
        (Self::Unpacked, "unpacked"),
        (Self::Failed, "failed"),
    ];
}

/// Counts since the program started.
#[derive(Debug, Default)]
pub struct Metrics {
    pulls: [AtomicU64; Outcome::ALL.len()],
    /// Mounts that were ready within each bound, and those that took longer.
    ready: [AtomicU64; BOUNDS.len() + 1],
    ready_ns: AtomicU64,
    said: Mutex<HashSet<String>>,
}

/// The current values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The number of mounted layers.
    pub layers: u64,
    /// The size of these layers in bytes.
    pub layer_bytes: u64,
    /// Bytes of these layers that are in the cache.
    pub cached_bytes: u64,
    /// Bytes that the fetchers of these layers have fetched.
    pub fetched_bytes: u64,
    /// Failed requests of the fetchers of these layers.
    pub failures: u64,
    /// The number of snapshots.
    pub snapshots: u64,
}

impl Metrics {
    /// Counts a layer that was asked for.
    pub fn pulled(&self, outcome: Outcome) {
        self.pulls[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Counts the time until a mount was ready for use.
    pub fn ready(&self, time: Duration) {
        let above = BOUNDS.iter().position(|bound| time.as_secs_f64() <= *bound);
        self.ready[above.unwrap_or(BOUNDS.len())].fetch_add(1, Ordering::Relaxed);
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.ready_ns.fetch_add(time, Ordering::Relaxed);
    }

    /// Writes a line to standard error, which systemd keeps in its journal.
    pub fn log(&self, line: &str) {
        eprintln!("erofast-snapshotter: {}", line.replace(['\n', '\r'], " "));
    }

    /// Writes a line only once.
    pub fn log_once(&self, line: &str) {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < 1000 && said.insert(line.to_owned()) {
            self.log(line);
        }
    }

    /// The page for Prometheus.
    pub fn page(&self, now: &Now) -> String {
        let mut page = String::new();
        let pulls = Outcome::ALL.map(|(outcome, name)| {
            let count = self.pulls[outcome as usize].load(Ordering::Relaxed);
            (format!("{{outcome=\"{name}\"}}"), count)
        });
        let help = "Layers that containerd requested, by outcome.";
        series(&mut page, "layer_pulls_total", "counter", help, &pulls);
        self.times(&mut page);
        for (name, help, value) in [
            ("layers", "Mounted layers.", now.layers),
            ("layer_bytes", "Bytes of mounted layers.", now.layer_bytes),
            (
                "layer_cached_bytes",
                "Cached bytes of mounted layers.",
                now.cached_bytes,
            ),
            (
                "layer_lazy_bytes",
                "Bytes fetched for mounted layers.",
                now.fetched_bytes,
            ),
            ("layer_fetch_failures", FAILURES, now.failures),
            ("snapshots", "Snapshots of containerd.", now.snapshots),
        ] {
            series(&mut page, name, "gauge", help, &[(String::new(), value)]);
        }
        page
    }

    fn times(&self, page: &mut String) {
        let name = "layer_ready_seconds";
        let help = "Time from the start of a mount until it can be used.";
        head(page, name, "histogram", help);
        let mut sum = 0;
        let bounds = BOUNDS.iter().map(f64::to_string).chain(["+Inf".into()]);
        for (bound, count) in bounds.zip(&self.ready) {
            sum += count.load(Ordering::Relaxed);
            let _ = writeln!(page, "{PREFIX}{name}_bucket{{le=\"{bound}\"}} {sum}");
        }
        let seconds = Duration::from_nanos(self.ready_ns.load(Ordering::Relaxed)).as_secs_f64();
        let _ = writeln!(page, "{PREFIX}{name}_sum {seconds}");
        let _ = writeln!(page, "{PREFIX}{name}_count {sum}");
    }
}

const PREFIX: &str = "erofast_snapshotter_";

const FAILURES: &str = "Failed requests to registries for mounted layers.";

fn head(page: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(page, "# HELP {PREFIX}{name} {help}");
    let _ = writeln!(page, "# TYPE {PREFIX}{name} {kind}");
}

fn series(page: &mut String, name: &str, kind: &str, help: &str, values: &[(String, u64)]) {
    head(page, name, kind, help);
    for (labels, value) in values {
        let _ = writeln!(page, "{PREFIX}{name}{labels} {value}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pulls_and_times_are_counted() {
        let metrics = Metrics::default();
        metrics.pulled(Outcome::Mounted);
        metrics.pulled(Outcome::Failed);
        metrics.ready(Duration::from_millis(50));
        metrics.ready(Duration::from_secs(100));
        let now = Now {
            cached_bytes: 7,
            ..Now::default()
        };
        let page = metrics.page(&now);
        for line in [
            "layer_pulls_total{outcome=\"mounted\"} 1",
            "layer_pulls_total{outcome=\"shared\"} 0",
            "layer_pulls_total{outcome=\"failed\"} 1",
            "layer_ready_seconds_bucket{le=\"0.025\"} 0",
            "layer_ready_seconds_bucket{le=\"0.05\"} 1",
            "layer_ready_seconds_bucket{le=\"30\"} 1",
            "layer_ready_seconds_bucket{le=\"+Inf\"} 2",
            "layer_ready_seconds_sum 100.05",
            "layer_ready_seconds_count 2",
            "layer_cached_bytes 7",
        ] {
            let line = format!("{PREFIX}{line}");
            assert!(page.lines().any(|known| known == line), "{line}\n{page}");
        }
    }
}
