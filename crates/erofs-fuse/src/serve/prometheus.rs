//! The live counters in Prometheus' text format, made of the JSON that `erofast stat` reads.
//!
//! prometheus-client (0.24) has no summaries, that is quantiles, which times of workers are.
//!
//! ```text
//! # HELP erofast_requests_total Requests served, by kind.
//! # TYPE erofast_requests_total counter
//! erofast_requests_total{mountpoint="/srv/app",kind="read"} 12
//! ```

use std::fmt::Write;

use serde_json::Value;

/// Metrics that are one number of the JSON: name, type, JSON pointer, help text.
const NUMBERS: &[(&str, &str, &str, &str)] = &[
    (
        "request_errors_total",
        "counter",
        "/fuse/errors",
        "Requests answered with an error, other than that something is not there or not supported.",
    ),
    (
        "read_bytes_total",
        "counter",
        "/fuse/bytes_read",
        "Bytes of file content sent to the kernel.",
    ),
    (
        "engine_reads_total",
        "counter",
        "/engine/reads",
        "Reads of the engine.",
    ),
    (
        "engine_errors_total",
        "counter",
        "/engine/errors",
        "Reads that failed.",
    ),
    (
        "faults_total",
        "counter",
        "/faults/count",
        "Requests that failed by a fault of the image.",
    ),
    (
        "fault_kinds_total",
        "counter",
        "/faults/kinds",
        "Different faults of the image.",
    ),
    (
        "restarts_total",
        "counter",
        "/restart/restarts",
        "Servers that died and were replaced.",
    ),
    (
        "delivered_bytes_total",
        "counter",
        "/engine/delivered_bytes",
        "Bytes returned to readers.",
    ),
    (
        "fetched_bytes_total",
        "counter",
        "/engine/fetched_bytes",
        "Bytes fetched from the image for decoding.",
    ),
    (
        "decoded_bytes_total",
        "counter",
        "/engine/decoded_bytes",
        "Bytes that decoders produced.",
    ),
    (
        "decodes_total",
        "counter",
        "/engine/decodes",
        "Decoder calls.",
    ),
    (
        "prefix_decodes_total",
        "counter",
        "/engine/prefix_decodes",
        "Decoder calls that stopped at the wanted bytes.",
    ),
    (
        "merged_total",
        "counter",
        "/engine/merged",
        "Segments served by another reader's decoding.",
    ),
    (
        "shared_total",
        "counter",
        "/engine/shared",
        "Reads shared with workers of idle CPUs.",
    ),
    (
        "cache_hits_total",
        "counter",
        "/cache/hits",
        "Segments found in the cache of decoded pclusters.",
    ),
    (
        "cache_misses_total",
        "counter",
        "/cache/misses",
        "Segments not found in the cache of decoded pclusters.",
    ),
    (
        "cache_bytes",
        "gauge",
        "/cache/bytes",
        "Decoded bytes in the cache.",
    ),
    (
        "cache_budget_bytes",
        "gauge",
        "/cache/budget_bytes",
        "Limit of decoded bytes in the cache.",
    ),
    (
        "pool_hits_total",
        "counter",
        "/pool/hits",
        "Buffers whose pages were all ready.",
    ),
    (
        "pool_misses_total",
        "counter",
        "/pool/misses",
        "Buffers that needed pages from the system.",
    ),
    (
        "pool_reserved_pages",
        "gauge",
        "/pool/reserved_pages",
        "Pages of 4 KiB kept ready.",
    ),
    (
        "pool_in_use_pages",
        "gauge",
        "/pool/in_use_pages",
        "Pages in use now.",
    ),
];

/// Metrics of a launch profile that is replayed.
const OF_PROFILES: &[(&str, &str, &str, &str)] = &[
    (
        "profile_prefetched_bytes_total",
        "counter",
        "/profile/prefetched_bytes",
        "Bytes read ahead by the launch profile.",
    ),
    (
        "profile_late_bytes_total",
        "counter",
        "/profile/late_bytes",
        "Bytes of the launch profile that programs read first.",
    ),
    (
        "profile_wasted_bytes",
        "gauge",
        "/profile/wasted_bytes",
        "Bytes read ahead that no program read, estimated from probes.",
    ),
];

