//! The description of a kernel's events as trace-cmd and perf store it: page layout, formats,
//! symbols. trace.dat up to version 6 begins with it, and perf.data has it as a feature section
//! (see trace-cmd.dat.v6(5)).

use super::format::{EventFormat, PageLayout};
use crate::error::Fault;
use std::io::Read;

/// The first bytes of a trace.dat and of perf's section.
pub(crate) const MAGIC: &[u8; 10] = b"\x17\x08\x44tracing";

/// The most that one piece of the description may take.
const PIECE: u64 = 256 << 20;

/// What the events look like.
#[derive(Debug, Default)]
pub(crate) struct TracingData {
    pub layout: Option<PageLayout>,
    pub formats: Vec<EventFormat>,
    pub kallsyms: Vec<u8>,
}

/// Version, and the size of a page of the traced machine.
#[derive(Debug)]
pub(crate) struct Opening {
    pub version: String,
    pub page: usize,
}

/// Reads with bounds, and tells what was being read when the data ended.
#[derive(Debug)]
pub(crate) struct Source<R> {
    pub inner: R,
    pub format: &'static str,
    pub offset: u64,
}

impl<R: Read> Source<R> {
    pub fn new(inner: R, format: &'static str) -> Self {
        Self {
            inner,
            format,
            offset: 0,
        }
    }

    pub fn broken(&self, reason: impl Into<String>) -> Fault {
        Fault::Broken {
            format: self.format,
            offset: self.offset,
            reason: reason.into(),
        }
    }

    pub fn bytes(&mut self, length: u64, what: &str) -> Result<Vec<u8>, Fault> {
        if length > PIECE {
            return Err(self.broken(format!("{what} of {length} bytes")));
        }
        let mut bytes = Vec::new();
        self.inner.by_ref().take(length).read_to_end(&mut bytes)?;
        self.offset += bytes.len() as u64;
        if (bytes.len() as u64) < length {
            return Err(self.broken(format!("the file ends in {what}")));
        }
        Ok(bytes)
    }

    pub fn array<const N: usize>(&mut self, what: &str) -> Result<[u8; N], Fault> {
        let bytes = self.bytes(N as u64, what)?;
        bytes
            .try_into()
            .map_err(|_| self.broken(format!("the file ends in {what}")))
    }

    pub fn u8(&mut self, what: &str) -> Result<u8, Fault> {
        Ok(self.array::<1>(what)?[0])
    }

    pub fn u16(&mut self, what: &str) -> Result<u16, Fault> {
        Ok(u16::from_le_bytes(self.array(what)?))
    }

    pub fn u32(&mut self, what: &str) -> Result<u32, Fault> {
        Ok(u32::from_le_bytes(self.array(what)?))
    }

    pub fn u64(&mut self, what: &str) -> Result<u64, Fault> {
        Ok(u64::from_le_bytes(self.array(what)?))
    }

    /// Up to and without a NUL.
    pub fn string(&mut self, what: &str) -> Result<String, Fault> {
        let mut text = Vec::new();
        while text.len() < 4096 {
            match self.u8(what)? {
                0 => return Ok(String::from_utf8_lossy(&text).into_owned()),
                byte => text.push(byte),
            }
        }
        Err(self.broken(format!("{what} that does not end")))
    }

    /// Magic, version, byte order, size of a long, size of a page.
    pub fn opening(&mut self) -> Result<Opening, Fault> {
        if self.array("the magic")? != *MAGIC {
            return Err(self.broken("it does not begin like a trace"));
        }
        let version = self.string("the version")?;
        if self.u8("the byte order")? != 0 {
            return Err(self.broken("it is of a big-endian machine, which is not read"));
        }
        self.u8("the size of a long")?;
        let page = self.u32("the size of a page")? as usize;
        if !(512..=1 << 24).contains(&page) {
            return Err(self.broken(format!("pages of {page} bytes")));
        }
        Ok(Opening { version, page })
    }
}

impl TracingData {
    /// All parts in the order of version 6, up to the symbols and the printk formats.
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
                self.formats
                    .extend(EventFormat::parse(&String::from_utf8_lossy(&text)));
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
