//! Reads trace.dat files of trace-cmd, versions 6 and 7: trace-cmd.dat.v6(5), trace-cmd.dat.v7(5).

use crate::error::{COUNTED, Fault};
use crate::ftrace::decode::Decoder;
use crate::ftrace::format::PageLayout;
use crate::ftrace::loss::Loss;
use crate::ftrace::tracing_data::{TracingData, opening};
use crate::ftrace::{page, symbols, threads};
use crate::input::{ByteReader, Limits, inflate};
use crate::{Comm, Trace};
use std::collections::BTreeSet;
use std::io::{Cursor, Read, Seek, SeekFrom};

pub(super) const FORMAT: &str = "trace.dat";

/// Location of the pages of one CPU.
#[derive(Clone, Copy, Debug)]
struct CpuData {
    cpu: u32,
    offset: u64,
    size: u64,
}

/// Contents of the options.
#[derive(Default)]
struct Options {
    clock: String,
    kernel: String,
    kernel_version: String,
    /// Events that were overwritten, and those CPUs; and events that were lost otherwise.
    overwritten: u64,
    wrapped: BTreeSet<u32>,
    dropped: u64,
    /// Multiplier and shift from TSC ticks to nanoseconds.
    tsc: Option<(u32, u32)>,
    /// Version 7: offsets of sections by option id, and the buffer to read.
    sections: Vec<(u16, u64)>,
    buffer: Option<Buffer>,
    next: u64,
}

struct Buffer {
    section: u64,
    page: usize,
    cpus: Vec<CpuData>,
}

// Option ids, which version 7 uses for sections as well.
const DONE: u16 = 0;
const CPUSTAT: u16 = 2;
const BUFFER: u16 = 3;
const TRACECLOCK: u16 = 4;
const UNAME: u16 = 5;
const TSC2NSEC: u16 = 14;
const HEADER_INFO: u16 = 16;
const FTRACE_EVENTS: u16 = 17;
const EVENT_FORMATS: u16 = 18;
const KALLSYMS: u16 = 19;
const CMDLINES: u16 = 21;

/// Section flag: compressed.
const COMPRESSED: u16 = 1;

/// Most sections and CPUs that are accepted.
const SECTIONS: usize = 1000;
const CPUS: u32 = 1 << 16;

/// Reads a whole trace.
pub(super) fn read(mut file: impl Read + Seek, limits: Limits) -> Result<Trace, Fault> {
    let size = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let mut reader = ByteReader::new(file, FORMAT);
    let opening = opening(&mut reader)?;
    match opening.version.as_str() {
        "6" => version6(reader, size, opening.page, limits),
        "7" => version7(reader, size, limits),
        other => Err(reader.broken(format!("version {other} is not read; 6 and 7 are"))),
    }
}

fn version6<R: Read + Seek>(
    mut reader: ByteReader<R>,
    file: u64,
    page: usize,
    limits: Limits,
) -> Result<Trace, Fault> {
    let mut description = TracingData::default();
    description.read(&mut reader)?;
    let size = reader.u64("the command lines")?;
    let cmdlines = reader.bytes(size, "the command lines")?;
    let cpus = reader.u32("the number of CPUs")?;
    if cpus > CPUS {
        return Err(reader.broken(format!("{cpus} CPUs")));
    }
    let mut options = Options::default();
    let mut kind = reader.array::<10>("the kind of trace")?;
    if kind.starts_with(b"options") {
        while option(&mut reader, &mut options, false)? {}
        kind = reader.array("the kind of trace")?;
    }
    if !kind.starts_with(b"flyrecord") {
        return Err(reader.broken("it holds no ring buffer data (a latency trace?)"));
    }
    let mut data = Vec::new();
    for cpu in 0..cpus {
        let offset = reader.u64("a CPU's data")?;
        data.push(CpuData {
            cpu,
            offset,
            size: reader.u64("a CPU's data")?,
        });
    }
    let buffer = Buffer {
        section: 0,
        page,
        cpus: data,
    };
    check_sizes(&reader, &buffer, file)?;
    events(
        reader,
        &description,
        &cmdlines,
        &options,
        &buffer,
        None,
        limits,
    )
}

