//! Traces of other tools give the figures that the tools' own text gives (see fixtures/README.md).

use sched_trace::latency::{Report, WaitKind, analyse};
use sched_trace::{ReadOptions, Trace, open};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// A fixture, unpacked into the temporary directory for as long as this value lives.
struct Fixture(PathBuf);

impl Fixture {
    fn new(name: &str, test: &str) -> Self {
        let packed = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(name);
        let packed = std::fs::read(packed.with_file_name(format!("{name}.z"))).unwrap();
        let bytes = miniz_oxide::inflate::decompress_to_vec_zlib(&packed).unwrap();
        let file = format!("sched-trace-{}-{test}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        std::fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn read(&self) -> Trace {
        open(&self.0, &ReadOptions::default()).unwrap()
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Count and sum in nanoseconds of the waits after wake-ups.
fn wakeups(report: &Report) -> (usize, u64) {
    let waits = report
        .waits
        .iter()
        .filter(|wait| wait.kind == WaitKind::Wakeup);
    waits.fold((0, 0), |(count, sum), wait| {
        (count + 1, sum + wait.length_ns())
    })
}

/// File, events, waits after wake-ups, their sum in ns.
const EXPECTED: [(&str, usize, usize, u64); 7] = [
    ("trace-cmd-v6.dat", 603, 85, 120_745_049),
    ("trace-cmd-v7.dat", 432, 50, 57_028_617),
    ("trace-cmd-v7-zstd.dat", 459, 53, 82_807_852),
    ("perf-sched.data", 93, 31, 36_859_138),
    ("ftrace.txt", 768, 206, 81_431_000),
    ("perfetto-plain.pftrace", 137, 36, 5_067_834),
    ("perfetto-compact.pftrace", 200, 49, 471_572_496),
];

#[test]
fn counts_and_sums_are_those_of_the_tools_own_text() {
    for (name, events, waits, sum) in EXPECTED {
        let trace = Fixture::new(name, "sums").read();
        assert_eq!(trace.lost_events, 0, "{name}");
        assert_eq!(trace.events.len(), events, "{name}");
        assert_eq!(wakeups(&analyse(&trace)), (waits, sum), "{name}");
    }
}

#[test]
fn work_queues_are_named_in_traces_that_have_them() {
    let report = analyse(&Fixture::new("trace-cmd-v7-zstd.dat", "names").read());
    let works = report.workqueues(&Default::default());
    let names: Vec<_> = works.iter().map(|w| report.names.get(w.function)).collect();
    assert!(names.contains(&"vmstat_shepherd"), "{names:?}");
    assert!(works.iter().all(|w| w.workqueue.is_some()), "{works:?}");
}

#[test]
fn what_is_written_as_perfetto_keeps_the_figures() {
    for (name, events, waits, sum) in EXPECTED {
        let fixture = Fixture::new(name, "perfetto");
        sched_trace::perfetto::save(&fixture.read(), &fixture.0).unwrap();
        let back = fixture.read();
        assert_eq!(back.events.len(), events, "{name}");
        assert_eq!(wakeups(&analyse(&back)), (waits, sum), "{name}");
    }
}

#[test]
fn a_cut_file_is_one_line_or_a_shorter_trace_but_never_a_panic() {
    for (name, ..) in EXPECTED {
        let fixture = Fixture::new(name, "cut");
        let whole = fixture.bytes();
        for part in 0..100 {
            std::fs::write(&fixture.0, &whole[..whole.len() * part / 100]).unwrap();
            if let Err(error) = open(&fixture.0, &ReadOptions::default()) {
                let line = error.to_string();
                assert!(!line.contains('\n'), "{name} {part}: {line}");
            } else {
                // Text may end anywhere between lines; a binary trace tells how long it is.
                assert_eq!(name, "ftrace.txt", "{part} per cent");
            }
        }
    }
}

#[test]
fn damaged_files_never_panic() {
    for (name, ..) in EXPECTED {
        let fixture = Fixture::new(name, "damaged");
        let mut bytes = fixture.bytes();
        let mut random = 1u64;
        for _ in 0..500 {
            random = random
                .wrapping_mul(6364136223846793005)
                .wrapping_add(1442695040888963407);
            let at = (random >> 20) as usize % bytes.len();
            let kept = std::mem::replace(&mut bytes[at], (random >> 56) as u8);
            std::fs::write(&fixture.0, &bytes).unwrap();
            if let Ok(trace) = open(&fixture.0, &ReadOptions::default()) {
                analyse(&trace);
            }
            bytes[at] = kept;
        }
    }
}

/// Delays by thread of `perf sched latency -p` (7.2): how many, and their sum in milliseconds.
fn perf_latency(text: &str) -> BTreeMap<i32, (u64, f64)> {
    let rows = text.lines().filter(|line| line.contains("| avg:"));
    rows.map(|row| {
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let pid = columns[0].rsplit(':').next().unwrap().parse().unwrap();
        let count = columns[2].parse().unwrap();
        let average = columns[3]
            .trim_start_matches("avg:")
            .trim_end_matches("ms")
            .trim();
        (pid, (count, count as f64 * average.parse::<f64>().unwrap()))
    })
    .collect()
}

/// The same of `perf sched timehist`, which has a line for each time a thread ran; those that waited.
fn perf_timehist(text: &str) -> BTreeMap<i32, (u64, f64)> {
    let mut delays = BTreeMap::new();
    // "time [cpu]  name[tid/pid]  wait delay run": names may hold spaces; idle time has no number.
    for line in text.lines().filter(|line| line.matches(']').count() > 1) {
        let (head, numbers) = line.trim_end().rsplit_once(']').unwrap();
        let numbers: Vec<f64> = numbers
            .split_whitespace()
            .filter_map(|n| n.parse().ok())
            .collect();
        let tid = head.rsplit('[').next().unwrap().split('/').next().unwrap();
        let tid: i32 = tid.parse().unwrap();
        let [_, delay, _] = numbers[..] else {
            panic!("three numbers: {line}")
        };
        if delay > 0.0 {
            let sum: &mut (u64, f64) = delays.entry(tid).or_default();
            *sum = (sum.0 + 1, sum.1 + delay);
        }
    }
    delays
}

/// Waits after wake-ups and preemptions together, which perf does not tell apart.
fn by_thread(report: &Report) -> BTreeMap<i32, (u64, f64)> {
    let mut waits = BTreeMap::new();
    for wait in &report.waits {
        let sum: &mut (u64, f64) = waits.entry(wait.pid).or_default();
        *sum = (sum.0 + 1, sum.1 + wait.length_ns() as f64 / 1e6);
    }
    waits
}

/// Within one per cent, or what perf leaves open by cutting each delay to microseconds.
fn agree(ours: f64, perfs: f64, count: u64) -> bool {
    (ours - perfs).abs() <= (0.01 * perfs).max(0.0011 * count as f64)
}

#[test]
fn counts_and_averages_are_those_of_perf_timehist() {
    for name in ["perf-sched", "perf-7"] {
        let ours = by_thread(&analyse(
            &Fixture::new(&format!("{name}.data"), "timehist").read(),
        ));
        let perfs = perf_timehist(&text_of(&format!("{name}.timehist.txt")));
        assert!(perfs.len() > 5, "{name}: {perfs:?}");
        let latency = perf_latency(&text_of(&format!("{name}.latency.txt")));
        let mut differ = 0;
        for (pid, (count, total)) in &perfs {
            let (our_count, our_total) = ours.get(pid).copied().unwrap_or_default();
            if our_count == *count && agree(our_total, *total, *count) {
                continue;
            }
            // perf's two commands differ now and then; then the other one must say what we say.
            differ += 1;
            let (count, sum) = latency.get(pid).copied().unwrap_or_default();
            assert!(
                agree(our_total, sum, count),
                "{name}: thread {pid}: {our_total} {total} {sum}"
            );
        }
        assert!(
            differ * 5 <= perfs.len(),
            "{name}: {differ} of {}",
            perfs.len()
        );
    }
}

#[test]
fn sums_are_those_of_perf_sched_latency_and_counts_but_for_first_runs() {
    for name in ["perf-sched", "perf-7"] {
        let ours = by_thread(&analyse(
            &Fixture::new(&format!("{name}.data"), "latency").read(),
        ));
        let perfs = perf_latency(&text_of(&format!("{name}.latency.txt")));
        assert!(perfs.len() > 5, "{name}: {perfs:?}");
        for (pid, (count, total)) in &perfs {
            let (our_count, our_total) = ours.get(pid).copied().unwrap_or_default();
            // A thread's first run, whose beginning lies before the trace, is a delay of 0 to perf.
            assert!(
                [0, 1].contains(&(count - our_count)),
                "{name}: thread {pid}: {our_count} {count}"
            );
            assert!(
                agree(our_total, *total, *count),
                "{name}: thread {pid}: {our_total} {total}"
            );
        }
    }
}

fn text_of(name: &str) -> String {
    std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/fixtures")
            .join(name),
    )
    .unwrap()
}
