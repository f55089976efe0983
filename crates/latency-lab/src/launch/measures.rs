//! The figures that are measured for each launch and compared with those of the first engine or
//! command.

use serde::{Deserialize, Serialize};

use super::sample::Sample;

/// The kinds of launch experiments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Experiment {
    /// One program, launched from the mounts of several engines.
    #[default]
    Launch,
    /// Several commands, launched without any mount.
    Run,
}

/// A figure of a launch.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measure {
    pub(super) name: &'static str,
    /// What the figure measures, if the name alone does not say it.
    pub(super) of: &'static str,
    pub(super) unit: &'static str,
    pub(super) value: fn(&Sample) -> f64,
    /// The name of the figure in [`Against`](super::Against); empty if the figure is not compared.
    pub(super) field: &'static str,
}

const fn measure(
    (field, name): (&'static str, &'static str),
    of: &'static str,
    unit: &'static str,
    value: fn(&Sample) -> f64,
) -> Measure {
    Measure {
        name,
        of,
        unit,
        value,
        field,
    }
}

/// The field of the launch time, which is known for every launch.
pub(super) const TIME: &str = "launch";

const LAUNCH: [Measure; 3] = [
    measure((TIME, "launch time"), "", "us", |it| it.launch_us),
    measure(
        ("sched_latency", "scheduling latency"),
        "waits for a CPU of the threads that decompressed, per launch",
        "us",
        |it| it.sched_latency_us,
    ),
    measure(
        ("program_off_cpu", "whole path"),
        "the program's first thread off the CPU, per launch",
        "us",
        Sample::program_off_cpu_us,
    ),
];

/// Figures of an image at a URL, which are not compared.
const FETCHED: [Measure; 4] = [
    measure(
        ("", "ready"),
        "the mount and its first launch",
        "us",
        Sample::ready_us,
    ),
    measure(("", "mount"), "", "us", |it| it.mount_us),
    measure(
        ("", "fetched"),
        "until the end of the launch",
        "MiB",
        Sample::fetched_mib,
    ),
    measure(
        ("", "round trips"),
        "until the end of the launch",
        "",
        Sample::round_trips,
    ),
];

const RUN: [Measure; 7] = [
    measure((TIME, "time"), "", "us", |it| it.launch_us),
    measure(
        ("cpu", "CPU time"),
        "of all threads of the command",
        "us",
        |it| it.cpu_us,
    ),
    measure(
        ("sched_latency", "waits for a CPU"),
        "of all threads of the command, added up",
        "us",
        |it| it.sched_latency_us,
    ),
    measure(
        ("blocked", "blocked"),
        "the command's first thread asleep",
        "us",
        |it| it.program_blocked_us,
    ),
    measure(
        ("queue", "queue delay"),
        "work items that the command had the kernel's workers execute, added up",
        "us",
        Sample::queue_us,
    ),
    measure(
        ("preemptions", "preemptions"),
        "of all threads of the command",
        "",
        Sample::preemptions,
    ),
    measure(
        ("migrations", "migrations"),
        "of all threads of the command",
        "",
        Sample::migrations,
    ),
];

impl Experiment {
    /// The figures of a report, starting with the launch time, since that is how long a user waits.
    /// For commands, figures that are 0 in every launch are left out.
    pub(super) fn measures(self, samples: &[&Sample]) -> Vec<&'static Measure> {
        let occurs = |it: &Measure| samples.iter().any(|sample| (it.value)(sample) != 0.0);
        let is_there = |it: &&Measure| it.field == TIME || occurs(it);
        let fetched = samples.iter().any(|sample| sample.fetched.is_some());
        match self {
            Experiment::Launch if fetched => LAUNCH.iter().chain(&FETCHED).collect(),
            Experiment::Launch => LAUNCH.iter().collect(),
            Experiment::Run => RUN.iter().filter(is_there).collect(),
        }
    }

    /// The maximum number of figures that are compared.
    pub(super) fn compared(self) -> usize {
        match self {
            Experiment::Launch => LAUNCH.len(),
            Experiment::Run => RUN.len(),
        }
    }

    /// The experiment's name on the command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Experiment::Launch => "launch",
            Experiment::Run => "run",
        }
    }

    /// The word for a row of the report.
    pub(super) fn row(self) -> &'static str {
        match self {
            Experiment::Launch => "engine",
            Experiment::Run => "command",
        }
    }
}
