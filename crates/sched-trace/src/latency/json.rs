//! The JSON of `trace latency`. Its names are stable.

use super::filter::Filter;
use super::group::GroupBy;
use super::report::{Report, WaitKind};
use crate::stats::{Histogram, Summary};
use serde_json::{Map, Value, json};

impl Report {
    /// The JSON of `trace latency`.
    pub fn to_json(&self) -> Value {
        json(self, &Filter::default())
    }

    /// The same for the waits that the filter accepts.
    pub fn to_json_filtered(&self, filter: &Filter<'_>) -> Value {
        json(self, filter)
    }
}

fn json(report: &Report, filter: &Filter<'_>) -> Value {
    let missing = report.missing_of(filter);
    let notices: Vec<String> = report.notices.iter().map(ToString::to_string).collect();
    json!({
        "lost_events": report.lost_events,
        "missing_switches": report.missing_switches,
        "missing_switches_of_threads": missing.switches,
        "wakeups_of_threads": missing.wakeups,
        "valid": report.is_valid_for(filter),
        "notices": notices,
        "format": report.format,
        "cpus": report.cpus,
        "clock": report.clock,
        "preemption": report.scheduler.preemption,
        "autogroup": report.scheduler.autogroup,
        "events": report.events,
        "span_us": report.span.map(|(first, last)| (last - first) as f64 / 1e3),
        "dropped_at_edges": report.dropped_at_edges,
        "unexplained_runs": report.unexplained_runs,
        "unfinished": unfinished(report, filter),
        "histogram": {
            "wakeup": histogram(report, filter, WaitKind::Wakeup),
            "preempted": histogram(report, filter, WaitKind::Preempted),
        },
        "tasks": tasks(report, filter),
        "workqueues": workqueues(report, filter),
    })
}

/// The waits that lasted beyond the trace.
fn unfinished(report: &Report, filter: &Filter<'_>) -> Vec<Value> {
    let waits = report
        .unfinished
        .iter()
        .filter(|wait| filter.accepts(report, wait));
    waits
        .map(|wait| {
            json!({
                "comm": wait.comm.to_string(),
                "pid": wait.pid,
                "preempted": wait.kind == WaitKind::Preempted,
                "at_least_us": wait.length_ns() as f64 / 1e3,
            })
        })
        .collect()
}

/// Occupied buckets of the lengths of waits: lower bound in microseconds, and count.
fn histogram(report: &Report, filter: &Filter<'_>, kind: WaitKind) -> Vec<Value> {
    let waits = report.accepted(filter).filter(|wait| wait.kind == kind);
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
        object.insert("process".into(), report.process(group.pid).into());
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
        let name = |name: Option<_>| name.map_or("", |name| report.names.get(name));
        object.insert("name".into(), name(group.workqueue).into());
        object.insert("function".into(), name(group.function).into());
        object.insert("executed".into(), group.executed.into());
        summary(&mut object, "", &group.wakeup);
        summary(&mut object, "preempted_", &group.preempted);
        summary(&mut object, "queue_delay_", &group.queue_delay);
        summary(&mut object, "run_", &group.run);
        Value::Object(object)
    });
    objects.collect()
}

/// Inserts the ten figures of a summary in microseconds, each name with a prefix.
fn summary(object: &mut Map<String, Value>, prefix: &str, summary: &Summary) {
    object.insert(format!("{prefix}count"), summary.count.into());
    for (name, figure) in [
        ("total", summary.total),
        ("average", summary.average),
        ("median", summary.median),
        ("minimum", summary.minimum),
        ("maximum", summary.maximum),
        ("stddev", summary.stddev),
        ("p90", summary.p90),
        ("p99", summary.p99),
        ("p999", summary.p999),
    ] {
        object.insert(format!("{prefix}{name}_us"), figure.into());
    }
}
