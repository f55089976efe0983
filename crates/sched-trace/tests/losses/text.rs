//! Text of ftrace, of trace-cmd and of perf script: the same recording in the format of each.

use super::{Case, fixture};

/// A line with an event: its CPU, its time in microseconds, and its text.
pub struct Line {
    cpu: u32,
    us: u64,
    text: String,
}

/// How a tool writes a line, and how it reports that events of a CPU were lost before the CPU's
/// next event.
pub struct Words {
    pub tool: &'static str,
    line: fn(&str) -> String,
    lost: fn(u32) -> String,
    header: bool,
}

pub const WORDS: [Words; 4] = [
    Words {
        tool: "ftrace",
        line: str::to_owned,
        lost: |cpu| format!("CPU:{cpu} [LOST 31 EVENTS]"),
        header: true,
    },
    Words {
        tool: "ftrace without a header",
        line: str::to_owned,
        lost: |cpu| format!("CPU:{cpu} [LOST EVENTS]"),
        header: false,
    },
    Words {
        tool: "trace-cmd",
        line: without_flags,
        lost: |cpu| format!("CPU:{cpu} [EVENTS DROPPED]"),
        header: false,
    },
    Words {
        tool: "perf script",
        line: as_perf,
        lost: |cpu| format!("swapper 0/0 [{cpu:03}] 1389.900000000: PERF_RECORD_LOST lost 31"),
        header: false,
    },
];

/// `NAME-PID [CPU] TIME: EVENT: FIELDS`.
fn without_flags(line: &str) -> String {
    let (head, event) = line.split_once(": ").unwrap();
    let (thread, rest) = head.rsplit_once('[').unwrap();
    let (cpu, rest) = rest.split_once(']').unwrap();
    let time = rest.split_whitespace().next_back().unwrap();
    format!("{thread}[{cpu}] {time}: {event}")
}

/// `NAME PID/TID [CPU] TIME: GROUP:EVENT: FIELDS`.
fn as_perf(line: &str) -> String {
    let (head, event) = line.split_once(": ").unwrap();
    let (thread, rest) = head.rsplit_once('[').unwrap();
    let (name, pid) = thread.trim().rsplit_once('-').unwrap();
    let (cpu, rest) = rest.split_once(']').unwrap();
    let time = rest.split_whitespace().next_back().unwrap();
    let group = if event.starts_with("workqueue") {
        "workqueue"
    } else {
        "sched"
    };
    format!("{name} {pid}/{pid} [{cpu}] {time}000: {group}:{event}")
}

/// The recording, line by line.
pub fn lines() -> Vec<Line> {
    let text = String::from_utf8(fixture("busy.txt")).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(line)
        .collect()
}

fn line(text: &str) -> Line {
    let (head, _) = text.split_once(": ").unwrap();
    let cpu = head.rsplit_once('[').unwrap().1;
    let time = head.split_whitespace().next_back().unwrap();
    let (seconds, us) = time.split_once('.').unwrap();
    Line {
        cpu: cpu[..3].parse().unwrap(),
        us: seconds.parse::<u64>().unwrap() * 1_000_000 + us.parse::<u64>().unwrap(),
        text: text.into(),
    }
}

/// A part of the recording in a tool's format; `events` is the number of events that its header
/// states.
fn write<'a>(words: &Words, lines: impl Iterator<Item = &'a Line>, events: usize) -> String {
    let mut text = match words.header {
        true => format!(
            "# tracer: nop\n#\n# entries-in-buffer/entries-written: {events}/{events}   #P:2\n"
        ),
        false => String::new(),
    };
    for line in lines {
        text += &(words.line)(&line.text);
        text.push('\n');
    }
    text
}

/// Complete recordings, and copies of each with something removed.
pub fn cases(words: &Words) -> Vec<Case> {
    let all = lines();
    let (first, last) = (all[0].us, all[all.len() - 1].us);
    let mut cases = Vec::new();
    // The whole recording, its first two thirds, and its last two thirds.
    for (from, until) in [(0, 6), (0, 4), (2, 6)] {
        let at = |sixth: u64| first + (last - first) * sixth / 6;
        let part: Vec<&Line> = all
            .iter()
            .filter(|l| (at(from)..=at(until)).contains(&l.us))
            .collect();
        cases.extend(of_part(words, &part));
    }
    cases
}

