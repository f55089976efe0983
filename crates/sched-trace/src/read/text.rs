//! Reads the text of tracefs's `trace` and `trace_pipe`, of `trace-cmd report` and of `perf
//! script`.
//!
//! A line of ftrace is `COMM-PID [CPU] FLAGS SECONDS: EVENT: FIELDS`, one of perf is `COMM PID/TID
//! [CPU] SECONDS: GROUP:EVENT: FIELDS`. Names may contain spaces, dashes and brackets, so each
//! field is found by its surroundings.

use crate::error::{COUNTED, Fault};
use crate::ftrace::threads;
use crate::input::Limits;
use crate::{Comm, Event, Kind, TaskState, Trace};
use std::io::{BufRead, Read};

pub(super) const FORMAT: &str = "ftrace text";

/// Longest line that is accepted.
const LINE: u64 = 1 << 16;

/// Reads a whole trace.
pub(super) fn read(mut file: impl BufRead, limits: Limits) -> Result<Trace, Fault> {
    let mut trace = Trace::new("");
    let (mut line, mut offset, mut garbled, mut cut) = (Vec::new(), 0u64, 0u64, false);
    let (mut untimed, mut wrapped) = (0, 0u64);
    loop {
        line.clear();
        let got = file.by_ref().take(LINE).read_until(b'\n', &mut line)? as u64;
        if got == 0 {
            break;
        }
        // A number cut short parses as well as a whole one: the last line must be complete.
        cut = !line.ends_with(b"\n") && got < LINE;
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end();
        match text.strip_prefix('#') {
            Some(comment) => wrapped = wrapped.saturating_add(overwritten(comment)),
            None if text.contains("[LOST ") => trace.lose(lost(text)),
            None if text.contains("PERF_RECORD_LOST") => trace.lose(lost_of_perf(text)),
            None => match event(&mut trace, text) {
                Some(event) => trace.events.push(event),
                // Other events are skipped; a known event that cannot be read is an error.
                None if is_known(text) => {
                    garbled += 1;
                    untimed += u64::from(is_untimed(text));
                }
                None => {}
            },
        }
        offset += got;
        limits.check(&trace)?;
    }
    let broken = |reason: String| Fault::Broken {
        format: FORMAT,
        offset,
        reason,
    };
    if cut && !trace.events.is_empty() {
        return Err(broken(
            "it ends in the middle of a line, without a line feed".into(),
        ));
    }
    if untimed > 0 {
        return Err(broken(format!("{untimed} lines have {COUNTED}")));
    }
    if garbled > 0 {
        return Err(broken(format!(
            "{garbled} lines of scheduler events cannot be read (trace-cmd report needs -R)"
        )));
    }
    if trace.events.is_empty() {
        return Err(Fault::NoEvents {
            format: FORMAT,
            record: "lines of sched_switch are needed",
        });
    }
    trace.sort();
    threads::name_threads(&mut trace);
    match (wrapped, trace.lost_events) {
        (0, _) => {}
        // Which CPUs have overwritten events is not known.
        (wrapped, 0) => trace.begin_whole(wrapped, |_| true),
        (wrapped, _) => trace.lose(wrapped),
    }
    Ok(trace)
}

/// `entries-in-buffer/entries-written: 130/150`: what was overwritten.
fn overwritten(comment: &str) -> u64 {
    let Some((_, numbers)) = comment.split_once("entries-in-buffer/entries-written:") else {
        return 0;
    };
    let Some((kept, rest)) = numbers.split_once('/') else {
        return 0;
    };
    let number = |text: &str| text.split_whitespace().next()?.parse::<u64>().ok();
    match (number(kept), number(rest)) {
        (Some(kept), Some(written)) => written.saturating_sub(kept),
        _ => 0,
    }
}

/// `CPU:1 [LOST 123 EVENTS]`.
fn lost(text: &str) -> u64 {
    between(text, "[LOST ", " EVENTS")
        .and_then(|n| n.parse().ok())
        .unwrap_or(1)
}

/// `PERF_RECORD_LOST lost 123` or `PERF_RECORD_LOST_SAMPLES lost 123`.
fn lost_of_perf(text: &str) -> u64 {
    let number = text.rsplit(' ').next().and_then(|n| n.parse().ok());
    number.unwrap_or(1)
}

