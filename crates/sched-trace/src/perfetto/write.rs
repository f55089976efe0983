//! Writes a trace in Perfetto's format.
//!
//! Order of packets: system and clocks, processes and threads, the events in bundles of one CPU
//! each, the slices, and the losses. Function names are passed as interned kernel symbols.

use super::proto::{self, packet};
use super::tracks;
use super::wire::Message;
use crate::schema::{self, EVENTS, Form, GENERIC, Value};
use crate::{Event, Fault, Name, Result, Trace, UNKNOWN_PID};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// Events in one bundle. Perfetto itself writes packets of tens of KiB.
const BUNDLE: usize = 512;

/// Packet sequences: ftrace, and the tracks of slices.
const SEQUENCE_FTRACE: u64 = 1;
const SEQUENCE_TRACKS: u64 = 2;

/// Writes the trace to a file that ui.perfetto.dev and trace_processor open.
pub fn save(trace: &Trace, path: &Path) -> Result<()> {
    let failed = |error| Fault::Io(error).at(path);
    let mut file = File::create(path).map(BufWriter::new).map_err(failed)?;
    let written = write(trace, &mut file).and_then(|()| file.flush());
    // A device or a pipe is not removed.
    if written.is_err() && path.symlink_metadata().is_ok_and(|it| it.is_file()) {
        let _ = fs::remove_file(path);
    }
    written.map_err(failed)
}

/// Writes the trace.
pub fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let offset = boot_offset(trace);
    head(trace, offset, out)?;
    put(out, |packet| process_tree(trace, packet))?;
    put(out, |packet| symbols(trace, packet))?;
    bundles(trace, offset, out)?;
    for mut packet in tracks::packets(trace, offset) {
        packet.number(packet::SEQUENCE, SEQUENCE_TRACKS);
        out.write_all(&Message::default().bytes(1, &packet.0).0)?;
    }
    put(out, |packet| {
        stats(
            packet,
            proto::END_OF_TRACE,
            trace.lost_events,
            written(trace),
        );
    })
}

/// Number of events by CPU, if the recorder counted them.
fn written(trace: &Trace) -> BTreeMap<u32, u64> {
    let mut written = BTreeMap::new();
    for event in &trace.events {
        if trace.claims.counted.contains(&event.cpu) {
            *written.entry(event.cpu).or_insert(0) += 1;
        }
    }
    written
}

/// Offset from the trace's times to CLOCK_BOOTTIME, Perfetto's clock.
fn boot_offset(trace: &Trace) -> u64 {
    match trace.clock.as_str() {
        "mono" => trace.boot_offset_ns,
        _ => 0,
    }
}

/// Writes one packet, which is field 1 of the message `Trace`.
fn put(out: &mut impl Write, fill: impl FnOnce(&mut Message)) -> io::Result<()> {
    let mut trace = Message::default();
    trace.message(1, |packet| {
        packet.number(packet::SEQUENCE, SEQUENCE_FTRACE);
        fill(packet);
    });
    out.write_all(&trace.0)
}

fn head(trace: &Trace, offset: u64, out: &mut impl Write) -> io::Result<()> {
    if !trace.kernel.is_empty() {
        put(out, |packet| system(trace, packet))?;
    }
    let (first, _) = trace.span().unwrap_or_default();
    let mut clocks = vec![(proto::BOOTTIME, first.saturating_add(offset))];
    if trace.clock == "mono" {
        clocks.push((proto::MONOTONIC, first));
    }
    put(out, |packet| {
        packet.message(packet::CLOCK_SNAPSHOT, |snapshot| {
            for (clock, time) in clocks {
                snapshot.message(1, |message| {
                    message.number(1, clock).number(2, time);
                });
            }
            snapshot.number(2, proto::BOOTTIME);
        });
    })?;
    put(out, |packet| {
        stats(packet, proto::START_OF_TRACE, 0, BTreeMap::new())
    })
}

/// `SystemInfo.utsname`.
fn system(trace: &Trace, packet: &mut Message) {
    packet.message(packet::SYSTEM_INFO, |system| {
        system.message(1, |utsname| {
            utsname.bytes(1, b"Linux");
            if !trace.kernel_version.is_empty() {
                utsname.bytes(2, trace.kernel_version.as_bytes());
            }
            utsname.bytes(3, trace.kernel.as_bytes());
        });
    });
}

