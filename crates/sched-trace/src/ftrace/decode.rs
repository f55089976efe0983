//! Decodes records of the kernel's events into [`Event`]s.

use super::format::{EventFormat, Field, Location};
use super::symbols::Addresses;
use crate::schema::{self, ABSENT, EVENTS, FieldType, Form, Naming, Value, What};
use crate::{Event, Notice, Trace, UNKNOWN_PID};
use std::collections::HashMap;

/// The positions of an event's fields, in the order of its [`schema::EventType`].
#[derive(Clone, Copy, Debug)]
struct Layout(What, [Option<Field>; 7]);

/// Converts records to events of a trace.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    /// Layouts by event id.
    layouts: Vec<Option<Layout>>,
    common_pid: Option<Field>,
    addresses: Addresses,
    /// Number of records of known events that could not be read.
    pub broken: u64,
}

/// Every record begins with the ID of its event.
const COMMON_TYPE: Field = Field {
    offset: 0,
    size: 2,
    signed: false,
    location: Location::Here,
};

impl Decoder {
    /// Learns the layouts of the events that are read; formats of other events are ignored.
    pub fn new<'a>(formats: impl IntoIterator<Item = &'a EventFormat>) -> Self {
        let mut decoder = Self::default();
        for format in formats {
            decoder.common_pid = decoder.common_pid.or_else(|| format.field("common_pid"));
            let id = usize::from(format.id);
            if let Some(layout) = layout(format) {
                let count = decoder.layouts.len().max(id + 1);
                decoder.layouts.resize(count, None);
                decoder.layouts[id] = Some(layout);
            }
        }
        decoder
    }

    /// Adds the event of a record to the trace, if events of its kind are read.
    pub fn record(&mut self, trace: &mut Trace, time_ns: u64, cpu: u32, record: &[u8]) {
        let Some(id) = COMMON_TYPE.int(record) else {
            self.broken += 1;
            return;
        };
        let Some(Some(Layout(what, layout))) = self.layouts.get(id as usize) else {
            return;
        };
        let pid = self.common_pid.and_then(|field| field.int(record));
        let pid = pid.map_or(UNKNOWN_PID, |pid| pid as i32);
        let mut values = ABSENT;
        for (at, field) in EVENTS[*what as usize].fields.iter().enumerate() {
            values[at] = value(field, layout[at], record);
        }
        let mut naming = Naming {
            names: &mut trace.names,
            symbols: &HashMap::new(),
            addresses: &mut self.addresses,
        };
        match schema::kind(*what, &values, pid, &mut naming) {
            Some(kind) => trace.events.push(Event {
                time_ns,
                cpu,
                pid,
                kind,
            }),
            None => self.broken += 1,
        }
    }

    /// Names the functions; see [`Addresses::resolve`].
    pub fn finish(
        &self,
        trace: &mut Trace,
        kallsyms: &mut dyn std::io::BufRead,
        remedy: &'static str,
    ) {
        self.addresses.resolve(trace, kallsyms, remedy);
        if self.broken > 0 {
            let notice = Notice::UndecodedRecords { count: self.broken };
            trace.notices.push(notice);
        }
    }
}

fn value<'a>(field: &FieldType, place: Option<Field>, record: &'a [u8]) -> Value<'a> {
    let value = place.and_then(|place| match field.form {
        Form::Text | Form::Queue => place.bytes(record).map(Value::Text),
        _ => place.int(record).map(|number| Value::Number(number as u64)),
    });
    value.unwrap_or(Value::Absent)
}

/// The layout of an event; `None` if the event is not read or lacks a field.
fn layout(format: &EventFormat) -> Option<Layout> {
    let event = schema::by_name(&format.name)?;
    let mut fields = [None; 7];
    for (at, field) in event.fields.iter().enumerate() {
        let place = match field.form {
            Form::Ignored => None,
            // A pointer is not a name.
            Form::Queue => format
                .field(field.name)
                .filter(|f| f.location != Location::Here),
            _ => format.field(field.name),
        };
        if place.is_none() && !field.optional {
            return None;
        }
        fields[at] = place;
    }
    Some(Layout(event.what, fields))
}
