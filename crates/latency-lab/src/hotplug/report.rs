//! The report of a hotplug experiment. Its JSON is described in docs/schemas.

use serde::{Deserialize, Serialize};

use super::HotplugOptions;
use super::cycles::Cycled;
use super::readers::HotplugCounts;
use crate::environment::Environment;
use crate::figure::{amount, count};
use crate::findings::Findings;
use crate::load::LoadReport;
use crate::statistics::Summary;
use crate::table::Table;

/// The report of `lab hotplug`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct HotplugReport {
    /// The counts of all cycles.
    #[serde(flatten)]
    pub counts: HotplugCounts,
    /// Whether the CPU's worker was pinned to it again after every cycle; none if the engine has no
    /// such worker.
    pub repinned: Option<bool>,
    /// Whether all cycles were completed, no request was lost, no byte was wrong, and the worker
    /// was always pinned again.
    pub valid: bool,
    /// The engine under test.
    pub engine: String,
    /// The CPU that went offline.
    pub cpu: u32,
    /// The engine through which the reference was read.
    pub reference: String,
    /// Number of threads that read.
    pub readers: usize,
    /// How long the kernel took to take the CPU offline.
    pub offline_us: Option<Summary>,
    /// How long the kernel took to bring the CPU online.
    pub online_us: Option<Summary>,
    /// Time from the CPU's return until its worker was pinned to it.
    pub pin_us: Option<Summary>,
    /// Whether the load reached its share of CPU time.
    pub load_seen: Option<LoadReport>,
    /// The environment of the run.
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
    let (counts, repinned) = (cycled.counts, cycled.not_pinned.map(|count| count == 0));
    let environment = environment.ended();
    let mut report = HotplugReport {
        valid: counts.cycles == options.cycles,
        counts,
        repinned,
        engine: options.engine.to_string(),
        cpu,
        reference: reference.into(),
        readers: options.readers,
        offline_us: Summary::of(&cycled.offline_us),
        online_us: Summary::of(&cycled.online_us),
        pin_us: Summary::of(&cycled.pin_us),
        load_seen,
        environment,
    };
    report.valid &= report.is_clean();
    report
}

impl HotplugReport {
    /// Whether no request was lost, no byte was wrong, the worker was always pinned again, and the
    /// image stayed the same.
    pub(crate) fn is_clean(&self) -> bool {
        let wrong = self.counts.lost + self.counts.wrong_bytes > 0;
        !wrong && self.repinned != Some(false) && self.environment.image.changed.is_none()
    }

    pub(crate) fn findings(&self) -> Findings {
        Findings {
            kind: "hotplug",
            title: "A CPU goes offline and comes back",
            about: format!(
                "{}: CPU {} went offline and came back {} while {} read",
                self.engine,
                self.cpu,
                count(self.counts.cycles, "time"),
                count(self.readers, "thread")
            ),
            environment: Some(self.environment.clone()),
            faults: self.faults(),
            summary: self.summary(),
            ..Findings::default()
        }
    }

    fn faults(&self) -> Vec<String> {
        let unknown = match self.is_clean() {
            true => "not all cycles were completed",
            false => "requests were lost or wrong, or the worker was not pinned again",
        };
        let why = self
            .counts
            .first_fault
            .clone()
            .or_else(|| self.environment.image.changed.clone())
            .unwrap_or_else(|| unknown.into());
        (!self.valid).then_some(why).into_iter().collect()
    }

    fn summary(&self) -> Vec<Table> {
        let pinned = match self.repinned {
            Some(true) => "after every cycle",
            Some(false) => "NOT after every cycle",
            None => "this engine has no thread erofs_worker/N",
        };
        let time = |of: Option<Summary>| {
            let text = |of: Summary| {
                let [median, maximum] = [of.median, of.maximum].map(|us| amount(us, "us"));
                format!("median {median}, maximum {maximum}")
            };
            of.map_or("-".into(), text)
        };
        let wrong = format!(
            "{} (compared with {})",
            self.counts.wrong_bytes, self.reference
        );
        let counts = &self.counts;
        let rows = [
            ("requests", counts.requests.to_string()),
            ("launches while offline", counts.launches.to_string()),
            ("lost", counts.lost.to_string()),
            ("wrong bytes", wrong),
            ("slowest request", amount(counts.slowest_us, "us")),
            ("worker pinned again", pinned.into()),
            ("going offline", time(self.offline_us)),
            ("coming online", time(self.online_us)),
            ("until pinned", time(self.pin_us)),
        ];
        let memory = counts.memory.map(|it| ("memory of the daemon", it.text()));
        let fault = counts.first_fault.clone().map(|it| ("first fault", it));
        let rows = rows.into_iter().chain(memory).chain(fault);
        let rows = rows.map(|(name, text)| (name.to_owned(), text));
        vec![Table::words("", rows.collect())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_fits_its_schema_and_says_what_went_wrong() {
        let options = HotplugOptions {
            cycles: 1,
            ..HotplugOptions::default()
        };
        let counts = HotplugCounts {
            cycles: 1,
            first_fault: Some("cycle 1: not pinned".into()),
            ..HotplugCounts::default()
        };
        let cycled = Cycled {
            counts,
            offline_us: vec![36_000.0],
            not_pinned: Some(1),
            ..Cycled::default()
        };
        let report = build(&options, Environment::default(), 1, "kernel", None, cycled);
        crate::schema::check("lab-hotplug", &serde_json::to_value(&report).unwrap());
        assert!(!report.valid);
        let table = crate::Report::Hotplug(Box::new(report)).table();
        assert!(table.contains("NOT VALID: cycle 1: not pinned"), "{table}");
    }
}
