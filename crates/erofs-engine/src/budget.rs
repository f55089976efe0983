//! Budgets: a limit on the work of one request, whatever the image contains.
//!
//! A request that reads metadata opens a `Scope` for its thread. Reads of metadata are charged as
//! steps, and decoders by their bytes, wherever on the way they happen: the content of a directory
//! may be mapped by tables in the metabox, which is decoded in turn. Helpers that decode for the
//! request on other threads are not charged: a run is bounded by the limits of a pcluster.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Reads of metadata and blocks of directories.
pub const MAX_STEPS: u64 = 1 << 18;
/// Bytes fetched and decoded: a read of 1 MiB has two partial pclusters at most, 26 MiB in all.
pub const MAX_BYTES: u64 = 64 << 20;
/// CPU time: far beyond the time for these steps and bytes on a slow machine.
pub const MAX_CPU: Duration = Duration::from_secs(4);
/// Steps between two reads of the clock.
const CLOCK_STEPS: u64 = 16;

/// Why a request is aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// Too many reads of metadata.
    #[error("the request takes more than {MAX_STEPS} reads of metadata")]
    Steps,
    /// Too many bytes.
    #[error("the request takes more than {MAX_BYTES} fetched and decoded bytes")]
    Bytes,
    /// Too much time.
    #[error("the request takes more than {} s of CPU time", MAX_CPU.as_secs())]
    Time,
    /// The engine is shutting down.
    #[error("interrupted: the image is being closed")]
    Closed,
}

/// Limits of a request.
#[derive(Clone, Copy, Debug)]
struct Limits {
    steps: u64,
    bytes: u64,
    cpu: Duration,
}

impl Limits {
    /// For a request that asks for `length` bytes of content. Requests of a mount ask for 1 MiB at
    /// most.
    fn new(length: u64) -> Self {
        Self {
            steps: MAX_STEPS + length / 64,
            bytes: MAX_BYTES.saturating_add(length.saturating_mul(4)),
            cpu: MAX_CPU.saturating_add(Duration::from_secs(length >> 20)),
        }
    }
}

#[derive(Debug)]
struct Spent {
    limits: Limits,
    steps: u64,
    bytes: u64,
    /// CPU time of the thread when the request began; taken when the clock is first read.
    began: Option<Duration>,
    exceeded: Option<Exceeded>,
    closing: Arc<AtomicBool>,
}

impl Spent {
    fn new(limits: Limits, closing: Arc<AtomicBool>) -> Self {
        Self {
            limits,
            steps: 0,
            bytes: 0,
            began: None,
            exceeded: None,
            closing,
        }
    }

    fn step(&mut self) -> Result<(), Exceeded> {
        self.steps += 1;
        if self.steps > self.limits.steps {
            return Err(Exceeded::Steps);
        }
        match self.steps.is_multiple_of(CLOCK_STEPS) {
            true => self.check_clock(),
            false => Ok(()),
        }
    }

    fn charge(&mut self, bytes: u64) -> Result<(), Exceeded> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > self.limits.bytes {
            return Err(Exceeded::Bytes);
        }
        self.check_clock()
    }

    fn check_clock(&mut self) -> Result<(), Exceeded> {
        if self.closing.load(Ordering::Relaxed) {
            return Err(Exceeded::Closed);
        }
        let now = cpu_time();
        let began = *self.began.get_or_insert(now);
        match now.saturating_sub(began) > self.limits.cpu {
            true => Err(Exceeded::Time),
            false => Ok(()),
        }
    }
}

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec as u32)
}

thread_local!(static CURRENT: RefCell<Option<Spent>> = const { RefCell::new(None) });

/// A request on this thread, until it is dropped. A request inside of another one is a part of it.
#[derive(Debug)]
pub(crate) struct Scope {
    outermost: bool,
}

impl Scope {
    /// A request for metadata.
    pub(crate) fn begin(closing: &Arc<AtomicBool>) -> Self {
        Self::for_content(closing, 0)
    }

    /// A request for `length` bytes of content.
    pub(crate) fn for_content(closing: &Arc<AtomicBool>, length: u64) -> Self {
        CURRENT.with_borrow_mut(|current| {
            let outermost = current.is_none();
            if outermost {
                *current = Some(Spent::new(Limits::new(length), closing.clone()));
            }
            Scope { outermost }
        })
    }

    /// The limit that was exceeded, if one was.
    pub(crate) fn exceeded(&self) -> Option<Exceeded> {
        CURRENT.with_borrow(|current| current.as_ref().and_then(|spent| spent.exceeded))
    }

    /// Restarts the budget for the next part of a request.
    pub(crate) fn renew(&self) {
        with(|spent| {
            *spent = Spent::new(spent.limits, spent.closing.clone());
            Ok(())
        })
        .unwrap_or(());
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.outermost {
            CURRENT.set(None);
        }
    }
}

/// Charges a read of metadata to the request of this thread, if there is one.
pub(crate) fn step() -> Result<(), Exceeded> {
    with(Spent::step)
}

/// Charges bytes that are fetched or decoded.
pub(crate) fn charge(bytes: u64) -> Result<(), Exceeded> {
    with(|spent| spent.charge(bytes))
}

fn with(work: impl FnOnce(&mut Spent) -> Result<(), Exceeded>) -> Result<(), Exceeded> {
    CURRENT.with_borrow_mut(|current| {
        let Some(spent) = current.as_mut() else {
            return Ok(());
        };
        if let Some(exceeded) = spent.exceeded {
            return Err(exceeded);
        }
        work(spent).inspect_err(|&exceeded| spent.exceeded = Some(exceeded))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closing() -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(false))
    }

    #[test]
    fn without_a_request_nothing_is_charged() {
        assert_eq!(charge(u64::MAX), Ok(()));
        assert_eq!(charge(u64::MAX), Ok(()));
    }

    #[test]
    fn steps_and_bytes_of_nested_requests_add_up() {
        let closing = closing();
        let _outer = Scope::begin(&closing);
        for _ in 0..MAX_STEPS {
            let _inner = Scope::begin(&closing);
            assert_eq!(step(), Ok(()));
        }
        assert_eq!(step(), Err(Exceeded::Steps));
        // Nothing goes on after that.
        assert_eq!(charge(1), Err(Exceeded::Steps));
    }

    #[test]
    fn the_next_request_begins_anew() {
        let closing = closing();
        for _ in 0..2 {
            let scope = Scope::begin(&closing);
            assert_eq!(charge(MAX_BYTES), Ok(()));
            scope.renew();
            assert_eq!(charge(MAX_BYTES), Ok(()));
        }
    }

    #[test]
    fn closing_ends_a_request() {
        let closing = closing();
        let _scope = Scope::begin(&closing);
        assert_eq!(charge(1), Ok(()));
        closing.store(true, Ordering::Relaxed);
        assert_eq!(charge(1), Err(Exceeded::Closed));
    }
}
