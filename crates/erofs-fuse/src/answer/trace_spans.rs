//! Trace spans: what a mount did and when, read by a [query](super::queries).
//!
//! The query enables recording for a while (see [`erofs_engine::trace_spans`]). Only root and the
//! mount's own user may query spans.

use erofs_engine::trace_spans::{Span, TraceSpans};
use fuse_transport::{Caller, Errno, Served};

use super::queries::MAX_SPANS;
use crate::origin;

/// Records the span of a request on the thread that served it, and within it the span of the reply.
pub(crate) fn record(spans: &TraceSpans, served: &Served) {
    let name = served.opcode.map_or("unknown", |opcode| opcode.label());
    let (unique, bytes) = (served.unique, served.bytes as u64);
    spans.write("reply", served.answered_ns, served.sent_ns, unique, bytes);
    spans.write(name, served.taken_ns, served.sent_ns, unique, bytes);
}

/// The value, as JSON: the number of lost trace spans, and an array for each span that was not
/// lost.
pub(crate) fn value(spans: &TraceSpans, caller: Caller) -> Result<Vec<u8>, Errno> {
    if caller.uid != 0 && caller.uid != origin::user().as_raw() {
        return Err(Errno::ACCESS);
    }
    let (spans, lost) = spans.take(MAX_SPANS);
    let fields = |s: Span| (s.name, s.thread, s.start_ns, s.end_ns, s.id, s.bytes);
    let spans: Vec<_> = spans.into_iter().map(fields).collect();
    serde_json::to_vec(&(lost, spans)).map_err(|_| Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: Caller = Caller {
        uid: 0,
        gid: 0,
        pid: 1,
        taken_ns: 0,
        repeats: false,
    };

    #[test]
    fn spans_are_parsed_as_they_are_written() {
        let spans = TraceSpans::default();
        value(&spans, ROOT).unwrap();
        let served = Served {
            opcode: Some(fuse_transport::wire::Opcode::Read),
            unique: 8,
            taken_ns: 1000,
            answered_ns: 4000,
            sent_ns: 5000,
            bytes: 4096,
        };
        record(&spans, &served);
        let value = value(&spans, ROOT).unwrap();
        let (_, read): (u64, Vec<Span>) = serde_json::from_slice(&value).unwrap();
        let fields = |s: &Span| (s.name.to_string(), s.start_ns, s.end_ns, s.id, s.bytes);
        let spans: Vec<_> = read.iter().map(fields).collect();
        assert_eq!(
            spans,
            [
                ("reply".into(), 4000, 5000, 8, 4096),
                ("read".into(), 1000, 5000, 8, 4096)
            ]
        );
        assert!(read[0].thread > 0);
    }

    #[test]
    fn other_users_are_refused() {
        let other = Caller {
            uid: rustix::process::getuid().as_raw() + 1,
            gid: 0,
            pid: 1,
            taken_ns: 0,
            repeats: false,
        };
        assert_eq!(value(&TraceSpans::default(), other), Err(Errno::ACCESS));
    }
}
