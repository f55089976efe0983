//! Reading Perfetto's format, packet by packet, so that memory holds one packet and the events.

use super::bundle::{Bundles, Symbols};
use super::proto;
use super::wire::{Cut, fields};
use crate::error::Fault;
use crate::ftrace::threads;
use crate::read::{Limit, inflate};
use crate::{Comm, Event, Kind, Slice, Thread, Trace, UNKNOWN_PID};
use prost::Message;
use std::collections::HashMap;
use std::io::{BufRead, Read};

/// The biggest packet that is believed; Perfetto's own are below 1 MiB unless it was told otherwise.
const PACKET: u64 = 256 << 20;

/// Reads a whole trace.
pub(crate) fn read(mut file: impl BufRead, limit: Limit) -> Result<Trace, Fault> {
    let mut reader = Reader {
        trace: Trace::new("boot"),
        ..Reader::default()
    };
    let (mut packet, mut offset) = (Vec::new(), 0);
    while let Some(size) = next(&mut file, &mut packet, offset)? {
        let cut = |Cut| broken(offset, "a packet that is no protocol buffer");
        reader.packet(&packet, 0).map_err(cut)?;
        limit.check(reader.trace.events.len())?;
        offset += size;
    }
    reader.finish(offset)
}

fn broken(offset: u64, reason: &str) -> Fault {
    Fault::Broken {
        format: "Perfetto",
        offset,
        reason: reason.into(),
    }
}

