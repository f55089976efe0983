//! Reads compact scheduling events: columns instead of messages, time differences, a table of
//! names.
//!
//! Compact events omit the previous thread of a switch and the waker. The reader fills these in
//! afterwards, from the order of the switches on each CPU.

use super::symbols::Symbols;
use super::wire::{Cut, Stop, Value, packed, try_fields};
use crate::input::{ReadOptions, below};
use crate::{Comm, Event, Kind, Task, TaskState, Trace, UNKNOWN_PID, Wake};

/// The destination of events, and the tables that they refer to.
pub(super) struct Sink<'a> {
    pub trace: &'a mut Trace,
    pub symbols: &'a Symbols,
    pub limits: &'a ReadOptions,
}

/// Columns by field number.
type Columns = [Vec<u64>; 13];

/// Adds the events of a `CompactSched` message.
pub(super) fn read(
    sink: &mut Sink<'_>,
    cpu: u32,
    message: &[u8],
    seen: &mut impl FnMut(u64),
) -> Result<(), Stop> {
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
        Ok::<(), Stop>(below(
            rows.max(comms.len()),
            sink.limits.max_events,
            "events",
        )?)
    })?;
    let trace = &mut *sink.trace;
    for (time_ns, [state, pid, prio, comm]) in rows(&columns, [1, 2, 3, 4, 6])? {
        let prev = Task {
            pid: UNKNOWN_PID,
            ..Task::default()
        };
        let kind = Kind::Switch {
            prev,
            prev_state: TaskState::from_bits(state),
            next: task(&comms, [comm, pid, prio])?,
        };
        seen(time_ns);
        trace.events.push(Event {
            time_ns,
            cpu,
            pid: UNKNOWN_PID,
            kind,
        });
    }
    for (time_ns, [pid, target_cpu, prio, comm]) in rows(&columns, [7, 8, 9, 10, 11])? {
        let kind = Kind::Wake {
            wake: Wake::Begins,
            task: task(&comms, [comm, pid, prio])?,
            target_cpu: target_cpu as u32,
        };
        seen(time_ns);
        trace.events.push(Event {
            time_ns,
            cpu,
            pid: UNKNOWN_PID,
            kind,
        });
    }
    Ok(sink.limits.check(sink.trace)?)
}

/// The time and the other values of each row of these columns, the first of which holds time
/// differences.
fn rows(
    columns: &Columns,
    [times, others @ ..]: [usize; 5],
) -> Result<impl Iterator<Item = (u64, [u64; 4])>, Cut> {
    let times = &columns[times];
    if others
        .iter()
        .any(|&other| columns[other].len() != times.len())
    {
        return Err(Cut);
    }
    let mut time_ns = 0u64;
    Ok(times.iter().enumerate().map(move |(row, &delta)| {
        time_ns = time_ns.wrapping_add(delta);
        (time_ns, others.map(|other| columns[other][row]))
    }))
}

fn task(comms: &[Comm], [comm, pid, prio]: [u64; 3]) -> Result<Task, Cut> {
    let comm = usize::try_from(comm)
        .ok()
        .and_then(|index| comms.get(index));
    Ok(Task {
        comm: *comm.ok_or(Cut)?,
        pid: pid as i32,
        prio: prio as i32,
    })
}
