//! The counters of a mount as text. Lines without information are left out.

use std::fmt::Write;

use erofast_cli::units;
use erofs_mount::text;
use serde_json::Value;

use super::histogram::Histogram;

/// Formats an answer of `stat` as a page. If `before` is an earlier answer, rates and times cover
/// the time since that answer, otherwise the time since the mount began.
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

/// A number from the answer; 0 if an older daemon does not report it.
pub fn number(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

fn string<'v>(value: &'v Value, pointer: &str) -> &'v str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or("?")
}

/// A line: its label, the figures that decide whether it is shown (at least one must exist and not
/// be 0), and its text.
type Line = (&'static str, &'static [&'static str], &'static str);

macro_rules! lines {
    ($($label:literal if $($place:literal)*: $text:literal;)*) => {
        &[$(($label, &[$($place),*], $text)),*]
    };
}

const HEADING: &[Line] = lines! {
    "verified" if "/verity/root_hash": "root hash {/verity/root_hash}";
    "restarts" if "/restart/restarts": "{/restart/restarts:dead server} replaced";
};

const STATE: &[Line] = lines! {
    "CPU" if "/fuse/same_cpu" "/fuse/other_cpu":
        "{/fuse/same_cpu%/fuse/other_cpu} of requests served on the requesting CPU";
    "data" if "/uptime_s":
        "{/fuse/bytes_read} requested, {/engine/fetched_bytes} fetched, {/engine/decoded_bytes} \
         decoded in {/engine/decodes:call}";
    "errors" if "/fuse/errors" "/engine/errors":
        "{/fuse/errors:failed request}, {/engine/errors:failed read} of the image";
    "cache" if "/cache/budget_bytes":
        "{/cache/bytes} of {/cache/budget_bytes}, {/cache/hits%/cache/misses} of \
         {/cache/hits+/cache/misses:lookup} hit";
};

/// Lines about an image at a URL.
const REMOTE: &[Line] = lines! {
    "remote" if "/url":
        "{/fetched_bytes} fetched in {/round_trips:round trip}, {/cached_bytes} of {/bytes} cached";
    "" if "/ahead_bytes":
        "{/ahead_bytes} fetched before a reader asked, {/unread_bytes} cached and not read";
    "" if "/not_kept": "nothing is kept in the cache: {/not_kept}";
    "" if "/waiting" "/failures":
        "{/waiting:waiting request}, {/failures:failed round trip}";
};

const POOL: &[Line] = lines! {
    "pool" if "/pool/reserved_pages":
        "{/pool/reserved_pages:page} reserved, {/pool/free_pages} free, peak \
         {/pool/peak_in_use_pages}; {/pool/hits%/pool/misses} of {/pool/hits+/pool/misses:buffer} \
         served from it";
};

fn lines(lines: &[Line], value: &Value) -> String {
    let is_there = |place: &&str| match value.pointer(place) {
        Some(Value::Number(number)) => number.as_f64() > Some(0.0),
        Some(Value::String(_)) => true,
        _ => false,
    };
    let shown = lines
        .iter()
        .filter(|(_, places, _)| places.iter().any(is_there));
    shown
        .map(|(label, _, text)| line(label, &fill(text, value)))
        .collect()
}

/// Fills in figures: `{place}` in the unit that its name implies, `{place:noun}` with the noun that
/// it counts, `{place+place:noun}` as a sum, `{place%place}` as the share of the first figure in
/// the sum of the two.
fn fill(text: &str, value: &Value) -> String {
    let mut parts = text.split('{');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |filled, part| {
        let (figure, rest) = part.split_once('}').unwrap_or((part, ""));
        filled + &amount(figure, value) + rest
    })
}

fn amount(figure: &str, value: &Value) -> String {
    if let Some((part, others)) = figure.split_once('%') {
        let part = number(value, part);
        return percent(part, part + number(value, others));
    }
    let (places, noun) = figure.split_once(':').unwrap_or((figure, ""));
    let sum = places.split('+').map(|place| number(value, place)).sum();
    match value.pointer(places) {
        _ if !noun.is_empty() => units::count(sum, noun),
        Some(Value::String(text)) => text::line(text),
        Some(seconds) if places.ends_with("_s") => {
            units::age(seconds.as_f64().unwrap_or(0.0) as u64)
        }
        _ if places.contains("bytes") => units::size(sum),
        _ => sum.to_string(),
    }
}