/// Metrics of each worker that are one number.
const OF_WORKERS: &[(&str, &str, &str, &str)] = &[
    (
        "worker_done_total",
        "counter",
        "/done",
        "Requests and jobs done by a worker.",
    ),
    (
        "worker_queued",
        "gauge",
        "/queued",
        "Jobs in the queue of a worker.",
    ),
    (
        "worker_panics_total",
        "counter",
        "/panics",
        "Jobs that panicked; each was answered with an error.",
    ),
];

const QUANTILES: &[(&str, &str)] = &[
    ("0.5", "/p50_ns"),
    ("0.9", "/p90_ns"),
    ("0.99", "/p99_ns"),
    ("0.999", "/p999_ns"),
];

/// The counters of one mount, as [`stat`](crate::stat) returns them.
pub fn prometheus(counters: &Value) -> String {
    let mut page = Page {
        text: String::new(),
        mountpoint: escape(string(counters, "/mountpoint")),
    };
    page.about(counters);
    for &(name, kind, place, help) in NUMBERS {
        page.head(name, kind, help);
        page.line(name, "", number(counters, place));
    }
    page.profile(counters);
    page.requests(counters);
    page.histogram(
        (
            "request_run_seconds",
            "Time from taking a request to its reply.",
        ),
        counters.pointer("/fuse/run_ns"),
        1e9,
    );
    page.histogram(
        ("read_size_bytes", "Sizes of the replies to reads."),
        counters.pointer("/fuse/read_bytes"),
        1.0,
    );
    page.workers(counters);
    page.text
}

struct Page {
    text: String,
    mountpoint: String,
}

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        // Writing into a String cannot fail.
        let _ = writeln!(
            self.text,
            "# HELP erofast_{name} {help}\n# TYPE erofast_{name} {kind}"
        );
    }

    fn line(&mut self, name: &str, labels: &str, value: f64) {
        let (mountpoint, comma) = (&self.mountpoint, if labels.is_empty() { "" } else { "," });
        let _ = writeln!(
            self.text,
            "erofast_{name}{{mountpoint=\"{mountpoint}\"{comma}{labels}}} {value}"
        );
    }

    fn about(&mut self, counters: &Value) {
        self.head("info", "gauge", "What is mounted, and how requests come.");
        let labels = format!(
            "image=\"{}\",transport=\"{}\"",
            escape(string(counters, "/image")),
            string(counters, "/transport")
        );
        self.line("info", &labels, 1.0);
        self.head(
            "sandbox",
            "gauge",
            "1 for each part of the sandbox that holds.",
        );
        for part in ["no_new_privs", "landlock", "seccomp"] {
            let holds = match &counters["sandbox"][part] {
                Value::Bool(holds) => *holds,
                other => other.is_number(),
            };
            self.line(
                "sandbox",
                &format!("part=\"{part}\""),
                f64::from(u8::from(holds)),
            );
        }
    }

    /// The state, and what is known of a replay.
    fn profile(&mut self, counters: &Value) {
        let Some(state) = counters["profile"]["state"].as_str() else {
            return;
        };
        let labels = format!("state=\"{}\"", escape(state));
        self.head(
            "profile_info",
            "gauge",
            "What the launch profile is used for.",
        );
        self.line("profile_info", &labels, 1.0);
        for &(name, kind, place, help) in OF_PROFILES {
            if counters.pointer(place).is_some_and(Value::is_number) {
                self.head(name, kind, help);
                self.line(name, "", number(counters, place));
            }
        }
    }

    fn requests(&mut self, counters: &Value) {
        self.head("requests_total", "counter", "Requests served, by kind.");
        self.each("requests_total", "kind", counters.pointer("/fuse/by_kind"));
        let way = "requests_by_transport_total";
        self.head(way, "counter", "Requests served, by the way they came.");
        self.each(way, "transport", counters.pointer("/fuse/by_transport"));
        let place = "requests_by_place_total";
        self.head(
            place,
            "counter",
            "Requests served on the CPU that asked, on another, or where the kernel does not report it.",
        );
        for (label, field) in [
            ("same", "/fuse/same_cpu"),
            ("other", "/fuse/other_cpu"),
            ("unknown", "/fuse/cpu_unknown"),
        ] {
            self.line(place, &format!("cpu=\"{label}\""), number(counters, field));
        }
    }

    /// One line for each field of an object.
    fn each(&mut self, name: &str, label: &str, object: Option<&Value>) {
        for (key, value) in object.and_then(Value::as_object).into_iter().flatten() {
            let labels = format!("{label}=\"{}\"", escape(key));
            self.line(name, &labels, value.as_f64().unwrap_or(0.0));
        }
    }

    /// Buckets are `[n, times]`: from 2^n up to below 2^(n+1); `unit`
    /// of them are one of the base unit.
    fn histogram(&mut self, (name, help): (&str, &str), histogram: Option<&Value>, unit: f64) {
        let Some(histogram) = histogram else { return };
        self.head(name, "histogram", help);
        let buckets = histogram["buckets"].as_array();
        let mut below = 0.0;
        for bucket in buckets.into_iter().flatten() {
            let (n, times) = (number(bucket, "/0"), number(bucket, "/1"));
            below += times;
            let bound = (n + 1.0).exp2() / unit;
            self.line(&format!("{name}_bucket"), &format!("le=\"{bound}\""), below);
        }
        let count = number(histogram, "/count");
        self.line(&format!("{name}_bucket"), "le=\"+Inf\"", count);
        self.line(&format!("{name}_sum"), "", number(histogram, "/sum") / unit);
        self.line(&format!("{name}_count"), "", count);
    }

    fn workers(&mut self, counters: &Value) {
        let workers: Vec<(String, &Value)> = counters["workers"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|worker| (label_of(worker), worker))
            .collect();
        self.head("worker_info", "gauge", "The policy that a worker has now.");
        for (label, worker) in &workers {
            let labels = format!("{label},policy=\"{}\"", string(worker, "/policy"));
            self.line("worker_info", &labels, 1.0);
        }
        for &(name, kind, place, help) in OF_WORKERS {
            self.head(name, kind, help);
            for (label, worker) in &workers {
                self.line(name, label, number(worker, place));
            }
        }
        self.times(
            &workers,
            "queue_delay",
            "Time that jobs waited for a worker.",
        );
        self.times(
            &workers,
            "run",
            "Time that requests and jobs took a worker.",
        );
    }

    fn times(&mut self, workers: &[(String, &Value)], what: &str, help: &str) {
        let name = format!("worker_{what}_seconds");
        self.head(&name, "summary", help);
        for (label, worker) in workers {
            let times = &worker[what];
            for (quantile, place) in QUANTILES {
                let labels = format!("{label},quantile=\"{quantile}\"");
                self.line(&name, &labels, number(times, place) / 1e9);
            }
            let sum = number(times, "/total_ns") / 1e9;
            self.line(&format!("{name}_sum"), label, sum);
            self.line(&format!("{name}_count"), label, number(times, "/count"));
        }
    }
}

