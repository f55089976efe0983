//! The live counters in Prometheus' text format, built from the JSON that `erofast stat` reads and
//! from the table of its figures.
//!
//! Numbers in a list are added up, and nanoseconds become seconds. Unknown figures have no series.
//! A mount that does not answer has a field `error` in the JSON, and no series but `up`.
//!
//! ```text
//! # HELP erofast_requests_total Requests served, by kind.
//! # TYPE erofast_requests_total counter
//! erofast_requests_total{mountpoint="/srv/app",kind="read"} 12
//! ```

use std::collections::HashSet;

use erofs_fuse::MountFigures;
use figures::{Figure, Shape, Shaped};
use serde_json::Value;

/// Suffix of the metric's name, labels, and value.
type Sample = (&'static str, String, f64);

macro_rules! composed {
    ($($kind:ident $name:literal $help:literal;)*) => {
        &[$([$name, stringify!($kind), $help]),*]
    };
}

/// Metrics composed of several figures: name, kind and help. The series of the last of these
/// metrics are in the table, but the table has no help text that covers them all.
const COMPOSED: &[[&str; 3]] = composed! {
    gauge "up"
        "1 if the server of a mount answers, 0 if it does not or must not be queried.";
    gauge "private" "1 for a mount that only the user who mounted it can access.";
    gauge "info" "Image, transport and server version of a mount.";
    gauge "sandbox" "1 for each part of the sandbox that is in force.";
    counter "worker_queue_delay_seconds_total" "Time that jobs waited for a worker.";
    counter "worker_jobs_total" "Jobs that waited for a worker.";
    counter "requests_by_place_total"
        "Requests by the CPU that served them: the requesting one, another one, or unknown.";
};

/// The series of a composed metric for one mount.
fn composed(name: &str, mount: &Value) -> Vec<Sample> {
    let delay = |figure| number(&find(mount, &["workers", "queue_delay", figure]));
    match name {
        "up" => one(f64::from(u8::from(mount["error"].is_null()))),
        "private" if mount["private"] == true => one(1.0),
        _ if !mount["error"].is_null() => Vec::new(),
        "info" => {
            let text = |name| label(name, mount[name].as_str().unwrap_or_default());
            vec![(
                "",
                ["image", "transport", "version"].map(text).concat(),
                1.0,
            )]
        }
        "sandbox" => ["no_new_privs", "landlock", "seccomp"]
            .map(|part| {
                // A part is active if its value is true or a version number.
                let value = &mount["sandbox"][part];
                let holds = value.as_bool().unwrap_or(value.is_number());
                ("", label("part", part), f64::from(u8::from(holds)))
            })
            .into(),
        "worker_queue_delay_seconds_total" => one(delay("total_ns") / 1e9),
        "worker_jobs_total" => one(delay("count")),
        _ => Vec::new(),
    }
}

/// A metric of the table, and the place and label of each figure it shows.
struct Metric {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    figures: Vec<(Vec<&'static str>, &'static str)>,
}

/// The metrics of the table. A struct that is reported twice appears once.
fn metrics() -> Vec<Metric> {
    let mut metrics = Vec::new();
    collect(&[], &MountFigures::SHAPE, &mut metrics);
    metrics
}

fn collect(place: &[&'static str], shape: &Shape, metrics: &mut Vec<Metric>) {
    let figures = match shape {
        Shape::Part(figures) => *figures,
        Shape::Optional(inner) | Shape::List(inner) => return collect(place, inner, metrics),
        _ => &[],
    };
    for figure in figures {
        let own = std::slice::from_ref(&figure.name);
        let place = [place, if figure.is_flat { &own[1..] } else { own }].concat();
        match figure.metric {
            Some((kind, name)) => add(kind, name, figure, place, metrics),
            None => collect(&place, &figure.shape, metrics),
        }
    }
}

fn add(
    kind: &'static str,
    name: &'static str,
    figure: &Figure,
    place: Vec<&'static str>,
    metrics: &mut Vec<Metric>,
) {
    let (name, label) = name.split_once('{').unwrap_or((name, ""));
    let label = label.trim_end_matches('}');
    match metrics.iter_mut().find(|metric| metric.name == name) {
        Some(metric) if metric.figures.iter().any(|(_, known)| *known == label) => {}
        Some(metric) => metric.figures.push((place, label)),
        None => {
            let composed = COMPOSED.iter().find(|composed| composed[0] == name);
            let help = composed.map_or(figure.help.trim(), |composed| composed[2]);
            metrics.push(Metric {
                name,
                kind,
                help,
                figures: vec![(place, label)],
            });
        }
    }
}

/// Formats the counters of mounts, as [`stat`](crate::stat) returns them. No series appears twice,
/// whatever mount points users choose.
pub fn prometheus(mounts: &[Value]) -> String {
    let mounts = &named_apart(mounts);
    let mut page = String::new();
    for [name, kind, help] in COMPOSED {
        page += &family(name, kind, help, mounts, |mount| composed(name, mount));
    }
    for metric in metrics() {
        let series = |mount: &Value| match mount["error"].is_null() {
            true => metric.samples(mount),
            false => Vec::new(),
        };
        page += &family(metric.name, metric.kind, metric.help, mounts, series);
    }
    page
}

/// The mounts, with a number added to the name if another mount has the same name.
fn named_apart(mounts: &[Value]) -> Vec<Value> {
    let (mut names, mut apart) = (HashSet::new(), mounts.to_vec());
    for mount in &mut apart {
        let own = mount["mountpoint"].as_str().unwrap_or_default().to_owned();
        let mut name = own.clone();
        let mut number = 1;
        while !names.insert(name.clone()) {
            number += 1;
            name = format!("{own}#{number}");
        }
        mount["mountpoint"] = name.into();
    }
    apart
}

/// Formats a metric of several mounts; returns nothing if no mount has a series.
fn family(
    name: &str,
    kind: &str,
    help: &str,
    mounts: &[Value],
    series: impl Fn(&Value) -> Vec<Sample>,
) -> String {
    let mut lines = String::new();
    for mount in mounts {
        let mountpoint = escape(mount["mountpoint"].as_str().unwrap_or_default());
        for (suffix, labels, value) in series(mount) {
            let labels = format!("mountpoint=\"{mountpoint}\"{labels}");
            lines += &format!("erofast_{name}{suffix}{{{labels}}} {value}\n");
        }
    }
    if lines.is_empty() {
        return lines;
    }
    format!("# HELP erofast_{name} {help}\n# TYPE erofast_{name} {kind}\n{lines}")
}

impl Metric {
    fn samples(&self, mount: &Value) -> Vec<Sample> {
        let figures = self.figures.iter();
        figures
            .flat_map(|(place, label)| self.of_figure(&find(mount, place), place, label))
            .collect()
    }

    fn of_figure(&self, value: &Value, place: &[&str], name: &str) -> Vec<Sample> {
        let is_time = place.last().is_some_and(|name| name.ends_with("_ns"));
        let unit = if is_time { 1e9 } else { 1.0 };
        let labels = |key: &str| match name.split_once('=') {
            Some((name, key)) => label(name, key),
            None if name.is_empty() => String::new(),
            None => label(name, key),
        };
        match value {
            Value::Object(_) if self.kind == "histogram" => histogram(value, unit),
            Value::Object(fields) => {
                let each = |(key, value): (&String, _)| ("", labels(key), number(value) / unit);
                fields.iter().map(each).collect()
            }
            Value::String(text) => vec![("", labels(text), 1.0)],
            Value::Number(_) => vec![("", labels(""), number(value) / unit)],
            _ => Vec::new(),
        }
    }
}

/// The value at a place. If the path to it leads through a list, the sum over the list's elements.
fn find(value: &Value, place: &[&str]) -> Value {
    match (value, place) {
        (Value::Array(list), _) => {
            let numbers = list.iter().map(|value| number(&find(value, place)));
            numbers.sum::<f64>().into()
        }
        (_, [name, rest @ ..]) => find(&value[name], rest),
        _ => value.clone(),
    }
}

/// The series of a histogram. Its buckets are `[n, times]`, for values from 2^n to below 2^(n+1); a
/// base unit has `unit` of these values.
fn histogram(values: &Value, unit: f64) -> Vec<Sample> {
    let bucket = |bound: &str, below| ("_bucket", label("le", bound), below);
    let (mut samples, mut below) = (Vec::new(), 0.0);
    for values in values["buckets"].as_array().into_iter().flatten() {
        below += number(&values[1]);
        let bound = (number(&values[0]) + 1.0).exp2() / unit;
        samples.push(bucket(&bound.to_string(), below));
    }
    let count = number(&values["count"]);
    samples.push(bucket("+Inf", count));
    samples.push(("_sum", String::new(), number(&values["sum"]) / unit));
    samples.push(("_count", String::new(), count));
    samples
}

fn one(number: f64) -> Vec<Sample> {
    vec![("", String::new(), number)]
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn label(name: &str, value: &str) -> String {
    format!(",{name}=\"{}\"", escape(value))
}

/// Escapes a text as the format requires inside quotes.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use serde_json::json;

    fn example() -> Value {
        json!({
            "image": "/a \"b\".erofs", "mountpoint": "/m\\n", "transport": "io_uring",
            "sandbox": {"no_new_privs": true, "landlock": 7, "seccomp": false},
            "fuse": {
                "by_kind": {"lookup": 2, "read": 3}, "errors": 1, "same_cpu": 4,
                "run_ns": {"count": 3, "sum": 5000, "buckets": [[9, 1], [11, 2]]}
            },
            "profile": {"state": "replayed", "prefetched_bytes": 8192, "wasted_bytes": null},
            "remote": [
                {"url": "http://x/a", "fetched_bytes": 100, "round_trips": 3, "failures": 1},
                {"url": "http://x/b", "fetched_bytes": 24, "error": "it is starting again"}
            ],
            "workers": [{
                "cpu": null, "name": "erofs_worker/u0", "policy": "other", "panics": 1,
                "queue_delay": {"count": 5, "total_ns": 2_000_000_000_u64}
            }, {"panics": 2, "queue_delay": {"count": 1, "total_ns": 500_000_000}}]
        })
    }

    #[test]
    fn every_line_is_a_comment_or_a_series_with_a_number() {
        for line in prometheus(&[example(), example()]).lines() {
            if line.starts_with("# HELP erofast_") || line.starts_with("# TYPE erofast_") {
                continue;
            }
            let (series, value) = line.rsplit_once(' ').unwrap();
            assert!(
                series.starts_with("erofast_") && series.ends_with('}'),
                "{line}"
            );
            assert!(series.contains("{mountpoint=\"/m\\\\n"), "{line}");
            value.parse::<f64>().unwrap();
        }
    }

    #[test]
    fn mounts_of_one_name_have_series_of_their_own() {
        let down = |name: &str| json!({"mountpoint": name, "error": "x", "private": false});
        let text = prometheus(&[down("/a"), down("/a#2"), down("/a")]);
        for name in ["/a", "/a#2", "/a#3"] {
            let line = format!("erofast_up{{mountpoint=\"{name}\"}} 0\n");
            assert_eq!(text.matches(&line).count(), 1, "{text}");
        }
    }

    #[test]
    fn a_mount_without_an_answer_is_not_up_and_has_no_other_series() {
        let down = json!({"mountpoint": "/down", "error": "it is stuck", "private": false});
        let private = json!({"mountpoint": "/home", "error": "private", "private": true});
        let text = prometheus(&[down, example(), private]);
        let up: Vec<_> = text
            .lines()
            .filter(|line| line.starts_with("erofast_up{"))
            .collect();
        assert!(
            up[0].ends_with("\"/down\"} 0") && up[1].ends_with("} 1"),
            "{up:?}"
        );
        assert!(up[2].ends_with("\"/home\"} 0") && up.len() == 3, "{up:?}");
        let of = |place: &str| text.lines().filter(|line| line.contains(place)).count();
        assert_eq!((of("\"/down\""), of("\"/home\"")), (1, 2), "{text}");
        assert!(
            text.contains("erofast_private{mountpoint=\"/home\"} 1\n"),
            "{text}"
        );
    }

    #[test]
    fn each_metric_has_one_head_before_its_series() {
        let text = prometheus(&[example(), example()]);
        let mut known = BTreeSet::new();
        let mut name = "";
        for line in text.lines() {
            if let Some(head) = line.strip_prefix("# TYPE erofast_") {
                name = head.split(' ').next().unwrap();
                assert!(known.insert(name), "{name} twice");
            } else if !line.starts_with('#') {
                assert!(line.starts_with(&format!("erofast_{name}")), "{line}");
            }
        }
        assert!(known.contains("sandbox") && !known.contains("profile_wasted_bytes"));
    }

    /// Names are a contract, so this test shows any name that is removed or added.
    #[test]
    fn the_page_of_monitoring_has_every_metric_and_no_other() {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/monitoring.md");
        let page = std::fs::read_to_string(page).unwrap();
        let table = page.split("| series | ").nth(1).unwrap();
        let table = table.split("\n\n").next().unwrap();
        let cells = table
            .lines()
            .filter_map(|row| row.strip_prefix("| `")?.split(" | ").next());
        let on_page: BTreeSet<&str> = cells.flat_map(|cell| cell.split('`').step_by(2)).collect();
        let composed = COMPOSED.iter().map(|[name, ..]| *name);
        let known = composed
            .chain(metrics().iter().map(|metric| metric.name))
            .collect();
        assert_eq!(
            on_page
                .into_iter()
                .filter(|name| !name.is_empty())
                .collect::<BTreeSet<_>>(),
            known
        );
    }

    #[test]
    fn buckets_add_up_in_seconds() {
        let text = prometheus(&[example(), example()]);
        for line in [
            "erofast_request_run_seconds_bucket{mountpoint=\"/m\\\\n\",le=\"0.000001024\"} 1",
            "erofast_request_run_seconds_bucket{mountpoint=\"/m\\\\n\",le=\"+Inf\"} 3",
            "erofast_requests_total{mountpoint=\"/m\\\\n\",kind=\"read\"} 3",
            "erofast_worker_panics_total{mountpoint=\"/m\\\\n\"} 3",
            "erofast_worker_jobs_total{mountpoint=\"/m\\\\n\"} 6",
            "erofast_worker_queue_delay_seconds_total{mountpoint=\"/m\\\\n\"} 2.5",
            "erofast_remote_fetched_bytes_total{mountpoint=\"/m\\\\n\"} 124",
            "erofast_remote_failures_total{mountpoint=\"/m\\\\n\"} 1",
            "erofast_up{mountpoint=\"/m\\\\n\"} 1",
            "erofast_sandbox{mountpoint=\"/m\\\\n\",part=\"landlock\"} 1",
            "erofast_sandbox{mountpoint=\"/m\\\\n\",part=\"seccomp\"} 0",
            "erofast_profile_info{mountpoint=\"/m\\\\n\",state=\"replayed\"} 1",
            "erofast_profile_prefetched_bytes_total{mountpoint=\"/m\\\\n\"} 8192",
        ] {
            assert!(
                text.lines().any(|one| one == line),
                "{line}\nis not in\n{text}"
            );
        }
    }
}