fn version7<R: Read + Seek>(
    mut reader: ByteReader<R>,
    file: u64,
    mut limits: Limits,
) -> Result<Trace, Fault> {
    let algorithm = reader.string("the compression")?;
    reader.string("the compression's version")?;
    let mut options = Options {
        next: reader.u64("the options' place")?,
        ..Options::default()
    };
    let mut rounds = 0;
    while options.next != 0 {
        rounds += 1;
        if rounds > SECTIONS || options.sections.len() > SECTIONS {
            return Err(reader.broken("options without an end"));
        }
        let bytes = section(&mut reader, options.next, DONE, &algorithm, &mut limits)?;
        options.next = 0;
        let mut list = ByteReader::new(Cursor::new(bytes), FORMAT);
        while option(&mut list, &mut options, true)? {}
    }
    let mut description = TracingData::default();
    let mut cmdlines = Vec::new();
    for (id, offset) in std::mem::take(&mut options.sections) {
        let bytes = section(&mut reader, offset, id, &algorithm, &mut limits)?;
        let mut part = ByteReader::new(Cursor::new(bytes), FORMAT);
        match id {
            HEADER_INFO => description.header_info(&mut part)?,
            FTRACE_EVENTS => description.ftrace_formats(&mut part)?,
            EVENT_FORMATS => description.event_formats(&mut part)?,
            KALLSYMS => description.kallsyms(&mut part)?,
            _ => {
                let size = part.u64("the command lines")?;
                cmdlines = part.bytes(size, "the command lines")?;
            }
        }
    }
    let Some(buffer) = options.buffer.take() else {
        return Err(reader.broken("it holds no ring buffer data"));
    };
    check_sizes(&reader, &buffer, file)?;
    let (flags, _) = section_head(&mut reader, buffer.section, BUFFER)?;
    let algorithm = (flags & COMPRESSED != 0).then_some(algorithm.as_str());
    events(
        reader,
        &description,
        &cmdlines,
        &options,
        &buffer,
        algorithm,
        limits,
    )
}

/// Reads one option; false after the last one. Only version 7 stores offsets of sections.
fn option<R: Read>(
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
    let mut cpus = Vec::new();
    let count = reader.u32("a buffer's CPUs")?;
    if count > CPUS {
        return Err(reader.broken(format!("{count} CPUs")));
    }
    for _ in 0..count {
        let cpu = reader.u32("a CPU's data")?;
        let offset = reader.u64("a CPU's data")?;
        cpus.push(CpuData {
            cpu,
            offset,
            size: reader.u64("a CPU's data")?,
        });
    }
    Ok(Buffer {
        section,
        page,
        cpus,
    })
}

/// The CPUs' data do not overlap, so their sizes add up to less than the file.
fn check_sizes<R: Read>(reader: &ByteReader<R>, buffer: &Buffer, file: u64) -> Result<(), Fault> {
    let sizes = buffer.cpus.iter().map(|cpu| cpu.size);
    let sum = sizes.fold(0, u64::saturating_add);
    if sum > file {
        return Err(reader.broken(format!("{sum} bytes of events in a file of {file}")));
    }
    Ok(())
}

/// The clock in brackets of a `trace_clock` file, or the only word.
fn chosen(clocks: &str) -> String {
    let bracketed = clocks
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(clocks, |(clock, _)| clock).trim().into()
}

/// Goes on at `offset`, where `what` begins.
fn seek<R: Read + Seek>(reader: &mut ByteReader<R>, offset: u64, what: &str) -> Result<(), Fault> {
    reader.offset = reader.inner.seek(SeekFrom::End(0))?;
    if offset > reader.offset {
        return Err(reader.broken(format!(
            "the file ends here, {what} begins at byte {offset}"
        )));
    }
    reader.offset = reader.inner.seek(SeekFrom::Start(offset))?;
    Ok(())
}

