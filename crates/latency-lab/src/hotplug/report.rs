//! The report of a hotplug experiment: the contract's JSON, with further fields.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::HotplugOptions;
use super::cycles::Cycled;
use crate::DaemonMemory;
use crate::environment::Environment;
use crate::load::LoadReport;
use crate::statistics::Summary;
use crate::validity;

/// The report of `lab hotplug`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HotplugReport {
    /// Completed cycles.
    pub cycles: usize,
    /// Reads issued.
    pub requests: u64,
    /// Reads that failed or never returned, and launches that failed.
    pub lost: u64,
    /// Of all reads together.
    pub wrong_bytes: u64,
    /// The slowest read.
    pub slowest_us: f64,
    /// The worker of the CPU was pinned to it again after every cycle; none where the engine has no
    /// thread of that name.
    pub repinned: Option<bool>,
    /// All cycles were completed, and nothing was lost, wrong or left unpinned.
    pub valid: bool,
    /// The user stopped the run.
    pub interrupted: bool,
    /// The first failure.
    pub first_fault: Option<String>,
    /// The engine under test.
    pub engine: String,
    /// The CPU that went offline.
    pub cpu: u32,
    /// The engine that the reference was read from.
    pub reference: String,
    /// Threads that read.
    pub readers: usize,
    /// Launches while the CPU was offline.
    pub launches: u64,
    /// How long the kernel took to take the CPU offline.
    pub offline_us: Option<Summary>,
    /// How long it took to bring it online.
    pub online_us: Option<Summary>,
    /// From then until the worker was pinned to it.
    pub pin_us: Option<Summary>,
    /// Of the daemon, where it is ours.
    pub memory: Option<DaemonMemory>,
    /// Whether the load reached its share of CPU time.
    pub load_seen: Option<LoadReport>,
    /// Where this ran.
    pub environment: Environment,
}

pub(super) fn build(
    options: &HotplugOptions,
    environment: Environment,
    cpu: u32,
    reference: &str,
    load_seen: Option<LoadReport>,
    cycled: Cycled,
) -> HotplugReport {
    let repinned = cycled.not_pinned.map(|count| count == 0);
    let clean = cycled.lost == 0 && cycled.wrong_bytes == 0 && repinned != Some(false);
    HotplugReport {
        valid: clean && cycled.cycles == options.cycles,
        cycles: cycled.cycles,
        requests: cycled.requests,
        lost: cycled.lost,
        wrong_bytes: cycled.wrong_bytes,
        slowest_us: cycled.slowest_us,
        repinned,
        interrupted: cycled.interrupted,
        first_fault: cycled.first_fault,
        engine: options.engine.to_string(),
        cpu,
        reference: reference.into(),
        readers: options.readers,
        launches: cycled.launches,
        offline_us: Summary::of(&cycled.offline_us),
        online_us: Summary::of(&cycled.online_us),
        pin_us: Summary::of(&cycled.pin_us),
        memory: cycled.memory,
        load_seen,
        environment: environment.ended(),
    }
}

impl HotplugReport {
    /// The JSON of the contract, readable.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    fn faults(&self) -> Vec<String> {
        let unknown = "not all cycles were gone through";
        let why = self.first_fault.clone().unwrap_or_else(|| unknown.into());
        (!self.valid).then_some(why).into_iter().collect()
    }

    /// As text.
    pub fn table(&self) -> String {
        let mut out = format!(
            "{}: CPU {} went and came back {} times while {} threads read\n{}\n{}",
            self.engine,
            self.cpu,
            self.cycles,
            self.readers,
            self.environment.line(),
            validity::lines(&self.faults())
        );
        let mut line = |name: &str, value: String| {
            let _ = writeln!(out, "  {name:<28} {value}");
        };
        line("requests", self.requests.to_string());
        line("launches meanwhile", self.launches.to_string());
        line("lost", self.lost.to_string());
        line(
            "wrong bytes",
            format!("{} (compared with {})", self.wrong_bytes, self.reference),
        );
        line("slowest request", format!("{:.0} us", self.slowest_us));
        line(
            "worker pinned again",
            match self.repinned {
                Some(true) => "after every cycle".into(),
                Some(false) => "NOT after every cycle".into(),
                None => "this engine has no thread erofs_worker/N".into(),
            },
        );
        for (name, summary) in [
            ("going offline", self.offline_us),
            ("coming online", self.online_us),
            ("until pinned", self.pin_us),
        ] {
            let text = summary.map_or("-".into(), |s| {
                format!("median {:.0} us, maximum {:.0} us", s.median, s.maximum)
            });
            line(name, text);
        }
        if let Some(memory) = &self.memory {
            line("memory of the daemon", memory.text());
        }
        if let Some(fault) = &self.first_fault {
            line("first fault", fault.clone());
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_report_fits_its_schema_and_says_what_went_wrong() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let image = scratch.path().join("image");
        std::fs::write(&image, "image").unwrap();
        let options = HotplugOptions {
            cycles: 1,
            ..HotplugOptions::default()
        };
        let cycled = Cycled {
            cycles: 1,
            offline_us: vec![36_000.0],
            not_pinned: Some(1),
            first_fault: Some("cycle 1: not pinned".into()),
            ..Cycled::default()
        };
        let environment = Environment::capture(&image, &image).unwrap();
        let report = build(&options, environment, 1, "kernel", None, cycled);
        crate::schema::check("lab-hotplug", &serde_json::to_value(&report).unwrap());
        assert!(!report.valid);
        let table = report.table();
        assert!(table.contains("NOT VALID: cycle 1: not pinned"), "{table}");
    }
}
