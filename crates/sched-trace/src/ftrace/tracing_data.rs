//! The tracing data section shared by trace.dat and perf.data: page layout, event formats, symbols.
//!
//! trace.dat up to version 6 begins with it; perf.data stores it as a feature section. See
//! trace-cmd.dat.v6(5).

use super::format::{EventFormat, PageLayout};
use crate::error::Fault;
use crate::input::{Source, below};
use std::io::Read;

/// The first bytes of a trace.dat and of perf's section.
pub(crate) const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

/// Where to convert a trace of a big-endian machine.
const BIG_ENDIAN: &str = "convert it there: trace-cmd report -i FILE > trace.txt";

/// Largest number of event formats that is accepted; Linux 6.18 has some 2,500.
const FORMATS: usize = 1 << 16;

/// Page layout, event formats and symbols of the traced kernel.
#[derive(Debug, Default)]
pub(crate) struct TracingData {
    pub layout: Option<PageLayout>,
    pub formats: Vec<EventFormat>,
    pub kallsyms: Vec<u8>,
}

/// Version, and page size of the traced machine.
#[derive(Debug)]
pub(crate) struct Opening {
    pub version: String,
    pub page: usize,
}

/// Reads magic, version, byte order, size of a long and size of a page.
pub(crate) fn opening<R: Read>(source: &mut Source<R>) -> Result<Opening, Fault> {
    if source.array("the magic")? != *MAGIC {
        return Err(source.broken("the tracing data lacks its magic"));
    }
    let version = source.string("the version")?;
    if source.u8("the byte order")? != 0 {
        return Err(source.broken(format!("recorded on a big-endian machine; {BIG_ENDIAN}")));
    }
    source.u8("the size of a long")?;
    let page = source.u32("the size of a page")? as usize;
    if !(512..=1 << 24).contains(&page) {
        return Err(source.broken(format!("pages of {page} bytes")));
    }
    Ok(Opening { version, page })
}

impl TracingData {
    /// Reads all parts in the order of version 6, up to the printk formats.
    pub fn read<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), Fault> {
        self.header_info(source)?;
        self.ftrace_formats(source)?;
        self.event_formats(source)?;
        self.kallsyms(source)?;
        let size = source.u32("the printk formats")?;
        source.bytes(u64::from(size), "the printk formats")?;
        Ok(())
    }

    pub fn header_info<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), Fault> {
        for name in ["header_page", "header_event"] {
            if source.string(name)? != name {
                return Err(source.broken(format!("{name} is missing")));
            }
            let size = source.u64(name)?;
            let text = source.bytes(size, name)?;
            if name == "header_page" {
                self.layout = PageLayout::parse(&String::from_utf8_lossy(&text));
            }
        }
        Ok(())
    }

    pub fn ftrace_formats<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), Fault> {
        for _ in 0..source.u32("the number of ftrace formats")? {
            let size = source.u64("an ftrace format")?;
            source.bytes(size, "an ftrace format")?;
        }
        Ok(())
    }

    pub fn event_formats<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), Fault> {
        for _ in 0..source.u32("the number of event groups")? {
            source.string("the name of an event group")?;
            for _ in 0..source.u32("the number of events")? {
                let size = source.u64("an event's format")?;
                let text = source.bytes(size, "an event's format")?;
                let format = EventFormat::parse(&String::from_utf8_lossy(&text));
                self.formats.extend(format);
                below(self.formats.len(), FORMATS, "event formats")?;
            }
        }
        Ok(())
    }

    pub fn kallsyms<R: Read>(&mut self, source: &mut Source<R>) -> Result<(), Fault> {
        let size = source.u32("the kernel's symbols")?;
        self.kallsyms = source.bytes(u64::from(size), "the kernel's symbols")?;
        Ok(())
    }
}