const KNOWN: [&str; 6] = [
    "sched_switch: ",
    "sched_waking: ",
    "sched_wakeup: ",
    "sched_wakeup_new: ",
    "workqueue_queue_work: ",
    "workqueue_execute_start: ",
];

/// Whether the line is of a known event: its name follows ": " or the name of its group.
fn is_known(text: &str) -> bool {
    KNOWN.iter().any(|name| {
        let before = text.split_once(name).map(|(before, _)| before);
        before.is_some_and(|before| {
            before.ends_with(": ")
                || before.ends_with(":sched:")
                || before.ends_with(" sched:")
                || before.ends_with(" workqueue:")
        })
    })
}

/// The event of a line, if it is of a kind that is read.
fn event(trace: &mut Trace, line: &str) -> Option<Event> {
    let head = head(line)?;
    if let Some(process) = head.process.filter(|process| *process > 0) {
        trace.threads.entry(head.pid).or_default().tgid = process;
    }
    let kind = kind(trace, head.event, head.fields)?;
    Some(Event {
        time_ns: seconds(head.time)?,
        cpu: head.cpu,
        pid: head.pid,
        kind,
    })
}

struct Head<'a> {
    pid: i32,
    process: Option<i32>,
    cpu: u32,
    time: &'a str,
    event: &'a str,
    fields: &'a str,
}

fn head(line: &str) -> Option<Head<'_>> {
    // The CPU is the first bracketed number that a time follows.
    line.match_indices('[').find_map(|(at, _)| {
        let (task, rest) = line.split_at(at);
        let (cpu, rest) = rest[1..].split_once(']')?;
        let cpu = cpu.parse().ok()?;
        let (before, rest) = rest.split_once(": ")?;
        let time = before.split_whitespace().next_back()?;
        time.bytes()
            .all(|b| b.is_ascii_digit() || b == b'.')
            .then_some(())?;
        let (event, fields) = rest
            .split_once(": ")
            .unwrap_or((rest.trim_end_matches(':'), ""));
        // perf puts the group before the name.
        let event = event.trim_start();
        let event = event.rsplit_once(':').map_or(event, |(_, name)| name);
        let (pid, process) = thread(task)?;
        Some(Head {
            pid,
            process,
            cpu,
            time,
            event,
            fields,
        })
    })
}

/// The thread, and its process where the line has it: the number after the last dash, which the
/// process in parentheses may follow; with perf the last word, which is `TID` or `PID/TID`.
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

/// Whether the time of a line is a plain number.
fn is_untimed(line: &str) -> bool {
    head(line).is_some_and(|head| !head.time.contains('.'))
}

/// `1234.567891` in nanoseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, part) = text.split_once('.')?;
    if part.is_empty() || part.len() > 9 {
        return None;
    }
    let fraction: u64 = part.parse().ok()?;
    let scale = 10u64.pow(9 - part.len() as u32);
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(1_000_000_000)?
        .checked_add(fraction * scale)
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let start = text.find(before)? + before.len();
    let end = start + text[start..].find(after)?;
    Some(&text[start..end])
}

/// The thread name between a field's key and the last place of the next one.
fn named(text: &str, key: &str, next: &str) -> Option<Comm> {
    let start = text.find(key)? + key.len();
    Some(text[start..].rsplit_once(next)?.0.into())
}

/// The value of `key=`, up to the next space or comma.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut at = 0;
    loop {
        let start = at + text[at..].find(key)?;
        let rest = &text[start + key.len()..];
        if start == 0 || text.as_bytes()[start - 1] == b' ' {
            return rest.split([' ', ',']).next();
        }
        at = start + key.len();
    }
}

fn int<T: std::str::FromStr>(text: &str, key: &str) -> Option<T> {
    value(text, key)?.parse().ok()
}

/// An address, printed with or without its prefix.
fn address(text: &str) -> Option<u64> {
    u64::from_str_radix(text.trim_start_matches("0x"), 16).ok()
}

