//! The part of a trace.dat before its events: its options, and the positions of the events.

use crate::error::Fault;
use crate::ftrace::loss::Loss;
use crate::ftrace::tracing_data::TracingData;
use crate::input::{ByteReader, CPUS};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};

pub(in crate::read) const FORMAT: &str = "trace.dat";

/// The contents of the file before its events.
#[derive(Default)]
pub(super) struct Contents {
    pub description: TracingData,
    /// Lines `PID NAME`.
    pub cmdlines: Vec<u8>,
    pub options: Options,
    pub buffer: Buffer,
    /// How the events are compressed.
    pub algorithm: Option<String>,
}

/// Location of the pages of one CPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct CpuData {
    pub cpu: u32,
    pub offset: u64,
    pub size: u64,
}

/// The position of the ring buffer's data.
#[derive(Default)]
pub(super) struct Buffer {
    pub section: u64,
    pub page: usize,
    pub cpus: Vec<CpuData>,
}

/// Contents of the options.
#[derive(Default)]
pub(super) struct Options {
    pub clock: String,
    pub kernel: String,
    pub kernel_version: String,
    /// Number of events that were overwritten, the CPUs concerned, and number of events lost in
    /// other ways.
    pub overwritten: u64,
    pub wrapped: BTreeSet<u32>,
    pub dropped: u64,
    /// Number of events of each CPU that were in the kernel's buffer, or had been read from it,
    /// when the recording ended.
    pub kept: BTreeMap<u32, u64>,
    /// Multiplier and shift from TSC ticks to nanoseconds.
    pub tsc: Option<(u32, u32)>,
    /// Version 7: offsets of sections by option ID, and the buffer to read.
    pub sections: Vec<(u16, u64)>,
    pub buffer: Option<Buffer>,
    pub next: u64,
}

// Option IDs, which version 7 also uses for sections.
pub(super) const DONE: u16 = 0;
const CPUSTAT: u16 = 2;
pub(super) const BUFFER: u16 = 3;
const TRACECLOCK: u16 = 4;
const UNAME: u16 = 5;
const TSC2NSEC: u16 = 14;
pub(super) const HEADER_INFO: u16 = 16;
pub(super) const FTRACE_EVENTS: u16 = 17;
pub(super) const EVENT_FORMATS: u16 = 18;
pub(super) const KALLSYMS: u16 = 19;
const CMDLINES: u16 = 21;

/// Reads one option; returns false after the last one. Only version 7 stores offsets of sections.
pub(super) fn option<R: Read>(
    reader: &mut ByteReader<R>,
    options: &mut Options,
    sections: bool,
) -> Result<bool, Fault> {
    let id = reader.u16("an option")?;
    if id == DONE && !sections {
        return Ok(false);
    }
    let size = reader.u32("an option")?;
    let bytes = reader.bytes(u64::from(size), "an option")?;
    let text = || {
        String::from_utf8_lossy(&bytes)
            .trim_end_matches('\0')
            .to_string()
    };
    let mut inner = ByteReader::new(Cursor::new(&bytes), FORMAT);
    match id {
        DONE => {
            options.next = inner.u64("the next options")?;
            return Ok(false);
        }
        CPUSTAT => {
            let loss = Loss::of(&text());
            options.overwritten = options.overwritten.saturating_add(loss.overwritten);
            options.dropped = options.dropped.saturating_add(loss.dropped);
            options.kept.extend(loss.cpu.map(|cpu| (cpu, loss.kept)));
            if loss.overwritten > 0 {
                options.wrapped.extend(loss.cpu);
            }
        }
        TRACECLOCK => options.clock = chosen(&text()),
        UNAME => (options.kernel, options.kernel_version) = uname(&text()),
        TSC2NSEC => options.tsc = Some((inner.u32("TSC2NSEC")?, inner.u32("TSC2NSEC")?)),
        BUFFER if sections => {
            let buffer = buffer(&mut inner, options)?;
            // The top instance comes first; further ones may repeat its events.
            if buffer.cpus.iter().any(|cpu| cpu.size > 0) && options.buffer.is_none() {
                options.buffer = Some(buffer);
            }
        }
        HEADER_INFO | FTRACE_EVENTS | EVENT_FORMATS | KALLSYMS | CMDLINES if sections => {
            options.sections.push((id, inner.u64("a section's place")?));
        }
        _ => {}
    }
    Ok(true)
}

fn buffer<R: Read>(reader: &mut ByteReader<R>, options: &mut Options) -> Result<Buffer, Fault> {
    let section = reader.u64("a buffer's place")?;
    reader.string("a buffer's name")?;
    let clock = reader.string("a buffer's clock")?;
    if !clock.is_empty() {
        options.clock = clock;
    }
    let page = reader.u32("a buffer's page size")? as usize;
    let count = reader.u32("a buffer's CPUs")?;
    let cpus = cpus(reader, count, |reader, _| reader.u32("a CPU's data"))?;
    Ok(Buffer {
        section,
        page,
        cpus,
    })
}

/// The positions of the data of `count` CPUs; `number` gives the CPU of each.
pub(super) fn cpus<R: Read>(
    reader: &mut ByteReader<R>,
    count: u32,
    number: impl Fn(&mut ByteReader<R>, u32) -> Result<u32, Fault>,
) -> Result<Vec<CpuData>, Fault> {
    if count > CPUS {
        return Err(reader.broken(format!("{count} CPUs")));
    }
    let mut cpus = Vec::new();
    for index in 0..count {
        cpus.push(CpuData {
            cpu: number(reader, index)?,
            offset: reader.u64("a CPU's data")?,
            size: reader.u64("a CPU's data")?,
        });
    }
    Ok(cpus)
}

/// The bracketed clock in a `trace_clock` file, or its only word.
fn chosen(clocks: &str) -> String {
    let rest = clocks.split_once('[').map(|(_, rest)| rest);
    let bracketed = rest.and_then(|rest| rest.split_once(']'));
    bracketed.map_or(clocks, |(clock, _)| clock).trim().into()
}

/// Release and version of "Linux HOST RELEASE VERSION... MACHINE".
fn uname(text: &str) -> (String, String) {
    let mut words = text.splitn(4, ' ').skip(2);
    let release = words.next().unwrap_or_default();
    let rest = words.next().unwrap_or_default();
    let version = rest.rsplit_once(' ').map_or("", |(version, _)| version);
    (release.into(), version.into())
}
