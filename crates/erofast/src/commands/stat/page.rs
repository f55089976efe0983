//! The counters of a mount as text. Lines without information are left out.

use std::fmt::Write;

use erofast_cli::units;
use erofs_fuse::text;
use serde_json::Value;

use super::histogram::Histogram;

/// A page from the answer of `stat`; with the answer `before`, rates and times are those between
/// the two, otherwise those since the mount began.
pub fn page(now: &Value, before: Option<&Value>) -> String {
    let page = Page {
        now,
        before: before.unwrap_or(&Value::Null),
    };
    let sections = [
        page.heading(),
        page.state(),
        page.requests(),
        page.times(),
        page.workers(),
        page.faults(),
    ];
    let sections: Vec<String> = sections
        .into_iter()
        .filter(|text| !text.is_empty())
        .collect();
    sections.join("\n")
}

struct Page<'a> {
    now: &'a Value,
    before: &'a Value,
}

/// A number of the answer; 0 where an older daemon has none.
pub fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn string<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or("?")
}

/// `label` in its column, then the text.
fn line(label: &str, text: &str) -> String {
    format!("{label:<11}{text}\n")
}

/// What was learned of launches and read ahead of them; nothing with `profile=off`.
fn profile(report: &Value) -> String {
    let Some(state) = report["state"].as_str() else {
        return String::new();
    };
    let mut text = state.to_owned();
    if report["prefetched_bytes"].is_u64() {
        let size = |name: &str| units::size(number(report, name));
        text += &format!(
            ": {} read ahead, {} came late",
            size("/prefetched_bytes"),
            size("/late_bytes")
        );
    }
    if report["kept_bytes"].as_u64() > Some(0) {
        let decoded = units::size(number(report, "/kept_bytes"));
        text += &format!(", {decoded} were decoded by earlier launches");
    }
    if state == "replayed" && report["wasted_bytes"].is_u64() {
        let wasted = units::size(number(report, "/wasted_bytes"));
        let probes = units::count(number(report, "/probes"), "probe");
        text += &format!(", about {wasted} were not needed by {probes}");
    }
    let programs = report["programs"].as_array().map_or(&[][..], |all| all);
    match report["error"].as_str() {
        Some(error) if state == "learning" && programs.is_empty() => error.clone_into(&mut text),
        Some(error) => text += &format!("; {error}"),
        None => {}
    }
    let shown = programs.iter().take(MOST_PROGRAMS).map(|program| {
        let launches = units::count(number(program, "/launches"), "launch");
        let windows = number(program, "/windows");
        let asked = program["windows_asked"].as_u64().map(|asked| {
            let there = windows.saturating_sub(asked);
            format!(", the last one found {there} of {windows} windows there before it asked")
        });
        let path = match string(program, "/path") {
            "" => format!("inode {}", number(program, "/nid")),
            path => path.to_owned(),
        };
        line(
            "",
            &format!("{path}: {launches} learned{}", asked.unwrap_or_default()),
        )
    });
    line("profile", &text) + &shown.collect::<String>()
}

/// Programs that are shown.
const MOST_PROGRAMS: usize = 5;

/// Of fewer times a 99th percentile is only their longest.
const FEW: u64 = 100;

/// What was fetched from one URL.
fn remote(file: &Value) -> String {
    if let Some(error) = file["error"].as_str() {
        return line("remote", error);
    }
    let size = |name: &str| units::size(number(file, name));
    let text = format!(
        "{} fetched in {}, {} of {} cached",
        size("/fetched_bytes"),
        units::count(number(file, "/round_trips"), "round trip"),
        size("/cached_bytes"),
        size("/bytes"),
    );
    let not_kept = file["not_kept"].as_str();
    let not_kept = not_kept.map(|why| line("", &format!("nothing is kept in the cache: {why}")));
    let (waiting, failed) = (number(file, "/waiting"), number(file, "/failures"));
    let more = match waiting + failed {
        0 => String::new(),
        _ => {
            let waiting = units::count(waiting, "waiting request");
            let failed = units::count(failed, "failed round trip");
            line("", &format!("{waiting}, {failed}"))
        }
    };
    line("remote", &text) + &not_kept.unwrap_or_default() + &more
}

fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", part as f64 * 100.0 / whole.max(1) as f64)
}

impl Page<'_> {
    fn now(&self, pointer: &str) -> u64 {
        number(self.now, pointer)
    }

    /// Since the page before, or since the mount began.
    fn more(&self, pointer: &str) -> u64 {
        self.now(pointer)
            .saturating_sub(number(self.before, pointer))
    }

    /// Seconds that [`more`](Self::more) took.
    fn seconds(&self) -> f64 {
        let uptime = |value: &Value| value["uptime_s"].as_f64().unwrap_or(0.0);
        (uptime(self.now) - uptime(self.before)).max(0.001)
    }

    fn heading(&self) -> String {
        let mut page = format!(
            "{} on {}\n",
            text::line(string(self.now, "/image")),
            text::line(string(self.now, "/mountpoint"))
        );
        let transport = match string(self.now, "/transport") {
            "io_uring" => "FUSE over io_uring",
            _ => "/dev/fuse",
        };
        let (major, minor) = (self.now("/protocol/major"), self.now("/protocol/minor"));
        page += &line(
            "transport",
            &format!("{transport}, protocol {major}.{minor}"),
        );
        let on = self.now.pointer("/sandbox/on").and_then(Value::as_bool);
        let sandbox = match (on, string(self.now, "/sandbox/real_time")) {
            (Some(true), "capability") => "sandboxed but for CAP_SYS_NICE",
            (Some(true), _) => "sandboxed",
            _ => "not sandboxed",
        };
        let age = self.now["uptime_s"].as_f64().unwrap_or(0.0) as u64;
        let pid = self.now("/pid");
        // Version 1.0.0 does not say it.
        let version = self.now["version"].as_str().map(text::line);
        let version = version.map_or(String::new(), |version| format!("version {version}, "));
        page += &line(
            "daemon",
            &format!("pid {pid}, {version}up {}, {sandbox}", units::age(age)),
        );
        if let Some(root) = self
            .now
            .pointer("/verity/root_hash")
            .and_then(Value::as_str)
        {
            page += &line("verified", &format!("root hash {root}"));
        }
        let died = self.now("/restart/restarts");
        if died > 0 {
            let servers = units::count(died, "dead server");
            page += &line("restarts", &format!("{servers} replaced"));
        }
        for notice in self.now["notices"].as_array().into_iter().flatten() {
            page += &line("notice", notice.as_str().unwrap_or_default());
        }
        page
    }

    fn state(&self) -> String {
        let size = |pointer: &str| units::size(self.now(pointer));
        let mut page = String::new();
        let known = self.now("/fuse/same_cpu") + self.now("/fuse/other_cpu");
        if known > 0 {
            let matched = percent(self.now("/fuse/same_cpu"), known);
            page += &line(
                "CPU",
                &format!("{matched} of requests served on the CPU that asked"),
            );
        }
        page += &line(
            "data",
            &format!(
                "{} requested, {} fetched, {} decoded in {}",
                size("/fuse/bytes_read"),
                size("/engine/fetched_bytes"),
                size("/engine/decoded_bytes"),
                units::count(self.now("/engine/decodes"), "call"),
            ),
        );
        let (failed, reads) = (self.now("/fuse/errors"), self.now("/engine/errors"));
        if failed + reads > 0 {
            let failed = units::count(failed, "failed request");
            let reads = units::count(reads, "failed read");
            page += &line("errors", &format!("{failed}, {reads} of the image"));
        }
        if self.now("/cache/budget_bytes") > 0 {
            let (hits, misses) = (self.now("/cache/hits"), self.now("/cache/misses"));
            page += &line(
                "cache",
                &format!(
                    "{} of {}, {} of {} found",
                    size("/cache/bytes"),
                    size("/cache/budget_bytes"),
                    percent(hits, hits + misses),
                    units::count(hits + misses, "lookup"),
                ),
            );
        }
        let files = self.now["remote"].as_array().map_or(&[][..], |all| all);
        for file in files {
            if files.len() > 1 {
                page += &line("url", string(file, "/url"));
            }
            page += &remote(file);
        }
        page + &self.pool() + &profile(&self.now["profile"])
    }

    fn pool(&self) -> String {
        let reserved = self.now("/pool/reserved_pages");
        if reserved == 0 {
            return String::new();
        }
        let (hits, misses) = (self.now("/pool/hits"), self.now("/pool/misses"));
        let text = format!(
            "{} reserved, {} free, peak {}; {} of {} served from it",
            units::count(reserved, "page"),
            self.now("/pool/free_pages"),
            self.now("/pool/peak_in_use_pages"),
            percent(hits, hits + misses),
            units::count(hits + misses, "buffer"),
        );
        line("pool", &text)
    }

    fn requests(&self) -> String {
        let kinds = self.now.pointer("/fuse/by_kind").and_then(Value::as_object);
        let mut kinds: Vec<(&String, u64)> = kinds
            .into_iter()
            .flatten()
            .map(|(kind, count)| (kind, count.as_u64().unwrap_or(0)))
            .collect();
        kinds.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        let header = ["requests", "count", "per second", "median", "p99"];
        let mut page = row(&header.map(str::to_owned));
        page += &self.request_row("all", self.now("/requests"), "/requests", "/fuse/run_ns");
        for (kind, count) in kinds {
            let (counter, times) = (
                format!("/fuse/by_kind/{kind}"),
                format!("/fuse/run_ns_by_kind/{kind}"),
            );
            page += &self.request_row(kind, count, &counter, &times);
        }
        page
    }

    fn request_row(&self, kind: &str, count: u64, counter: &str, times: &str) -> String {
        let times = self.histogram(times);
        let time = |part| times.quantile(part).map_or("-".to_owned(), units::time);
        let p99 = match times.count() < FEW {
            true => "-".to_owned(),
            false => time(0.99),
        };
        let rate = self.more(counter) as f64 / self.seconds();
        row(&[
            kind.to_owned(),
            count.to_string(),
            format!("{rate:.1}"),
            time(0.5),
            p99,
        ])
    }

    fn histogram(&self, pointer: &str) -> Histogram {
        let of = |value: &Value| {
            value
                .pointer(pointer)
                .map(Histogram::of)
                .unwrap_or_default()
        };
        of(self.now).since(&of(self.before))
    }

    fn times(&self) -> String {
        let drawn = self.histogram("/fuse/run_ns").draw();
        if drawn.is_empty() {
            return drawn;
        }
        format!("time from taking a request to its reply, from:\n{drawn}")
    }

    fn workers(&self) -> String {
        let workers = self.now["workers"].as_array();
        let mut page = String::new();
        for worker in workers.into_iter().flatten() {
            if page.is_empty() {
                let _ = writeln!(
                    page,
                    "{:<18}{:<8}{:>10}{:>10}{:>10}{:>12}{:>10}",
                    "worker", "policy", "requests", "jobs", "wake-ups", "waited p99", "ran p99"
                );
            }
            let p99 = |times: &str| match number(worker, &format!("{times}/count")) < FEW {
                true => "-".to_owned(),
                false => units::time(number(worker, &format!("{times}/p99_ns")) as f64),
            };
            let _ = writeln!(
                page,
                "{:<18}{:<8}{:>10}{:>10}{:>10}{:>12}{:>10}",
                string(worker, "/name"),
                string(worker, "/policy"),
                number(worker, "/served"),
                number(worker, "/jobs"),
                number(worker, "/wakeups"),
                p99("/queue_delay"),
                p99("/run"),
            );
        }
        page
    }

    /// Whether the image was changed, and its last faults, two lines each.
    fn faults(&self) -> String {
        let all = self.now("/faults/count");
        if all == 0 {
            return String::new();
        }
        let log = match self.now["faults"]["logged_to"].as_str() {
            Some(log) => format!("logged to: {}", text::name(log.as_bytes())),
            None => "not logged".to_owned(),
        };
        let all = units::count(all, "failed request");
        let kinds = units::count(self.now("/faults/kinds"), "kind");
        let mut page = line("faults", &format!("{all} of {kinds}, {log}"));
        if let Some(change) = self.now["faults"]["image_changed"].as_str() {
            let _ = writeln!(page, "{}", text::name(change.as_bytes()));
        }
        let last = self.now["faults"]["last"].as_array();
        for fault in last.into_iter().flatten() {
            let time = text::time(number(fault, "/last_s").cast_signed());
            let count = units::count(number(fault, "/count"), "time");
            let _ = writeln!(page, "{time}  {count}  {}", place(fault));
            let _ = writeln!(page, "    {}", string(fault, "/error"));
        }
        page
    }
}

