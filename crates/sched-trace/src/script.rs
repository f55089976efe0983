//! Traces for tests: events `MICROSECOND CPU PID WHAT...`, separated by semicolons.
//!
//! `10 0 1 S 7` is a switch from 1, which sleeps, to 7; `10 0 1 waking 7` is a wake-up of 7 by 1.
//! Work items are `queue ADDRESS FUNCTION [QUEUE]`, `start ADDRESS FUNCTION`, `end ADDRESS
//! FUNCTION`, and for kthread_workers `kqueue` and `kstart`. Interrupts are `irq NUMBER [NAME]`,
//! `irqend NUMBER`, `softirq VECTOR` and `softirqend VECTOR`.

use crate::{Comm, Event, Interrupt, Kind, Task, TaskState, Trace, Wake};

/// A trace of these events, ordered by time.
pub(crate) fn trace(text: &str) -> Trace {
    let mut trace = Trace::new("mono");
    for line in text.split(';').filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        let kind = kind(&mut trace, number(2) as i32, &words[3..]);
        trace.events.push(Event {
            time_ns: number(0) * 1000,
            cpu: number(1) as u32,
            pid: number(2) as i32,
            kind: kind.unwrap_or_else(|| panic!("{line}")),
        });
    }
    trace.sort();
    trace
}

fn kind(trace: &mut Trace, pid: i32, words: &[&str]) -> Option<Kind> {
    let number = |at: usize| words.get(at)?.parse::<u64>().ok();
    let wake = |wake| {
        Some(Kind::Wake {
            wake,
            task: task(number(1)? as i32),
            target_cpu: number(2).unwrap_or(0) as u32,
        })
    };
    let mut name = |at: usize| words.get(at).map(|word| trace.names.intern(word));
    let (work, kthread) = (number(1), words[0].starts_with('k'));
    Some(match words[0] {
        "waking" => return wake(Wake::Begins),
        "wakeup" => return wake(Wake::Done),
        "new" => return wake(Wake::New),
        "queue" | "kqueue" => Kind::WorkQueued {
            work: work?,
            function: name(2)?,
            queue: name(3),
            kthread,
        },
        "start" | "kstart" => Kind::WorkStart {
            work: work?,
            function: name(2)?,
            kthread,
        },
        "end" => Kind::WorkEnd {
            work: work?,
            function: name(2),
            kthread,
        },
        "migrate" => Kind::Migrate {
            task: task(number(1)? as i32),
            from_cpu: number(2)? as u32,
            to_cpu: number(3)? as u32,
        },
        "thread" => Kind::NewTask {
            pid: number(1)? as i32,
            comm: task(number(1)? as i32).comm,
            flags: 0x10000,
        },
        "irq" | "irqend" => Kind::Interrupt {
            source: Interrupt::Handler {
                irq: number(1)? as i32,
                name: name(2),
            },
            begins: words[0] == "irq",
        },
        "softirq" | "softirqend" => Kind::Interrupt {
            source: Interrupt::Softirq(number(1)? as u32),
            begins: words[0] == "softirq",
        },
        "sleptin" => Kind::SleptIn {
            pid: number(1)? as i32,
            caller: name(2)?,
            io_wait: number(3) == Some(1),
        },
        "asks" => Kind::FuseSent {
            connection: 44,
            unique: 2,
            opcode: number(1)? as u32,
        },
        state => Kind::Switch {
            prev: task(pid),
            prev_state: TaskState::from_text(state),
            next: task(number(1)? as i32),
        },
    })
}

/// A thread of normal priority, named after its pid; 9 is a kworker.
pub(crate) fn task(pid: i32) -> Task {
    Task {
        comm: match pid {
            0 => "swapper/0".into(),
            9 => "kworker/9".into(),
            pid => Comm::new(format!("t{pid}").as_bytes()),
        },
        pid,
        prio: 120,
    }
}

/// Gives a thread another name and priority.
pub(crate) fn rename(trace: &mut Trace, pid: i32, name: &str, prio: i32) {
    let task = Task {
        comm: name.into(),
        pid,
        prio,
    };
    for event in &mut trace.events {
        match &mut event.kind {
            Kind::Switch { prev, next, .. } => {
                for of in [prev, next] {
                    *of = if of.pid == pid { task } else { *of };
                }
            }
            Kind::Wake { task: of, .. } if of.pid == pid => *of = task,
            _ => {}
        }
    }
}
