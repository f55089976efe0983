//! Reads ftrace bundles: the events of one CPU.

use super::compact::{self, Sink};
use super::wire::{Cut, Stop, Value as Wire, fields, pick, try_fields};
use crate::ftrace::symbols::Addresses;
use crate::input::{CPUS, below};
use crate::schema::{
    self, ABSENT, EVENTS, EventType, FieldType, Form, GENERIC, Naming, Value, Values,
};
use crate::{Event, UNKNOWN_PID};
use std::collections::HashMap;

/// Reads bundles into a trace.
#[derive(Debug, Default)]
pub(super) struct Bundles {
    /// Functions that appear as addresses, because the trace was recorded without symbols.
    pub addresses: Addresses,
    /// Number of bundles that report lost events before them.
    pub lossy: u64,
    /// Number of bundles that contain an error of the recorder's parser.
    pub faulty: u64,
    /// How the bundles of each CPU follow one another.
    pub chains: HashMap<u32, Chain>,
}

/// The bundles of one CPU. Each bundle has the time of the last event before it.
#[derive(Debug, Default)]
pub(super) struct Chain {
    /// Time of the last event before the first bundle.
    before_ns: u64,
    /// Number of events of all kinds.
    pub events: u64,
    /// The last event of the previous bundle.
    last_ns: u64,
    /// Number of bundles that continue the previous one, and the beginnings of those that do not.
    pub followed: u64,
    pub breaks: Vec<u64>,
    /// Beginnings of bundles that report lost events before them.
    pub lossy: Vec<u64>,
}

impl Bundles {
    /// Adds the events of a bundle (`FtraceEventBundle`).
    pub fn read(&mut self, mut sink: Sink<'_>, bundle: &[u8]) -> Result<(), Stop> {
        let (mut cpu, mut before, mut lossy) = (0, None, false);
        // The field of the CPU may follow the events.
        fields(bundle, |tag, value| match tag {
            1 => cpu = value.number(),
            3 => lossy |= value.number() != 0,
            5 => sink.trace.clock = clock(value.number()).into(),
            8 => self.faulty += 1,
            // `last_read_event_timestamp`, and its successor since Perfetto 47.
            9 | 10 => before = Some(value.number()).max(before),
            _ => {}
        })?;
        self.lossy += u64::from(lossy);
        let cpu = cpu as u32;
        let (mut first, mut last, mut events) = (u64::MAX, 0, 0);
        let mut seen = |time_ns: u64| {
            (first, last) = (time_ns.min(first), time_ns.max(last));
            events += 1;
        };
        try_fields(bundle, |tag, value| match tag {
            2 => {
                seen(pick(value.bytes(), [1])?[0].number());
                self.event(&mut sink, cpu, value.bytes())
            }
            4 => compact::read(&mut sink, cpu, value.bytes(), &mut seen),
            _ => Ok(()),
        })?;
        let new = || Chain {
            before_ns: before.unwrap_or(0),
            ..Chain::default()
        };
        let chain = self.chains.entry(cpu).or_insert_with(new);
        if lossy {
            chain.lossy.push(first);
        }
        if let Some(before) = before.filter(|_| chain.events > 0) {
            match before == chain.last_ns {
                true => chain.followed += 1,
                false => chain.breaks.push(first),
            }
        }
        chain.events += events;
        chain.last_ns = last.max(chain.last_ns);
        Ok(below(self.chains.len(), CPUS as usize, "CPUs")?)
    }

    /// The time from which the trace has the events of all CPUs; at least one ring buffer held
    /// nothing older.
    pub fn whole_from_ns(&self) -> u64 {
        let chains = self.chains.values();
        chains.map(|chain| chain.before_ns).max().unwrap_or(0)
    }

    /// Whether bundles generally continue the previous one. If several users record at the same
    /// time, each receives only its own events, but a bundle may give the time of an event that
    /// another user received.
    pub fn follow(&self) -> bool {
        let count = |of: fn(&Chain) -> u64| self.chains.values().map(of).sum::<u64>();
        let breaks = count(|chain| chain.breaks.len() as u64);
        breaks * 5 <= count(|chain| chain.followed)
    }

