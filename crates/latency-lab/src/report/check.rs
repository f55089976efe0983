//! Samples that no run can have: a file with one of them is refused.

use std::collections::BTreeSet;

use crate::launch::{EngineReport, Sample};

pub(super) fn launches(engine: &EngineReport) -> Result<(), String> {
    let name = engine.label();
    for sample in &engine.samples {
        let round = format!("{name}, round {}", sample.iteration + 1);
        for (field, value) in times(sample) {
            not_negative(&round, field, value)?;
        }
    }
    let rounds: Vec<usize> = engine.samples.iter().map(|it| it.iteration).collect();
    once(&name, &rounds)?;
    let without = engine.recording.iter();
    let mut without = without.flat_map(|it| &it.samples_without_us);
    without.try_for_each(|&time| not_negative(&name, "samples_without_us", time))
}

fn times(sample: &Sample) -> [(&'static str, f64); 9] {
    [
        ("launch_us", sample.launch_us),
        ("sched_latency_us", sample.sched_latency_us),
        ("wakeup_us", sample.wakeup_us),
        ("preempted_us", sample.preempted_us),
        ("queue_us", sample.queue_us.unwrap_or_default()),
        ("program_blocked_us", sample.program_blocked_us),
        ("program_preempted_us", sample.program_preempted_us),
        ("seen_us", sample.seen_us),
        ("mount_us", sample.mount_us),
    ]
}

/// Samples of one figure; reports of early versions have no rounds.
pub(super) fn series(name: &str, rounds: &[usize], samples: &[f64]) -> Result<(), String> {
    let all = samples.len();
    if !rounds.is_empty() && all > 0 && rounds.len() != all {
        return Err(format!(
            "{name} has {} rounds and {all} samples",
            rounds.len()
        ));
    }
    let mut samples = samples.iter();
    samples.try_for_each(|&value| not_negative(name, "a sample", value))?;
    once(name, rounds)
}

fn not_negative(name: &str, what: &str, value: f64) -> Result<(), String> {
    match value < 0.0 {
        true => Err(format!("{name}: {what} is {value}")),
        false => Ok(()),
    }
}

/// Comparisons are of the samples of one round.
fn once(name: &str, rounds: &[usize]) -> Result<(), String> {
    let mut seen = BTreeSet::new();
    match rounds.iter().find(|round| !seen.insert(**round)) {
        Some(round) => Err(format!("{name} has two samples of round {}", round + 1)),
        None => Ok(()),
    }
}

pub(super) fn numbered<'a>(engines: impl Iterator<Item = (&'a str, usize)>) -> Result<(), String> {
    let (mut seen, mut engines) = (BTreeSet::new(), engines);
    match engines.find(|engine| !seen.insert(*engine)) {
        Some((name, number)) => Err(format!(
            "two engines are number {number} of the name {name}"
        )),
        None => Ok(()),
    }
}
