//! Reads compact scheduling events: columns instead of messages, time differences, a table of
//! names.
//!
//! They omit the previous thread of a switch and the waker, which the reader fills in afterwards
//! from the order of the switches of each CPU.

use super::sink::Sink;
use super::wire::{Cut, Stop, Value, packed, try_fields};
use crate::input::below;
use crate::{Comm, Event, Kind, TaskState, Trace, UNKNOWN_PID};

/// Columns by field number.
type Columns = [Vec<u64>; 13];

/// Adds the events of a `CompactSched` message.
pub(super) fn read(sink: &mut Sink<'_>, cpu: u32, message: &[u8]) -> Result<(), Stop> {
    let mut columns = Columns::default();
    let mut comms = Vec::new();
    try_fields(message, |tag, value| {
        match (tag, value) {
            (5, value) => comms.push(Comm::new(value.bytes())),
            (1..=12, Value::Bytes(bytes)) => packed(bytes, &mut columns[tag as usize])?,
            (1..=12, Value::Number(number)) => columns[tag as usize].push(number),
            _ => {}
        }
        let rows = columns.iter().map(Vec::len).max().unwrap_or(0);
        Ok::<(), Stop>(below(rows.max(comms.len()), sink.limits.events, "events")?)
    })?;
    switches(sink.trace, cpu, &columns, &comms)?;
    wakings(sink.trace, cpu, &columns, &comms)?;
    Ok(sink.limits.check(sink.trace)?)
}

fn switches(trace: &mut Trace, cpu: u32, columns: &Columns, comms: &[Comm]) -> Result<(), Cut> {
    let rows = columns[1].len();
    if [2, 3, 4, 6]
        .iter()
        .any(|&column: &usize| columns[column].len() != rows)
    {
        return Err(Cut);
    }
    let mut time_ns = 0u64;
    for (row, &delta) in columns[1].iter().enumerate() {
        time_ns = time_ns.wrapping_add(delta);
        let kind = Kind::Switch {
            prev_pid: UNKNOWN_PID,
            prev_comm: Comm::default(),
            prev_prio: 0,
            prev_state: TaskState::from_bits(columns[2][row]),
            next_pid: columns[3][row] as i32,
            next_prio: columns[4][row] as i32,
            next_comm: comm(comms, columns[6][row])?,
        };
        trace.events.push(Event {
            time_ns,
            cpu,
            pid: UNKNOWN_PID,
            kind,
        });
    }
    Ok(())
}

fn wakings(trace: &mut Trace, cpu: u32, columns: &Columns, comms: &[Comm]) -> Result<(), Cut> {
    let rows = columns[7].len();
    if [8, 9, 10, 11]
        .iter()
        .any(|&column: &usize| columns[column].len() != rows)
    {
        return Err(Cut);
    }
    let mut time_ns = 0u64;
    for (row, &delta) in columns[7].iter().enumerate() {
        time_ns = time_ns.wrapping_add(delta);
        let kind = Kind::Waking {
            pid: columns[8][row] as i32,
            target_cpu: columns[9][row] as u32,
            prio: columns[10][row] as i32,
            comm: comm(comms, columns[11][row])?,
        };
        trace.events.push(Event {
            time_ns,
            cpu,
            pid: UNKNOWN_PID,
            kind,
        });
    }
    Ok(())
}

fn comm(comms: &[Comm], index: u64) -> Result<Comm, Cut> {
    usize::try_from(index)
        .ok()
        .and_then(|index| comms.get(index))
        .copied()
        .ok_or(Cut)
}