fn label_of(worker: &Value) -> String {
    let cpu = worker["cpu"]
        .as_u64()
        .map_or("none".into(), |cpu| cpu.to_string());
    format!(
        "worker=\"{}\",cpu=\"{cpu}\"",
        escape(string(worker, "/name"))
    )
}

fn number(value: &Value, place: &str) -> f64 {
    value.pointer(place).and_then(Value::as_f64).unwrap_or(0.0)
}

fn string<'v>(value: &'v Value, place: &str) -> &'v str {
    value
        .pointer(place)
        .and_then(Value::as_str)
        .unwrap_or_default()
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
                "cpu": null, "name": "erofs_worker/u0", "policy": "other", "done": 5,
                "run": {"count": 5, "total_ns": 1000, "p50_ns": 200}
            }]
        })
    }

    #[test]
    fn every_line_is_a_comment_or_a_series_with_a_number() {
        for line in prometheus(&example()).lines() {
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
    fn each_metric_has_one_head_before_its_series() {
        let text = prometheus(&example());
        let mut names = std::collections::BTreeSet::new();
        for line in text.lines().filter(|line| line.starts_with("# TYPE ")) {
            let name = line.split(' ').nth(2).unwrap();
            assert!(names.insert(name), "{name} twice");
            assert!(text.contains(&format!("\n# HELP {name} ")) || text.starts_with("# HELP"));
        }
    }

    #[test]
    fn buckets_add_up_in_seconds() {
        let text = prometheus(&example());
        for line in [
            "erofast_request_run_seconds_bucket{mountpoint=\"/m\\\\n\",le=\"0.000001024\"} 1",
            "erofast_request_run_seconds_bucket{mountpoint=\"/m\\\\n\",le=\"+Inf\"} 3",
            "erofast_requests_total{mountpoint=\"/m\\\\n\",kind=\"read\"} 3",
            "erofast_worker_run_seconds_count{mountpoint=\"/m\\\\n\",worker=\"erofs_worker/u0\",cpu=\"none\"} 5",
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
