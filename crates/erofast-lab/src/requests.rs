//! Shows the requests to the machine's erofast mounts as tracks of a trace: how long each request
//! waited for a thread, and how that thread served it.
//!
//! A mount records trace spans for ten seconds after each query, so a thread queries every mount
//! once a second. If a daemon hangs, it blocks only that thread, but the trace then shows no
//! requests of any mount.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use erofast_cli::units;
use erofs_mount::{FSTYPE, Span, take_spans};
use latency_lab::{Mount, mountinfo};
use sched_trace::{Kind, Slice, Trace};

/// Interval between queries, well below the ten seconds for which a mount records spans.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How long to wait for the last answers.
const PATIENCE: Duration = Duration::from_secs(5);
/// Track of the time from a program's request until a thread takes it.
const WAITING: &str = "requests waiting";
/// Track of requests being served, with the steps of serving them nested inside.
const SERVING: &str = "requests";

/// A thread that queries the mounts.
#[derive(Debug)]
pub struct MountWatch {
    stop: Sender<()>,
    answers: Receiver<Requests>,
}

/// Spans of all mounts.
#[derive(Debug, Default)]
struct Requests {
    /// Spans, each with the device number of its mount.
    spans: Vec<(u32, Span)>,
    mounts: HashSet<u32>,
    lost: u64,
    /// The thread that queries the mounts; its own requests are left out.
    asked_by: i32,
}

impl MountWatch {
    /// Starts querying.
    pub fn begin() -> io::Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let (answer, answers) = mpsc::channel();
        let (begun, began) = mpsc::channel();
        let thread = std::thread::Builder::new();
        thread.spawn(move || {
            let mut requests = Requests {
                asked_by: rustix::thread::gettid().as_raw_nonzero().get(),
                ..Requests::default()
            };
            // Drop the trace spans that were recorded for an earlier client.
            requests.ask();
            requests.spans.clear();
            let _ = begun.send(());
            while stopped.recv_timeout(ASK_AGAIN) == Err(RecvTimeoutError::Timeout) {
                requests.ask();
            }
            requests.ask();
            let _ = answer.send(requests);
        })?;
        let _ = began.recv_timeout(PATIENCE);
        Ok(Self { stop, answers })
    }

    /// Ends the thread, adds the tracks to `trace` and returns a summary of them.
    pub fn end(self, trace: &mut Trace) -> String {
        let _ = self.stop.send(());
        match self.answers.recv_timeout(PATIENCE) {
            Ok(requests) => requests.add_to(trace),
            Err(_) => "; no requests, because a mount does not answer".into(),
        }
    }
}

impl Requests {
    fn ask(&mut self) {
        let table = mountinfo();
        let mounts = table.lines().filter_map(Mount::parse);
        for Mount { device, point, .. } in mounts.filter(|mount| mount.kind == FSTYPE) {
            // Another user's mount, or one whose daemon is dead, cannot be queried.
            let Ok((spans, lost)) = take_spans(&point) else {
                continue;
            };
            self.lost += lost;
            self.mounts.insert(device);
            self.spans
                .extend(spans.into_iter().map(|span| (device, span)));
        }
    }

    fn add_to(mut self, trace: &mut Trace) -> String {
        let mut asked: HashMap<(u32, u64), (u64, i32)> = HashMap::new();
        for event in &trace.events {
            if let Kind::FuseSent {
                connection, unique, ..
            } = event.kind
            {
                asked.insert((connection, unique), (event.time_ns, event.pid));
            }
        }
        let (from, to) = trace.span().unwrap_or_default();
        let own = self.asked_by;
        self.spans.retain(|(device, span)| {
            let by_us = asked
                .get(&(*device, span.id))
                .is_some_and(|(_, pid)| *pid == own);
            span.end_ns >= from && span.start_ns <= to && !(is_numbered(span) && by_us)
        });
        let mut count = 0;
        for (device, span) in &self.spans {
            let slice = |track: &str, start_ns, end_ns| Slice {
                name: title(span),
                track: track.into(),
                start_ns,
                end_ns,
                pid: Some(span.thread as i32),
            };
            if is_request(span) {
                count += 1;
                let sent = asked.get(&(*device, span.id));
                let sent = sent.filter(|(at, _)| *at < span.start_ns);
                let waiting = sent.map(|(at, _)| slice(WAITING, *at, span.start_ns));
                trace.slices.extend(waiting);
            }
            trace
                .slices
                .push(slice(SERVING, span.start_ns, span.end_ns));
        }
        let lost = match self.lost {
            0 => String::new(),
            lost => format!(" ({lost} parts of requests were lost)"),
        };
        match self.mounts.len() {
            0 => String::new(),
            mounts => {
                let requests = units::count(count, "request");
                let mounts = units::count(mounts as u64, "mount");
                format!("; {requests} of {mounts}{lost}")
            }
        }
    }
}

/// Whether the span is a whole request rather than one step of serving it.
fn is_request(span: &Span) -> bool {
    !matches!(&*span.name, "queue" | "fetch" | "decompress" | "reply")
}

/// Whether the span's number is the kernel's number of a request, rather than an address in the
/// image.
fn is_numbered(span: &Span) -> bool {
    is_request(span) || span.name == "reply"
}

/// The name of a slice, such as "read 128 KiB".
fn title(span: &Span) -> String {
    match span.bytes {
        0 => span.name.to_string(),
        bytes if bytes < 1024 => format!("{} {bytes} B", span.name),
        bytes => format!("{} {} KiB", span.name, bytes / 1024),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sched_trace::Event;

    fn span(name: &str, thread: u32, start_ns: u64, end_ns: u64, id: u64, bytes: u64) -> Span {
        let name = name.to_owned().into();
        Span {
            name,
            thread,
            start_ns,
            end_ns,
            id,
            bytes,
        }
    }

    fn sent(time_ns: u64, pid: i32, unique: u64) -> Event {
        let kind = Kind::FuseSent {
            connection: 44,
            unique,
            opcode: 15,
        };
        Event {
            time_ns,
            cpu: 0,
            pid,
            kind,
        }
    }

    #[test]
    fn a_request_is_shown_from_asking_to_reply_on_its_worker() {
        let mut trace = Trace::new("mono");
        trace
            .events
            .extend([sent(100, 7, 2), sent(150, 9, 4), sent(900, 7, 6)]);
        let requests = Requests {
            spans: vec![
                (44, span("decompress", 30, 210, 240, 4096, 65536)),
                (44, span("read", 30, 200, 300, 2, 131_072)),
                (44, span("reply", 30, 315, 320, 4, 500)),
                (44, span("getxattr", 30, 310, 320, 4, 500)),
                (44, span("read", 31, 2000, 2100, 8, 1)),
            ],
            mounts: HashSet::from([44]),
            lost: 0,
            asked_by: 9,
        };
        let summary = requests.add_to(&mut trace);
        assert_eq!(summary, "; 1 request of 1 mount");
        let shown: Vec<_> = trace
            .slices
            .iter()
            .map(|s| {
                (
                    s.name.as_str(),
                    s.track.as_str(),
                    s.start_ns,
                    s.end_ns,
                    s.pid,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("decompress 64 KiB", SERVING, 210, 240, Some(30)),
                ("read 128 KiB", WAITING, 100, 200, Some(30)),
                ("read 128 KiB", SERVING, 200, 300, Some(30)),
            ]
        );
    }
}
