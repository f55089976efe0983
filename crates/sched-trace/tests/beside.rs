//! Compares recordings of this machine as read by us, by perf and by `workqueue_rows.py`, and
//! recordings of trace-cmd as read by us and, from their text, by that program. Each thread with
//! five or more waits, and each work function, must have the same count, total and maximum within 1
//! %, or a known reason for the difference, which is printed. If PERFS names versions of perf, the
//! test records, as root, `PIECES` times six seconds with each. A recording with rows that differ
//! for no known reason is kept. If PERF_DATA names a file, such as a recording that was kept, only
//! that file is compared.
//!
//! ```sh
//! PERFS="perf /path/to/another/perf" PIECES=10 cargo test --locked -p sched-trace \
//!     --test integration beside -- --nocapture
//! PERFS=perf PERF_DATA=kept.data cargo test --locked -p sched-trace --test integration \
//!     beside -- --nocapture
//! ```

use super::other_tools::Fixture;
use super::perf_text::{
    Row, Sums, begin_asleep, begin_new, begin_running, delays_of_unseen, left, perf_kwork,
    perf_latency, perf_timehist, run_ends, sums, switches,
};
use sched_trace::latency::{Report, Wait, WaitKind, analyse};
use sched_trace::{ReadOptions, TaskState, Trace, Wake, open};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Threads with fewer waits are not compared.
const WAITS: u64 = 5;

/// Maximum number of attempts at a recording that does not leave out too many waits.
const TRIES: usize = 5;

/// The load during recordings: busy threads of four policies, sleepers, a pipe, synchronous writes,
/// short processes.
const LOAD: &str = r#"
    every() { timeout 6 "$@" & }
    every sh -c 'while :; do :; done'
    every nice -n 10 sh -c 'while :; do :; done'
    every chrt -i 0 sh -c 'while :; do :; done'
    every chrt -f 10 sh -c 'while :; do sleep 0.003; done'
    every sh -c 'while :; do dd if=/dev/zero of=written bs=64k count=20 conv=fsync 2>/dev/null; done'
    every sh -c 'while :; do echo; sleep 0.002; done | cat >/dev/null'
    every sh -c 'while :; do /bin/true; sleep 0.01; done'
    wait"#;

/// Runs a command with tracefs mounted where perf looks for it, in a separate mount namespace.
const WITH_TRACEFS: &str = "mount -t tracefs tracefs /sys/kernel/tracing; exec \"$@\"";

/// A directory that is removed when the test ends, unless it fails.
struct Directory(PathBuf);

