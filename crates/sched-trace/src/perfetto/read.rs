//! Reads Perfetto's format packet by packet: memory holds only one packet and what has been
//! collected so far.

use super::bundle::Bundles;
use super::compact::Sink;
use super::proto::{self, packet};
use super::slices::Tracks;
use super::stats::LostEvents;
use super::symbols::Sequences;
use super::wire::{Cut, Stop, Value, pick, try_fields};
use crate::claims::seams;
use crate::error::Fault;
use crate::ftrace::threads;
use crate::input::{ReadOptions, below, inflate};
use crate::{Comm, Event, Kind, Loss, Notice, Policy, Task, Thread, Trace, UNKNOWN_PID};
use std::collections::HashMap;
use std::io::{BufRead, Read};

/// Largest accepted packet; Perfetto's own are below 1 MiB unless configured otherwise.
const PACKET: u64 = 256 << 20;

/// Reads a whole trace.
pub(crate) fn read(mut file: impl BufRead, limits: ReadOptions) -> Result<Trace, Fault> {
    let mut reader = Reader::new(limits);
    let (mut packet, mut offset) = (Vec::new(), 0);
    while let Some(size) = next(&mut file, &mut packet, offset)? {
        reader.packet(&packet, 0).map_err(|stop| match stop {
            Stop::Damaged => broken(offset, "a packet that is not a protocol buffer"),
            Stop::Fault(fault) => fault,
        })?;
        offset += size;
    }
    reader.finish()
}

const FORMAT: &str = "Perfetto";

fn broken(offset: u64, reason: &str) -> Fault {
    Fault::broken(FORMAT, offset, reason)
}