fn kind(trace: &mut Trace, event: &str, fields: &str) -> Option<Kind> {
    // A thread name may resemble a field: it ends with the last field of that name.
    let after = |name: &str| fields.rfind(name).map(|at| &fields[at..]);
    let comm = || named(fields, "comm=", " pid=");
    Some(match event {
        "sched_switch" => {
            // Longer than a thread name.
            let (prev, next) = fields.split_at(fields.find(" ==> next_comm=")?);
            let prev_tail = &prev[prev.rfind(" prev_pid=")?..];
            let next_tail = &next[next.rfind(" next_pid=")?..];
            Kind::Switch {
                prev_comm: named(prev, "prev_comm=", " prev_pid=")?,
                prev_pid: int(prev_tail, "prev_pid=")?,
                prev_prio: int(prev_tail, "prev_prio=")?,
                prev_state: TaskState::from_text(value(prev_tail, "prev_state=")?),
                next_comm: named(next, "next_comm=", " next_pid=")?,
                next_pid: int(next_tail, "next_pid=")?,
                next_prio: int(next_tail, "next_prio=")?,
            }
        }
        "sched_waking" | "sched_wakeup" | "sched_wakeup_new" => {
            let tail = after(" pid=")?;
            let comm = comm()?;
            let (pid, prio) = (int(tail, "pid=")?, int(tail, "prio=")?);
            let target_cpu = int(tail, "target_cpu=")?;
            match event {
                "sched_waking" => Kind::Waking {
                    pid,
                    comm,
                    prio,
                    target_cpu,
                },
                "sched_wakeup" => Kind::Wakeup {
                    pid,
                    comm,
                    prio,
                    target_cpu,
                },
                _ => Kind::WakeupNew {
                    pid,
                    comm,
                    prio,
                    target_cpu,
                },
            }
        }
        "sched_migrate_task" => {
            let tail = after(" pid=")?;
            Kind::Migrate {
                comm: comm()?,
                pid: int(tail, "pid=")?,
                prio: int(tail, "prio=")?,
                from_cpu: int(tail, "orig_cpu=")?,
                to_cpu: int(tail, "dest_cpu=")?,
            }
        }
        "workqueue_queue_work" => {
            // A work queue's address names nothing; old kernels print that.
            let queue = between(fields, "workqueue=", " req_cpu=")?;
            let queue = (address(queue).is_none() || queue.len() < 8).then_some(queue);
            Kind::WorkQueued {
                work: address(value(fields, "struct=")?)?,
                function: trace.names.intern(value(fields, "function=")?),
                queue: queue.map(|queue| trace.names.intern(queue)),
                cpu: int::<i64>(fields, "cpu=")? as u32,
            }
        }
        "workqueue_execute_start" | "sched_kthread_work_execute_start" => {
            let (work, function) = execute(fields)?;
            let function = trace.names.intern(function?);
            if event.starts_with("work") {
                Kind::WorkStart { work, function }
            } else {
                Kind::KthreadWorkStart { work, function }
            }
        }
        "workqueue_execute_end" | "sched_kthread_work_execute_end" => {
            let (work, function) = execute(fields)?;
            let function = function.map(|function| trace.names.intern(function));
            if event.starts_with("work") {
                Kind::WorkEnd { work, function }
            } else {
                Kind::KthreadWorkEnd { work, function }
            }
        }
        "sched_kthread_work_queue_work" => Kind::KthreadWorkQueued {
            work: address(value(fields, "struct=")?)?,
            function: trace.names.intern(value(fields, "function=")?),
            worker: address(value(fields, "worker=")?)?,
        },
        "sched_process_fork" => {
            let (parent, child) = fields.split_at(fields.rfind(" child_comm=")?);
            Kind::Fork {
                parent_comm: named(parent, "comm=", " pid=")?,
                parent_pid: int(&parent[parent.rfind(" pid=")?..], "pid=")?,
                child_comm: named(child, "child_comm=", " child_pid=")?,
                child_pid: int(&child[child.rfind(" child_pid=")?..], "child_pid=")?,
            }
        }
        "sched_process_exec" => Kind::Exec {
            filename: trace.names.intern(between(fields, "filename=", " pid=")?),
            pid: int(after(" pid=")?, "pid=")?,
            old_pid: int(fields, "old_pid=")?,
        },
        "sched_process_exit" => Kind::Exit {
            comm: comm()?,
            pid: int(after(" pid=")?, "pid=")?,
            prio: int(after(" prio=")?, "prio=")?,
        },
        "task_rename" => Kind::Rename {
            pid: int(fields, "pid=")?,
            comm: between(fields, "newcomm=", " oom_score_adj=")?.into(),
        },
        _ => return None,
    })
}

