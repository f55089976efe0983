//! Figures from other tools' traces equal those in the tools' own text (see fixtures/README.md).

use super::perf_text::{
    Sums, begin_running, delays_of_unseen, perf_latency, perf_timehist, run_ends, sums,
};
use sched_trace::latency::{Report, Wait, WaitKind, analyse};
use sched_trace::{Error, Fault, ReadOptions, Trace, open};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A fixture, unpacked into the temporary directory during this value's lifetime.
pub struct Fixture(PathBuf);

impl Fixture {
    pub fn new(name: &str, test: &str) -> Self {
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

    pub fn read(&self) -> Trace {
        open(&self.0, &ReadOptions::default()).unwrap()
    }

    pub fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).unwrap()
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Number of waits after wake-ups, and their sum in nanoseconds.
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
    // The text has 49 waits of 471,572,496 ns; three of them are left out, because during each a
    // thread is switched to twice in a row: the kernel did not write the switch in between.
    ("perfetto-compact.pftrace", 200, 46, 309_570_952),
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
    let names: Vec<_> = works.iter().filter_map(|work| work.function).collect();
    let names: Vec<_> = names
        .into_iter()
        .map(|name| report.names.get(name))
        .collect();
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
            let length = whole.len() * part / 100;
            std::fs::write(&fixture.0, &whole[..length]).unwrap();
            if let Err(error) = open(&fixture.0, &ReadOptions::default()) {
                let line = error.to_string();
                assert!(!line.contains('\n'), "{name} {part}: {line}");
                if let Error::File {
                    fault: Fault::Broken { offset, .. },
                    ..
                } = error
                {
                    assert!(offset <= length as u64, "{name} {part}: {line}");
                }
            } else {
                // Only text may be truncated unnoticed, after any complete line; a binary trace
                // stores its length.
                assert_eq!(name, "ftrace.txt", "{part} per cent");
                assert_eq!(whole[length - 1], b'\n', "{part} per cent");
            }
        }
    }
}

#[test]
fn a_binary_trace_that_lacks_its_last_byte_is_refused() {
    for (name, ..) in EXPECTED.iter().filter(|(name, ..)| *name != "ftrace.txt") {
        let fixture = Fixture::new(name, "last");
        let whole = fixture.bytes();
        for missing in [1, 2, 10, 40] {
            std::fs::write(&fixture.0, &whole[..whole.len() - missing]).unwrap();
            let read = open(&fixture.0, &ReadOptions::default());
            assert!(read.is_err(), "{name} without its last {missing} bytes");
        }
    }
}

#[test]
fn text_that_ends_in_the_middle_of_a_line_is_refused() {
    let fixture = Fixture::new("ftrace.txt", "line");
    let whole = fixture.bytes();
    let line = whole[..whole.len() / 2]
        .iter()
        .rposition(|&byte| byte == b'\n');
    let end = line.unwrap() + 1;
    for (length, whole_line) in [(end, true), (end - 1, false), (end - 3, false)] {
        std::fs::write(&fixture.0, &whole[..length]).unwrap();
        let read = open(&fixture.0, &ReadOptions::default());
        assert_eq!(read.is_ok(), whole_line, "{length}");
        if let Err(error) = read {
            assert!(error.to_string().contains("middle of a line"), "{error}");
        }
    }
}

#[test]
fn events_missing_before_a_first_page_were_overwritten_and_before_a_later_one_are_lost() {
    let fixture = Fixture::new("trace-cmd-v6.dat", "wrapped");
    let mut bytes = fixture.bytes();
    let begin = fixture.read().span().unwrap().0;
    // The number of a CPU's pages follows their position, and "flyrecord" precedes the first CPU's.
    let head = bytes
        .windows(10)
        .position(|word| word == b"flyrecord\0")
        .unwrap()
        + 10;
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let cpus = [
        (word(head), word(head + 8)),
        (word(head + 16), word(head + 24)),
    ];
    let (place, _) = *cpus.iter().find(|(_, size)| *size >= 2 * 4096).unwrap();
    // Sets MISSED_EVENTS in the word after the time stamp.
    bytes[place + 11] |= 0x80;
    std::fs::write(&fixture.0, &bytes).unwrap();
    let trace = fixture.read();
    assert_eq!(trace.lost_events, 0);
    let mut notices = trace.notices.iter().map(ToString::to_string);
    assert!(notices.any(|notice| notice.contains("overwrote 1 older events")));
    assert!(trace.span().unwrap().0 >= begin && analyse(&trace).is_valid());
    bytes[place + 4096 + 11] |= 0x80;
    std::fs::write(&fixture.0, &bytes).unwrap();
    assert!(fixture.read().lost_events > 0);
}

