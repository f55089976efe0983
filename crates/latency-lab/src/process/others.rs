//! CPU time of unrelated programs, for measurements without a trace.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::{descendants, name, ticks, ticks_per_second};

/// The fraction of the CPU time that other programs may use in a valid measurement.
pub(crate) const FOREIGN_LIMIT: f64 = 0.1;

/// A CPU time below this is within the resolution of the clock ticks.
const GRAIN_SECONDS: f64 = 0.05;

/// Maximum number of programs to name.
const NAMES: usize = 3;

/// The clock ticks that every other program had used at one moment.
#[derive(Debug)]
pub(crate) struct Others {
    ours: Vec<u32>,
    before: BTreeMap<u32, u64>,
}

impl Others {
    /// Takes a snapshot. The lab, its children and `daemon` do not count as others, nor do kernel
    /// threads.
    pub(crate) fn now(daemon: Option<u32>) -> Others {
        let me = std::process::id();
        let mut ours = descendants(me);
        ours.push(me);
        ours.extend(daemon);
        Others {
            before: ticks(&ours),
            ours,
        }
    }

    /// The fraction of all CPUs' time that other programs have used since the snapshot, `elapsed`
    /// ago; 0 if they used too little to count.
    pub(crate) fn share(&self, elapsed: Duration) -> f64 {
        let sum = |of: &BTreeMap<u32, u64>| of.values().sum::<u64>();
        let ticks = sum(&ticks(&self.ours)).saturating_sub(sum(&self.before));
        let seconds = ticks as f64 / ticks_per_second();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        match seconds > GRAIN_SECONDS {
            true => (seconds / (elapsed.as_secs_f64() * cpus).max(1e-9)).min(1.0),
            false => 0.0,
        }
    }

    /// The programs that have used the most CPU time since the snapshot, in descending order.
    pub(crate) fn busiest(&self) -> Vec<String> {
        let mut busy: BTreeMap<String, u64> = BTreeMap::new();
        for (pid, now) in ticks(&self.ours) {
            let before = self.before.get(&pid).copied().unwrap_or(0);
            if let Some(name) = name(pid).filter(|_| now > before) {
                *busy.entry(name).or_default() += now - before;
            }
        }
        let mut busy: Vec<(String, u64)> = busy.into_iter().collect();
        busy.sort_by_key(|(_, ticks)| std::cmp::Reverse(*ticks));
        busy.into_iter().take(NAMES).map(|(name, _)| name).collect()
    }
}

/// Describes how much CPU time other programs use before a run, if they use so much that launches
/// beside them would not count.
pub(crate) fn load_found(limit: f64) -> Option<String> {
    /// Long enough for many clock ticks, so that the share is precise.
    const LOOK: Duration = Duration::from_millis(500);
    let others = Others::now(None);
    std::thread::sleep(LOOK);
    let share = others.share(LOOK);
    (share > limit).then(|| {
        format!(
            "other programs take {:.0} % of the CPU time, mostly {}: stop them, or launches \
             beside them are thrown away and the run is not valid",
            share * 100.0,
            others.busiest().join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn the_program_that_keeps_a_cpu_busy_is_named() {
        let mut busy = Command::new("sh");
        let mut busy = busy.args(["-c", "while :; do :; done"]).spawn().unwrap();
        // Makes `Others` treat the busy program as unrelated, although it is a child of this
        // process.
        let mut others = Others::now(None);
        others.ours.retain(|pid| *pid != busy.id());
        let mut names = Vec::new();
        for _ in 0..1200 {
            std::thread::sleep(Duration::from_millis(50));
            // Renews the snapshot, so that only the busy program has used CPU time since then.
            others.before = ticks(&[]);
            others.before.insert(busy.id(), 0);
            names = others.busiest();
            if names.iter().any(|name| name == "sh") {
                break;
            }
        }
        busy.kill().unwrap();
        busy.wait().unwrap();
        assert!(names.iter().any(|name| name == "sh"), "{names:?}");
        assert!(names.len() <= NAMES);
        assert_eq!(load_found(f64::INFINITY), None);
    }
}