fn of_part(words: &Words, part: &[&Line]) -> Vec<Case> {
    let events = part.len();
    let whole = write(words, part.iter().copied(), events);
    let case = |what: String, text: String| Case {
        what: format!("{}, {events} events: {what}", words.tool),
        bytes: text.into_bytes(),
        whole: vec![whole.clone().into_bytes()],
        is_whole: false,
    };
    let mut cases = vec![Case {
        is_whole: true,
        ..case("whole".into(), whole.clone())
    }];
    let (first, last) = (part[0].us, part[events - 1].us);
    for cpu in 0..2 {
        let without = |gone: &dyn Fn(u64) -> bool| {
            let kept = part
                .iter()
                .copied()
                .filter(|line| line.cpu != cpu || !gone(line.us));
            write(words, kept, events)
        };
        cases.push(case(format!("CPU {cpu} left out"), without(&|_| true)));
        for third in 0..3 {
            let at = |third: u64| first + (last - first) * third / 3;
            let gone = |us: u64| us >= at(third) && us < at(third + 1) + u64::from(third == 2);
            cases.push(case(format!("CPU {cpu}, third {third}"), without(&gone)));
        }
        // A lost page: 40 events of a CPU, with the tool's mark before the next one.
        let own: Vec<u64> = part
            .iter()
            .filter(|line| line.cpu == cpu)
            .map(|line| line.us)
            .collect();
        for page in (1..14).map(|page| page * own.len() / 15) {
            let gone = own[page]..own[page + 40.min(own.len() - page - 1)];
            let mut text = String::new();
            let mut marked = false;
            for line in part {
                if line.cpu == cpu && gone.contains(&line.us) {
                    continue;
                }
                if line.cpu == cpu && line.us >= gone.end && !marked {
                    text += &((words.lost)(cpu) + "\n");
                    marked = true;
                }
                text += &((words.line)(&line.text) + "\n");
            }
            cases.push(case(format!("CPU {cpu}, page {page}"), text));
        }
    }
    // The recording concatenated with itself, and its first half concatenated with a second half
    // whose clock is an hour ahead.
    let (begin, end) = part.split_at(events / 2);
    let twice = whole.clone() + &whole;
    cases.push(case("joined with itself".into(), twice));
    let half = |lines: &[&Line]| write(words, lines.iter().copied(), lines.len());
    let later = half(end)
        .replace(" 1390.", " 4990.")
        .replace(" 1389.", " 4989.");
    let halves = vec![half(begin).into_bytes(), later.clone().into_bytes()];
    cases.push(Case {
        whole: halves,
        ..case("joined with a later one".into(), half(begin) + &later)
    });
    if !words.header {
        cases.extend(of_uncounted(words, part, &case));
    }
    cases
}

/// Cases made from a part whose events no header counts: a CPU's events are missing at the
/// beginning or at the end, a single wake-up is missing, or the clock jumps.
fn of_uncounted(words: &Words, part: &[&Line], case: &dyn Fn(String, String) -> Case) -> Vec<Case> {
    let (first, last) = (part[0].us, part[part.len() - 1].us);
    let text = |keep: &dyn Fn(usize, &Line) -> bool| {
        let kept = part.iter().enumerate().filter(|(at, line)| keep(*at, line));
        write(words, kept.map(|(_, line)| *line), 0)
    };
    let mut cases = Vec::new();
    // perf starts and stops recording one CPU after another.
    let edges: &[u64] = if words.tool.starts_with("perf") {
        &[]
    } else {
        &[15_000, 60_000]
    };
    for (cpu, us) in edges.iter().flat_map(|us| [(0, *us), (1, *us)]) {
        let begun = text(&|_, line| line.cpu != cpu || line.us >= first + us);
        cases.push(case(format!("CPU {cpu} begins {us} us later"), begun));
        let ended = text(&|_, line| line.cpu != cpu || line.us + us <= last);
        cases.push(case(format!("CPU {cpu} ends {us} us earlier"), ended));
    }
    let wakeups = (0..part.len()).filter(|at| part[*at].text.contains("sched_waking"));
    let wakeups: Vec<usize> = wakeups.collect();
    for nth in 1..4 {
        let gone = wakeups[nth * wakeups.len() / 4];
        let what = format!("without the wake-up in line {gone}");
        let without = text(&|at, _| at != gone);
        cases.push(Case {
            is_whole: true,
            ..case(what, without)
        });
    }
    for (jump_us, behind) in [(50_000, 3), (1_000_000, 2), (1_900_000, 5)] {
        let begins = part[part.len() / behind].us;
        let moved: Vec<Line> = part
            .iter()
            .map(|line| line.moved(begins, jump_us))
            .collect();
        let moved = write(words, moved.iter(), 0);
        cases.push(case(format!("the clock jumps by {jump_us} us"), moved));
    }
    cases
}

impl Line {
    /// The line, with its time moved later by `by_us` unless it is before `begins`.
    fn moved(&self, begins: u64, by_us: u64) -> Self {
        let time = |us: u64| format!("{}.{:06}: ", us / 1_000_000, us % 1_000_000);
        let us = self.us + if self.us < begins { 0 } else { by_us };
        Self {
            cpu: self.cpu,
            us,
            text: self.text.replacen(&time(self.us), &time(us), 1),
        }
    }
}