    /// Resets the state of one recording, because another one follows in the same file. Addresses
    /// are kept, because they are the same for all recordings of one kernel.
    pub fn next_recording(&mut self) {
        *self = Self {
            addresses: std::mem::take(&mut self.addresses),
            ..Self::default()
        };
    }

    fn event(&mut self, sink: &mut Sink<'_>, cpu: u32, message: &[u8]) -> Result<(), Stop> {
        let (mut time_ns, mut pid, mut inner) = (0, UNKNOWN_PID, None);
        fields(message, |tag, value| match (tag, value) {
            (1, Wire::Number(time)) => time_ns = time,
            (2, Wire::Number(number)) => pid = number as i32,
            (_, Wire::Bytes(bytes)) => inner = Some((tag, bytes)),
            _ => {}
        })?;
        let found = match inner {
            Some((GENERIC, body)) => generic(body)?,
            Some((tag, body)) => typed(tag, body)?,
            None => None,
        };
        let Some((event, values)) = found else {
            return Ok(());
        };
        let mut naming = Naming {
            names: &mut sink.trace.names,
            symbols: sink.symbols,
            addresses: &mut self.addresses,
        };
        if let Some(kind) = schema::kind(event.what, &values, pid, &mut naming) {
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

/// The kernel's name of a `FtraceClock`; Perfetto omits the clock that it prefers.
fn clock(number: u64) -> &'static str {
    ["boot", "", "global", "local", "mono_raw"]
        .get(number as usize)
        .copied()
        .unwrap_or("")
}

/// The type and values of an event; `None` if events of its kind are not read.
type Found<'a> = Option<(&'static EventType, Values<'a>)>;

/// The values of an event that has its own message. Missing numbers are 0, and missing strings
/// empty.
fn typed(tag: u32, message: &[u8]) -> Result<Found<'_>, Cut> {
    let Some(event) = EVENTS.iter().find(|event| event.tag == tag) else {
        return Ok(None);
    };
    let mut values = ABSENT;
    for (value, field) in values.iter_mut().zip(event.fields) {
        *value = match field.form {
            _ if field.optional => Value::Absent,
            Form::Text => Value::Text(&[]),
            _ => Value::Number(0),
        };
    }
    fields(message, |tag, value| {
        let is_it = |field: &FieldType| match value {
            // The name of a queue was field 3 for a while.
            Wire::Bytes(_) => field.tag == tag || field.form == Form::Queue && tag == 3,
            _ => field.tag == tag && field.form != Form::Queue,
        };
        if let Some(at) = event.fields.iter().position(is_it) {
            values[at] = match value {
                Wire::Bytes(bytes) => Value::Text(bytes),
                Wire::Number(number) if number > 0 || !event.fields[at].optional => {
                    Value::Number(number)
                }
                _ => Value::Absent,
            };
        }
    })?;
    Ok(Some((event, values)))
}

/// The values of a `GenericFtraceEvent`: the name of the event, and named fields.
fn generic(message: &[u8]) -> Result<Found<'_>, Cut> {
    let [name] = pick(message, [1])?;
    let event = std::str::from_utf8(name.bytes())
        .ok()
        .and_then(schema::by_name);
    let Some(event) = event.filter(|event| event.tag == GENERIC) else {
        return Ok(None);
    };
    let mut values = ABSENT;
    try_fields(message, |tag, value| {
        if tag != 2 {
            return Ok(());
        }
        let [name, text, signed, unsigned] = pick(value.bytes(), [1, 3, 4, 5])?;
        let is_it = |field: &FieldType| field.name.as_bytes() == name.bytes();
        let at = event.fields.iter().position(is_it);
        if let Some(at) = at.filter(|at| event.fields[*at].form != Form::Ignored) {
            values[at] = match (text, signed, unsigned) {
                (Wire::Bytes(text), ..) => Value::Text(text),
                (_, Wire::Number(number), _) | (.., Wire::Number(number)) => Value::Number(number),
                _ => Value::Absent,
            };
        }
        Ok::<(), Cut>(())
    })?;
    Ok(Some((event, values)))
}
