//! The JSON that scripts rely on (`trace latency` of the design's contract).

use super::group::{Filter, GroupBy};
use super::report::{Report, WaitKind};
use crate::stats::{Histogram, Summary};
use serde_json::{Map, Value, json};

pub(super) fn report(report: &Report, filter: &Filter<'_>) -> Value {
    json!({
        "lost_events": report.lost_events,
        "missing_switches": report.missing_switches,
        "valid": report.is_valid(),
        "events": report.events,
        "span_us": report.span.map(|(first, last)| (last - first) as f64 / 1e3),
        "dropped_at_edges": report.dropped_at_edges,
        "unexplained_runs": report.unexplained_runs,
        "histogram": {
            "wakeup": histogram(report, filter, WaitKind::Wakeup),
            "preempted": histogram(report, filter, WaitKind::Preempted),
        },
        "tasks": tasks(report, filter),
        "workqueues": workqueues(report, filter),
    })
}

/// Waits by length, in buckets that double: from where in microseconds, and how many.
fn histogram(report: &Report, filter: &Filter<'_>, kind: WaitKind) -> Vec<Value> {
    let waits = report
        .waits
        .iter()
        .filter(|wait| wait.kind == kind && filter.takes(report, wait));
    Histogram::of(waits.map(|wait| wait.length_ns()))
        .occupied()
        .map(|(from, count)| json!({"from_us": from as f64 / 1e3, "count": count}))
        .collect()
}

fn tasks(report: &Report, filter: &Filter<'_>) -> Vec<Value> {
    let groups = report.group(GroupBy::Task, filter);
    let objects = groups.iter().map(|group| {
        let mut object = Map::new();
        object.insert("comm".into(), group.comm.to_string().into());
        object.insert("pid".into(), group.pid.into());
        summary(&mut object, "", &group.wakeup);
        summary(&mut object, "preempted_", &group.preempted);
        Value::Object(object)
    });
    objects.collect()
}

fn workqueues(report: &Report, filter: &Filter<'_>) -> Vec<Value> {
    let groups = report.workqueues(filter);
    let objects = groups.iter().map(|group| {
        let mut object = Map::new();
        let name = group.workqueue.map_or("", |name| report.names.get(name));
        object.insert("name".into(), name.into());
        object.insert("function".into(), report.names.get(group.function).into());
        object.insert("executed".into(), group.executed.into());
        summary(&mut object, "", &group.wakeup);
        summary(&mut object, "preempted_", &group.preempted);
        summary(&mut object, "queue_delay_", &group.queue_delay);
        summary(&mut object, "run_", &group.run);
        Value::Object(object)
    });
    objects.collect()
}

/// The ten figures with a prefix before each name.
fn summary(object: &mut Map<String, Value>, prefix: &str, summary: &Summary) {
    let Ok(Value::Object(figures)) = serde_json::to_value(summary) else {
        return;
    };
    for (name, figure) in figures {
        object.insert(format!("{prefix}{name}"), figure);
    }
}
