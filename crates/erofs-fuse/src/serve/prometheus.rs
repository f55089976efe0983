//! The live counters in Prometheus' text format, made of the JSON that `erofast stat` reads.
//!
//! A mount that does not answer has a field `error`, and no series but `up`.
//!
//! ```text
//! # HELP erofast_requests_total Requests served, by kind.
//! # TYPE erofast_requests_total counter
//! erofast_requests_total{mountpoint="/srv/app",kind="read"} 12
//! ```

use serde_json::Value;

use Series::{Each, Fields, Histogram, IfAny, Info, Number, Private, Seconds, Sum, Up};

struct Metric {
    name: &'static str,
    kind: &'static str,
    series: Series,
    help: &'static str,
}

type Places = &'static [(&'static str, &'static str)];

/// The series of a metric. Places are JSON pointers.
enum Series {
    /// Whether a mount answers.
    Up,
    /// That it cannot, since it is another user's.
    Private,
    /// The number at a place.
    Number(&'static str),
    /// 1, labelled with the texts at places.
    Info(Places),
    /// One for each value of a label, whose number is read at a place.
    Each(&'static str, Places, fn(&Value, &str) -> f64),
    /// One for each field of the object at a place: its name is the value of a label.
    Fields(&'static str, &'static str),
    /// Buckets that are `[n, times]`: from 2^n up to below 2^(n+1); so many are a base unit.
    Histogram(&'static str, f64),
    /// The sum of the numbers at a place of each worker.
    Sum(&'static str),
    /// The same of nanoseconds.
    Seconds(&'static str),
    /// The metric is left out where there is nothing at its place.
    IfAny(&'static Series),
}

macro_rules! metrics {
    ($($kind:ident $name:literal $series:expr; $help:literal;)*) => {
        &[$(Metric { name: $name, kind: stringify!($kind), series: $series, help: $help }),*]
    };
}

/// What somebody can act on, by an alert, a setting or a report of a fault. `erofast stat --json`
/// has all counters.
const METRICS: &[Metric] = metrics! {
    gauge "up" Up;
        "1 where the server of a mount answers, 0 where it does not or may not be asked.";
    gauge "private" Private;
        "1 for a mount that only the user sees that mounted it.";
    gauge "info" Info(&[("image", "/image"), ("transport", "/transport"), ("version", "/version")]);
        "What is mounted, how requests come, and which version serves.";
    gauge "sandbox" Each("part", SANDBOX, holds);
        "1 for each part of the sandbox that holds.";
    counter "request_errors_total" Number("/fuse/errors");
        "Requests answered with an error, other than that something is not there or not supported.";
    counter "engine_errors_total" Number("/engine/errors");
        "Reads that failed.";
    counter "faults_total" Number("/faults/count");
        "Requests that failed by a fault of the image.";
    counter "restarts_total" Number("/restart/restarts");
        "Servers that died and were replaced.";
    counter "worker_panics_total" Sum("/panics");
        "Jobs that panicked; each was answered with an error.";
    counter "requests_total" Fields("kind", "/fuse/by_kind");
        "Requests served, by kind.";
    counter "requests_by_place_total" Each("cpu", PLACES, number);
        "Requests served on the CPU that asked, on another, or where the kernel does not report it.";
    histogram "request_run_seconds" IfAny(&Histogram("/fuse/run_ns", 1e9));
        "Time from taking a request to its reply.";
    counter "worker_queue_delay_seconds_total" Seconds("/queue_delay/total_ns");
        "Time that jobs waited for a worker.";
    counter "worker_jobs_total" Sum("/queue_delay/count");
        "Jobs that waited for a worker.";
    counter "read_bytes_total" Number("/fuse/bytes_read");
        "Bytes of file content sent to the kernel.";
    counter "fetched_bytes_total" Number("/engine/fetched_bytes");
        "Bytes fetched from the image for decoding.";
    counter "decoded_bytes_total" Number("/engine/decoded_bytes");
        "Bytes that decoders produced.";
    counter "cache_hits_total" Number("/cache/hits");
        "Segments found in the cache of decoded pclusters.";
    counter "cache_misses_total" Number("/cache/misses");
        "Segments not found in the cache of decoded pclusters.";
    gauge "cache_bytes" Number("/cache/bytes");
        "Decoded bytes in the cache.";
    gauge "cache_budget_bytes" Number("/cache/budget_bytes");
        "Limit of decoded bytes in the cache.";
    counter "pool_hits_total" Number("/pool/hits");
        "Buffers whose pages were all ready.";
    counter "pool_misses_total" Number("/pool/misses");
        "Buffers that needed pages from the system.";
    gauge "profile_info" IfAny(&Info(&[("state", "/profile/state")]));
        "What the launch profile is used for.";
    counter "profile_prefetched_bytes_total" IfAny(&Number("/profile/prefetched_bytes"));
        "Bytes read ahead by the launch profile.";
    gauge "profile_wasted_bytes" IfAny(&Number("/profile/wasted_bytes"));
        "Bytes read ahead that no program read, estimated from probes.";
};

const SANDBOX: Places = &[
    ("no_new_privs", "/sandbox/no_new_privs"),
    ("landlock", "/sandbox/landlock"),
    ("seccomp", "/sandbox/seccomp"),
];

const PLACES: Places = &[
    ("same", "/fuse/same_cpu"),
    ("other", "/fuse/other_cpu"),
    ("unknown", "/fuse/cpu_unknown"),
];

/// Suffix of the name, labels, value.
type Sample = (&'static str, String, f64);

/// The counters of mounts, as [`stat`](crate::stat) returns them.
pub fn prometheus(mounts: &[Value]) -> String {
    let mut page = String::new();
    for Metric {
        name,
        kind,
        series,
        help,
    } in METRICS
    {
        let mounts: Vec<_> = mounts.iter().filter(|mount| series.any(mount)).collect();
        if !mounts.is_empty() {
            page += &format!("# HELP erofast_{name} {help}\n# TYPE erofast_{name} {kind}\n");
        }
        for counters in mounts {
            let mountpoint = escape(string(counters, "/mountpoint"));
            for (suffix, labels, value) in series.samples(counters) {
                let labels = format!("mountpoint=\"{mountpoint}\"{labels}");
                page += &format!("erofast_{name}{suffix}{{{labels}}} {value}\n");
            }
        }
    }
    page
}

impl Series {
    fn any(&self, counters: &Value) -> bool {
        let place = match *self {
            Up => return true,
            Private => return counters["private"] == true,
            _ if !counters["error"].is_null() => return false,
            IfAny(&(Number(place) | Histogram(place, _) | Info(&[(_, place)]))) => place,
            _ => return true,
        };
        !at(counters, place).is_null()
    }

    fn samples(&self, value: &Value) -> Vec<Sample> {
        let one = |labels, number| ("", labels, number);
        match self {
            Up => vec![one(
                String::new(),
                f64::from(u8::from(value["error"].is_null())),
            )],
            Private => vec![one(String::new(), 1.0)],
            Number(place) => vec![one(String::new(), number(value, place))],
            Info(texts) => {
                let label = |&(name, place): &(_, _)| label(name, string(value, place));
                vec![one(texts.iter().map(label).collect(), 1.0)]
            }
            Each(name, places, read) => {
                let each = |&(key, place): &(_, _)| one(label(name, key), read(value, place));
                places.iter().map(each).collect()
            }
            Fields(name, place) => {
                let fields = at(value, place).as_object().into_iter().flatten();
                let each = |(key, field): (&String, _)| one(label(name, key), number(field, ""));
                fields.map(each).collect()
            }
            Histogram(place, unit) => histogram(at(value, place), *unit),
            Sum(place) => vec![one(String::new(), of_workers(value, place))],
            Seconds(place) => vec![one(String::new(), of_workers(value, place) / 1e9)],
            IfAny(series) => series.samples(value),
        }
    }
}

fn histogram(values: &Value, unit: f64) -> Vec<Sample> {
    let bucket = |bound: &str, below| ("_bucket", label("le", bound), below);
    let (mut samples, mut below) = (Vec::new(), 0.0);
    for values in values["buckets"].as_array().into_iter().flatten() {
        below += number(values, "/1");
        let bound = (number(values, "/0") + 1.0).exp2() / unit;
        samples.push(bucket(&bound.to_string(), below));
    }
    let count = number(values, "/count");
    samples.push(bucket("+Inf", count));
    samples.push(("_sum", String::new(), number(values, "/sum") / unit));
    samples.push(("_count", String::new(), count));
    samples
}

fn of_workers(value: &Value, place: &str) -> f64 {
    let workers = value["workers"].as_array().into_iter().flatten();
    workers.map(|worker| number(worker, place)).sum()
}

fn label(name: &str, value: &str) -> String {
    format!(",{name}=\"{}\"", escape(value))
}

/// 1 where a part of the sandbox holds: true, or the number of its version.
fn holds(value: &Value, place: &str) -> f64 {
    let part = at(value, place);
    f64::from(u8::from(part.as_bool().unwrap_or(part.is_number())))
}

fn at<'v>(value: &'v Value, place: &str) -> &'v Value {
    value.pointer(place).unwrap_or(&Value::Null)
}

fn number(value: &Value, place: &str) -> f64 {
    at(value, place).as_f64().unwrap_or(0.0)
}

fn string<'v>(value: &'v Value, place: &str) -> &'v str {
    at(value, place).as_str().unwrap_or_default()
}

/// As the format wants it inside of quotes.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
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
            assert!(series.contains("{mountpoint=\"/m\\\\n\""), "{line}");
            value.parse::<f64>().unwrap();
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
        for Metric {
            name,
            kind,
            series,
            help,
        } in METRICS
        {
            let head = format!("# HELP erofast_{name} {help}\n# TYPE erofast_{name} {kind}\n");
            let mut parts = text.split(&head);
            let is_there = !parts.next().unwrap().contains(&format!("erofast_{name}{{"));
            let heads = parts.count();
            assert!(
                is_there && heads == usize::from(series.any(&example())),
                "{name}"
            );
        }
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
