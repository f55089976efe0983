//! Trace files of several tools, told apart by how they begin.

pub(crate) mod inflate;
mod perf;
mod text;
mod trace_dat;

#[cfg(test)]
mod tests;

use crate::error::Fault;
use crate::ftrace::tracing_data;
use crate::{Error, Result, Trace, perfetto};
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

/// How to read a trace file.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// The most events to keep in memory (up to 80 bytes each); a bigger trace is an error.
    pub max_events: usize,
}

impl Default for ReadOptions {
    fn default() -> Self {
        Self {
            max_events: 40_000_000,
        }
    }
}

/// The bound on events, for readers to check as they go.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit(usize);

impl Limit {
    #[cfg(test)]
    pub fn of(events: usize) -> Self {
        Self(events)
    }

    pub fn check(self, events: usize) -> Result<(), Fault> {
        if events > self.0 {
            Err(Fault::TooBig(self.0))
        } else {
            Ok(())
        }
    }
}

/// The formats that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Perfetto,
    Perf,
    TraceDat,
    Text,
}

/// Reads a trace file, whatever its format.
pub fn open(path: &Path, options: &ReadOptions) -> Result<Trace> {
    let io = |source| Error::Io {
        path: path.into(),
        source,
    };
    let mut file = File::open(path).map_err(io)?;
    let mut head = Vec::new();
    (&file).take(512).read_to_end(&mut head).map_err(io)?;
    file.rewind().map_err(io)?;
    let format = detect(&head).ok_or_else(|| Error::UnknownFormat {
        path: path.into(),
        found: describe(&head),
    })?;
    let limit = Limit(options.max_events);
    let file = BufReader::with_capacity(1 << 20, file);
    let trace = match format {
        Format::Perfetto => perfetto::read(file, limit),
        Format::Perf => perf::read(file, limit),
        Format::TraceDat => trace_dat::read(file, limit),
        Format::Text => text::read(file, limit),
    };
    trace.map_err(|fault| fault.at(path))
}

fn detect(head: &[u8]) -> Option<Format> {
    if head.starts_with(b"PERFILE2") || head.starts_with(b"2ELIFREP") {
        Some(Format::Perf)
    } else if head.starts_with(tracing_data::MAGIC) {
        Some(Format::TraceDat)
    } else if !head.is_empty() && is_text(head) {
        Some(Format::Text)
    } else if head.first() == Some(&0x0a) {
        // The first field of a Perfetto trace is a packet; the byte is a line feed as well.
        Some(Format::Perfetto)
    } else {
        None
    }
}

/// Printable from end to end, as ftrace's text is.
fn is_text(head: &[u8]) -> bool {
    head.iter()
        .all(|&byte| matches!(byte, b'\t' | b'\n' | b'\r' | 0x20..=0x7e))
}

/// What an unknown file looks like, for the error.
fn describe(head: &[u8]) -> String {
    match head {
        [] => "it is empty".into(),
        [0x1f, 0x8b, ..] => "it is compressed with gzip: unpack it first".into(),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => "it is compressed with zstd: unpack it first".into(),
        _ => format!(
            "it begins with \"{}\"",
            head[..head.len().min(12)].escape_ascii()
        ),
    }
}
