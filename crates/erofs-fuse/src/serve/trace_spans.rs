//! Trace spans: what a mount did and when, taken by a [query](queries).
//!
//! The query switches recording on for [`trace_spans::LASTING`], see [`erofs_engine::trace_spans`].
//! Only root and the mount's own user may make it.

use std::path::Path;

use erofs_engine::trace_spans;
use fuse_transport::{Caller, Errno, Served};

use super::queries;
use crate::error::Error;
use crate::origin;

/// Spans of one value, of some 80 bytes each.
const MAX_SPANS: usize = 1 << 13;

/// An interval of a thread's time, as the recorder reads it. Times are CLOCK_MONOTONIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The kind of a request ("read"), or a part of serving one: "queue", "fetch", "decompress",
    /// "reply".
    pub name: String,
    /// Thread id.
    pub thread: u32,
    /// Start.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// `unique` of a request; the physical address of a pcluster.
    pub id: u64,
    /// Bytes moved.
    pub bytes: u64,
}

/// The trace spans of a mount since the last read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// In no particular order.
    pub spans: Vec<Span>,
    /// Number of trace spans dropped because the buffer was full.
    pub lost: u64,
}

/// Records a request on the thread that served it, and its reply within.
pub(super) fn record(served: &Served) {
    let name = served.opcode.map_or("unknown", |opcode| opcode.label());
    let (unique, bytes) = (served.unique, served.bytes as u64);
    trace_spans::write("reply", served.answered_ns, served.sent_ns, unique, bytes);
    trace_spans::write(name, served.taken_ns, served.sent_ns, unique, bytes);
}

/// The value: a line with the number of trace spans lost, then one line a span.
pub(super) fn value(caller: Caller) -> Result<Vec<u8>, Errno> {
    if caller.uid != 0 && caller.uid != origin::user().as_raw() {
        return Err(Errno::ACCESS);
    }
    let (spans, lost) = trace_spans::take(MAX_SPANS);
    let mut text = format!("{lost}\n");
    for s in spans {
        let (name, thread, start, end) = (s.name, s.thread, s.start_ns, s.end_ns);
        text += &format!("{name} {thread} {start} {end} {} {}\n", s.id, s.bytes);
    }
    Ok(text.into_bytes())
}

/// All trace spans that the mount recorded since the last call; recording goes on for ten seconds.
///
/// # Errors
/// One line: it is no erofast mount, may not be asked, or its daemon is dead.
pub fn take_spans(mountpoint: &Path) -> Result<Spans, Error> {
    let mut all = Spans::default();
    loop {
        let value = queries::get(mountpoint, queries::SPANS)?;
        let before = all.spans.len();
        parse(&String::from_utf8_lossy(&value), &mut all)
            .ok_or_else(|| Error::mountpoint(mountpoint, "its trace spans cannot be parsed"))?;
        // The request itself is recorded, so there is always a span: less than a full value is all.
        if all.spans.len() - before < MAX_SPANS {
            return Ok(all);
        }
    }
}

fn parse(text: &str, to: &mut Spans) -> Option<()> {
    let mut lines = text.lines();
    to.lost += lines.next()?.parse::<u64>().ok()?;
    for line in lines {
        let mut words = line.split(' ');
        let name = words.next()?.to_owned();
        let mut number = || words.next()?.parse::<u64>().ok();
        let (thread, start_ns, end_ns) = (number()?.try_into().ok()?, number()?, number()?);
        let (id, bytes) = (number()?, number()?);
        to.spans.push(Span {
            name,
            thread,
            start_ns,
            end_ns,
            id,
            bytes,
        });
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Caller = Caller {
        uid: 0,
        gid: 0,
        pid: 1,
    };

    #[test]
    fn spans_are_parsed_as_they_are_written() {
        value(ROOT).unwrap();
        record(&Served {
            opcode: Some(fuse_transport::wire::Opcode::Read),
            unique: 8,
            taken_ns: 1000,
            answered_ns: 4000,
            sent_ns: 5000,
            bytes: 4096,
        });
        let mut read = Spans::default();
        let text = String::from_utf8(value(ROOT).unwrap()).unwrap();
        parse(&text, &mut read).unwrap();
        let spans: Vec<_> = read
            .spans
            .iter()
            .map(|s| (s.name.as_str(), s.start_ns, s.end_ns, s.id, s.bytes))
            .collect();
        assert_eq!(
            spans,
            [
                ("reply", 4000, 5000, 8, 4096),
                ("read", 1000, 5000, 8, 4096)
            ]
        );
        assert!(read.spans[0].thread > 0);
    }

    #[test]
    fn other_users_are_refused() {
        let other = Caller {
            uid: rustix::process::getuid().as_raw() + 1,
            gid: 0,
            pid: 1,
        };
        assert_eq!(value(other), Err(Errno::ACCESS));
    }

    #[test]
    fn a_malformed_value_is_refused() {
        for text in ["", "x", "0\nread", "0\nread 1 2 3 4 -5"] {
            assert_eq!(parse(text, &mut Spans::default()), None, "{text:?}");
        }
    }
}
