//! Reads ftrace bundles: the events of one CPU.

use super::compact;
use super::sink::Sink;
use super::symbols::Symbols;
use super::wire::{Cut, Stop, Value, fields, try_fields};
use crate::ftrace::symbols::Addresses;
use crate::{Comm, Event, Kind, Name, TaskState, Trace, UNKNOWN_PID};

/// Reads bundles into a trace.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    /// Functions that appear as addresses, because the trace was recorded without symbols.
    pub addresses: Addresses,
    /// Bundles that report lost events before them.
    pub lossy: u64,
    /// Bundles that hold an error of the recorder's parser.
    pub faulty: u64,
}

impl Bundles {
    /// Adds the events of a bundle.
    pub fn read(&mut self, mut sink: Sink<'_>, bundle: &[u8]) -> Result<(), Stop> {
        let mut cpu = 0;
        // The CPU may follow the events.
        fields(bundle, |tag, value| match tag {
            1 => cpu = value.number() as u32,
            3 => self.lossy += u64::from(value.number() != 0),
            8 => self.faulty += 1,
            _ => {}
        })?;
        try_fields(bundle, |tag, value| match tag {
            2 => self.event(&mut sink, cpu, value.bytes()),
            4 => compact::read(&mut sink, cpu, value.bytes()),
            _ => Ok(()),
        })
    }

    fn event(&mut self, sink: &mut Sink<'_>, cpu: u32, message: &[u8]) -> Result<(), Stop> {
        let (mut time_ns, mut pid, mut inner) = (0, UNKNOWN_PID, None);
        fields(message, |tag, value| match (tag, value) {
            (1, Value::Number(time)) => time_ns = time,
            (2, Value::Number(number)) => pid = number as i32,
            (_, Value::Bytes(bytes)) => inner = Some((tag, bytes)),
            _ => {}
        })?;
        let Some((tag, body)) = inner else {
            return Ok(());
        };
        let mut names = Naming {
            trace: &mut *sink.trace,
            symbols: sink.symbols,
            addresses: &mut self.addresses,
        };
        if let Some(kind) = kind(&mut names, tag, body)? {
            sink.trace.events.push(Event {
                time_ns,
                cpu,
                pid,
                kind,
            });
        }
        Ok(sink.limits.check(sink.trace)?)
    }
}

/// Resolves the function fields of events.
struct Naming<'a> {
    trace: &'a mut Trace,
    symbols: &'a Symbols,
    addresses: &'a mut Addresses,
}

impl Naming<'_> {
    /// A function field holds an interning id where symbols were recorded, otherwise an address.
    fn function(&mut self, value: u64) -> Name {
        match self.symbols.get(&value) {
            Some(name) => *name,
            None => self.addresses.name(&mut self.trace.names, value),
        }
    }

    fn text(&mut self, bytes: &[u8]) -> Name {
        self.trace.names.intern(&String::from_utf8_lossy(bytes))
    }
}

/// The numbers and strings of a small message by field number.
#[derive(Default)]
struct Body<'a> {
    numbers: [u64; 8],
    texts: [&'a [u8]; 8],
}

impl<'a> Body<'a> {
    fn read(message: &'a [u8]) -> Result<Self, Cut> {
        let mut body = Self::default();
        fields(message, |tag, value| {
            let tag = tag as usize;
            match value {
                Value::Number(number) if tag < 8 => body.numbers[tag] = number,
                Value::Bytes(bytes) if tag < 8 => body.texts[tag] = bytes,
                _ => {}
            }
        })?;
        Ok(body)
    }

    fn int(&self, tag: usize) -> i32 {
        self.numbers[tag] as i32
    }

    fn comm(&self, tag: usize) -> Comm {
        Comm::new(self.texts[tag])
    }
}

