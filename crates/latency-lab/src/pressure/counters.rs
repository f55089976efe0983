//! Reads the daemon's own counters, before and after the measured program.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::Value;

use crate::Result;
use crate::error::Doing;
use crate::process::daemon_stat;

/// Sums since the image was mounted.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Counters {
    pub(super) allocations: u64,
    pub(super) cpu_ns: u64,
    pub(super) wall_ns: u64,
    /// Duration of one empty window, not a sum.
    pub(super) empty_cpu_ns: u64,
    pub(super) empty_wall_ns: u64,
    pub(super) reclaims: Option<u64>,
    pub(super) reclaims_unknown: Option<String>,
    pub(super) hit_pages: u64,
    pub(super) missed_pages: u64,
    pub(super) decoded_bytes: u64,
    /// How often each number of pages was in use right after an allocation.
    pub(super) in_use: BTreeMap<u64, u64>,
}

impl Counters {
    pub(super) fn read(erofast: &Path, point: &Path) -> Result<Counters> {
        let missing = || std::io::Error::other("this daemon does not measure allocations");
        let counters = daemon_stat(erofast, point);
        let counters = counters.and_then(|value| Counters::parse(&value).ok_or_else(missing));
        counters.doing("reading the counters of", point)
    }

    fn parse(value: &Value) -> Option<Counters> {
        let number = |path: &str| value.pointer(path).and_then(Value::as_u64);
        let unknown = value.pointer("/pool/times/reclaims_unknown");
        let in_use = value.pointer("/pool/times/in_use_pages")?;
        let in_use = Vec::<(u64, u64)>::deserialize(in_use).ok()?;
        Some(Counters {
            allocations: number("/pool/times/allocations")?,
            cpu_ns: number("/pool/times/cpu_ns")?,
            wall_ns: number("/pool/times/wall_ns")?,
            empty_cpu_ns: number("/pool/times/empty_cpu_ns")?,
            empty_wall_ns: number("/pool/times/empty_wall_ns")?,
            reclaims: number("/pool/times/reclaims"),
            reclaims_unknown: unknown.and_then(Value::as_str).map(str::to_owned),
            hit_pages: number("/pool/hit_pages")?,
            missed_pages: number("/pool/missed_pages")?,
            decoded_bytes: number("/engine/decoded_bytes")?,
            in_use: in_use.into_iter().collect(),
        })
    }

    /// The increase since `before`.
    pub(super) fn since(&self, before: &Counters) -> Counters {
        let earlier = |pages| before.in_use.get(pages).copied().unwrap_or(0);
        let reclaims = self.reclaims.zip(before.reclaims);
        Counters {
            allocations: self.allocations - before.allocations,
            cpu_ns: self.cpu_ns - before.cpu_ns,
            wall_ns: self.wall_ns - before.wall_ns,
            empty_cpu_ns: self.empty_cpu_ns,
            empty_wall_ns: self.empty_wall_ns,
            reclaims: reclaims.map(|(after, before)| after - before),
            reclaims_unknown: self.reclaims_unknown.clone(),
            hit_pages: self.hit_pages - before.hit_pages,
            missed_pages: self.missed_pages - before.missed_pages,
            decoded_bytes: self.decoded_bytes - before.decoded_bytes,
            in_use: self
                .in_use
                .iter()
                .map(|(pages, count)| (*pages, count - earlier(pages)))
                .filter(|(_, count)| *count > 0)
                .collect(),
        }
    }

    /// CPU time of all windows in microseconds, without the time for reading the clocks.
    pub(super) fn cpu_us(&self) -> f64 {
        without(self.cpu_ns, self.empty_cpu_ns, self.allocations)
    }

    /// Elapsed time of all windows in microseconds, without the time for reading the clocks.
    pub(super) fn wall_us(&self) -> f64 {
        without(self.wall_ns, self.empty_wall_ns, self.allocations)
    }
}

fn without(total_ns: u64, empty_ns: u64, windows: u64) -> f64 {
    total_ns.saturating_sub(empty_ns * windows) as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn stat(allocations: u64, reclaims: Value) -> Value {
        json!({
            "pool": {"hit_pages": 5, "missed_pages": 7, "times": {
                "allocations": allocations, "cpu_ns": allocations * 1200, "wall_ns": allocations * 2000,
                "empty_cpu_ns": 200, "empty_wall_ns": 500, "reclaims": reclaims,
                "reclaims_unknown": null, "in_use_pages": [[3, 1], [9, allocations]]}},
            "engine": {"decoded_bytes": 1 << 20},
        })
    }

    #[test]
    fn a_program_is_charged_with_what_came_since_and_without_the_clocks() {
        let before = Counters::parse(&stat(10, json!(1))).unwrap();
        let added = Counters::parse(&stat(30, json!(4))).unwrap().since(&before);
        assert_eq!((added.allocations, added.reclaims), (20, Some(3)));
        assert_eq!((added.cpu_us(), added.wall_us()), (20.0, 30.0));
        assert_eq!(added.in_use, BTreeMap::from([(9, 20)]));
    }

    #[test]
    fn unknown_reclaim_stays_unknown_and_a_daemon_that_does_not_measure_is_refused() {
        let counters = Counters::parse(&stat(1, Value::Null)).unwrap();
        assert_eq!(counters.reclaims, None);
        assert_eq!(Counters::parse(&json!({"pool": {"times": null}})), None);
    }
}