impl Directory {
    fn new() -> Self {
        let path = std::env::temp_dir().join(format!("sched-trace-beside-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).current_dir(&self.0);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    }

    /// Runs a program with its output redirected to a file, and returns the output.
    fn run(&self, words: &[&str], output: &str) -> String {
        let path = self.0.join(output);
        let mut command = self.command(words);
        let ended = command.stdout(File::create(&path).unwrap()).status();
        assert!(ended.unwrap().success(), "{words:?}");
        String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
    }

    fn record(&self, words: &[&str]) {
        let with = ["unshare", "-m", "sh", "-c", WITH_TRACEFS, "sh"];
        let words = [&with, words, &["sh", "-c", LOAD]].concat();
        self.command(&words).status().unwrap();
    }

    fn read(&self, file: &str) -> Trace {
        open(&self.0.join(file), &ReadOptions::default()).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        match std::thread::panicking() {
            true => println!("{} is kept", self.0.display()),
            false => _ = fs::remove_dir_all(&self.0),
        }
    }
}

fn exists(program: &str) -> bool {
    let mut command = Command::new(program);
    command.arg("--version").stdout(Stdio::null());
    command.stderr(Stdio::null()).status().is_ok()
}

/// The comparisons with one program, over all recordings.
#[derive(Default)]
struct Compared {
    rows: usize,
    waits: u64,
    total_ms: f64,
    /// Rows that differ, by reason.
    reasons: BTreeMap<&'static str, usize>,
}

/// The comparisons, by title, in the order of their first appearance.
#[derive(Default)]
struct Table(RefCell<Vec<(String, Compared)>>);

const UNEXPLAINED: &str = "UNEXPLAINED";

impl Table {
    /// Compares our rows with another program's, and prints each row that differs for no known
    /// reason.
    fn compare<K: Ord + std::fmt::Display>(
        &self,
        title: &str,
        [ours, theirs]: [&BTreeMap<K, Row>; 2],
        why: &dyn Fn(&K, Row, Row) -> Option<&'static str>,
    ) {
        let mut table = self.0.borrow_mut();
        if !table.iter().any(|(known, _)| known == title) {
            table.push((title.to_owned(), Compared::default()));
        }
        let of_title = table.iter_mut().find(|(known, _)| known == title);
        let (_, compared) = of_title.unwrap();
        let row = |rows: &BTreeMap<K, Row>, key: &K| rows.get(key).copied().unwrap_or_default();
        for key in ours.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
            let (own, other) = (row(ours, key), row(theirs, key));
            if own.count.max(other.count) < WAITS {
                continue;
            }
            compared.rows += 1;
            compared.waits += own.count;
            compared.total_ms += own.total_ms;
            if !own.is_near(other) {
                let reason = why(key, own, other).unwrap_or(UNEXPLAINED);
                *compared.reasons.entry(reason).or_default() += 1;
                if reason == UNEXPLAINED {
                    println!("{title}: {key}: {own:?}, theirs {other:?}");
                }
            }
        }
    }

    /// Number of rows that differ for no known reason.
    fn unexplained(&self) -> usize {
        let all = self.0.borrow();
        let counts = all.iter().map(|(_, it)| it.reasons.get(UNEXPLAINED));
        counts.flatten().sum()
    }

    fn print(&self) {
        println!("| tool | rows | waits | total ms | rows that differ |");
        for (title, it) in self.0.borrow().iter() {
            let reasons = it.reasons.iter().map(|(why, rows)| format!("{rows} {why}"));
            let reasons = reasons.collect::<Vec<_>>().join(", ");
            let (rows, waits, total) = (it.rows, it.waits, it.total_ms);
            println!("| {title} | {rows} | {waits} | {total:.1} | {reasons} |");
        }
    }
}

/// Missing switches by thread: the thread left a CPU without having entered it, or entered one and
/// did not leave.
fn missing(trace: &Trace) -> HashMap<i32, u64> {
    let (mut current, mut missing) = (HashMap::new(), HashMap::new());
    for (_, cpu, prev, _, next) in switches(trace) {
        let entered = current.insert(cpu, next).filter(|entered| *entered != prev);
        for pid in entered.into_iter().flat_map(|entered| [entered, prev]) {
            *missing.entry(pid).or_insert(0) += 1;
        }
    }
    missing
}

const LEFT_OUT: &str = "a wait within which events are missing is left out here";

fn is_left_out(left_out: u64, own: Row, other: Row) -> bool {
    (own.count + 1..=own.count + left_out).contains(&other.count) && other.total_ms > own.total_ms
}

/// What perf counts differently from us.
struct Perf {
    missing: HashMap<i32, u64>,
    /// By thread: the length of each wait in milliseconds, and whether perf may omit the wait.
    waits: HashMap<i32, Vec<(f64, bool)>>,
    /// By thread: delays in milliseconds that perf reports where we see no wait end.
    extra: HashMap<i32, Vec<f64>>,
    /// Threads with exit records.
    exited: HashSet<i32>,
    /// Waits that are left out because events are missing during them.
    left_out: u64,
    began_running: BTreeSet<i32>,
    /// Threads whose first event is a wake-up.
    began_asleep: HashSet<i32>,
}

impl Perf {
    fn new<'a>(trace: &Trace, waits: impl Iterator<Item = &'a Wait>, left_out: u64) -> Self {
        // A thread that is woken while it is about to sleep is runnable from the switch on, but
        // perf loses the wake-up.
        let left = left(trace);
        let raced = |wait: &Wait| {
            wait.kind == WaitKind::Wakeup && left(wait).is_some_and(|state| !state.is_runnable())
        };
        let mut by_thread: HashMap<i32, Vec<_>> = HashMap::new();
        for wait in waits {
            let own = by_thread.entry(wait.pid).or_default();
            own.push((wait.length_ns() as f64 / 1e6, raced(wait)));
        }
        Self {
            missing: missing(trace),
            waits: by_thread,
            extra: HashMap::new(),
            exited: HashSet::new(),
            left_out,
            began_running: begin_running(trace, |_| true),
            began_asleep: begin_asleep(trace),
        }
    }

    fn rows(&self) -> Sums {
        let mut rows = Sums::new();
        for (pid, waits) in &self.waits {
            let row = rows.entry(*pid).or_default();
            waits.iter().for_each(|(ms, _)| row.add(*ms));
        }
        for (pid, delays) in &self.extra {
            let row = rows.entry(*pid).or_default();
            delays.iter().for_each(|ms| row.add(*ms));
        }
        rows
    }

    fn why(&self, pid: i32, own: Row, other: Row) -> Option<&'static str> {
        let waits = self.waits.get(&pid).map_or(&[][..], |waits| waits);
        let is_without = |left_out: &dyn Fn(usize, bool) -> bool| {
            let mut row = Row::default();
            let extra = self.extra.get(&pid).into_iter().flatten();
            extra.for_each(|ms| row.add(*ms));
            for (at, (ms, raced)) in waits.iter().enumerate() {
                if !left_out(at, *raced) {
                    row.add(*ms);
                }
            }
            row.is_near(other)
        };
        // The run with the exit record is among the last ones. After that record, perf may show the
        // thread as -1.
        let last = waits.len().saturating_sub(32)..waits.len();
        let exits = |exit: usize| {
            (exit + 1..=waits.len()).any(|unnamed| {
                is_without(&|at, _| at == exit || at >= unnamed)
                    || is_without(&|at, raced| at == exit || at >= unnamed || raced)
            })
        };
        // perf knows the thread from its first sched_stat_runtime on, before its first wake-up.
        let begins = |with_raced: bool| {
            let mut row = Row::default();
            row.add(other.maximum_ms);
            let rest = waits.iter().skip(1);
            let rest = rest.filter(|(_, raced)| with_raced || !raced);
            rest.for_each(|(ms, _)| row.add(*ms));
            row.is_near(other)
        };
        let missing = self.missing.get(&pid).copied().unwrap_or(0);
        let raced = waits.iter().filter(|(_, raced)| *raced).count() as u64;
        if is_without(&|_, raced| raced) {
            Some("a wake-up before the sleep is forgotten")
        } else if pid < 0 {
            Some("threads after their exit records")
        } else if self.exited.contains(&pid) && last.clone().any(exits) {
            Some("a run with the exit record has no delay")
        } else if missing >= own.count.abs_diff(other.count).max(1) {
            Some("a switch is missing, and the wait goes on")
        } else if is_left_out(self.left_out, own, other) {
            Some(LEFT_OUT)
        } else if self.began_running.contains(&pid)
            && [own.count, own.count - raced].contains(&other.count)
            || self.began_asleep.contains(&pid) && (begins(true) || begins(false))
        {
            Some("a wait from the first sched_stat_runtime on")
        } else {
            None
        }
    }
}