/// Reads the next packet; returns the number of bytes that it takes up in the file.
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
                .map_err(|_| broken(offset, "the file ends within a packet"))?;
            head += 1;
            value |= u64::from(byte[0] & 0x7f) << shift;
            if byte[0] & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(broken(offset, "a number without an end"))
    };
    if varint()? != 0x0a {
        return Err(broken(offset, "not a packet"));
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

/// The data read so far, and the tables that later packets refer to.
struct Reader {
    trace: Trace,
    limits: ReadOptions,
    bundles: Bundles,
    sequences: Sequences,
    tracks: Tracks,
    lost: LostEvents,
    /// Time at which all data sources of the recording had started.
    started_ns: u64,
    /// Which of the packets that occur once per recording were read.
    once: [bool; 3],
    /// The recordings before this one: files may be concatenated.
    recordings: Vec<Vec<Event>>,
}

impl Reader {
    fn new(limits: ReadOptions) -> Self {
        Self {
            trace: Trace::new("boot"),
            limits,
            bundles: Bundles::default(),
            sequences: Sequences::default(),
            tracks: Tracks::default(),
            lost: LostEvents::default(),
            started_ns: 0,
            once: [false; 3],
            recordings: Vec::new(),
        }
    }

    fn packet(&mut self, packet: &[u8], depth: u32) -> Result<(), Stop> {
        self.begin_recording(packet)?;
        let tags = [
            packet::TIMESTAMP,
            packet::SEQUENCE,
            packet::SEQUENCE_FLAGS,
            packet::INCREMENTAL_STATE_CLEARED,
            packet::PREVIOUS_PACKET_DROPPED,
        ];
        let [time, sequence, flags, cleared, dropped] = pick(packet, tags)?.map(Value::number);
        // Perfetto also sets this flag in the first packet of each sequence, before which nothing
        // is missing.
        if self.sequences.contains(sequence) {
            self.lost.dropped_packets += dropped & 1;
        }
        let clear = (flags | cleared) & proto::STATE_CLEARED != 0;
        self.sequences.begin(sequence, clear)?;
        // Interned data may follow the events that refer to it.
        try_fields(packet, |tag, value| match tag {
            packet::INTERNED_DATA => {
                let trace = &mut self.trace;
                self.sequences.intern(sequence, trace, value.bytes())
            }
            _ => Ok(()),
        })?;
        try_fields(packet, |tag, value| {
            self.part(tag, value, sequence, time, depth)
        })?;
        Ok(self.limits.check(&self.trace)?)
    }

    /// Begins a recording if this packet is of a kind that occurs once in each recording
    /// (configuration, ID, system), or if it begins statistics after those of the previous
    /// recording have ended.
    fn begin_recording(&mut self, packet: &[u8]) -> Result<(), Stop> {
        let tags = [
            packet::TRACE_CONFIG,
            packet::TRACE_UUID,
            packet::SYSTEM_INFO,
        ];
        let found = pick(packet, tags)?.map(|value| value != Value::Absent);
        let [stats] = pick(packet, [packet::FTRACE_STATS])?;
        let starts = match stats {
            Value::Bytes(stats) => pick(stats, [1])?[0].number() == proto::START_OF_TRACE,
            _ => false,
        };
        let again = found
            .iter()
            .zip(self.once)
            .any(|(found, seen)| *found && seen);
        if again || starts && self.lost.ended {
            self.end_recording();
            self.sequences = Sequences::default();
        }
        for (seen, found) in self.once.iter_mut().zip(found) {
            *seen |= found;
        }
        let before: usize = self.recordings.iter().map(Vec::len).sum();
        let all = before + self.trace.events.len();
        Ok(below(all, self.limits.max_events, "events")?)
    }

    fn part(
        &mut self,
        tag: u32,
        value: Value<'_>,
        sequence: u64,
        time: u64,
        depth: u32,
    ) -> Result<(), Stop> {
        let bytes = value.bytes();
        match tag {
            packet::FTRACE_EVENTS => {
                let sink = Sink {
                    trace: &mut self.trace,
                    symbols: self.sequences.symbols(sequence),
                    limits: &self.limits,
                };
                self.bundles.read(sink, bytes)
            }
            packet::PROCESS_TREE => self.process_tree(bytes),
            packet::CLOCK_SNAPSHOT => self.clocks(bytes),
            packet::TRACK_EVENT => {
                let slices = &mut self.trace.slices;
                self.tracks.event(bytes, time, slices, &self.limits)
            }
            packet::FTRACE_STATS => self.lost.stats(bytes),
            packet::SYSTEM_INFO => Ok(self.system(bytes)?),
            packet::COMPRESSED => {
                let unpacked = inflate::deflate(bytes, &mut self.limits)?;
                self.compressed(&unpacked.ok_or(Stop::Damaged)?, depth)
            }
            packet::TRACK_DESCRIPTOR => self.tracks.descriptor(bytes, &self.limits),
            packet::SERVICE_EVENT => Ok(self.service_event(bytes, time)?),
            packet::COMPRESSED_ZSTD => {
                let unpacked = inflate::zstd(bytes, &mut self.limits)?;
                self.compressed(&unpacked.ok_or(Stop::Damaged)?, depth)
            }
            _ => Ok(()),
        }
    }

    /// Reads the packets inside a compressed packet, which must not be compressed in turn.
    fn compressed(&mut self, packets: &[u8], depth: u32) -> Result<(), Stop> {
        if depth > 0 {
            return Err(Stop::Damaged);
        }
        try_fields(packets, |tag, value| match tag {
            1 => self.packet(value.bytes(), depth + 1),
            _ => Ok(()),
        })
    }

    fn process_tree(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        try_fields(bytes, |tag, value| {
            match tag {
                1 => self.process(value.bytes())?,
                2 => self.thread(value.bytes())?,
                _ => {}
            }
            Ok(self.limits.check(&self.trace)?)
        })
    }

    fn process(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let [pid, command] = pick(bytes, [1, 3])?;
        let (tgid, mut parts) = (pid.number() as i32, command.bytes().rsplit(|&b| b == b'/'));
        let comm = Comm::new(parts.next().unwrap_or_default());
        let thread = Thread {
            comm,
            tgid,
            ..Thread::default()
        };
        self.trace.threads.insert(tgid, thread);
        Ok(())
    }

    fn thread(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let [tid, name, tgid, policy] = pick(bytes, [1, 2, 3, proto::POLICY])?;
        let thread = self.trace.threads.entry(tid.number() as i32).or_default();
        if let Value::Number(tgid) = tgid {
            thread.tgid = tgid as i32;
        }
        if let Value::Number(policy) = policy {
            thread.policy = Policy::from_number(policy);
        }
        if let Value::Bytes(name) = name {
            thread.comm = Comm::new(name);
        }
        Ok(())
    }

    fn clocks(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let (mut boot, mut mono) = (None, None);
        try_fields(bytes, |tag, value| {
            if tag == 1 {
                let [clock, time] = pick(value.bytes(), [1, 2])?.map(Value::number);
                match clock {
                    proto::BOOTTIME => boot = boot.or(Some(time)),
                    proto::MONOTONIC => mono = mono.or(Some(time)),
                    _ => {}
                }
            }
            Ok::<(), Stop>(())
        })?;
        if let (Some(boot), Some(mono)) = (boot, mono) {
            self.trace.boot_offset_ns = boot.saturating_sub(mono);
        }
        Ok(())
    }

    /// `SystemInfo.utsname`.
    fn system(&mut self, bytes: &[u8]) -> Result<(), Cut> {
        let [utsname] = pick(bytes, [1])?;
        let names = pick(utsname.bytes(), [2, 3])?;
        [self.trace.kernel_version, self.trace.kernel] =
            names.map(|name| String::from_utf8_lossy(name.bytes()).into_owned());
        Ok(())
    }

    /// `TracingServiceEvent`: `tracing_started` says that all sources of data have started.
    fn service_event(&mut self, bytes: &[u8], time: u64) -> Result<(), Cut> {
        let [started] = pick(bytes, [2])?;
        if started.number() != 0 {
            self.started_ns = time;
        }
        Ok(())
    }

    /// Applies everything that one recording says about itself to its events.
    fn end_recording(&mut self) {
        let trace = &mut self.trace;
        trace.sort();
        fill_in(&mut trace.events);
        // Before this time, the recording lacks some events.
        trace.begin_at(self.started_ns);
        let from_ns = self.bundles.whole_from_ns();
        let overwritten = trace.begin_at(from_ns) > 0;
        if overwritten {
            let overwritten = 0;
            trace.notices.push(Notice::Wrapped {
                overwritten,
                from_ns,
            });
        }
        let reported = self.bundles.lossy.saturating_add(self.bundles.faulty);
        trace.lose(self.lost.total(reported));
        let whole = from_ns <= self.started_ns && !overwritten;
        completeness(trace, &self.bundles, &self.lost, whole);
        self.recordings.push(std::mem::take(&mut trace.events));
        self.bundles.next_recording();
        (self.lost, self.started_ns, self.once) = (LostEvents::default(), 0, [false; 3]);
    }

    fn finish(mut self) -> Result<Trace, Fault> {
        self.end_recording();
        let (mut trace, mut recordings) = (self.trace, self.recordings);
        recordings.retain(|events| !events.is_empty());
        let span = |events: &Vec<Event>| (events[0].time_ns, events[events.len() - 1].time_ns);
        recordings.sort_by_key(span);
        trace.claims.seams = seams(recordings.iter().map(span).collect())
            .map_err(|reason| Fault::broken(FORMAT, 0, reason))?;
        trace.events = recordings.concat();
        if trace.events.is_empty() {
            return Err(Fault::NoEvents {
                format: FORMAT,
                record: "ftrace_events with sched/sched_switch has them",
            });
        }
        let remedy = "record as root with symbolize_ksyms: true in the configuration";
        self.bundles
            .addresses
            .resolve(&mut trace, &mut std::io::empty(), remedy);
        threads::name_threads(&mut trace);
        Ok(trace)
    }
}

/// Compares the bundles with one another, and with what the kernel delivered. `whole` says whether
/// the recording is complete from its start because nothing was overwritten.
fn completeness(trace: &mut Trace, bundles: &Bundles, lost: &LostEvents, whole: bool) {
    let follow = bundles.follow();
    for (cpu, chain) in &bundles.chains {
        let loss = |reason| {
            move |&until_ns: &u64| Loss {
                cpu: Some(*cpu),
                until_ns,
                reason,
            }
        };
        let reported = chain
            .lossy
            .iter()
            .map(loss("the recorder reports lost events"));
        trace.claims.losses.extend(reported);
        let breaks = chain.breaks.iter().filter(|_| follow);
        let breaks = breaks.map(loss("a bundle does not follow the one before it"));
        trace.claims.losses.extend(breaks);
    }
    for (cpu, delivered) in lost.delivered().filter(|(_, delivered)| *delivered > 0) {
        trace.claims.cpus.insert(cpu);
        let chain = bundles.chains.get(&cpu);
        let events = chain.map_or(0, |chain| chain.events);
        let broken = chain.is_some_and(|chain| !chain.breaks.is_empty());
        if events >= delivered {
            trace.claims.counted.insert(cpu);
        } else if events == 0 || whole && follow && !broken {
            trace.claims.losses.push(Loss {
                cpu: Some(cpu),
                until_ns: u64::MAX,
                reason: "the kernel delivered more events than the trace contains",
            });
        }
    }
}

/// Compact events omit the running thread: it is the one switched in last on that CPU.
fn fill_in(events: &mut [Event]) {
    let mut current: HashMap<u32, Task> = HashMap::new();
    for event in events {
        let running = current.get(&event.cpu).copied();
        if let (UNKNOWN_PID, Some(task)) = (event.pid, running) {
            event.pid = task.pid;
        }
        if let Kind::Switch { prev, next, .. } = &mut event.kind {
            if let (UNKNOWN_PID, Some(task)) = (prev.pid, running) {
                *prev = task;
            }
            current.insert(event.cpu, *next);
        }
    }
}
