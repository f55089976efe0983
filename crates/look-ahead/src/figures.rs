//! Figures of replays, for the counters of a mount.

use std::sync::Arc;

use serde_json::{Value, json};

use crate::replay::Replay;

/// Counts the probes among `windows`: those that a launch requested, and those that no launch
/// requested. A window that another replay has read was already in the page cache, so it shows
/// nothing.
pub(crate) fn probes<'w>(
    replays: &[Arc<Replay>],
    windows: impl Iterator<Item = (&'w [u8], u32)>,
) -> (u64, u64) {
    let (mut hit, mut missed) = (0, 0);
    for (path, number) in windows {
        if replays.iter().any(|replay| replay.has_taken(path, number)) {
            continue;
        }
        let probes = replays.iter();
        let probes = probes.filter_map(|replay| replay.probe(path, number));
        if let Some(is_hit) = probes.reduce(|one, other| one || other) {
            hit += u64::from(is_hit);
            missed += u64::from(!is_hit);
        }
    }
    (hit, missed)
}

/// The figures of all replays together.
pub(crate) fn report(replays: &[Arc<Replay>]) -> Value {
    let reports = replays.iter().map(|replay| replay.report());
    let Some(mut report) = reports.reduce(sum) else {
        return json!({"state": "learning"});
    };
    add_probes(replays, &mut report);
    report
}

/// Adds what the probes show: how many of the bytes read ahead were used. This is unknown until a
/// launch has requested a probe; from then on, bytes read ahead for programs that were not launched
/// count as unused.
fn add_probes(replays: &[Arc<Replay>], report: &mut Value) {
    let parts = replays.iter().map(|replay| {
        let (hit, missed) = probes(replays, replay.windows());
        (replay.prefetched(), hit, missed)
    });
    let parts: Vec<(u64, u64, u64)> = parts.collect();
    let hit: u64 = parts.iter().map(|part| part.1).sum();
    let all: u64 = hit + parts.iter().map(|part| part.2).sum::<u64>();
    let used = |&(bytes, hit, missed): &(u64, u64, u64)| match hit + missed {
        0 => bytes,
        all => bytes * hit / all,
    };
    let used = (hit > 0).then(|| parts.iter().map(used).sum::<u64>());
    let prefetched: u64 = parts.iter().map(|part| part.0).sum();
    report["probes"] = json!(all);
    report["probes_hit"] = json!(hit);
    report["used_bytes"] = json!(used);
    report["wasted_bytes"] = json!(used.map(|used| prefetched - used));
}

/// The sum of two replays' figures.
fn sum(mut one: Value, other: Value) -> Value {
    for (name, value) in other.as_object().into_iter().flatten() {
        let figure = match (one[name].as_u64(), value.as_u64()) {
            (Some(one), Some(other)) => json!(one + other),
            // The state of an active replay replaces that of an ended one.
            (None, None) if *value == json!("replaying") => value.clone(),
            _ => continue,
        };
        one[name] = figure;
    }
    one
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::WINDOW_BYTES;
    use crate::replay::tests::{count, replay_of, take_all};

    #[test]
    fn two_replays_are_reported_as_one() {
        let one = json!({"state": "replayed", "windows": 1});
        let other = json!({"state": "replaying", "windows": 2});
        let both = json!({"state": "replaying", "windows": 3});
        assert_eq!(sum(one.clone(), other.clone()), both);
        assert_eq!(sum(other, one), both);
    }

    #[test]
    fn what_another_replay_read_is_no_probe_and_programs_not_launched_used_nothing() {
        // Windows 31, 131 and 163 are probes.
        let mut replays = vec![
            Arc::new(replay_of("1", 0..32)),
            Arc::new(replay_of("2", 100..164)),
        ];
        replays.iter().for_each(|replay| count(replay, 90));
        assert_eq!(report(&replays)["used_bytes"], Value::Null);
        let read = |replays: &[Arc<Replay>], window: u64| {
            for replay in replays {
                replay.was_read(0, window * WINDOW_BYTES, 1);
            }
        };
        read(&replays, 31);
        let figures = |replays: &[Arc<Replay>]| {
            let report = report(replays);
            ["probes", "probes_hit", "used_bytes", "wasted_bytes"]
                .map(|name| report[name].as_u64().unwrap())
        };
        assert_eq!(figures(&replays), [3, 1, 90, 90]);
        read(&replays, 131);
        assert_eq!(figures(&replays), [3, 2, 135, 45]);
        let third = replay_of("3", [1, 163].into_iter());
        take_all(&third);
        replays.push(Arc::new(third));
        assert_eq!(figures(&replays), [2, 2, 180, 0]);
    }
}