/// Flags and size of the section at `offset`.
fn section_head<R: Read + Seek>(
    reader: &mut ByteReader<R>,
    offset: u64,
    id: u16,
) -> Result<(u16, u64), Fault> {
    seek(reader, offset, "a section")?;
    let found = reader.u16("a section")?;
    if found != id {
        return Err(reader.broken(format!("section {found} where {id} should be")));
    }
    let flags = reader.u16("a section")?;
    reader.u32("a section")?;
    Ok((flags, reader.u64("a section")?))
}

/// The content of a section.
fn section<R: Read + Seek>(
    reader: &mut ByteReader<R>,
    offset: u64,
    id: u16,
    algorithm: &str,
    limits: &mut Limits,
) -> Result<Vec<u8>, Fault> {
    let (flags, size) = section_head(reader, offset, id)?;
    if flags & COMPRESSED == 0 {
        return reader.bytes(size, "a section");
    }
    chunk(reader, algorithm, limits)
}

/// Reads a compressed chunk: its size, its unpacked size, its bytes.
fn chunk<R: Read>(
    reader: &mut ByteReader<R>,
    algorithm: &str,
    limits: &mut Limits,
) -> Result<Vec<u8>, Fault> {
    let packed = reader.u32("a compressed chunk")?;
    let unpacked = reader.u32("a compressed chunk")?;
    let bytes = reader.bytes(u64::from(packed), "a compressed chunk")?;
    let out = match algorithm {
        "zlib" => inflate::deflate(&bytes, limits)?,
        "zstd" => inflate::zstd(&bytes, limits)?,
        other => return Err(reader.broken(format!("compression {other} is not read"))),
    };
    match out {
        Some(out) if out.len() == unpacked as usize => Ok(out),
        _ => Err(reader.broken(format!("a {algorithm} chunk that cannot be unpacked"))),
    }
}

/// Decodes the pages of all CPUs.
fn events<R: Read + Seek>(
    mut reader: ByteReader<R>,
    description: &TracingData,
    cmdlines: &[u8],
    options: &Options,
    buffer: &Buffer,
    algorithm: Option<&str>,
    limits: Limits,
) -> Result<Trace, Fault> {
    let layout = PageLayout {
        page: buffer.page,
        ..description.layout.unwrap_or(PageLayout::USUAL)
    };
    if layout.page <= layout.data {
        return Err(reader.broken(format!("pages of {} bytes", layout.page)));
    }
    let clock = if options.clock.is_empty() {
        "local"
    } else {
        &options.clock
    };
    let tsc = options.tsc.filter(|_| clock == "x86-tsc");
    if clock == "counter" || clock == "x86-tsc" && tsc.is_none() {
        return Err(reader.broken(format!("it has {COUNTED}")));
    }
    let mut pages = Pages {
        trace: Trace::new(clock),
        decoder: Decoder::new(&description.formats),
        layout,
        tsc,
        first: false,
        wrapped: options.wrapped.clone(),
        flagged: 0,
        missed: 0,
        limits,
    };
    for cpu in buffer.cpus.iter().filter(|cpu| cpu.size > 0) {
        seek(&mut reader, cpu.offset, "a page of events")?;
        pages.first = true;
        match algorithm {
            Some(algorithm) => {
                for _ in 0..reader.u32("a CPU's data")? {
                    if reader.offset - cpu.offset > cpu.size {
                        return Err(reader.broken(format!("CPU {}: too many chunks", cpu.cpu)));
                    }
                    let bytes = chunk(&mut reader, algorithm, &mut pages.limits)?;
                    pages.read(&reader, cpu.cpu, &bytes)?;
                }
            }
            None => {
                for _ in 0..cpu.size / layout.page as u64 {
                    let bytes = reader.bytes(layout.page as u64, "a page of events")?;
                    pages.read(&reader, cpu.cpu, &bytes)?;
                }
            }
        }
    }
    let Pages {
        mut trace,
        decoder,
        flagged,
        missed,
        wrapped,
        ..
    } = pages;
    if trace.events.is_empty() {
        return Err(Fault::NoEvents {
            format: FORMAT,
            record: "trace-cmd record -e sched has them",
        });
    }
    trace.kernel = options.kernel.clone();
    trace.kernel_version = options.kernel_version.clone();
    trace.sort();
    let kallsyms = &mut &description.kallsyms[..];
    decoder.finish(&mut trace, Some(kallsyms), symbols::RECORD_AGAIN);
    name_from(&mut trace, cmdlines);
    threads::name_threads(&mut trace);
    let lost = options.overwritten.saturating_add(options.dropped);
    match missed > 0 || options.dropped > 0 {
        true => trace.lost_events = lost.max(flagged),
        false if lost.max(flagged) > 0 => {
            let overwritten = options.overwritten.max(flagged);
            trace.begin_whole(overwritten, |cpu| wrapped.contains(&cpu));
        }
        false => {}
    }
    Ok(trace)
}

