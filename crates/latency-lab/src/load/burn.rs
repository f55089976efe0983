//! Checks that the load reached its share of CPU time, using /proc/stat and the jobs' own CPU time.

use serde::{Deserialize, Serialize};

use crate::process::{Machine, cpu_ticks, machine_ticks, number_in, ticks_per_second};

/// If the load reaches less than this fraction of its share, the run is not valid.
const ENOUGH: f64 = 0.9;
/// The run is also not valid if the load gets less than this fraction of the CPU time it asks for,
/// however much the launches use.
const LEAST: f64 = 0.5;
/// A reader that works makes more reads per second than this, even if it waits for a disk and
/// shares CPUs with the jobs.
const READS_PER_SECOND: f64 = 10.0;
/// The fault that is reported if no time was counted.
const SPOILT: &str = "every launch was spoilt";
/// Largest plausible share: clock ticks are counted at different moments, so a share may slightly
/// exceed 1.
const PLAUSIBLE: f64 = 1.1;

/// The number of read calls that a process made.
fn read_calls(pid: u32) -> Option<u64> {
    number_in(&format!("/proc/{pid}/io"), "syscr")
}

/// The machine's counters since boot, and those of the load's processes since their start.
#[derive(Debug, Clone, Copy)]
pub struct Moment {
    machine: Machine,
    load: u64,
    reads: u64,
}

impl Moment {
    pub(crate) fn now(jobs: &[u32]) -> Option<Moment> {
        Some(Moment {
            machine: machine_ticks()?,
            load: jobs.iter().filter_map(|&pid| cpu_ticks(pid)).sum(),
            reads: jobs.iter().filter_map(|&pid| read_calls(pid)).sum(),
        })
    }

    /// The time spent since `before`; none if it is unknown. Busy time of everything except the
    /// load counts as the lab's own time.
    pub(crate) fn since(self, before: Moment) -> Option<Spent> {
        let machine = self.machine.since(&before.machine)?;
        let seconds = |ticks: u64| ticks as f64 / ticks_per_second();
        let busy = seconds(machine.busy());
        let load = seconds(self.load.saturating_sub(before.load));
        Some(Spent {
            total: seconds(machine.total()),
            busy,
            stolen: seconds(machine.stolen()),
            load,
            own: (busy - load).max(0.0),
            reads: self.reads.saturating_sub(before.reads),
        })
    }
}

/// Times in seconds, summed over all CPUs, and the number of reads, in one or more windows.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Spent {
    pub(crate) total: f64,
    pub(crate) busy: f64,
    pub(crate) stolen: f64,
    pub(crate) load: f64,
    /// Time that is not available to the load: that of the launches themselves, and what other
    /// programs may take.
    pub(crate) own: f64,
    pub(crate) reads: u64,
}

impl Spent {
    pub(crate) fn add(&mut self, other: Spent) {
        self.total += other.total;
        self.busy += other.busy;
        self.stolen += other.stolen;
        self.load += other.load;
        self.own += other.own;
        self.reads += other.reads;
    }

    fn share(&self, seconds: f64) -> f64 {
        seconds / self.total.max(1e-9)
    }

    /// Whether the jobs reached their share of CPU time. Together they ask for the fraction
    /// `wanted` of the machine (at most all of it); the time of the launches themselves is
    /// unavailable to them.
    pub(crate) fn burned(&self, wanted: f64) -> bool {
        let left = (1.0 - self.share(self.own)).max(0.0);
        self.share(self.load) >= ENOUGH * wanted * left && self.total > 0.0
    }

    /// Why the machine did not have the requested load; none if it had.
    fn fault(&self, wanted: f64, cpus: usize) -> Option<String> {
        let (load, percent) = (self.share(self.load), |share: f64| share * 100.0);
        let reads = self.reads as f64 / self.seconds(cpus);
        if self.total <= 0.0 {
            Some(SPOILT.into())
        } else if load > PLAUSIBLE {
            let load = percent(load);
            Some(format!(
                "fio took {load:.0} % of the CPU time, which is impossible"
            ))
        } else if load < LEAST * wanted {
            let (load, least) = (percent(load), percent(LEAST * wanted));
            Some(format!(
                "fio took {load:.0} % of the CPU time, but at least {least:.0} % is expected"
            ))
        } else if !self.burned(wanted) {
            let (load, own) = (percent(load), percent(self.share(self.own)));
            Some(format!(
                "fio took {load:.0} % of the CPU time and the launches {own:.0} %: it did not use \
                 the rest"
            ))
        } else if reads < READS_PER_SECOND {
            Some(format!("its reader made {reads:.1} reads per second"))
        } else {
            None
        }
    }

