//! Builds events from their values, and values from events.

use super::{ABSENT, Value, Values, What};
use crate::ftrace::symbols::Addresses;
use crate::{Comm, Interrupt, Kind, Name, Names, Task, TaskState, Wake};
use std::collections::HashMap;

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

    /// The name of the function that contains a location: "ext4_readpage" for
    /// "ext4_readpage+0x1c/0x40". Tables of functions do not list such locations.
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
        Some(self.names.intern(text.split('+').next()?))
    }
}

/// A type of the fields of events: how it is read from a value, and written as one.
trait Field: Sized {
    /// `None` if the value is missing.
    fn read(value: Value<'_>, naming: &mut Naming<'_>) -> Option<Self>;
    fn value(&self) -> Value<'_>;
}

macro_rules! numbers {
    ($($type:ty: $read:expr, $value:expr;)*) => {$(
        impl Field for $type {
            fn read(value: Value<'_>, _: &mut Naming<'_>) -> Option<Self> {
                let Value::Number(number) = value else { return None };
                Some($read(number))
            }

            fn value(&self) -> Value<'_> {
                Value::Number($value(*self))
            }
        }
    )*};
}

numbers! {
    u64: (|number| number), (|number| number);
    u32: (|number| number as u32), u64::from;
    i32: (|number| number as i32), (|number| i64::from(number) as u64);
    bool: (|number| number != 0), u64::from;
}

impl Field for Comm {
    fn read(value: Value<'_>, _: &mut Naming<'_>) -> Option<Self> {
        match value {
            Value::Text(text) => Some(Self::new(text)),
            _ => None,
        }
    }

    fn value(&self) -> Value<'_> {
        Value::Text(self.as_bytes())
    }
}

impl Field for TaskState {
    fn read(value: Value<'_>, _: &mut Naming<'_>) -> Option<Self> {
        match value {
            Value::Number(bits) => Some(Self::from_bits(bits)),
            Value::Text(text) => Some(Self::from_text(&String::from_utf8_lossy(text))),
            _ => None,
        }
    }

    fn value(&self) -> Value<'_> {
        Value::Number(self.0.into())
    }
}

impl Field for Name {
    fn read(value: Value<'_>, naming: &mut Naming<'_>) -> Option<Self> {
        naming.name(value)
    }

    fn value(&self) -> Value<'_> {
        Value::Name(*self)
    }
}

impl Field for Option<Name> {
    fn read(value: Value<'_>, naming: &mut Naming<'_>) -> Option<Self> {
        Some(naming.name(value))
    }

    fn value(&self) -> Value<'_> {
        self.map_or(Value::Absent, Value::Name)
    }
}

/// Each type of event with its values, and the event made of them.
macro_rules! events {
    ($($what:ident($($field:ident),*) $kind:ident { $($event:tt)* })*) => {
        fn event(what: What, values: Values<'_>, naming: &mut Naming<'_>) -> Option<Kind> {
            let mut values = values.into_iter();
            Some(match what {$(
                What::$what => {
                    $(let $field = Field::read(values.next()?, naming)?;)*
                    Kind::$kind { $($event)* }
                }
            )*})
        }

        fn fields(kind: &Kind) -> (What, Values<'_>) {
            let mut values = ABSENT;
            let mut next = values.iter_mut();
            let mut put = |given| {
                if let Some(value) = next.next() {
                    *value = given;
                }
            };
            let what = match kind {$(
                Kind::$kind { $($event)* } => {
                    $(put($field.value());)*
                    What::$what
                }
            )*};
            (what, values)
        }
    };
}

events! {
    Switch(comm, pid, prio, prev_state, next_comm, next_pid, next_prio) Switch {
        prev: Task { comm, pid, prio },
        prev_state,
        next: Task { comm: next_comm, pid: next_pid, prio: next_prio },
    }
    Waking(comm, pid, prio, target_cpu) Wake {
        wake: Wake::Begins, task: Task { comm, pid, prio }, target_cpu,
    }
    Wakeup(comm, pid, prio, target_cpu) Wake {
        wake: Wake::Done, task: Task { comm, pid, prio }, target_cpu,
    }
    WakeupNew(comm, pid, prio, target_cpu) Wake {
        wake: Wake::New, task: Task { comm, pid, prio }, target_cpu,
    }
    Migrate(comm, pid, prio, from_cpu, to_cpu) Migrate {
        task: Task { comm, pid, prio }, from_cpu, to_cpu,
    }
    WorkQueued(work, function, queue) WorkQueued { work, function, queue, kthread: false }
    WorkStart(work, function) WorkStart { work, function, kthread: false }
    WorkEnd(work, function) WorkEnd { work, function, kthread: false }
    KthreadQueued(work, function, queue) WorkQueued { work, function, queue, kthread: true }
    KthreadStart(work, function) WorkStart { work, function, kthread: true }
    KthreadEnd(work, function) WorkEnd { work, function, kthread: true }
    Fork(parent_comm, parent_pid, child_comm, child_pid) Fork {
        parent_comm, parent_pid, child_comm, child_pid,
    }
    Exec(filename, pid, old_pid) Exec { filename, pid, old_pid }
    Exit(comm, pid, prio) Exit { task: Task { comm, pid, prio } }
    NewTask(pid, comm, flags) NewTask { pid, comm, flags }
    Rename(pid, comm) Rename { pid, comm }
    FuseSent(connection, unique, opcode) FuseSent { connection, unique, opcode }
    FuseDone(connection, unique) FuseDone { connection, unique }
    RequestDone(device) BlockDone { device, request: true }
    BioDone(device) BlockDone { device, request: false }
    HandlerBegin(irq, name) Interrupt {
        source: Interrupt::Handler { irq, name }, begins: true,
    }
    HandlerEnd(irq, name) Interrupt {
        source: Interrupt::Handler { irq, name }, begins: false,
    }
    SoftirqBegin(vector) Interrupt { source: Interrupt::Softirq(vector), begins: true }
    SoftirqEnd(vector) Interrupt { source: Interrupt::Softirq(vector), begins: false }
    SleptIn(pid, io_wait, caller) SleptIn { pid, io_wait, caller }
}

/// The values that hold a thread's old and new name.
const RENAMED: std::ops::Range<usize> = 1..3;

/// The event with these values, written by the thread `pid`; `None` if a value is missing.
pub(crate) fn kind(
    what: What,
    values: &Values<'_>,
    pid: i32,
    naming: &mut Naming<'_>,
) -> Option<Kind> {
    let mut values = *values;
    match what {
        What::SleptIn => values[2] = Value::Name(naming.place(values[2])?),
        What::Rename => {
            // The old name is not read.
            values[RENAMED].rotate_left(1);
            if !matches!(values[0], Value::Number(_)) {
                values[0] = Value::Number(pid as u64);
            }
        }
        _ => {}
    }
    event(what, values, naming)
}

/// The type of an event and the values of its fields.
pub(crate) fn values(kind: &Kind) -> (What, Values<'_>) {
    let (what, mut values) = fields(kind);
    if what == What::Rename {
        values[RENAMED].rotate_right(1);
    }
    (what, values)
}