/// Count, sum and maximum by `thread PID`, `queued FUNCTION` and `activated FUNCTION`.
fn second_program(directory: &Directory, text: &str) -> BTreeMap<String, Row> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/workqueue_rows.py");
    let line = format!("python3 {} --all < {text}", script.display());
    let rows = directory.run(&["sh", "-c", &line], "rows.txt");
    let rows = rows.lines().map(|line| {
        let words: Vec<&str> = line.rsplitn(4, ' ').collect();
        let ms = |word: &str| word.parse::<f64>().unwrap() / 1e6;
        let row = Row {
            count: words[2].parse().unwrap(),
            total_ms: ms(words[1]),
            maximum_ms: ms(words[0]),
        };
        (words[3].to_owned(), row)
    });
    rows.collect()
}

/// The rows whose names begin with this word, with the word removed from the names.
fn of(rows: &BTreeMap<String, Row>, what: &str) -> BTreeMap<String, Row> {
    let named = rows
        .iter()
        .filter_map(|(name, row)| Some((function(name.strip_prefix(what)?.trim_start()), *row)));
    named.collect()
}

/// The part of a function's name that kwork prints.
fn function(name: &str) -> String {
    name[..name.len().min(26)].to_owned()
}

/// Our queue delays by function.
fn queued(report: &Report) -> BTreeMap<String, Row> {
    let mut rows: BTreeMap<String, Row> = BTreeMap::new();
    for work in &report.works {
        if let Some(queued) = work.queued_ns {
            let name = function(report.names.get(work.function));
            let delay = (work.start_ns - queued) as f64 / 1e6;
            rows.entry(name).or_default().add(delay);
        }
    }
    rows
}

