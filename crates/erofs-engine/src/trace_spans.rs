//! Trace spans: what the threads of a mount did, and when, for a program that records them.
//!
//! While tracing is off, a span costs one relaxed load. A recorder turns tracing on for [`LASTING`]
//! by fetching the recorded trace spans ([`TraceSpans::take`]), and fetches again before that time
//! is over. Therefore tracing also ends if the recorder is killed.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cpu_workers::now_ns;
use serde::Deserialize;

/// How long trace spans are recorded after the last [`TraceSpans::take`].
pub const LASTING: Duration = Duration::from_secs(10);

/// Number of buffers. A thread writes to the buffer that its ID selects; two threads rarely share a
/// buffer.
const BUFFERS: usize = 16;
/// Maximum number of spans in a buffer, 64 bytes each; later ones are counted as lost.
const MOST: usize = 1 << 16;

/// What a thread did during a period. Times are those of CLOCK_MONOTONIC.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Span {
    /// The kind of a request ("read"), or a part of serving one: "queue", "fetch", "decompress",
    /// "reply".
    pub name: Cow<'static, str>,
    /// The thread that did the work.
    pub thread: u32,
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
    /// What the work was for: the number of a request, or the address of a pcluster.
    pub id: u64,
    /// Bytes moved.
    pub bytes: u64,
}

/// The trace spans of one engine.
#[derive(Debug, Default)]
pub struct TraceSpans {
    /// Atomic. Spans are recorded until this time; 0 while tracing is off.
    until: AtomicU64,
    /// Atomic. Number of spans dropped because their buffer was full.
    lost: AtomicU64,
    /// Guarded by its own lock. The recorded trace spans.
    recorded: [Mutex<Vec<Span>>; BUFFERS],
}

impl TraceSpans {
    /// Whether a recorder wants trace spans.
    #[inline]
    pub fn wanted(&self) -> bool {
        self.until.load(Relaxed) != 0
    }

    /// The current time, as the beginning of a span, if a recorder wants trace spans.
    #[inline]
    pub fn begin(&self) -> Option<u64> {
        self.wanted().then(now_ns)
    }

    /// Records a span of this thread from `start` to now.
    #[inline]
    pub fn end(&self, start: Option<u64>, name: &'static str, id: u64, bytes: u64) {
        if let Some(start_ns) = start {
            self.write(name, start_ns, now_ns(), id, bytes);
        }
    }

    /// Records a span of this thread.
    #[cold]
    pub fn write(&self, name: &'static str, start_ns: u64, end_ns: u64, id: u64, bytes: u64) {
        if now_ns() > self.until.load(Relaxed) {
            return self.forget();
        }
        let thread = thread();
        let mut buffer = lock(&self.recorded[thread as usize % BUFFERS]);
        if buffer.len() >= MOST {
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        buffer.push(Span {
            name: name.into(),
            thread,
            start_ns,
            end_ns,
            id,
            bytes,
        });
    }

    /// Returns at most `most` trace spans and the number of spans lost since the last call, and
    /// continues recording for [`LASTING`].
    pub fn take(&self, most: usize) -> (Vec<Span>, u64) {
        let now = now_ns();
        if self.until.swap(now + LASTING.as_nanos() as u64, Relaxed) < now {
            // Clears spans left by a recorder that has ended.
            self.recorded.iter().for_each(|buffer| lock(buffer).clear());
            self.lost.store(0, Relaxed);
        }
        let mut spans = Vec::new();
        for buffer in &self.recorded {
            let mut buffer = lock(buffer);
            let rest = buffer.len().saturating_sub(most - spans.len());
            spans.extend(buffer.drain(rest..));
        }
        (spans, self.lost.swap(0, Relaxed))
    }

    /// Stops recording, since the recorder has ended, and frees the memory.
    fn forget(&self) {
        self.until.store(0, Relaxed);
        self.recorded
            .iter()
            .for_each(|buffer| *lock(buffer) = Vec::new());
    }
}

fn lock(buffer: &Mutex<Vec<Span>>) -> std::sync::MutexGuard<'_, Vec<Span>> {
    buffer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ID of this thread.
fn thread() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_recorded_on_request_and_only_for_a_while() {
        let spans = TraceSpans::default();
        assert_eq!(spans.begin(), None, "tracing is off");
        assert_eq!(spans.take(10), (Vec::new(), 0));
        let start = spans.begin();
        assert!(start.is_some());
        spans.end(start, "fetch", 4096, 512);
        spans.end(start, "decompress", 4096, 1024);
        let (mut taken, lost) = spans.take(1);
        assert_eq!((taken.len(), lost), (1, 0));
        taken.extend(spans.take(usize::MAX).0);
        let mut names: Vec<_> = taken.iter().map(|span| &*span.name).collect();
        names.sort_unstable();
        assert_eq!(names, ["decompress", "fetch"]);
        assert!(taken[0].start_ns <= taken[0].end_ns && taken[0].thread == thread());
        assert_eq!(spans.take(usize::MAX), (Vec::new(), 0));
        for _ in 0..MOST + 3 {
            spans.end(start, "fetch", 0, 0);
        }
        let (many, lost) = spans.take(usize::MAX);
        assert_eq!((many.len(), lost), (MOST, 3));
        spans.until.store(1, Relaxed);
        spans.end(start, "fetch", 0, 0);
        assert!(!spans.wanted(), "the recorder did not return");
    }
}
