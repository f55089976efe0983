//! What a mount did and when, handed out through a hidden extended attribute of the mount's root.
//!
//! Asking with less room than the kernel's limit for a value loses what was written down: this is for
//! [`take_spans`] alone. Asking switches the writing down on, and keeps it on for [`spans::LASTING`]: see
//! [`erofs_engine::spans`]. Only root and the mount's own user are answered.

use std::path::Path;

use erofs_engine::spans;
use fuse_transport::{Caller, Errno, Served};

use crate::Error;

/// The attribute; never listed.
pub const SPANS_XATTR: &str = "user.erofast.spans";

/// The kernel's limit for a value.
const LARGEST_VALUE: usize = 64 << 10;
/// The longest line: a name of at most 16 bytes, a thread, and four numbers with their spaces.
const LONGEST_LINE: usize = 16 + 11 + 4 * 21;
/// Spans of one answer.
const MOST: usize = LARGEST_VALUE / LONGEST_LINE - 1;

/// A piece of a thread's time, on the side of the recorder. Times are those of CLOCK_MONOTONIC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The kind of a request ("read"), or a part of serving one: "queue", "fetch", "decompress", "reply".
    pub name: String,
    /// The thread that did it.
    pub thread: u32,
    /// Beginning.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// The kernel's number of a request; the address of a pcluster in the image.
    pub id: u64,
    /// Bytes that were moved.
    pub bytes: u64,
}

/// What a mount did since it was asked last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    /// In no order.
    pub spans: Vec<Span>,
    /// How many there was no room for.
    pub lost: u64,
}

/// Writes down a request on the thread that served it, and its reply within.
pub(crate) fn served(served: &Served) {
    let name = served.opcode.map_or("unknown", |opcode| opcode.label());
    let (unique, bytes) = (served.unique, served.bytes as u64);
    spans::write("reply", served.answered_ns, served.sent_ns, unique, bytes);
    spans::write(name, served.taken_ns, served.sent_ns, unique, bytes);
}

/// The value of the attribute: a line with the number of spans lost, then one line for each span.
pub(crate) fn hand_out(caller: Caller) -> Result<Vec<u8>, Errno> {
    if caller.uid != 0 && caller.uid != rustix::process::getuid().as_raw() {
        return Err(Errno::ACCESS);
    }
    let (spans, lost) = spans::take(MOST);
    let mut text = format!("{lost}\n");
    for s in spans {
        let (name, thread, start, end) = (s.name, s.thread, s.start_ns, s.end_ns);
        text += &format!("{name} {thread} {start} {end} {} {}\n", s.id, s.bytes);
    }
    Ok(text.into_bytes())
}

/// Everything that the mount has written down since it was asked last; it goes on for ten seconds.
///
/// # Errors
/// One line: it is no erofast mount, may not be asked, or its daemon is dead.
pub fn take_spans(mountpoint: &Path) -> Result<Spans, Error> {
    let mut all = Spans::default();
    loop {
        let mut value = vec![0; LARGEST_VALUE];
        let length = rustix::fs::getxattr(mountpoint, SPANS_XATTR, &mut value[..])
            .map_err(|errno| Error::mountpoint(mountpoint, crate::stat::why(errno)))?;
        let before = all.spans.len();
        parse(&String::from_utf8_lossy(&value[..length]), &mut all)
            .ok_or_else(|| Error::mountpoint(mountpoint, "its spans cannot be read"))?;
        // The asking writes down itself, so there is always something: less than a full answer is all.
        if all.spans.len() - before < MOST {
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
    fn what_was_served_is_read_as_it_was_written() {
        hand_out(ROOT).unwrap();
        served(&Served {
            opcode: Some(fuse_transport::wire::Opcode::Read),
            unique: 8,
            taken_ns: 1000,
            answered_ns: 4000,
            sent_ns: 5000,
            bytes: 4096,
        });
        let mut read = Spans::default();
        let text = String::from_utf8(hand_out(ROOT).unwrap()).unwrap();
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
    fn strangers_are_not_answered() {
        let stranger = Caller {
            uid: rustix::process::getuid().as_raw() + 1,
            gid: 0,
            pid: 1,
        };
        assert_eq!(hand_out(stranger), Err(Errno::ACCESS));
    }

    #[test]
    fn a_value_that_is_something_else_is_refused() {
        for text in ["", "x", "0\nread", "0\nread 1 2 3 4 -5"] {
            assert_eq!(parse(text, &mut Spans::default()), None, "{text:?}");
        }
    }
}