/// Compares our threads and work items with those that the second program finds in a tool's text.
fn beside_text(table: &Table, title: &str, trace: &Trace, rows: &BTreeMap<String, Row>) {
    let report = analyse(trace);
    let threads = sums(report.waits.iter());
    let threads = threads
        .iter()
        .map(|(pid, row)| (pid.to_string(), *row))
        .collect();
    let missing = missing(trace);
    let why = |pid: &String, own: Row, other: Row| {
        let missing = missing.get(&pid.parse().unwrap()).copied().unwrap_or(0);
        (missing >= own.count.abs_diff(other.count).max(1)
            || is_left_out(report.left_out, own, other))
        .then_some(LEFT_OUT)
    };
    let works = [&queued(&report), &of(rows, "queued")];
    // If trace-cmd has no symbol for a function, it prints the name of the preceding symbol.
    let named = works[0].keys().all(|name| !name.starts_with("0x"));
    let one = |rows: &BTreeMap<String, Row>| {
        let mut all = Row::default();
        rows.values().for_each(|row| all.join(*row));
        BTreeMap::from([("all functions".to_owned(), all)])
    };
    let works = if named {
        works.map(Clone::clone)
    } else {
        works.map(one)
    };
    let left_out = |_: &String, own: Row, other: Row| {
        is_left_out(report.left_out, own, other).then_some("queued within missing events")
    };
    let title_of_threads = format!("{title}, threads");
    table.compare(&title_of_threads, [&threads, &of(rows, "thread")], &why);
    let title_of_items = format!("{title}, items");
    table.compare(&title_of_items, works.each_ref(), &left_out);
}

/// A version of perf.
struct Reader<'a> {
    name: &'a str,
    /// Whether this is perf 6.1, whose `latency` uses no `sched_waking` and takes a preempted
    /// thread (R+) for a sleeping one, and whose `timehist` has no delay after preemptions.
    is_old: bool,
}

impl<'a> Reader<'a> {
    /// Prepares this version of perf; `None`, after printing why, if it cannot be used.
    fn new(directory: &Directory, name: &'a str) -> Option<Self> {
        if !exists(name) {
            println!("skipped: no {name}");
            return None;
        }
        let is_old = directory
            .run(&[name, "--version"], "version.txt")
            .contains(" 6.");
        Some(Self { name, is_old })
    }

    fn run(&self, directory: &Directory, words: &[&str]) -> String {
        let words = [&[self.name], words, &["-i", "perf.data"]].concat();
        directory.run(&words, "output.txt")
    }

    fn record(&self, directory: &Directory) {
        let words = [
            "sched",
            "record",
            "-m",
            "4096",
            "-e",
            "workqueue:*",
            "-o",
            "perf.data",
            "--",
        ];
        directory.record(&[&[self.name][..], &words].concat());
    }