/// `work struct 00000000abcdef: function NAME`; older kernels end after the address.
fn execute(fields: &str) -> Option<(u64, Option<&str>)> {
    let rest = fields.strip_prefix("work struct ")?;
    match rest.split_once(": function ") {
        Some((work, function)) => Some((address(work)?, Some(function.split(' ').next()?))),
        None => Some((address(rest.trim())?, None)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::latency::analyse;

    const SAMPLE: &str = "\
# tracer: nop
#
# entries-in-buffer/entries-written: 7/9   #P:2
#
#           TASK-PID     CPU#  |||||  TIMESTAMP  FUNCTION
#              | |         |   |||||     |         |
     my [1] prog-77      [000] d..2.  100.000100: workqueue_queue_work: work struct=00000000deadbeef function=do_it workqueue=my wq req_cpu=8192 cpu=0
     my [1] prog-77      ( 70) [000] d..2.  100.000101: sched_waking: comm=kworker/0:1 pid=9 prio=120 target_cpu=000
 my [1] prog-77      [000] d..2.  100.000110: sched_switch: prev_comm=my [1] prog prev_pid=77 prev_prio=120 prev_state=R+ ==> next_comm=kworker/0:1 next_pid=9 next_prio=120
     kworker/0:1-9       [000] ...1.  100.000111: workqueue_execute_start: work struct 00000000deadbeef: function do_it
     kworker/0:1-9       [000] ...1.  100.000115: workqueue_execute_end: work struct 00000000deadbeef: function do_it
CPU:1 [LOST 4 EVENTS]
     kworker/0:1-9       [000] d..2.  100.000120: sched_switch: prev_comm=kworker/0:1 prev_pid=9 prev_prio=120 prev_state=I ==> next_comm=my [1] prog next_pid=77 next_prio=120
          <idle>-0       [001] d..1.  100.000130: some_other_event: whatever
";

    fn parse(text: &str) -> Result<Trace, Fault> {
        read(text.as_bytes(), Limits::new(&Default::default()))
    }

    #[test]
    fn names_with_spaces_and_brackets_are_read() {
        let trace = parse(SAMPLE).unwrap();
        assert_eq!(trace.events.len(), 6);
        assert_eq!(trace.lost_events, 2 + 4);
        assert_eq!(trace.threads[&77].tgid, 70);
        let report = analyse(&trace);
        let waits: Vec<_> = report
            .waits
            .iter()
            .map(|w| (w.pid, w.length_ns()))
            .collect();
        assert_eq!(waits, [(9, 9_000), (77, 10_000)]);
        let group = &report.workqueues(&Default::default())[0];
        assert_eq!(report.names.get(group.workqueue.unwrap()), "my wq");
        assert_eq!(report.names.get(group.function), "do_it");
        assert_eq!(group.queue_delay.total, 11.0);
    }

    #[test]
    fn names_that_resemble_fields_are_read_whole() {
        let trace = parse(
            "x-5 [000] d..2. 1.000001: sched_waking: comm=a pid=1 prio=2 pid=9 prio=120 target_cpu=000\n\
             x-5 [000] d..2. 1.000002: sched_switch: prev_comm=x prev_pid=3 ==> prev_pid=5 prev_prio=120 \
             prev_state=S ==> next_comm=a pid=1 prio=2 next_pid=9 next_prio=120\n\
             a-9 [000] d..2. 1.000003: sched_process_exit: comm=a pid=1 prio=2 pid=9 prio=98\n",
        )
        .unwrap();
        let Kind::Waking {
            pid, comm, prio, ..
        } = trace.events[0].kind
        else {
            panic!("{:?}", trace.events[0]);
        };
        assert_eq!((pid, comm, prio), (9, "a pid=1 prio=2".into(), 120));
        let Kind::Switch {
            prev_pid,
            prev_comm,
            next_pid,
            next_comm,
            ..
        } = trace.events[1].kind
        else {
            panic!("{:?}", trace.events[1]);
        };
        assert_eq!((prev_pid, prev_comm), (5, "x prev_pid=3 ==>".into()));
        assert_eq!((next_pid, next_comm), (9, "a pid=1 prio=2".into()));
        let Kind::Exit { pid, prio, .. } = trace.events[2].kind else {
            panic!("{:?}", trace.events[2]);
        };
        assert_eq!((pid, prio), (9, 98));
    }

    #[test]
    fn a_wrapped_ring_counts_from_where_all_cpus_have_events() {
        let line =
            |cpu: u32, us: u32, fields: &str| format!("x-5 [00{cpu}] d..2. 1.{us:06}: {fields}\n");
        let waking = "sched_waking: comm=b pid=9 prio=120 target_cpu=000";
        let switch = "sched_switch: prev_comm=x prev_pid=5 prev_prio=120 prev_state=S ==> \
                      next_comm=b next_pid=9 next_prio=120";
        let rest = [
            line(0, 10, waking),
            line(1, 20, waking),
            line(0, 30, switch),
        ]
        .concat();
        let head = "# entries-in-buffer/entries-written: 3/9   #P:2\n";
        let trace = parse(&format!("{head}{rest}")).unwrap();
        assert_eq!((trace.events.len(), trace.lost_events), (2, 0));
        let report = analyse(&trace);
        assert!(report.is_valid());
        assert_eq!(
            report.waits[0].length_ns(),
            10_000,
            "from the waking that is left"
        );
        let notice = trace.notices[0].to_string();
        assert!(
            notice.contains("overwrote 6 older events: figures begin at 1.000020 s"),
            "{notice}"
        );
        // Events are missing in the middle as well.
        let lost = parse(&format!("{head}CPU:1 [LOST EVENTS]\n{rest}")).unwrap();
        assert_eq!((lost.events.len(), lost.lost_events), (3, 7));
    }

    #[test]
    fn the_text_of_perf_script_is_read() {
        let trace = parse(
            "my prog  1230/77  [000]   100.000100101:             sched:sched_waking: comm=kworker/0:1 pid=9 prio=120 target_cpu=000\n\
             swapper     0/0     [000]   100.000110101:             sched:sched_switch: prev_comm=swapper/0 prev_pid=0 prev_prio=120 prev_state=R ==> next_comm=kworker/0:1 next_pid=9 next_prio=120\n\
             kworker/0:1-ev     9 [000]   100.000111000: workqueue:workqueue_execute_start: work struct 0xffff88: function do_it\n\
             swapper     0/0     [001]   100.000112000: PERF_RECORD_LOST lost 12\n",
        )
        .unwrap();
        let pids: Vec<i32> = trace.events.iter().map(|event| event.pid).collect();
        assert_eq!((pids, trace.lost_events), (vec![77, 0, 9], 12));
        assert_eq!(trace.threads[&77].tgid, 1230);
        assert_eq!(analyse(&trace).waits[0].length_ns(), 10_000);
    }

    #[test]
    fn time_stamps_that_are_no_time_are_refused_with_the_remedy() {
        let line =
            "a-1 [000] d..2. 345678901234: sched_waking: comm=b pid=9 prio=120 target_cpu=000\n";
        let Err(Fault::Broken { reason, .. }) = parse(line) else {
            panic!("read as nanoseconds");
        };
        assert!(
            reason.starts_with("1 lines have") && reason.contains("-C mono"),
            "{reason}"
        );
    }

    #[test]
    fn the_short_form_of_trace_cmd_is_refused_with_its_option() {
        let line = "a-1 [000] 100.000001: sched_switch: a:1 [120] S ==> swapper/0:0 [120]\n";
        let Err(Fault::Broken { reason, .. }) = parse(line) else {
            panic!("read");
        };
        assert!(reason.contains("-R"), "{reason}");
    }

    #[test]
    fn text_without_events_or_with_cut_ones_is_an_error() {
        assert!(parse("# tracer: nop\n#\n").is_err());
        let cut = &SAMPLE[..SAMPLE.find("next_pid=9").unwrap()];
        assert!(parse(cut).is_err());
    }

    #[test]
    fn any_cut_never_panics() {
        for end in 0..SAMPLE.len() {
            let _ = parse(&SAMPLE[..end]);
        }
    }

    #[test]
    fn times_of_any_precision_become_nanoseconds() {
        assert_eq!(seconds("1.5"), Some(1_500_000_000));
        assert_eq!(seconds("12.000000001"), Some(12_000_000_001));
        assert_eq!(seconds("77"), None);
        assert_eq!(seconds("1.x"), None);
    }
}