#[test]
fn a_ring_that_perf_overwrote_counts_from_where_all_cpus_have_events() {
    let fixture = Fixture::new("perf-sched.data", "overwrite");
    let whole = fixture.read();
    let mut bytes = fixture.bytes();
    // Attributes of tracepoints: type, size, and at offset 40 the flags, whose bit 27 is
    // write_backward.
    let is_attribute =
        |word: &[u8]| word == [2, 0, 0, 0, 128, 0, 0, 0] || word == [2, 0, 0, 0, 136, 0, 0, 0];
    let found = bytes
        .windows(8)
        .enumerate()
        .filter(|(_, word)| is_attribute(word));
    let places: Vec<usize> = found.map(|(at, _)| at).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at + 43] |= 8;
    }
    std::fs::write(&fixture.0, &bytes).unwrap();
    let trace = fixture.read();
    let begin = |cpu: u32| {
        whole
            .events
            .iter()
            .find(|event| event.cpu == cpu)
            .unwrap()
            .time_ns
    };
    let cpus: BTreeSet<u32> = whole.events.iter().map(|event| event.cpu).collect();
    let latest = cpus.into_iter().map(begin).max();
    assert_eq!(trace.span().map(|(first, _)| first), latest);
    let mut notices = trace.notices.iter().map(ToString::to_string);
    assert!(notices.any(|notice| notice.contains("overwrote older events")));
}

#[test]
fn damaged_files_never_panic() {
    std::thread::scope(|scope| {
        for (name, ..) in EXPECTED {
            scope.spawn(move || read_damaged(name));
        }
    });
}

fn read_damaged(name: &str) {
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

/// perf prints each figure in microseconds, truncated in `timehist` and rounded in `latency`.
fn assert_same(ours: &Sums, perfs: &Sums, threads: usize, name: &str) {
    assert_eq!(perfs.len(), threads, "{name}");
    assert!(ours.keys().eq(perfs.keys()), "{name}: {ours:?} {perfs:?}");
    for (pid, perf) in perfs {
        let own = ours[pid];
        assert_eq!(own.count, perf.count, "{name}: thread {pid}");
        let near = |a: f64, b: f64, us: f64| (a - b).abs() <= 0.001 * us + 1e-9;
        assert!(
            near(own.total_ms, perf.total_ms, perf.count as f64)
                && near(own.maximum_ms, perf.maximum_ms, 1.0),
            "{name}: thread {pid}: {own:?} {perf:?}"
        );
    }
}

#[test]
fn every_thread_has_the_delays_of_perf_timehist() {
    // Number of switches that the kernel did not write, threads for which perf reports a delay all
    // the same, and number of threads.
    for (name, missing, unseen, threads) in [
        ("perf-sched", 1, [25232].as_slice(), 22),
        ("perf-7", 12, &[], 10),
    ] {
        let trace = Fixture::new(&format!("{name}.data"), "timehist").read();
        let report = analyse(&trace);
        assert_eq!(report.missing_switches, missing, "{name}");
        // perf forgets a thread at its exit record: the line for that run, the thread's last one
        // here, has no delay.
        let ends = run_ends(&trace);
        let shows = |wait: &&Wait| ends(wait).is_some_and(|state| !state.is_dead());
        let mut ours = sums(report.waits.iter().filter(shows));
        let delays = delays_of_unseen(&trace);
        assert!(
            delays.iter().map(|(pid, ..)| pid).eq(unseen),
            "{name}: {delays:?}"
        );
        for (pid, length, _) in delays {
            ours.entry(pid).or_default().add(length as f64 / 1e6);
        }
        let perfs = perf_timehist(&text_of(&format!("{name}.timehist.txt")));
        assert_same(&ours, &perfs, threads, name);
    }
}

#[test]
fn every_thread_has_the_delays_of_perf_sched_latency() {
    for (name, threads) in [("perf-sched", 24), ("perf-7", 12)] {
        let trace = Fixture::new(&format!("{name}.data"), "latency").read();
        let mut ours = sums(analyse(&trace).waits.iter());
        for pid in begin_running(&trace, |_| true) {
            if pid > 0 {
                ours.entry(pid).or_default().add(0.0);
            }
        }
        let perfs = perf_latency(&text_of(&format!("{name}.latency.txt")));
        assert_same(&ours, &perfs, threads, name);
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