    /// Records again if too many waits are left out, because perf omits events now and then.
    fn record_enough(&self, directory: &Directory) {
        for _ in 0..TRIES {
            self.record(directory);
            let report = analyse(&directory.read("perf.data"));
            if report.left_out * 100 <= report.waits.len() as u64 {
                return;
            }
            let (left_out, waits) = (report.left_out, report.waits.len());
            println!("{left_out} waits left out, {waits} kept: recorded again");
            println!("{:?}", report.notices);
        }
        panic!("{} leaves too many events out", self.name);
    }

    fn exited(&self, directory: &Directory) -> HashSet<i32> {
        let fields = [
            "script",
            "--show-task-events",
            "-F",
            "comm,pid,tid,cpu,time,event,trace",
        ];
        let text = self.run(directory, &fields);
        let records = text
            .lines()
            .filter_map(|line| line.split_once("PERF_RECORD_EXIT("));
        let threads = records.filter_map(|(_, record)| {
            let (_, thread) = record.split_once(')')?.0.split_once(':')?;
            thread.parse().ok()
        });
        threads.collect()
    }

    fn latency(&self, directory: &Directory, trace: &Trace, report: &Report, table: &Table) {
        let new: HashSet<(i32, u64)> = begin_new(trace).collect();
        let left = left(trace);
        let counts = |wait: &&Wait| {
            !self.is_old
                || left(wait) == Some(TaskState::RUNNABLE)
                || new.contains(&(wait.pid, wait.start_ns))
        };
        let mut all = Perf::new(trace, report.waits.iter().filter(counts), report.left_out);
        let begin = begin_running(trace, |wake| !self.is_old || wake == Wake::New);
        let begin = begin.into_iter().filter(|pid| *pid > 0);
        all.extra = begin.map(|pid| (pid, vec![0.0])).collect();
        let rows = all.rows();
        let theirs = perf_latency(&self.run(directory, &["sched", "latency", "-p"]));
        let of = if self.is_old {
            ", R and new threads"
        } else {
            ""
        };
        let title = format!("{} sched latency{of}", self.name);
        table.compare(&title, [&rows, &theirs], &|pid, own, other| {
            all.why(*pid, own, other)
        });
    }

    fn timehist(&self, directory: &Directory, trace: &Trace, report: &Report, table: &Table) {
        let ends = run_ends(trace);
        // Waits below a microsecond are printed as 0.
        let shown = |wait: &&Wait| {
            ends(wait).is_some()
                && wait.length_ns() >= 1000
                && (!self.is_old || wait.kind == WaitKind::Wakeup)
        };
        let shown = report.waits.iter().filter(shown);
        let mut shown = Perf::new(trace, shown, report.left_out);
        shown.exited = self.exited(directory);
        let unseen = delays_of_unseen(trace).into_iter();
        for (pid, length, _) in unseen.filter(|(.., preempted)| !(self.is_old && *preempted)) {
            let delays = shown.extra.entry(pid).or_default();
            delays.push(length as f64 / 1e6);
        }
        let rows = shown.rows();
        let theirs = perf_timehist(&self.run(directory, &["sched", "timehist"]));
        let of = if self.is_old { ", wake-ups" } else { "" };
        let title = format!("{} sched timehist{of}", self.name);
        table.compare(&title, [&rows, &theirs], &|pid, own, other| {
            shown.why(*pid, own, other)
        });
    }

