//! Reads trace.dat files of trace-cmd, versions 6 and 7: trace-cmd.dat.v6(5), trace-cmd.dat.v7(5).

mod options;
mod pages;
mod sections;

use crate::Trace;
use crate::error::Fault;
use crate::ftrace::tracing_data::{MAGIC, opening};
use crate::input::{ByteReader, ReadOptions};
use options::{Buffer, Contents, Options};
use std::io::{Read, Seek, SeekFrom};

pub(super) use options::FORMAT;

/// Largest accepted number of sections.
const SECTIONS: usize = 1000;

/// Number of bytes after the events that are searched for another trace, since version 7 stores
/// options in between.
const AFTER_EVENTS: u64 = 1 << 20;

/// Reads a whole trace.
pub(super) fn read(mut file: impl Read + Seek, mut limits: ReadOptions) -> Result<Trace, Fault> {
    let size = file.seek(SeekFrom::End(0))?;
    file.rewind()?;
    let mut reader = ByteReader::new(file, FORMAT);
    let opening = opening(&mut reader)?;
    let contents = match opening.version.as_str() {
        "6" => version6(&mut reader, opening.page)?,
        "7" => version7(&mut reader, &mut limits, size)?,
        other => {
            return Err(reader.broken(format!("version {other} is not supported; 6 and 7 are")));
        }
    };
    // The CPUs' data do not overlap, so the sum of their sizes is less than the file size.
    let sizes = contents.buffer.cpus.iter().map(|cpu| cpu.size);
    let sum = sizes.fold(0, u64::saturating_add);
    if sum > size {
        return Err(reader.broken(format!("{sum} bytes of events in a file of {size}")));
    }
    // A recording that follows this one would go unnoticed, so it is an error.
    let end = contents
        .buffer
        .cpus
        .iter()
        .map(|cpu| cpu.offset.saturating_add(cpu.size))
        .max();
    if holds_another(&mut reader, end.unwrap_or(size), size)? {
        return Err(reader.broken("another recording follows; read each of them separately"));
    }
    pages::read(reader, &contents, limits)
}

/// Whether another trace.dat follows the events of this one.
fn holds_another<R: Read + Seek>(
    reader: &mut ByteReader<R>,
    end: u64,
    size: u64,
) -> Result<bool, Fault> {
    let at = reader.offset;
    sections::seek(reader, end.min(size), "the end")?;
    let mut rest = Vec::new();
    reader
        .inner
        .by_ref()
        .take(AFTER_EVENTS)
        .read_to_end(&mut rest)?;
    reader.offset = reader.inner.seek(SeekFrom::Start(at))?;
    Ok(rest.windows(MAGIC.len()).any(|bytes| bytes == MAGIC))
}

fn version6<R: Read + Seek>(reader: &mut ByteReader<R>, page: usize) -> Result<Contents, Fault> {
    let mut contents = Contents::default();
    contents.description.read(reader)?;
    let size = reader.u64("the command lines")?;
    contents.cmdlines = reader.bytes(size, "the command lines")?;
    let cpus = reader.u32("the number of CPUs")?;
    let mut kind = reader.array::<10>("the kind of trace")?;
    if kind.starts_with(b"options") {
        while options::option(reader, &mut contents.options, false)? {}
        kind = reader.array("the kind of trace")?;
    }
    if !kind.starts_with(b"flyrecord") {
        return Err(reader.broken("it holds no ring buffer data (a latency trace?)"));
    }
    contents.buffer = Buffer {
        section: 0,
        page,
        cpus: options::cpus(reader, cpus, |_, index| Ok(index))?,
    };
    Ok(contents)
}

fn version7<R: Read + Seek>(
    reader: &mut ByteReader<R>,
    limits: &mut ReadOptions,
    size: u64,
) -> Result<Contents, Fault> {
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
        let mut list = sections::section(reader, options.next, options::DONE, &algorithm, limits)?;
        options.next = 0;
        while options::option(&mut list, &mut options, true)? {}
    }
    let mut contents = Contents::default();
    for (id, offset) in std::mem::take(&mut options.sections) {
        let mut part = sections::section(reader, offset, id, &algorithm, limits)?;
        let description = &mut contents.description;
        match id {
            options::HEADER_INFO => description.header_info(&mut part)?,
            options::FTRACE_EVENTS => description.ftrace_formats(&mut part)?,
            options::EVENT_FORMATS => description.event_formats(&mut part)?,
            options::KALLSYMS => description.kallsyms(&mut part)?,
            _ => {
                let size = part.u64("the command lines")?;
                contents.cmdlines = part.bytes(size, "the command lines")?;
            }
        }
    }
    let Some(buffer) = options.buffer.take() else {
        return Err(reader.broken("it holds no ring buffer data"));
    };
    let (compressed, length) = sections::section_head(reader, buffer.section, options::BUFFER)?;
    let end = reader.offset.saturating_add(length).min(size);
    // The events are followed by more sections, or by another trace, which the caller refuses.
    if !holds_another(reader, end, size)? {
        sections::check(reader, end, size)?;
    }
    contents.algorithm = compressed.then_some(algorithm);
    (contents.options, contents.buffer) = (options, buffer);
    Ok(contents)
}
