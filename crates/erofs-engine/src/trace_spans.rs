//! Trace spans: what the threads of a mount did and when, for a recorder.
//!
//! While tracing is off, a span costs one relaxed load. A recorder switches tracing on for some
//! seconds by fetching the recorded trace spans ([`take`]), and fetches again before they are over.
//! When a recorder is killed, tracing ends by itself.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use cpu_workers::now_ns;
use serde::Deserialize;

/// How long trace spans are recorded after the last [`take`].
pub const LASTING: Duration = Duration::from_secs(10);

/// A thread writes to the buffer of its number; two seldom share one.
const BUFFERS: usize = 16;
/// Spans of a buffer, 64 bytes each; later ones are counted as lost.
const MOST: usize = 1 << 16;

/// A section of a thread's time. Times are those of CLOCK_MONOTONIC.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Span {
    /// The kind of a request ("read"), or a part of serving one: "queue", "fetch", "decompress",
    /// "reply".
    pub name: Cow<'static, str>,
    /// The thread that did it.
    pub thread: u32,
    /// Beginning.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// Its subject: the number of a request, or the address of a pcluster.
    pub id: u64,
    /// Bytes that were moved.
    pub bytes: u64,
}

/// Atomic. Spans are recorded until then; 0 while tracing is off.
static UNTIL: AtomicU64 = AtomicU64::new(0);
/// Atomic. Spans that found their buffer full.
static LOST: AtomicU64 = AtomicU64::new(0);
/// Guarded by its own lock. The recorded trace spans.
static RECORDED: [Mutex<Vec<Span>>; BUFFERS] = [const { Mutex::new(Vec::new()) }; BUFFERS];

/// Whether a recorder wants trace spans.
#[inline]
pub fn wanted() -> bool {
    UNTIL.load(Relaxed) != 0
}

/// The time now, if a recorder wants trace spans: the beginning of one.
#[inline]
pub fn begin() -> Option<u64> {
    wanted().then(now_ns)
}

/// Records a span of this thread from `start` to now.
#[inline]
pub fn end(start: Option<u64>, name: &'static str, id: u64, bytes: u64) {
    if let Some(start_ns) = start {
        write(name, start_ns, now_ns(), id, bytes);
    }
}

/// Records a span of this thread.
#[cold]
pub fn write(name: &'static str, start_ns: u64, end_ns: u64, id: u64, bytes: u64) {
    if now_ns() > UNTIL.load(Relaxed) {
        return forget();
    }
    let thread = thread();
    let mut buffer = buffer(thread as usize);
    if buffer.len() >= MOST {
        LOST.fetch_add(1, Relaxed);
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

/// Returns at most `most` trace spans and the number of those that were lost since the last call,
/// and continues recording for [`LASTING`].
pub fn take(most: usize) -> (Vec<Span>, u64) {
    let now = now_ns();
    if UNTIL.swap(now + LASTING.as_nanos() as u64, Relaxed) < now {
        // Spans of a recorder that ended.
        RECORDED.iter().for_each(|buffer| lock(buffer).clear());
        LOST.store(0, Relaxed);
    }
    let mut spans = Vec::new();
    for buffer in &RECORDED {
        let mut buffer = lock(buffer);
        let rest = buffer.len().saturating_sub(most - spans.len());
        spans.extend(buffer.drain(rest..));
    }
    (spans, LOST.swap(0, Relaxed))
}

/// The recorder ended: recording stops, and the memory is freed.
fn forget() {
    UNTIL.store(0, Relaxed);
    RECORDED
        .iter()
        .for_each(|buffer| *lock(buffer) = Vec::new());
}

fn buffer(thread: usize) -> std::sync::MutexGuard<'static, Vec<Span>> {
    lock(&RECORDED[thread % BUFFERS])
}

fn lock(buffer: &Mutex<Vec<Span>>) -> std::sync::MutexGuard<'_, Vec<Span>> {
    buffer.lock().unwrap_or_else(PoisonError::into_inner)
}

/// This thread's number, asked of the kernel once.
fn thread() -> u32 {
    thread_local!(static NUMBER: Cell<u32> = const { Cell::new(0) });
    NUMBER.with(|number| {
        if number.get() == 0 {
            number.set(rustix::thread::gettid().as_raw_nonzero().get() as u32);
        }
        number.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The trace spans of this thread: other tests may decode at the same time.
    fn own(mut spans: Vec<Span>) -> Vec<Span> {
        spans.retain(|span| span.thread == thread());
        spans
    }

    /// One test, since there is one place where trace spans are written.
    #[test]
    fn spans_are_recorded_on_request_and_only_for_a_while() {
        assert_eq!(begin(), None, "tracing is off");
        assert_eq!(take(10), (Vec::new(), 0));
        let start = begin();
        assert!(start.is_some());
        end(start, "fetch", 4096, 512);
        end(start, "decompress", 4096, 1024);
        let (mut spans, lost) = take(1);
        assert_eq!((spans.len(), lost), (1, 0));
        spans.extend(take(usize::MAX).0);
        let spans = own(spans);
        let mut names: Vec<_> = spans.iter().map(|span| &*span.name).collect();
        names.sort_unstable();
        assert_eq!(names, ["decompress", "fetch"]);
        assert!(spans[0].start_ns <= spans[0].end_ns);
        assert_eq!(own(take(usize::MAX).0), []);
        for _ in 0..MOST + 3 {
            end(start, "fetch", 0, 0);
        }
        // A thread that shares the buffer may have taken some of its places.
        let (many, lost) = take(usize::MAX);
        let kept = own(many).len();
        assert!(kept > MOST / 2 && kept <= MOST, "{kept}");
        assert!(kept + lost as usize >= MOST + 3, "{kept} + {lost}");
        UNTIL.store(1, Relaxed);
        end(start, "fetch", 0, 0);
        assert!(!wanted(), "the recorder did not come back");
    }
}
