//! From the samples that were gathered to the report of the run.

use super::executor::Finished;
use super::explain;
use super::options::LaunchOptions;
use super::report::{EngineReport, LaunchReport, RecordingCost, engine};
use super::sample::Sample;
use crate::environment::Environment;
use crate::load::LoadChoice;
use crate::schedule::{Gathered, Kept};
use crate::statistics::{Summary, compare, correct};

pub(super) fn build(
    options: &LaunchOptions,
    environment: Environment,
    finished: Finished,
    gathered: Gathered<Sample>,
    left_out: Vec<String>,
) -> LaunchReport {
    let faults = faults(options, &finished, &gathered);
    let time_over = (gathered.rounds < options.iterations).then(|| {
        format!(
            "time was over: {} of {} launches per engine",
            gathered.rounds, options.iterations
        )
    });
    let mut engines: Vec<EngineReport> = Vec::new();
    let mut kept = gathered.kept;
    // Behind the engines stand the same engines without the recorder.
    let twins = kept.split_off(finished.engines.len());
    for (number, kept) in kept.into_iter().enumerate() {
        let mut report = engine(finished.engines[number].to_string(), kept, engines.first());
        report.recording = twins.get(number).map(|twin| cost(&report, twin));
        report.thrown_away = gathered.thrown_away[number].clone();
        report.queue_source = finished
            .queue_notes
            .get(&number)
            .cloned()
            .unwrap_or_default();
        engines.push(report);
    }
    let against = engines
        .iter_mut()
        .filter_map(|engine| engine.against_first.as_mut());
    correct(
        against
            .flat_map(|against| [&mut against.sched_latency, &mut against.launch])
            .collect(),
    );
    LaunchReport {
        iterations: gathered.rounds,
        load: options.load.to_string(),
        valid: faults.is_empty(),
        not_valid_because: faults,
        interrupted: gathered.interrupted,
        command: options
            .command
            .iter()
            .map(|word| word.to_string_lossy().into_owned())
            .collect(),
        root: options.root,
        warm_ups: options.warm_ups,
        seed: options.seed,
        repeat: options.repeat_with.clone(),
        cold: explain::COLD,
        notices: options
            .notices
            .iter()
            .cloned()
            .chain(time_over)
            .chain(explain::notices(
                &environment,
                finished.load.as_ref(),
                &engines,
            ))
            .collect(),
        environment,
        load_seen: finished.load,
        left_out,
        engines,
    }
}

fn cost(with: &EngineReport, without: &[Kept<Sample>]) -> RecordingCost {
    let without: Vec<f64> = without.iter().map(|kept| kept.sample.seen_us).collect();
    let with = with.column(|sample| sample.seen_us);
    RecordingCost {
        without_us: Summary::of(&without),
        with_us: Summary::of(&with),
        comparison: compare(&without, &with),
        samples_without_us: without,
    }
}

/// Everything that keeps the run from being valid.
fn faults(
    options: &LaunchOptions,
    finished: &Finished,
    gathered: &Gathered<Sample>,
) -> Vec<String> {
    let mut faults = Vec::new();
    if gathered.interrupted {
        faults.push("the run was interrupted".to_owned());
    }
    for (number, kept) in gathered.kept.iter().enumerate() {
        let spoilt = kept.iter().filter(|kept| kept.spoilt.is_some()).count();
        if spoilt > 0 {
            let why = kept
                .iter()
                .find_map(|kept| kept.spoilt.clone())
                .unwrap_or_default();
            faults.push(format!(
                "{}: {spoilt} launches were spoilt ({why}) and could not be repeated any more",
                finished.name(number)
            ));
        }
        if kept.len() < gathered.rounds && !gathered.interrupted {
            faults.push(format!(
                "{}: {} of {} launches count",
                finished.engines[number],
                kept.len(),
                gathered.rounds
            ));
        }
    }
    let burned = finished.load.as_ref().is_none_or(|load| load.burned);
    if options.load == LoadChoice::Fio && !burned {
        faults.push("the load did not burn its share".to_owned());
    }
    faults
}
