//! The head of a line: the thread that wrote the event, its CPU and time, and the event's name.

/// The text before an event's fields.
pub(super) struct Head<'a> {
    pub pid: i32,
    pub process: Option<i32>,
    pub cpu: u32,
    pub time: &'a str,
    /// Whether perf printed the line.
    pub is_perf: bool,
    pub event: &'a str,
    pub fields: &'a str,
}

/// Parses the head of a line; `None` if the line is not an event.
///
/// A thread's name may look like any part of the head. The head ends where the name of an event
/// follows, and the CPU is the last number in brackets before that.
pub(super) fn head(line: &str) -> Option<Head<'_>> {
    let heads = || {
        line.match_indices('[')
            .filter_map(|(at, _)| head_at(line, at))
    };
    let first = heads().find(|head| is_name(head.event));
    let first = first.or_else(|| heads().next())?;
    let same_time = |head: &Head<'_>| head.time.as_ptr() == first.time.as_ptr();
    heads().rfind(same_time)
}

/// Whether a text may be the name of an event.
fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The head whose CPU begins at this bracket, if a time follows.
fn head_at(line: &str, at: usize) -> Option<Head<'_>> {
    let (task, rest) = line.split_at(at);
    let (cpu, rest) = rest[1..].split_once(']')?;
    let cpu = cpu.parse().ok()?;
    let (before, rest) = rest.split_once(": ")?;
    let time = before.split_whitespace().next_back()?;
    time.bytes()
        .all(|b| b.is_ascii_digit() || b == b'.')
        .then_some(())?;
    let (event, fields) = rest.split_once(": ").unwrap_or((rest, ""));
    // perf puts the group before the name.
    let (is_perf, event) = match event.rsplit_once(':') {
        Some((_, name)) => (true, name),
        None => (false, event.trim_start()),
    };
    let (pid, process) = thread(task)?;
    Some(Head {
        pid,
        process,
        cpu,
        time,
        is_perf,
        event,
        fields: fields.trim_start(),
    })
}

/// The thread, and its process if the line has it: the number after the last dash, optionally
/// followed by the process in parentheses; in perf's output, the last word, which is `TID` or
/// `PID/TID`.
fn thread(task: &str) -> Option<(i32, Option<i32>)> {
    let task = task.trim_end();
    let (task, process) = match task.rfind('(') {
        Some(at) if task.ends_with(')') => {
            let process = task[at + 1..task.len() - 1].trim().parse().ok();
            (task[..at].trim_end(), process)
        }
        _ => (task, None),
    };
    let (before, word) = task.rsplit_once(char::is_whitespace).unwrap_or(("", task));
    let tid = word.rsplit('/').next()?;
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    if !before.is_empty() && digits(tid) && word.split('/').all(digits) {
        let process = word.split_once('/').and_then(|(pid, _)| pid.parse().ok());
        return Some((tid.parse().ok()?, process));
    }
    Some((task.rsplit('-').next()?.parse().ok()?, process))
}

/// Converts seconds such as `1234.567891` to nanoseconds; `None` for a number that counts something
/// else.
pub(super) fn seconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    let fraction = format!("{part:0<9}");
    let fraction = fraction.parse::<u64>().ok();
    let fraction = fraction.filter(|_| (1..=9).contains(&part.len()))?;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction)
}

#[cfg(test)]
mod tests {
    use super::{head, seconds};

    #[test]
    fn names_that_resemble_heads_are_read_whole() {
        let names = [
            "x 1[2]",
            "3[0]",
            "python 3[0]",
            "x-12 [000]",
            "a 12/12 [001]",
            "a-1 [0] 1.5: b",
            "[0] 1.5: x",
        ];
        for name in names {
            let ftrace =
                format!("{name:>16}-100     [003] d..2.   100.5: sched_switch: x [1] 2.5: y: z");
            let raw = format!("{name:>16}-100   [003]-0x35  100.5: sched_switch:  x");
            let perf = format!("{name}   100/100   [003]   100.5:   sched:sched_switch: x");
            for line in [ftrace, raw, perf] {
                let head = head(&line).expect(&line);
                let found = (head.pid, head.cpu, head.time, head.event);
                assert_eq!(found, (100, 3, "100.5", "sched_switch"), "{line}");
            }
        }
        let function = head("a-100 [003] d..2. 100.5: schedule <-do_it").unwrap();
        assert_eq!((function.pid, function.cpu), (100, 3));
    }

    #[test]
    fn times_of_any_precision_become_nanoseconds() {
        assert_eq!(seconds("1.5"), Some(1_500_000_000));
        assert_eq!(seconds("12.000000001"), Some(12_000_000_001));
        assert_eq!(
            (seconds("77"), seconds("1."), seconds("1.x")),
            (None, None, None)
        );
    }
}