/// Formats `label` in its column, then the text.
fn line(label: &str, text: &str) -> String {
    format!("{label:<11}{text}\n")
}

/// Launches learned, and the read-ahead for them; empty with `profile=off`.
fn profile(report: &Value) -> String {
    let Some(state) = report["state"].as_str() else {
        return String::new();
    };
    let mut text = state.to_owned();
    if state != "learning" && report["prefetched_bytes"].is_u64() {
        text += &fill(
            ": {/prefetched_bytes} read ahead, {/late_bytes} too late",
            report,
        );
    }
    if report["kept_bytes"].as_u64() > Some(0) {
        text += &fill(", {/kept_bytes} decoded by earlier launches", report);
    }
    if state == "replayed" && report["wasted_bytes"].is_u64() {
        text += &fill(
            ", about {/wasted_bytes} not needed ({/probes:probe})",
            report,
        );
    }
    let programs = report["programs"].as_array().map_or(&[][..], |all| all);
    match report["error"].as_str() {
        Some(error) if state == "learning" && programs.is_empty() => error.clone_into(&mut text),
        Some(error) => text += &format!("; {error}"),
        None => {}
    }
    let shown = programs.iter().take(MOST_PROGRAMS).map(|program| {
        let launches = match number(program, "/launches") {
            0 => "not launched yet".to_owned(),
            launches => format!("{} learned", units::count(launches, "launch")),
        };
        let origin = match string(program, "/origin") {
            "beside" => ", profile from beside the image",
            "registry" => ", profile from the registry",
            "image" => ", profile from the image",
            _ => "",
        };
        let windows = number(program, "/windows");
        let asked = program["windows_asked"].as_u64().map(|asked| {
            let there = windows.saturating_sub(asked);
            format!(", the last one found {there} of {windows} windows read ahead")
        });
        let path = match string(program, "/path") {
            "" => format!("inode {}", number(program, "/nid")),
            path => path.to_owned(),
        };
        line(
            "",
            &format!("{path}: {launches}{origin}{}", asked.unwrap_or_default()),
        )
    });
    line("profile", &text) + &shown.collect::<String>()
}

/// Maximum number of programs shown.
const MOST_PROGRAMS: usize = 5;

/// With fewer measurements than this, the 99th percentile is just the longest time.
const FEW: u64 = 100;

fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", part as f64 * 100.0 / whole.max(1) as f64)
}