/// Decodes the message of an event; `None` for kinds that are not read.
fn kind(names: &mut Naming<'_>, tag: u32, message: &[u8]) -> Result<Option<Kind>, Cut> {
    if !matches!(tag, 4 | 17 | 20 | 57..=59 | 114 | 235..=239 | 327 | 491) {
        return Ok(None);
    }
    if tag == 327 {
        return generic(names, message);
    }
    let body = Body::read(message)?;
    let (comm, pid, prio, target_cpu) = (
        body.comm(1),
        body.int(2),
        body.int(3),
        body.numbers[5] as u32,
    );
    let (work, function) = (body.numbers[1], body.numbers[2]);
    Ok(Some(match tag {
        4 => Kind::Switch {
            prev_comm: comm,
            prev_pid: pid,
            prev_prio: prio,
            prev_state: TaskState::from_bits(body.numbers[4]),
            next_comm: body.comm(5),
            next_pid: body.int(6),
            next_prio: body.int(7),
        },
        17 => Kind::Wakeup {
            pid,
            comm,
            prio,
            target_cpu,
        },
        20 => Kind::Waking {
            pid,
            comm,
            prio,
            target_cpu,
        },
        114 => Kind::WakeupNew {
            pid,
            comm,
            prio,
            target_cpu,
        },
        57 => {
            let function = (function != 0).then(|| names.function(function));
            Kind::WorkEnd { work, function }
        }
        58 => Kind::WorkStart {
            work,
            function: names.function(function),
        },
        59 => {
            // Field 3 was a string for a while; 6 is what newer recorders write.
            let queue = [body.texts[6], body.texts[3]]
                .into_iter()
                .find(|text| !text.is_empty());
            Kind::WorkQueued {
                work,
                function: names.function(function),
                queue: queue.map(|queue| names.text(queue)),
                cpu: target_cpu,
            }
        }
        236 => Kind::Rename {
            pid: body.int(1),
            comm: body.comm(3),
        },
        237 => Kind::Exec {
            filename: names.text(body.texts[1]),
            pid,
            old_pid: prio,
        },
        238 => Kind::Exit {
            comm,
            pid,
            prio: body.int(4),
        },
        239 => Kind::Fork {
            parent_comm: comm,
            parent_pid: pid,
            child_comm: body.comm(3),
            child_pid: body.int(4),
        },
        491 => Kind::Migrate {
            comm,
            pid,
            prio,
            from_cpu: body.numbers[4] as u32,
            to_cpu: target_cpu,
        },
        _ => return Ok(None),
    }))
}

/// The fields of a `GenericFtraceEvent` that are read.
#[derive(Default)]
struct Generic<'a> {
    event: &'a [u8],
    work: u64,
    worker: u64,
    function: Option<Name>,
    connection: u64,
    unique: u64,
    opcode: u64,
}

/// Decodes a `GenericFtraceEvent`: the name of the event, and named fields.
fn generic(names: &mut Naming<'_>, message: &[u8]) -> Result<Option<Kind>, Cut> {
    let mut found = Generic::default();
    try_fields(message, |tag, value| {
        match tag {
            1 => found.event = value.bytes(),
            2 => generic_field(names, &mut found, value.bytes())?,
            _ => {}
        }
        Ok::<(), Cut>(())
    })?;
    let Generic {
        event,
        work,
        worker,
        function,
        ..
    } = found;
    Ok(match (event, function) {
        (b"sched_kthread_work_queue_work", Some(function)) => Some(Kind::KthreadWorkQueued {
            work,
            function,
            worker,
        }),
        (b"sched_kthread_work_execute_start", Some(function)) => {
            Some(Kind::KthreadWorkStart { work, function })
        }
        (b"sched_kthread_work_execute_end", function) => {
            Some(Kind::KthreadWorkEnd { work, function })
        }
        (b"fuse_request_send", _) => Some(Kind::FuseSent {
            connection: found.connection as u32,
            unique: found.unique,
            opcode: found.opcode as u32,
        }),
        _ => None,
    })
}

fn generic_field<'a>(
    names: &mut Naming<'_>,
    found: &mut Generic<'a>,
    field: &'a [u8],
) -> Result<(), Cut> {
    let (mut name, mut number, mut text) = (&[][..], 0, None);
    fields(field, |tag, value| match tag {
        1 => name = value.bytes(),
        3 => text = Some(value.bytes()),
        4 | 5 => number = value.number(),
        _ => {}
    })?;
    match name {
        b"work" => found.work = number,
        b"worker" => found.worker = number,
        b"connection" => found.connection = number,
        b"unique" => found.unique = number,
        b"opcode" => found.opcode = number,
        b"function" => {
            found.function = Some(match text {
                Some(text) => names.text(text),
                None => names.function(number),
            });
        }
        _ => {}
    }
    Ok(())
}