/// Where a fault is: path or nid, address, codec.
fn place(fault: &Value) -> String {
    let nid = fault["nid"].as_u64().map(|nid| format!("nid {nid}"));
    let path = fault["path"]
        .as_str()
        .map(|path| text::name(path.as_bytes()));
    let address = fault["address"]
        .as_u64()
        .map(|address| format!("at {address:#x}"));
    let codec = fault["codec"].as_str().map(str::to_owned);
    let parts = [nid, path, address, codec];
    parts.into_iter().flatten().collect::<Vec<_>>().join("  ")
}

fn row(cells: &[String; 5]) -> String {
    let [kind, count, rate, median, p99] = cells;
    format!("{kind:<14}{count:>12}{rate:>12}{median:>12}{p99:>12}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(reads: u64, uptime: f64) -> Value {
        json!({
            "image": "/app.erofs", "mountpoint": "/mnt", "pid": 7, "version": "1.2.3",
            "uptime_s": uptime,
            "transport": "dev_fuse", "protocol": {"major": 7, "minor": 45},
            "requests": reads, "notices": [], "sandbox": {"on": true},
            "fuse": {
                "by_kind": {"read": reads}, "bytes_read": reads * 4096,
                "run_ns": {"buckets": [[12, reads]]},
                "run_ns_by_kind": {"read": {"buckets": [[12, reads]]}},
            },
            "engine": {"fetched_bytes": 1, "decoded_bytes": 2, "decodes": 1},
            "cache": {"budget_bytes": 0}, "pool": {"reserved_pages": 0}, "workers": [],
        })
    }

    #[test]
    fn a_page_fits_a_terminal_and_leaves_out_what_is_not_there() {
        let page = page(&answer(10, 5.0), None);
        assert!(
            page.lines().count() < 24 && page.lines().all(|line| line.len() <= 80),
            "{page}"
        );
        assert!(page.contains("/app.erofs on /mnt\n"), "{page}");
        assert!(page.contains("decoded in 1 call\n"), "{page}");
        assert!(page.contains("pid 7, version 1.2.3, up "), "{page}");
        let read = page
            .lines()
            .find(|line| line.starts_with("read"))
            .expect("a row");
        let cells: Vec<&str> = read.split_whitespace().collect();
        assert_eq!(cells[..4], ["read", "10", "2.0", "5.8"], "{page}");
        for absent in ["pool", "cache", "worker", "CPU"] {
            assert!(!page.contains(absent), "{absent}: {page}");
        }
    }

    #[test]
    fn the_last_faults_are_shown_with_time_count_and_place() {
        let mut answer = answer(1, 1.0);
        answer["faults"] = json!({
            "count": 8, "kinds": 2, "logged_to": "journal",
            "last": [
                {"count": 7, "last_s": 951_782_400, "nid": 36, "path": "/a\u{202e}b",
                 "address": 8192, "codec": "lz4", "error": "x.erofs: nid 36: it broke"},
                {"count": 1, "last_s": 951_782_400, "nid": 37, "path": null,
                 "address": null, "codec": null, "error": "y"},
            ],
        });
        let page = page(&answer, None);
        let at = page.find("faults ").expect("the section");
        let lines: Vec<&str> = page[at..].lines().collect();
        assert_eq!(
            lines[0],
            "faults     8 failed requests of 2 kinds, logged to: journal"
        );
        assert_eq!(
            lines[1],
            "2000-02-29 00:00:00  7 times  nid 36  /a\\xe2\\x80\\xaeb  at 0x2000  lz4"
        );
        assert_eq!(lines[2], "    x.erofs: nid 36: it broke");
        assert_eq!(lines[3], "2000-02-29 00:00:00  1 time  nid 37");
    }

    #[test]
    fn the_page_has_the_launch_profile_and_failures() {
        let mut answer = answer(10, 5.0);
        answer["fuse"]["errors"] = 1.into();
        answer["profile"] = json!({"state": "recording"});
        let recording = page(&answer, None);
        assert!(
            recording.contains("\nprofile    recording\n"),
            "{recording}"
        );
        assert!(
            recording.contains("\nerrors     1 failed request, 0 failed reads of the image\n"),
            "{recording}"
        );
        answer["profile"] = json!({
            "state": "replayed", "prefetched_bytes": 2 << 20, "late_bytes": 1024,
            "wasted_bytes": 2048, "kept_bytes": 1 << 20, "probes": 7,
        });
        let replayed = page(&answer, None);
        let line = "replayed: 2.0 MiB read ahead, 1.0 KiB came late, 1.0 MiB were decoded by earlier launches, \
                    about 2.0 KiB were not needed by 7 probes";
        assert!(replayed.contains(line), "{replayed}");
        answer["profile"]["state"] = "replaying".into();
        assert!(!page(&answer, None).contains("needed"), "too early");
        answer["profile"] = json!({"state": "learning", "programs": []});
        assert!(page(&answer, None).contains("\nprofile    learning\n"));
        answer["profile"]["error"] = "nothing is learned: /x is missing".into();
        let missing = page(&answer, None);
        let line = "\nprofile    nothing is learned: /x";
        assert!(missing.contains(line), "{missing}");
        answer["profile"]["error"] = Value::Null;
        answer["profile"]["programs"] = json!([
            {"path": "bin/cc", "launches": 4, "windows": 385, "windows_asked": 14},
            {"path": "", "nid": 98, "launches": 1, "windows": 2, "windows_asked": null},
        ]);
        let learned = page(&answer, None);
        let lines = "profile    learning\n           bin/cc: 4 launches learned, the last one found 371 \
            of 385 windows there before it asked\n           inode 98: 1 launch learned\n";
        assert!(learned.contains(lines), "{learned}");
    }

    #[test]
    fn the_page_has_what_was_fetched() {
        let mut answer = answer(1, 1.0);
        answer["remote"] = json!([
            {"url": "http://host/x", "bytes": 3 << 20, "fetched_bytes": 1 << 20,
             "cached_bytes": 2 << 20, "waiting": 1, "round_trips": 2, "failures": 3,
             "not_kept": "/x: Not a directory"},
            {"url": "http://host/y", "error": "no word from the fetcher"},
        ]);
        let page = page(&answer, None);
        let lines = "\nurl        http://host/x\n\
            remote     1.0 MiB fetched in 2 round trips, 2.0 MiB of 3.0 MiB cached\n           \
            nothing is kept in the cache: /x: Not a directory\n           \
            1 waiting request, 3 failed round trips\n\
            url        http://host/y\nremote     no word from the fetcher\n";
        assert!(page.contains(lines), "{page}");
    }

    #[test]
    fn a_hundredth_needs_a_hundred_times() {
        let p99 = |requests, jobs: u64| {
            let mut answer = answer(requests, 5.0);
            let times = json!({"count": jobs, "p99_ns": 7000});
            answer["workers"] = json!([{"queue_delay": times, "run": times}]);
            let page = page(&answer, None);
            let ends = page
                .lines()
                .map(|line| line.rsplit_once("  ").unwrap_or_default().1);
            let ends: Vec<String> = ends.map(|end| end.trim().to_owned()).collect();
            let row = |name: &str| {
                page.lines()
                    .position(|line| line.starts_with(name))
                    .unwrap()
            };
            [row("read "), row("?  ")].map(|row| ends[row].clone())
        };
        assert_eq!(p99(99, 99), ["-", "-"]);
        assert_eq!(p99(100, 100), ["8.1 us", "7.0 us"]);
    }

    #[test]
    fn rates_are_those_since_the_page_before() {
        let page = page(&answer(30, 7.0), Some(&answer(10, 5.0)));
        let read = page
            .lines()
            .find(|line| line.starts_with("read"))
            .expect("a row");
        assert!(read.contains("30") && read.contains("10.0"), "{read}");
    }
}
