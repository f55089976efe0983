//! Builds events from their values, and values from events.

use super::{ABSENT, Value, Values, What};
use crate::ftrace::symbols::Addresses;
use crate::{Comm, Interrupt, Kind, Name, Names, Task, TaskState, Wake};
use std::collections::HashMap;

impl Value<'_> {
    fn number(self) -> Option<u64> {
        match self {
            Self::Number(number) => Some(number),
            _ => None,
        }
    }

    fn int(self) -> Option<i32> {
        self.number().map(|number| number as i32)
    }

    fn comm(self) -> Option<Comm> {
        match self {
            Self::Text(text) => Some(Comm::new(text)),
            _ => None,
        }
    }

    fn state(self) -> Option<TaskState> {
        match self {
            Self::Number(bits) => Some(TaskState::from_bits(bits)),
            Self::Text(text) => Some(TaskState::from_text(&String::from_utf8_lossy(text))),
            _ => None,
        }
    }
}

/// Names the objects that events refer to.
pub(crate) struct Naming<'a> {
    pub names: &'a mut Names,
    /// Symbols by their interning IDs in a Perfetto trace.
    pub symbols: &'a HashMap<u64, Name>,
    /// Functions that appear as addresses.
    pub addresses: &'a mut Addresses,
}

impl Naming<'_> {
    fn name(&mut self, value: Value<'_>) -> Option<Name> {
        match value {
            Value::Absent => None,
            Value::Name(name) => Some(name),
            Value::Text(text) => {
                let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
                Some(self.names.intern(&String::from_utf8_lossy(&text[..end])))
            }
            Value::Number(number) => match self.symbols.get(&number) {
                Some(name) => Some(*name),
                None => Some(self.addresses.name(self.names, number)),
            },
        }
    }
}

/// The function in a kernel location: "ext4_readpage" in "ext4_readpage+0x1c/0x40".
fn function_of(place: &str) -> &str {
    place.split('+').next().unwrap_or(place)
}

impl Naming<'_> {
    /// The name of the function that contains a location. Tables of functions do not list such
    /// locations.
    fn place(&mut self, value: Value<'_>) -> Option<Name> {
        let text = match value {
            Value::Number(number) => match self.symbols.get(&number) {
                Some(name) => self.names.get(*name).to_owned(),
                None => format!("{number:#x}"),
            },
            other => {
                let name = self.name(other)?;
                self.names.get(name).to_owned()
            }
        };
        Some(self.names.intern(function_of(&text)))
    }
}

/// The event with these values, written by the thread `pid`; `None` if a value is missing.
pub(crate) fn kind(
    what: What,
    values: &Values<'_>,
    pid: i32,
    naming: &mut Naming<'_>,
) -> Option<Kind> {
    let [a, b, c, d, e, ..] = *values;
    let task = |at: usize| {
        Some(Task {
            comm: values[at].comm()?,
            pid: values[at + 1].int()?,
            prio: values[at + 2].int()?,
        })
    };
    let wake = |wake| {
        Some(Kind::Wake {
            wake,
            task: task(0)?,
            target_cpu: d.int()? as u32,
        })
    };
    Some(match what {
        What::Switch => Kind::Switch {
            prev: task(0)?,
            prev_state: d.state()?,
            next: task(4)?,
        },
        What::Waking => wake(Wake::Begins)?,
        What::Wakeup => wake(Wake::Done)?,
        What::WakeupNew => wake(Wake::New)?,
        What::Migrate => Kind::Migrate {
            task: task(0)?,
            from_cpu: d.int()? as u32,
            to_cpu: e.int()? as u32,
        },
        What::WorkQueued | What::KthreadQueued => Kind::WorkQueued {
            work: a.number()?,
            function: naming.name(b)?,
            queue: naming.name(c),
            kthread: what == What::KthreadQueued,
        },
        What::WorkStart | What::KthreadStart => Kind::WorkStart {
            work: a.number()?,
            function: naming.name(b)?,
            kthread: what == What::KthreadStart,
        },
        What::WorkEnd | What::KthreadEnd => Kind::WorkEnd {
            work: a.number()?,
            function: naming.name(b),
            kthread: what == What::KthreadEnd,
        },
        What::Fork => Kind::Fork {
            parent_comm: a.comm()?,
            parent_pid: b.int()?,
            child_comm: c.comm()?,
            child_pid: d.int()?,
        },
        What::Exec => Kind::Exec {
            filename: naming.name(a)?,
            pid: b.int()?,
            old_pid: c.int()?,
        },
        What::Exit => Kind::Exit { task: task(0)? },
        What::NewTask => Kind::NewTask {
            pid: a.int()?,
            comm: b.comm()?,
            flags: c.number()?,
        },
        What::Rename => Kind::Rename {
            pid: a.int().unwrap_or(pid),
            comm: c.comm()?,
        },
        What::FuseSent => Kind::FuseSent {
            connection: a.int()? as u32,
            unique: b.number()?,
            opcode: c.int()? as u32,
        },
        What::FuseDone => Kind::FuseDone {
            connection: a.int()? as u32,
            unique: b.number()?,
        },
        What::HandlerBegin | What::HandlerEnd => Kind::Interrupt {
            source: Interrupt::Handler {
                irq: a.int()?,
                name: naming.name(b),
            },
            begins: what == What::HandlerBegin,
        },
        What::SoftirqBegin | What::SoftirqEnd => Kind::Interrupt {
            source: Interrupt::Softirq(a.int()? as u32),
            begins: what == What::SoftirqBegin,
        },
        What::SleptIn => Kind::SleptIn {
            pid: a.int()?,
            io_wait: b.number()? != 0,
            caller: naming.place(c)?,
        },
        What::RequestDone | What::BioDone => Kind::BlockDone {
            device: a.int()? as u32,
            request: what == What::RequestDone,
        },
    })
}

