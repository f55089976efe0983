//! The tracing data section shared by trace.dat and perf.data: page layout, event formats, symbols.
//!
//! trace.dat up to version 6 begins with this section; perf.data stores it as a feature section.
//! See trace-cmd.dat.v6(5).

use super::format::{EventFormat, PageLayout};
use crate::error::Fault;
use crate::input::{ByteReader, below};
use std::io::Read;

/// The first bytes of a trace.dat and of perf's section.
pub(crate) const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

/// Remedy for a trace from a big-endian machine.
const BIG_ENDIAN: &str = "convert it there: trace-cmd report -i FILE > trace.txt";

/// Largest accepted number of event formats; Linux 6.18 has about 2,500.
const FORMATS: usize = 1 << 16;

/// Page layout, event formats and symbols of the traced kernel.
#[derive(Debug, Default)]
pub(crate) struct TracingData {
    pub layout: Option<PageLayout>,
    pub formats: Vec<EventFormat>,
    pub kallsyms: Vec<u8>,
}

/// Version, and the traced machine's page size.
#[derive(Debug)]
pub(crate) struct Opening {
    pub version: String,
    pub page: usize,
}

/// Reads magic, version, byte order, the size of a long and the page size.
pub(crate) fn opening<R: Read>(reader: &mut ByteReader<R>) -> Result<Opening, Fault> {
    if reader.array("the magic")? != *MAGIC {
        return Err(reader.broken("the tracing data lacks its magic"));
    }
    let version = reader.string("the version")?;
    if reader.u8("the byte order")? != 0 {
        return Err(reader.broken(format!("recorded on a big-endian machine; {BIG_ENDIAN}")));
    }
    reader.u8("the size of a long")?;
    let page = reader.u32("the size of a page")? as usize;
    if !(512..=1 << 24).contains(&page) {
        return Err(reader.broken(format!("pages of {page} bytes")));
    }
    Ok(Opening { version, page })
}

impl TracingData {
    /// Reads all parts in the order of version 6, up to the printk formats.
    pub fn read<R: Read>(&mut self, reader: &mut ByteReader<R>) -> Result<(), Fault> {
        self.header_info(reader)?;
        self.ftrace_formats(reader)?;
        self.event_formats(reader)?;
        self.kallsyms(reader)?;
        let size = reader.u32("the printk formats")?;
        reader.bytes(u64::from(size), "the printk formats")?;
        Ok(())
    }

    pub fn header_info<R: Read>(&mut self, reader: &mut ByteReader<R>) -> Result<(), Fault> {
        for name in ["header_page", "header_event"] {
            if reader.string(name)? != name {
                return Err(reader.broken(format!("{name} is missing")));
            }
            let size = reader.u64(name)?;
            let text = reader.bytes(size, name)?;
            if name == "header_page" {
                self.layout = PageLayout::parse(&String::from_utf8_lossy(&text));
            }
        }
        Ok(())
    }

    pub fn ftrace_formats<R: Read>(&mut self, reader: &mut ByteReader<R>) -> Result<(), Fault> {
        for _ in 0..reader.u32("the number of ftrace formats")? {
            let size = reader.u64("an ftrace format")?;
            reader.bytes(size, "an ftrace format")?;
        }
        Ok(())
    }

    pub fn event_formats<R: Read>(&mut self, reader: &mut ByteReader<R>) -> Result<(), Fault> {
        for _ in 0..reader.u32("the number of event groups")? {
            reader.string("the name of an event group")?;
            for _ in 0..reader.u32("the number of events")? {
                let size = reader.u64("an event's format")?;
                let text = reader.bytes(size, "an event's format")?;
                let format = EventFormat::parse(&String::from_utf8_lossy(&text));
                self.formats.extend(format);
                below(self.formats.len(), FORMATS, "event formats")?;
            }
        }
        Ok(())
    }

    pub fn kallsyms<R: Read>(&mut self, reader: &mut ByteReader<R>) -> Result<(), Fault> {
        let size = reader.u32("the kernel's symbols")?;
        self.kallsyms = reader.bytes(u64::from(size), "the kernel's symbols")?;
        Ok(())
    }
}