    /// Compares perf's text, as read by the second program, and its `kwork latency`.
    fn others(&self, directory: &Directory, trace: &Trace, report: &Report, table: &Table) {
        let fields = ["script", "--ns", "-F", "comm,pid,tid,cpu,time,event,trace"];
        self.run(directory, &fields);
        let rows = second_program(directory, "output.txt");
        beside_text(table, &format!("{} script", self.name), trace, &rows);
        let activated = of(&rows, "activated");
        let kwork = self.run(directory, &["kwork", "-k", "workqueue", "latency"]);
        let mut theirs = BTreeMap::new();
        for (name, row) in perf_kwork(&kwork) {
            // perf 6.1 prints the first 19 letters of a name, and then whatever follows them in its
            // memory.
            let is_same = |known: &&String| known.starts_with(&name[..name.len().min(19)]);
            let known = activated.keys().find(is_same);
            let known = known.cloned().unwrap_or(name);
            theirs.entry(known).or_insert(Row::default()).join(row);
        }
        let mut starts: BTreeMap<String, u64> = BTreeMap::new();
        for work in &report.works {
            let name = function(report.names.get(work.function));
            *starts.entry(name).or_default() += 1;
        }
        let why = |name: &String, own: Row, other: Row| {
            let row = activated.get(name).copied().unwrap_or_default();
            let starts = starts.get(name).copied().unwrap_or(0);
            let is_later = other.count <= starts && other.maximum_ms > own.maximum_ms;
            if row.is_near(other) {
                Some("from the activation, to a start on the same CPU")
            } else if self.is_old && is_later {
                Some("6.1 pairs activations without a start with a later one")
            } else {
                None
            }
        };
        let title = format!("{} kwork latency", self.name);
        table.compare(&title, [&queued(report), &theirs], &why);
    }
}

/// Compares the recording with every reader; keeps it if rows differ for no known reason.
fn beside_perf(directory: &Directory, readers: &[Reader<'_>], by_old: bool, table: &Table) {
    let trace = directory.read("perf.data");
    let report = analyse(&trace);
    let (lost, left_out) = (trace.lost_events, report.left_out);
    println!(
        "{lost} lost, {left_out} waits left out of {}",
        report.waits.len()
    );
    let before = table.unexplained();
    // perf 6.1 cannot read what perf 7.2 writes.
    for reader in readers.iter().filter(|reader| by_old || !reader.is_old) {
        reader.latency(directory, &trace, &report, table);
        reader.timehist(directory, &trace, &report, table);
        reader.others(directory, &trace, &report, table);
    }
    let wrong = table.unexplained();
    if wrong > before {
        let kept = directory.0.join(format!("unexplained-{wrong}.data"));
        fs::rename(directory.0.join("perf.data"), &kept).unwrap();
        println!("{} is kept", kept.display());
    }
}

/// Compares trace-cmd's text of the recordings that other tests use, and makes no new one, because
/// some machines refuse settings that trace-cmd insists on.
fn beside_trace_cmd(directory: &Directory, table: &Table) {
    for name in [
        "trace-cmd-v6.dat",
        "trace-cmd-v7.dat",
        "trace-cmd-v7-zstd.dat",
    ] {
        let fixture = Fixture::new(name, "beside");
        fs::write(directory.0.join("trace.dat"), fixture.bytes()).unwrap();
        directory.run(
            &["trace-cmd", "report", "-N", "-t", "-i", "trace.dat"],
            "output.txt",
        );
        let rows = second_program(directory, "output.txt");
        let title = format!("trace-cmd report, {name}");
        beside_text(table, &title, &fixture.read(), &rows);
    }
}

#[test]
fn each_thread_and_work_item_has_the_figures_of_other_tools_beside_it() {
    let Ok(perfs) = std::env::var("PERFS") else {
        return println!("skipped: records for a while; set PERFS to the perf programs to compare");
    };
    let (directory, table) = (Directory::new(), Table::default());
    let readers = perfs.split_whitespace();
    let readers = readers.filter_map(|name| Reader::new(&directory, name));
    let readers: Vec<Reader<'_>> = readers.collect();
    if let Ok(file) = std::env::var("PERF_DATA") {
        fs::copy(file, directory.0.join("perf.data")).unwrap();
        beside_perf(&directory, &readers, true, &table);
    } else {
        let pieces = std::env::var("PIECES").map_or(1, |pieces| pieces.parse().unwrap());
        for recorder in (0..pieces).flat_map(|_| &readers) {
            recorder.record_enough(&directory);
            println!("recorded by {}", recorder.name);
            beside_perf(&directory, &readers, recorder.is_old, &table);
        }
        match exists("trace-cmd") {
            true => beside_trace_cmd(&directory, &table),
            false => println!("skipped: no trace-cmd"),
        }
    }
    table.print();
    assert_eq!(
        table.unexplained(),
        0,
        "rows that differ for no known reason"
    );
}