/// The type of an event and the values of its fields.
pub(crate) fn values(kind: &Kind) -> (What, Values<'_>) {
    let either = |no, yes, which: &bool| if *which { yes } else { no };
    match kind {
        Kind::Switch {
            prev: p,
            prev_state,
            next: n,
        } => {
            let ([a, b, c], [e, f, g]) = (task(p), task(n));
            (What::Switch, [a, b, c, of(prev_state.0), e, f, g])
        }
        Kind::Wake {
            wake,
            task: t,
            target_cpu,
        } => {
            let what = match wake {
                Wake::Begins => What::Waking,
                Wake::Done => What::Wakeup,
                Wake::New => What::WakeupNew,
            };
            with(what, &task(t), &[of(*target_cpu)])
        }
        Kind::Migrate {
            task: t,
            from_cpu,
            to_cpu,
        } => with(What::Migrate, &task(t), &[of(*from_cpu), of(*to_cpu)]),
        Kind::WorkQueued {
            work: w,
            function,
            queue,
            kthread,
        } => {
            let what = either(What::WorkQueued, What::KthreadQueued, kthread);
            with(what, &[of(*w), Value::Name(*function), name(queue)], &[])
        }
        Kind::WorkStart {
            work: w,
            function,
            kthread,
        } => {
            let what = either(What::WorkStart, What::KthreadStart, kthread);
            with(what, &[of(*w), Value::Name(*function)], &[])
        }
        Kind::WorkEnd {
            work: w,
            function,
            kthread,
        } => {
            let what = either(What::WorkEnd, What::KthreadEnd, kthread);
            with(what, &[of(*w), name(function)], &[])
        }
        Kind::Fork {
            parent_comm,
            parent_pid,
            child_comm,
            child_pid,
        } => {
            let parent = [text_of(parent_comm), int(*parent_pid)];
            with(What::Fork, &parent, &[text_of(child_comm), int(*child_pid)])
        }
        Kind::Exec {
            filename,
            pid,
            old_pid,
        } => {
            let pids = [int(*pid), int(*old_pid)];
            with(What::Exec, &[Value::Name(*filename)], &pids)
        }
        Kind::Exit { task: t } => with(What::Exit, &task(t), &[]),
        Kind::NewTask { pid, comm, flags } => {
            with(What::NewTask, &[int(*pid), text_of(comm), of(*flags)], &[])
        }
        Kind::Rename { pid, comm } => with(
            What::Rename,
            &[int(*pid), Value::Absent, text_of(comm)],
            &[],
        ),
        Kind::FuseSent {
            connection,
            unique,
            opcode,
        } => {
            let numbers = [of(*connection), of(*unique), of(*opcode)];
            with(What::FuseSent, &numbers, &[])
        }
        Kind::FuseDone { connection, unique } => {
            with(What::FuseDone, &[of(*connection), of(*unique)], &[])
        }
        Kind::Interrupt { source, begins } => match source {
            Interrupt::Handler { irq, name: of } => {
                let what = either(What::HandlerEnd, What::HandlerBegin, begins);
                with(what, &[int(*irq), name(of)], &[])
            }
            Interrupt::Softirq(vector) => {
                let what = either(What::SoftirqEnd, What::SoftirqBegin, begins);
                with(what, &[of(*vector)], &[])
            }
        },
        Kind::SleptIn {
            pid,
            caller,
            io_wait,
        } => {
            let values = [int(*pid), of(*io_wait), Value::Name(*caller)];
            with(What::SleptIn, &values, &[])
        }
        Kind::BlockDone { device, request } => {
            let what = either(What::BioDone, What::RequestDone, request);
            with(what, &[of(*device)], &[])
        }
    }
}

/// The type of an event with its values; missing ones are absent.
fn with<'a>(what: What, first: &[Value<'a>], then: &[Value<'a>]) -> (What, Values<'a>) {
    let mut values = ABSENT;
    for (value, given) in values.iter_mut().zip(first.iter().chain(then)) {
        *value = *given;
    }
    (what, values)
}

fn task(task: &Task) -> [Value<'_>; 3] {
    [text_of(&task.comm), int(task.pid), int(task.prio)]
}

fn text_of(comm: &Comm) -> Value<'_> {
    Value::Text(comm.as_bytes())
}

fn int(number: i32) -> Value<'static> {
    Value::Number(i64::from(number) as u64)
}

fn of(number: impl Into<u64>) -> Value<'static> {
    Value::Number(number.into())
}

fn name(name: &Option<Name>) -> Value<'static> {
    name.map_or(Value::Absent, Value::Name)
}