    fn seconds(&self, cpus: usize) -> f64 {
        (self.total / cpus.max(1) as f64).max(1e-9)
    }

    pub(crate) fn report(&self, jobs: usize, cpus: usize) -> LoadReport {
        let profile = format!(
            "{jobs} cpuio jobs, cpuload 90, qsort, and one direct 4 KiB random reader on 500 MiB"
        );
        self.counted(profile, jobs, self.fault(wanted(jobs, cpus), cpus), cpus)
    }

    /// The report of a load that is given as a command line. No share of CPU time is required of
    /// such a load.
    pub(super) fn of_line(&self, line: &str, cpus: usize) -> LoadReport {
        let fault = (self.total <= 0.0).then(|| SPOILT.to_owned());
        self.counted(line.into(), 0, fault, cpus)
    }

    fn counted(
        &self,
        profile: String,
        jobs: usize,
        fault: Option<String>,
        cpus: usize,
    ) -> LoadReport {
        LoadReport {
            profile,
            jobs,
            burned: fault.is_none(),
            failed_because: fault,
            load_cpu_share: round(self.share(self.load)),
            busy_cpu_share: round(self.share(self.busy)),
            stolen_cpu_share: round(self.stolen / (self.total + self.stolen).max(1e-9)),
            reads_per_second: (self.reads as f64 / self.seconds(cpus)).round(),
        }
    }
}

/// The fraction of the machine's CPU time for which the jobs ask.
pub(crate) fn wanted(jobs: usize, cpus: usize) -> f64 {
    (jobs as f64 * 0.9 / cpus.max(1) as f64).min(1.0)
}

fn round(share: f64) -> f64 {
    (share * 1000.0).round() / 1000.0
}

/// The load that was measured during launches.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// The requested load.
    pub profile: String,
    /// Number of jobs that burn CPU time, without the reader.
    pub jobs: usize,
    /// Whether the load reached its share of the CPU time that the launches left.
    pub burned: bool,
    /// Why the load check failed, if it did.
    pub failed_because: Option<String>,
    /// CPU time of fio's processes, as a fraction of all CPUs' time.
    pub load_cpu_share: f64,
    /// Time in which CPUs were busy, as a fraction of all CPUs' time.
    pub busy_cpu_share: f64,
    /// Time stolen by a hypervisor, as a fraction of all CPUs' time.
    pub stolen_cpu_share: f64,
    /// Number of random reads per second.
    pub reads_per_second: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten seconds of CPU time, of which the load, the lab and the idle task take this much.
    fn spent(load: f64, own: f64, idle: f64) -> Spent {
        Spent {
            total: 10.0,
            busy: 10.0 - idle,
            stolen: 0.0,
            load,
            own,
            reads: 5000,
        }
    }

    fn fault(spent: Spent) -> String {
        let report = spent.report(8, 2);
        assert_eq!(report.burned, report.failed_because.is_none());
        report.failed_because.unwrap_or_default()
    }

    #[test]
    fn a_load_burns_if_it_takes_what_the_launches_leave_and_its_reader_reads() {
        let hardly = |reads| Spent {
            reads,
            ..spent(10.0, 0.0, 0.0)
        };
        for (spent, reason) in [
            (spent(5.5, 0.5, 4.0), "did not use the rest"),
            // Other programs use 2.5 of the 10 seconds.
            (spent(7.0, 0.5, 0.0), "fio took 70 % of the CPU time"),
            (
                spent(1.4, 8.6, 0.0),
                "14 % of the CPU time, but at least 50 % is expected",
            ),
            (spent(23.3, 0.0, 0.0), "233 %"),
            (Spent::default(), "every launch was spoilt"),
            (hardly(0), "0.0 reads per second"),
            (hardly(49), "9.8 reads per second"),
        ] {
            let found = fault(spent);
            assert!(found.contains(reason), "{found}");
        }
        assert_eq!(fault(spent(6.9, 3.0, 0.1)), "");
        assert!(!Spent::default().burned(1.0));
    }

    #[test]
    fn jobs_ask_for_nine_tenths_each_up_to_the_whole_machine() {
        assert_eq!([wanted(8, 2), wanted(1, 2)], [1.0, 0.45]);
    }
}