/// `FtraceStats`. The CPU that lost events is no longer known; readers use the sum. The number
/// delivered from each CPU shows a reader that no events are missing.
fn stats(packet: &mut Message, phase: u64, lost: u64, mut delivered: BTreeMap<u32, u64>) {
    delivered.entry(0).or_insert(0);
    packet.message(packet::FTRACE_STATS, |stats| {
        stats.number(1, phase);
        for (cpu, events) in delivered {
            let lost = if cpu == 0 { lost } else { 0 };
            stats.message(2, |message| {
                message.number(1, cpu.into()).number(3, lost);
                if events > 0 {
                    message.number(9, events);
                }
            });
        }
    });
}

fn process_tree(trace: &Trace, packet: &mut Message) {
    packet.message(packet::PROCESS_TREE, |tree| {
        for (&pid, thread) in trace.threads.iter().filter(|(_, thread)| thread.tgid != 0) {
            let name = thread.comm.as_bytes();
            if thread.tgid == pid {
                tree.message(1, |process| {
                    process.number(1, pid as u64).bytes(3, name);
                });
            }
            tree.message(2, |message| {
                message.number(1, pid as u64).bytes(2, name);
                message.number(3, thread.tgid as u64);
                if let Some(policy) = thread.policy {
                    message.number(proto::POLICY, policy as u64);
                }
            });
        }
    });
}

/// All symbols are in the first packet of the sequence, and every bundle refers to them.
fn symbols(trace: &Trace, packet: &mut Message) {
    packet.number(packet::SEQUENCE_FLAGS, proto::STATE_CLEARED);
    packet.message(packet::INTERNED_DATA, |data| {
        for (name, text) in trace.names.iter() {
            data.message(proto::KERNEL_SYMBOLS, |symbol| {
                symbol.number(1, iid(name)).bytes(2, text.as_bytes());
            });
        }
    });
}

/// Interning IDs begin with 1: 0 means "not set".
fn iid(name: Name) -> u64 {
    name.index() as u64 + 1
}

fn bundles(trace: &Trace, offset: u64, out: &mut impl Write) -> io::Result<()> {
    let mut cpus: BTreeMap<u32, Vec<&Event>> = BTreeMap::new();
    for event in &trace.events {
        let events = cpus.entry(event.cpu).or_default();
        events.push(event);
        if events.len() == BUNDLE {
            bundle(trace, offset, event.cpu, &std::mem::take(events), out)?;
        }
    }
    let mut rest = cpus.iter().filter(|(_, events)| !events.is_empty());
    rest.try_for_each(|(&cpu, events)| bundle(trace, offset, cpu, events, out))
}

fn bundle(
    trace: &Trace,
    offset: u64,
    cpu: u32,
    events: &[&Event],
    out: &mut impl Write,
) -> io::Result<()> {
    put(out, |packet| {
        packet.number(packet::SEQUENCE_FLAGS, proto::NEEDS_STATE);
        packet.message(packet::FTRACE_EVENTS, |bundle| {
            bundle.number(1, cpu.into());
            for event in events {
                bundle.message(2, |message| {
                    message.number(1, event.time_ns.saturating_add(offset));
                    if event.pid != UNKNOWN_PID {
                        message.number(2, u64::from(event.pid as u32));
                    }
                    body(trace, event, message);
                });
            }
        });
    })
}

/// The part of an `FtraceEvent` that depends on its kind.
fn body(trace: &Trace, event: &Event, message: &mut Message) {
    let (what, values) = schema::values(&event.kind);
    let event = &EVENTS[what as usize];
    let is_generic = event.tag == GENERIC;
    message.message(event.tag, |message| {
        if is_generic {
            message.bytes(1, event.name.as_bytes());
        }
        let present = |(_, value): &(_, Value<'_>)| *value != Value::Absent;
        for (field, value) in event.fields.iter().zip(values).filter(present) {
            let value = match value {
                // Readers resolve IDs only in fields known to be functions.
                Value::Name(name)
                    if matches!(field.form, Form::Function | Form::Place) && !is_generic =>
                {
                    Value::Number(iid(name))
                }
                Value::Name(name) => Value::Text(trace.names.get(name).as_bytes()),
                value => value,
            };
            if is_generic {
                message.message(2, |message| {
                    message.bytes(1, field.name.as_bytes());
                    put_value(message, value, [5, 3]);
                });
            } else {
                put_value(message, value, [field.tag, field.tag]);
            }
        }
    });
}

/// Puts a number into the first field, and a text into the second.
fn put_value(message: &mut Message, value: Value<'_>, [number, text]: [u32; 2]) {
    match value {
        Value::Number(value) => message.number(number, value),
        Value::Text(value) => message.bytes(text, value),
        Value::Absent | Value::Name(_) => message,
    };
}
