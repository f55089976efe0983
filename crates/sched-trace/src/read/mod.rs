//! Opens trace files of several tools. The format is detected from the first bytes.

mod guard;
mod perf;
mod text;
mod trace_dat;

#[cfg(test)]
mod tests;

use crate::error::Fault;
use crate::ftrace::tracing_data;
use crate::input::ReadOptions;
use crate::{Result, Trace, donation, perfetto};
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::Path;

/// The supported formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Perfetto,
    Perf,
    TraceDat,
    Text,
}

/// Reads a trace file of any known format.
pub fn open(path: &Path, options: &ReadOptions) -> Result<Trace> {
    let file = File::open(path).map_err(|error| Fault::Io(error).at(path))?;
    read(file, path, options)
}

/// Reads a trace of any known format from its bytes; errors call it `path`.
pub fn read(file: impl Read + Seek, path: &Path, options: &ReadOptions) -> Result<Trace> {
    read_any(file, path, options).map_err(|fault| fault.at(path))
}

fn read_any(
    mut file: impl Read + Seek,
    path: &Path,
    options: &ReadOptions,
) -> Result<Trace, Fault> {
    let head = head(&mut file)?;
    let unknown = || Fault::UnknownFormat(describe(&head, path));
    let format = detect(&head).ok_or_else(unknown)?;
    let limits = options.clone();
    let panicked = || Err(Fault::broken(name(format), 0, "it contradicts itself"));
    let trace = guard::without_panic(|| parse(format, file, limits)).unwrap_or_else(panicked);
    match trace {
        Err(Fault::NoEvents { .. }) if format == Format::Text && !has_words(&head) => {
            Err(unknown())
        }
        trace => trace,
    }
}

/// Reads the first bytes, and rewinds the file.
fn head(file: &mut (impl Read + Seek)) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.by_ref().take(512).read_to_end(&mut head)?;
    file.rewind()?;
    Ok(head)
}

fn parse(format: Format, file: impl Read + Seek, limits: ReadOptions) -> Result<Trace, Fault> {
    let file = BufReader::with_capacity(1 << 20, file);
    let mut trace = match format {
        Format::Perfetto => perfetto::read(file, limits),
        Format::Perf => perf::read(file, limits),
        Format::TraceDat => trace_dat::read(file, limits),
        Format::Text => text::read(file, limits),
    }?;
    trace.format = name(format);
    donation::remove_returns(&mut trace);
    Ok(trace)
}

fn name(format: Format) -> &'static str {
    match format {
        Format::Perfetto => "Perfetto",
        Format::Perf => perf::FORMAT,
        Format::TraceDat => trace_dat::FORMAT,
        Format::Text => text::FORMAT,
    }
}

fn detect(head: &[u8]) -> Option<Format> {
    if head.starts_with(b"PERFILE2") || head.starts_with(b"2ELIFREP") {
        Some(Format::Perf)
    } else if head.starts_with(tracing_data::MAGIC) {
        Some(Format::TraceDat)
    } else if !head.is_empty() && is_text(head) {
        Some(Format::Text)
    } else if head.first() == Some(&0x0a) {
        // A Perfetto trace begins with the key of a packet, a byte that is also a line feed.
        Some(Format::Perfetto)
    } else {
        None
    }
}

/// Whether the beginning of a file has words of ftrace's text.
fn has_words(head: &[u8]) -> bool {
    let words = [b"[0".as_slice(), b"sched", b"# ", b"cpus="];
    words
        .iter()
        .any(|word| head.windows(word.len()).any(|at| at == *word))
}

/// Whether all bytes are printable, as in ftrace's text. Thread names may contain any bytes; 512
/// bytes of a binary format include control characters.
fn is_text(head: &[u8]) -> bool {
    let known = has_words(head);
    let ascii = head.is_ascii();
    let printable = |byte: &u8| !matches!(byte, 0..=8 | 11 | 12 | 14..=31 | 127);
    head.iter().all(printable) && (ascii || known)
}

/// Describes the beginning of an unknown file, and how to convert the file if that is known.
fn describe(head: &[u8], path: &Path) -> String {
    let path = path.display();
    match head {
        [] => "the file is empty".into(),
        [0x1f, 0x8b, ..] => format!("compressed with gzip; run: gzip -dc {path} > trace"),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => {
            format!("compressed with zstd; run: zstd -dc {path} > trace")
        }
        [0xfd, b'7', b'z', b'X', b'Z', ..] => {
            format!("compressed with xz; run: xz -dc {path} > trace")
        }
        [b'P', b'K', 3, 4, ..] => format!("a zip archive; run: unzip {path}"),
        _ => format!(
            "it begins with \"{}\"",
            head[..head.len().min(12)].escape_ascii()
        ),
    }
}
