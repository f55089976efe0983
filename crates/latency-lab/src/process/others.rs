//! CPU time of unrelated programs, for measurements without a trace.

use std::time::Duration;

use super::facts::{all_ticks, descendants, ticks_per_second};

/// The part of the CPU time that other programs may take of a valid measurement.
pub(crate) const FOREIGN_LIMIT: f64 = 0.1;

/// Shorter activity than this is within the resolution of the clock.
const GRAIN_SECONDS: f64 = 0.05;

/// Clock ticks of every other program at one moment.
#[derive(Debug)]
pub(crate) struct Others {
    ours: Vec<u32>,
    before: u64,
}

impl Others {
    /// The lab, its children and `daemon` are not others; kernel threads are not counted.
    pub(crate) fn now(daemon: Option<u32>) -> Others {
        let me = std::process::id();
        let mut ours = descendants(me);
        ours.push(me);
        ours.extend(daemon);
        Others {
            before: all_ticks(&ours),
            ours,
        }
    }

    /// What they took of the time of all CPUs since, which was `elapsed`; 0 where that is too
    /// little to be counted.
    pub(crate) fn share(&self, elapsed: Duration) -> f64 {
        let ticks = all_ticks(&self.ours).saturating_sub(self.before);
        let seconds = ticks as f64 / ticks_per_second();
        let cpus = std::thread::available_parallelism().map_or(1, usize::from) as f64;
        match seconds > GRAIN_SECONDS {
            true => (seconds / (elapsed.as_secs_f64() * cpus).max(1e-9)).min(1.0),
            false => 0.0,
        }
    }
}
