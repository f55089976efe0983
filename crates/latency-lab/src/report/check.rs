//! Finds samples that no run can produce; a file that contains such a sample is refused.

use std::collections::BTreeSet;

use crate::launch::{EngineReport, Sample};

pub(super) fn launches(engine: &EngineReport) -> Result<(), String> {
    let name = engine.label();
    for sample in &engine.samples {
        let round = format!("{name}, round {}", sample.iteration + 1);
        for (field, value) in times(sample) {
            not_negative(&round, field, value)?;
        }
        parts(&round, sample)?;
    }
    let rounds: Vec<usize> = engine.samples.iter().map(|it| it.iteration).collect();
    once(&name, &rounds)?;
    let without = engine.recording.iter();
    let mut without = without.flat_map(|it| &it.samples_without_us);
    without.try_for_each(|&time| not_negative(&name, "samples_without_us", time))
}

/// Checks that the scheduling latency is the sum of its two parts, and that either all three are
/// known or none.
fn parts(round: &str, sample: &Sample) -> Result<(), String> {
    /// All times are whole nanoseconds, so the sum may differ only by rounding.
    const ROUNDING_US: f64 = 0.001;
    let (whole, parts) = (
        sample.sched_latency_us,
        [sample.wakeup_us, sample.preempted_us],
    );
    match (whole - parts.iter().sum::<f64>()).abs() > ROUNDING_US {
        true => Err(format!(
            "{round}: sched_latency_us is {whole}, but its parts wakeup_us and preempted_us are \
             {} and {}",
            parts[0], parts[1]
        )),
        false => Ok(()),
    }
}

fn times(sample: &Sample) -> [(&'static str, f64); 11] {
    [
        ("launch_us", sample.launch_us),
        ("sched_latency_us", sample.sched_latency_us),
        ("wakeup_us", sample.wakeup_us),
        ("preempted_us", sample.preempted_us),
        ("queue_us", sample.queue_us.unwrap_or_default()),
        ("program_blocked_us", sample.program_blocked_us),
        ("program_preempted_us", sample.program_preempted_us),
        ("cpu_us", sample.cpu_us),
        ("uninterruptible_us", sample.uninterruptible_us),
        ("seen_us", sample.seen_us),
        ("mount_us", sample.mount_us),
    ]
}

/// Checks the samples of one figure; reports from early versions have no rounds.
pub(super) fn series(name: &str, rounds: &[usize], samples: &[f64]) -> Result<(), String> {
    let all = samples.len();
    if !rounds.is_empty() && all > 0 && rounds.len() != all {
        return Err(format!(
            "{name} has {} rounds, but {all} samples",
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

/// Comparisons use samples of the same round, so each round may occur only once.
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
        Some((name, number)) => Err(format!("two engines named {name} have the number {number}")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn the_scheduling_latency_is_the_sum_of_its_parts() {
        let fault = |sample: Value| {
            let engine = EngineReport {
                engine: "kernel".into(),
                samples: vec![serde_json::from_value(sample).unwrap()],
                ..EngineReport::default()
            };
            launches(&engine).err()
        };
        let of = |whole: f64| json!({"sched_latency_us": whole, "wakeup_us": 30.1, "preempted_us": 20.2});
        assert_eq!(fault(of(50.3)), None);
        let reason = fault(of(5.3)).unwrap();
        assert!(
            reason.starts_with("kernel, round 1: sched_latency_us is 5.3"),
            "{reason}"
        );
        let none = json!({"sched_latency_us": 5.0, "wakeup_us": 0.0, "preempted_us": 0.0});
        assert!(fault(none).is_some());
        let unknown = json!({"sched_latency_us": null, "wakeup_us": null, "preempted_us": null});
        assert_eq!(fault(unknown), None);
        assert_eq!(
            fault(json!({"sched_latency_us": 5.0})),
            None,
            "a file without parts"
        );
    }
}