/// The next packet: its bytes, and how many bytes it took in the file.
fn next(file: &mut impl BufRead, packet: &mut Vec<u8>, offset: u64) -> Result<Option<u64>, Fault> {
    if file.fill_buf()?.is_empty() {
        return Ok(None);
    }
    let mut head = 0;
    let mut varint = || -> Result<u64, Fault> {
        let mut value = 0;
        for shift in (0..63).step_by(7) {
            let mut byte = [0];
            file.read_exact(&mut byte)
                .map_err(|_| broken(offset, "the file ends in a packet"))?;
            head += 1;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(broken(offset, "a number that does not end"))
    };
    if varint()? != 0x0a {
        return Err(broken(offset, "something other than a packet"));
    }
    let length = varint()?;
    if length > PACKET {
        return Err(broken(offset, &format!("a packet of {length} bytes")));
    }
    packet.clear();
    let got = file.take(length).read_to_end(packet)?;
    if (got as u64) < length {
        return Err(broken(
            offset,
            &format!("the file ends {} bytes early", length - got as u64),
        ));
    }
    Ok(Some(head + length))
}

/// What was read so far, and what later packets refer to.
#[derive(Default)]
struct Reader {
    trace: Trace,
    bundles: Bundles,
    symbols: HashMap<u64, Symbols>,
    tracks: HashMap<u64, Track>,
    /// Lost events by CPU: at the start, and at the end of the trace.
    lost: HashMap<u64, (u64, u64)>,
    dropped_packets: u64,
}

/// A track of slices, with those that have begun.
#[derive(Default)]
struct Track {
    name: String,
    parent: u64,
    tid: Option<i32>,
    open: Vec<(String, u64)>,
}

impl Reader {
    fn packet(&mut self, packet: &[u8], depth: u32) -> Result<(), Cut> {
        let (mut sequence, mut time, mut flags, mut dropped) = (0, 0, 0, 0);
        let mut parts = Vec::new();
        fields(packet, |tag, value| match tag {
            8 => time = value.number(),
            10 => sequence = value.number(),
            13 => flags = value.number(),
            41 => flags |= value.number() & 1,
            42 => dropped = value.number() & 1,
            1 | 2 | 6 | 11 | 12 | 34 | 45 | 50 | 60 | 133 => parts.push((tag, value.bytes())),
            _ => {}
        })?;
        // Perfetto marks the first packet of each sequence so, too: nothing is missing before it.
        if self.symbols.contains_key(&sequence) {
            self.dropped_packets += dropped;
        }
        let symbols = self.symbols.entry(sequence).or_default();
        if flags & u64::from(proto::SEQ_INCREMENTAL_STATE_CLEARED) != 0 {
            symbols.clear();
        }
        // Interned data may stand behind the events that refer to it.
        for (_, bytes) in parts.iter().filter(|(tag, _)| *tag == 12) {
            intern(&mut self.trace, symbols, bytes)?;
        }
        for (tag, bytes) in parts {
            match tag {
                1 => {
                    let symbols = &self.symbols[&sequence];
                    self.bundles.read(&mut self.trace, symbols, bytes)?;
                }
                2 => self.process_tree(bytes)?,
                6 => self.clocks(bytes)?,
                11 => self.track_event(bytes, time)?,
                34 => self.stats(bytes)?,
                45 => self.system(bytes)?,
                50 => self.compressed(&inflate::deflate(bytes).ok_or(Cut)?, depth)?,
                60 => self.track(bytes)?,
                133 => self.compressed(&inflate::zstd(bytes).ok_or(Cut)?, depth)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Packets inside of a packet; they do not nest further.
    fn compressed(&mut self, packets: &[u8], depth: u32) -> Result<(), Cut> {
        if depth > 0 {
            return Err(Cut);
        }
        let mut result = Ok(());
        fields(packets, |tag, value| {
            if tag == 1 && result.is_ok() {
                result = self.packet(value.bytes(), depth + 1);
            }
        })?;
        result
    }

    fn process_tree(&mut self, bytes: &[u8]) -> Result<(), Cut> {
        let tree = proto::ProcessTree::decode(bytes).map_err(|_| Cut)?;
        for process in tree.processes {
            let pid = process.pid.unwrap_or_default();
            let command = process.cmdline.first().map_or(&[][..], |command| command);
            let file = command.rsplit(|&b| b == b'/').next().unwrap_or(command);
            let thread = self.trace.threads.entry(pid).or_default();
            *thread = Thread {
                comm: Comm::new(file),
                tgid: pid,
            };
        }
        for thread in tree.threads {
            let entry = self
                .trace
                .threads
                .entry(thread.tid.unwrap_or_default())
                .or_default();
            entry.tgid = thread.tgid.unwrap_or(entry.tgid);
            if let Some(name) = thread.name {
                entry.comm = Comm::new(&name);
            }
        }
        Ok(())
    }

    fn clocks(&mut self, bytes: &[u8]) -> Result<(), Cut> {
        let snapshot = proto::ClockSnapshot::decode(bytes).map_err(|_| Cut)?;
        let time = |id| {
            snapshot
                .clocks
                .iter()
                .find(|clock| clock.clock_id == Some(id))?
                .timestamp
        };
        if let (Some(boot), Some(mono)) = (time(proto::BOOTTIME), time(proto::MONOTONIC)) {
            self.trace.boot_offset_ns = boot.saturating_sub(mono);
        }
        Ok(())
    }

    fn system(&mut self, bytes: &[u8]) -> Result<(), Cut> {
        let system = proto::SystemInfo::decode(bytes).map_err(|_| Cut)?;
        let release = system.utsname.and_then(|utsname| utsname.release);
        self.trace.kernel = release.unwrap_or_default();
        Ok(())
    }

    fn stats(&mut self, bytes: &[u8]) -> Result<(), Cut> {
        let stats = proto::FtraceStats::decode(bytes).map_err(|_| Cut)?;
        for cpu in stats.cpu_stats {
            let lost = [cpu.overrun, cpu.commit_overrun, cpu.dropped_events];
            let lost: u64 = lost.into_iter().flatten().fold(0, u64::saturating_add);
            let entry = self.lost.entry(cpu.cpu.unwrap_or_default()).or_default();
            if stats.phase == Some(proto::START_OF_TRACE) {
                entry.0 = lost;
            } else {
                entry.1 = lost;
            }
        }
        Ok(())
    }

    fn track(&mut self, bytes: &[u8]) -> Result<(), Cut> {
        let descriptor = proto::TrackDescriptor::decode(bytes).map_err(|_| Cut)?;
        let track = self
            .tracks
            .entry(descriptor.uuid.unwrap_or_default())
            .or_default();
        track.name = descriptor.name.unwrap_or_default();
        track.parent = descriptor.parent_uuid.unwrap_or_default();
        track.tid = descriptor
            .thread
            .and_then(|thread| thread.tid)
            .map(|tid| tid as i32);
        Ok(())
    }

    /// Slices of any program that names its events in full; interned names are left out.
    fn track_event(&mut self, bytes: &[u8], time: u64) -> Result<(), Cut> {
        let event = proto::TrackEvent::decode(bytes).map_err(|_| Cut)?;
        let uuid = event.track_uuid.unwrap_or_default();
        let Some(track) = self.tracks.get_mut(&uuid) else {
            return Ok(());
        };
        match event.kind {
            Some(proto::SLICE_BEGIN) => track.open.push((event.name.unwrap_or_default(), time)),
            Some(proto::SLICE_END) => {
                let Some((name, start_ns)) = track.open.pop() else {
                    return Ok(());
                };
                let (own, parent, label) = (track.tid, track.parent, track.name.clone());
                let pid = own.or_else(|| self.tracks.get(&parent)?.tid);
                self.trace.slices.push(Slice {
                    name,
                    track: label,
                    start_ns,
                    end_ns: time,
                    pid,
                });
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(mut self, size: u64) -> Result<Trace, Fault> {
        let mut trace = self.trace;
        if trace.events.is_empty() {
            return Err(broken(
                size,
                "it has no scheduler events (ftrace sched/sched_switch)",
            ));
        }
        trace.sort();
        fill_in(&mut trace.events);
        self.bundles.addresses.resolve(&mut trace, None);
        let counted = self
            .lost
            .drain()
            .map(|(_, (start, end))| end.saturating_sub(start));
        let counted: u64 = counted.fold(0, u64::saturating_add);
        let told = self.bundles.lossy + self.bundles.faulty + self.dropped_packets;
        trace.lost_events = counted.max(told);
        threads::name_threads(&mut trace);
        Ok(trace)
    }
}

fn intern(trace: &mut Trace, symbols: &mut Symbols, bytes: &[u8]) -> Result<(), Cut> {
    let mut result = Ok(());
    fields(bytes, |tag, value| {
        if tag != 26 {
            return;
        }
        let (mut iid, mut text) = (0, &[][..]);
        let read = fields(value.bytes(), |tag, value| match tag {
            1 => iid = value.number(),
            2 => text = value.bytes(),
            _ => {}
        });
        result = result.and(read);
        symbols.insert(iid, trace.names.intern(&String::from_utf8_lossy(text)));
    })?;
    result
}

/// Compact events leave out who was running: it is who was switched in last on that CPU.
fn fill_in(events: &mut [Event]) {
    let mut current: HashMap<u32, (i32, Comm, i32)> = HashMap::new();
    for event in events {
        let running = current.get(&event.cpu).copied();
        if let (UNKNOWN_PID, Some((pid, _, _))) = (event.pid, running) {
            event.pid = pid;
        }
        let Kind::Switch {
            prev_pid,
            prev_comm,
            prev_prio,
            next_pid,
            next_comm,
            next_prio,
            ..
        } = &mut event.kind
        else {
            continue;
        };
        if let (UNKNOWN_PID, Some((pid, comm, prio))) = (*prev_pid, running) {
            (*prev_pid, *prev_comm, *prev_prio) = (pid, comm, prio);
        }
        current.insert(event.cpu, (*next_pid, *next_comm, *next_prio));
    }
}
