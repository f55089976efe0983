//! The JSON of `trace latency`. The names of its fields are stable.

use super::filter::Filter;
use super::group::GroupBy;
use super::report::{Report, Wait, WaitKind};
use crate::Name;
use crate::stats::{Histogram, Summary, us};
use serde_json::{Value, json};

impl Report {
    /// The JSON of `trace latency`.
    pub fn to_json(&self) -> Value {
        self.to_json_filtered(&Filter::default())
    }

    /// The JSON for the waits that the filter accepts.
    pub fn to_json_filtered(&self, filter: &Filter<'_>) -> Value {
        let missing = self.missing_of(filter);
        let notices: Vec<String> = self.notices.iter().map(ToString::to_string).collect();
        json!({
            "lost_events": self.lost_events,
            "missing_switches": self.missing_switches,
            "missing_switches_of_threads": missing.switches,
            "wakeups_of_threads": missing.wakeups,
            "waits_of_threads": missing.waits,
            "valid": self.is_valid_for(filter),
            "notices": notices,
            "format": self.format,
            "cpus": self.cpus,
            "clock": self.clock,
            "preemption": self.scheduler.preemption,
            "autogroup": self.scheduler.autogroup,
            "proxy_execution": self.scheduler.proxy_execution,
            "events": self.events,
            "span_us": self.span.map(|(first, last)| us(last - first)),
            "dropped_at_edges": self.dropped_at_edges,
            "left_out": self.left_out,
            "completeness": self.completeness.intervals,
            "contradictions": self.completeness.proofs,
            "unexplained_runs": self.unexplained_runs,
            "unfinished": unfinished(self, filter),
            "histogram": {
                "wakeup": histogram(self, filter, WaitKind::Wakeup),
                "preempted": histogram(self, filter, WaitKind::Preempted),
            },
            "tasks": tasks(self, filter),
            "workqueues": workqueues(self, filter),
        })
    }
}

/// The waits that outlasted the trace.
fn unfinished(report: &Report, filter: &Filter<'_>) -> Vec<Value> {
    let waits = report
        .unfinished
        .iter()
        .filter(|wait| filter.accepts(report, wait));
    let object = |wait: &Wait| {
        json!({
            "comm": wait.comm,
            "pid": wait.pid,
            "preempted": wait.kind == WaitKind::Preempted,
            "at_least_us": us(wait.length_ns()),
        })
    };
    waits.map(object).collect()
}

/// Non-empty buckets of the lengths of waits: lower bound in microseconds, and count.
fn histogram(report: &Report, filter: &Filter<'_>, kind: WaitKind) -> Vec<Value> {
    let waits = report.accepted(filter).filter(|wait| wait.kind == kind);
    Histogram::of(waits.map(|wait| wait.length_ns()))
        .occupied()
        .map(|(from, count)| json!({"from_us": us(from), "count": count}))
        .collect()
}

fn tasks(report: &Report, filter: &Filter<'_>) -> Vec<Value> {
    let groups = report.group(GroupBy::Task, filter);
    let objects = groups.iter().map(|group| {
        let process = report.process(group.pid);
        let object = json!({ "comm": group.comm, "pid": group.pid, "process": process, "valid": group.valid });
        let waits = [("", &group.wakeup), ("preempted_", &group.preempted)];
        waits.into_iter().fold(object, with)
    });
    objects.collect()
}

fn workqueues(report: &Report, filter: &Filter<'_>) -> Vec<Value> {
    let name = |name: Option<Name>| name.map_or("", |name| report.names.get(name));
    let groups = report.workqueues(filter);
    let objects = groups.iter().map(|group| {
        let object = json!({
            "name": name(group.workqueue),
            "function": name(group.function),
            "executed": group.executed,
            "valid": group.valid,
        });
        let summaries = [
            ("", &group.wakeup),
            ("preempted_", &group.preempted),
            ("queue_delay_", &group.queue_delay),
            ("run_", &group.run),
        ];
        summaries.into_iter().fold(object, with)
    });
    objects.collect()
}

/// Adds the ten figures of a summary in microseconds, each name with a prefix.
fn with(mut object: Value, (prefix, summary): (&str, &Summary)) -> Value {
    let figures = json!(summary);
    for (name, figure) in figures.as_object().into_iter().flatten() {
        let name = match name.as_str() {
            "samples" => format!("{prefix}count"),
            name => format!("{prefix}{name}_us"),
        };
        object[name] = figure.clone();
    }
    object
}