impl Page<'_> {
    fn now(&self, pointer: &str) -> u64 {
        number(self.now, pointer)
    }

    /// The increase since the previous page, or since the mount began.
    fn more(&self, pointer: &str) -> u64 {
        self.now(pointer)
            .saturating_sub(number(self.before, pointer))
    }

    /// Seconds since the previous page, or since the mount began.
    fn seconds(&self) -> f64 {
        let uptime = |value: &Value| value["uptime_s"].as_f64().unwrap_or(0.0);
        (uptime(self.now) - uptime(self.before)).max(0.001)
    }

    fn heading(&self) -> String {
        let transport = match string(self.now, "/transport") {
            "io_uring" => "FUSE over io_uring",
            _ => "/dev/fuse",
        };
        let on = self.now.pointer("/sandbox/on").and_then(Value::as_bool);
        let sandbox = match (on, string(self.now, "/sandbox/real_time")) {
            (Some(true), "capability") => "sandboxed except for CAP_SYS_NICE",
            (Some(true), _) => "sandboxed",
            _ => "not sandboxed",
        };
        // Version 1.0.0 does not report its version.
        let version = match self.now["version"].is_string() {
            true => "version {/version}, ",
            false => "",
        };
        let protocol = format!("{transport}, protocol {{/protocol/major}}.{{/protocol/minor}}");
        let daemon = format!("pid {{/pid}}, {version}up {{/uptime_s}}, {sandbox}");
        let mut page = fill("{/image} on {/mountpoint}\n", self.now);
        let layers = self.now["layers"].as_array().into_iter().flatten();
        for lower in layers.skip(1).filter_map(Value::as_str) {
            page += &line("below it", lower);
        }
        page += &line("transport", &fill(&protocol, self.now));
        page += &line("daemon", &fill(&daemon, self.now));
        page += &lines(HEADING, self.now);
        for notice in self.now["notices"].as_array().into_iter().flatten() {
            page += &line("notice", notice.as_str().unwrap_or_default());
        }
        page
    }

    fn state(&self) -> String {
        let mut page = lines(STATE, self.now);
        let files = self.now["remote"].as_array().map_or(&[][..], |all| all);
        for file in files {
            if files.len() > 1 {
                page += &line("url", string(file, "/url"));
            }
            page += &match file["error"].as_str() {
                Some(error) => line("remote", error),
                None => lines(REMOTE, file),
            };
        }
        page + &lines(POOL, self.now) + &profile(&self.now["profile"])
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
        format!("service time of requests (lower bound, count):\n{drawn}")
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

    /// Where faults are logged, and how many faults were not logged.
    fn log(&self) -> String {
        let Some(log) = self.now["faults"]["logged_to"].as_str() else {
            return "not logged".to_owned();
        };
        let counts = match self.now("/faults/not_logged") {
            0 => String::new(),
            not => format!("{not} not logged, {} ", self.now("/faults/logged")),
        };
        format!("{counts}logged to: {}", text::name(log.as_bytes()))
    }

    /// Whether the image was changed, and its latest faults, with two lines for each fault.
    fn faults(&self) -> String {
        let change = self.now["faults"]["image_changed"].as_str();
        let failed = fill("{/faults/count:failed request}", self.now);
        let mut page = match self.now("/faults/count") {
            0 if change.is_none() => return String::new(),
            0 => line("faults", &failed),
            _ => {
                let kinds = fill("{/faults/kinds:kind}", self.now);
                line("faults", &format!("{failed} of {kinds}, {}", self.log()))
            }
        };
        if let Some(change) = change {
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

/// The location of a fault: path or nid, address, codec.
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
    fn a_changed_image_and_a_log_that_fails_are_shown() {
        let mut answer = answer(1, 1.0);
        answer["faults"] = json!({"count": 0, "kinds": 0, "image_changed": "it changed"});
        let shown = page(&answer, None);
        assert!(
            shown.contains("faults     0 failed requests\nit changed\n"),
            "{shown}"
        );
        answer["faults"] = json!({
            "count": 3, "kinds": 2, "logged_to": "/dev/full", "logged": 0, "not_logged": 2,
        });
        let shown = page(&answer, None);
        let line =
            "faults     3 failed requests of 2 kinds, 2 not logged, 0 logged to: /dev/full\n";
        assert!(shown.contains(line), "{shown}");
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
        let line = "replayed: 2.0 MiB read ahead, 1.0 KiB too late, 1.0 MiB decoded by earlier \
                    launches, about 2.0 KiB not needed (7 probes)";
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
            {"path": "bin/ld", "origin": "image", "launches": 0, "windows": 9},
            {"path": "bin/as", "origin": "beside", "launches": 2, "windows": 9},
        ]);
        let learned = page(&answer, None);
        let lines = [
            "profile    learning",
            "bin/cc: 4 launches learned, the last one found 371 of 385 windows read ahead",
            "inode 98: 1 launch learned",
            "bin/ld: not launched yet, profile from the image",
            "bin/as: 2 launches learned, profile from beside the image\n",
        ];
        let lines = lines.join("\n           ");
        assert!(learned.contains(&lines), "{learned}");
    }

    #[test]
    fn the_page_has_what_was_fetched() {
        let mut answer = answer(1, 1.0);
        answer["remote"] = json!([
            {"url": "http://host/x", "bytes": 3 << 20, "fetched_bytes": 1 << 20,
             "ahead_bytes": 1 << 19, "unread_bytes": 1 << 18, "cached_bytes": 2 << 20,
             "waiting": 1, "round_trips": 2, "failures": 3,
             "not_kept": "/x: Not a directory"},
            {"url": "http://host/y", "error": "the fetcher has been silent"},
        ]);
        let page = page(&answer, None);
        let lines = "\nurl        http://host/x\n\
            remote     1.0 MiB fetched in 2 round trips, 2.0 MiB of 3.0 MiB cached\n           \
            512.0 KiB fetched before a reader asked, 256.0 KiB cached and not read\n           \
            nothing is kept in the cache: /x: Not a directory\n           \
            1 waiting request, 3 failed round trips\n\
            url        http://host/y\nremote     the fetcher has been silent\n";
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