/// Release and version of "Linux HOST RELEASE VERSION... MACHINE".
fn uname(text: &str) -> (String, String) {
    let mut words = text.splitn(4, ' ').skip(2);
    let release = words.next().unwrap_or_default();
    let rest = words.next().unwrap_or_default();
    let version = rest.rsplit_once(' ').map_or("", |(version, _)| version);
    (release.into(), version.into())
}

/// State while pages are decoded.
struct Pages {
    trace: Trace,
    decoder: Decoder,
    layout: PageLayout,
    tsc: Option<(u32, u32)>,
    /// The next page is the first one of its CPU: what is missing before it was overwritten.
    first: bool,
    wrapped: BTreeSet<u32>,
    /// Events that pages say are missing before them, and those before later pages.
    flagged: u64,
    missed: u64,
    limits: Limits,
}

impl Pages {
    fn read<R: Read>(
        &mut self,
        reader: &ByteReader<R>,
        cpu: u32,
        bytes: &[u8],
    ) -> Result<(), Fault> {
        let (trace, decoder, tsc) = (&mut self.trace, &mut self.decoder, self.tsc);
        for page in bytes.chunks_exact(self.layout.page) {
            let read = page::records(page, &self.layout, |time, record| {
                decoder.record(trace, nanoseconds(time, tsc), cpu, record);
            });
            match read {
                Ok(summary) => {
                    self.flagged = self.flagged.saturating_add(summary.lost);
                    match std::mem::take(&mut self.first) {
                        true if summary.lost > 0 => {
                            self.wrapped.insert(cpu);
                        }
                        true => {}
                        false => self.missed = self.missed.saturating_add(summary.lost),
                    }
                }
                Err(reason) => return Err(reader.broken(format!("CPU {cpu}: {reason}"))),
            }
        }
        self.limits.check(trace)
    }
}

fn nanoseconds(time: u64, tsc: Option<(u32, u32)>) -> u64 {
    match tsc {
        Some((multiplier, shift)) if shift < 64 => {
            ((u128::from(time) * u128::from(multiplier)) >> shift) as u64
        }
        _ => time,
    }
}

/// Reads the lines `PID NAME` of the saved command lines.
fn name_from(trace: &mut Trace, cmdlines: &[u8]) {
    for line in cmdlines.split(|&b| b == b'\n') {
        let Some(space) = line.iter().position(|&b| b == b' ') else {
            continue;
        };
        let (pid, comm) = line.split_at(space);
        if let Some(pid) = std::str::from_utf8(pid)
            .ok()
            .and_then(|pid| pid.parse().ok())
        {
            trace.threads.entry(pid).or_default().comm = Comm::new(&comm[1..]);
        }
    }
}
