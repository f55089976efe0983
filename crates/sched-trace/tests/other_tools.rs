//! Traces of other tools give the figures that the tools' own text gives (see fixtures/README.md).

use sched_trace::latency::{Report, WaitKind, analyse};
use sched_trace::{ReadOptions, Trace, open};
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
const EXPECTED: [(&str, usize, usize, u64); 5] = [
    ("trace-cmd-v6.dat", 603, 85, 120_745_049),
    ("trace-cmd-v7.dat", 432, 50, 57_028_617),
    ("trace-cmd-v7-zstd.dat", 459, 53, 82_807_852),
    ("perf-sched.data", 93, 31, 36_859_138),
    ("ftrace.txt", 768, 206, 81_431_000),
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
