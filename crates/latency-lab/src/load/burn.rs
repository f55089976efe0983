//! Checks that the load reached its share of CPU time, by /proc/stat and by the jobs' own CPU time.

use std::fs;

use serde::{Deserialize, Serialize};

use crate::process::{Machine, cpu_ticks, machine_ticks};

/// A load that reaches less than this part of its share does not count as one.
const ENOUGH: f64 = 0.9;

/// CPU time and reads of the load and of the machine up to one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Window {
    machine: Machine,
    load_ticks: u64,
    reads: u64,
}

impl Window {
    pub(crate) fn now(jobs: &[u32]) -> Option<Window> {
        Some(Window {
            machine: machine_ticks()?,
            load_ticks: jobs.iter().filter_map(|&pid| cpu_ticks(pid)).sum(),
            reads: jobs.iter().filter_map(|&pid| read_calls(pid)).sum(),
        })
    }

    /// What happened from `self` to `later`.
    pub(crate) fn until(&self, later: &Window) -> Spent {
        Spent {
            total: later.machine.total.saturating_sub(self.machine.total),
            busy: later.machine.busy.saturating_sub(self.machine.busy),
            stolen: later.machine.stolen.saturating_sub(self.machine.stolen),
            load: later.load_ticks.saturating_sub(self.load_ticks),
            reads: later.reads.saturating_sub(self.reads),
        }
    }
}

/// The calls for reading that a process made.
fn read_calls(pid: u32) -> Option<u64> {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).ok()?;
    io.lines()
        .find_map(|line| line.strip_prefix("syscr: "))?
        .parse()
        .ok()
}

/// Clock ticks of all CPUs together, and reads, in one or many windows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Spent {
    pub(crate) total: u64,
    pub(crate) busy: u64,
    pub(crate) stolen: u64,
    pub(crate) load: u64,
    pub(crate) reads: u64,
}

impl Spent {
    pub(crate) fn add(&mut self, other: Spent) {
        self.total += other.total;
        self.busy += other.busy;
        self.stolen += other.stolen;
        self.load += other.load;
        self.reads += other.reads;
    }

    fn share(&self, ticks: u64) -> f64 {
        ticks as f64 / self.total.max(1) as f64
    }

    /// The jobs together ask for `wanted` of the machine (at most all of it); the time of the
    /// launches themselves is not available to them.
    pub(crate) fn burned(&self, wanted: f64) -> bool {
        let others = self.share(self.busy.saturating_sub(self.load));
        self.share(self.load) >= ENOUGH * wanted * (1.0 - others).max(0.0) && self.total > 0
    }

    pub(crate) fn report(&self, jobs: usize, cpus: usize) -> LoadReport {
        let ticks = crate::process::ticks_per_second();
        let seconds = self.total as f64 / ticks / cpus.max(1) as f64;
        LoadReport {
            profile: format!(
                "{jobs} cpuio jobs, cpuload 90, qsort, and one direct 4 KiB random reader on 500 MiB"
            ),
            jobs,
            burned: self.burned(wanted(jobs, cpus)) && self.reads > 0,
            load_cpu_share: round(self.share(self.load)),
            busy_cpu_share: round(self.share(self.busy)),
            stolen_cpu_share: round(self.stolen as f64 / (self.total + self.stolen).max(1) as f64),
            reads_per_second: (self.reads as f64 / seconds.max(1e-9)).round(),
        }
    }
}

/// The part of the machine the jobs ask for.
pub(crate) fn wanted(jobs: usize, cpus: usize) -> f64 {
    (jobs as f64 * 0.9 / cpus.max(1) as f64).min(1.0)
}

fn round(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}

/// The measured load during launches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// The requested load.
    pub profile: String,
    /// Burning jobs, without the reader.
    pub jobs: usize,
    /// Whether the load reached its share of the time that the launches left.
    pub burned: bool,
    /// CPU time of fio's processes, of all CPUs' time.
    pub load_cpu_share: f64,
    /// Time in which CPUs were not idle, of all CPUs' time.
    pub busy_cpu_share: f64,
    /// Time stolen by a hypervisor.
    pub stolen_cpu_share: f64,
    /// Random reads a second.
    pub reads_per_second: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_that_takes_all_that_is_left_burned_its_share() {
        let spent = Spent {
            total: 1000,
            busy: 990,
            load: 690,
            reads: 5,
            stolen: 0,
        };
        assert!(spent.burned(wanted(8, 2)));
    }

    #[test]
    fn a_load_on_an_idle_machine_did_not_burn() {
        let spent = Spent {
            total: 1000,
            busy: 500,
            load: 450,
            reads: 5,
            stolen: 0,
        };
        assert!(!spent.burned(wanted(8, 2)));
        assert!(!Spent::default().burned(1.0));
    }

    #[test]
    fn jobs_ask_for_nine_tenths_each_up_to_the_whole_machine() {
        assert_eq!(wanted(8, 2), 1.0);
        assert_eq!(wanted(1, 2), 0.45);
    }

    #[test]
    fn a_reader_that_never_read_is_no_load() {
        let spent = Spent {
            total: 1000,
            busy: 1000,
            load: 1000,
            reads: 0,
            stolen: 0,
        };
        assert!(!spent.report(8, 2).burned);
    }
}
