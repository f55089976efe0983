//! Budgets: a limit on the work of one request, whatever the image contains.
//!
//! A request opens a `Scope` for its thread. Reads of metadata are charged as steps, and decoders
//! by their bytes, wherever on the way they happen: the content of a directory may be mapped by
//! tables in the metabox, which is decoded in turn. A thread that decodes for another one's request
//! has a budget of its own, of the same size (`Share`). What a caller does in the middle of a
//! request, such as the callback of a listing that reads each file, is no part of it (`outside`).
//!
//! No clock is read. On its way a request passes these marks:
//! 1. It is *long*: its thread has normal priority from then on.
//! 2. It is *heavy*, beyond what a sound image causes: one at a time, so that other requests find a
//!    thread.
//! 3. It ends.

use std::cell::RefCell;
use std::sync::Arc;

use crate::remote::{self, WithoutWaiting};
use crate::request::control::ThreadControl;

/// Reads of metadata and blocks of directories.
pub const MAX_STEPS: u64 = 1 << 18;
/// Bytes fetched and decoded: a read of 1 MiB has two partial pclusters at most, 26 MiB in all.
pub const MAX_BYTES: u64 = 64 << 20;

/// Cost from which on a request is long, in bytes of LZ4 output: 9 ms. A read of 1 MiB with LZ4
/// costs less, whatever its pclusters.
pub const LONG_COST: u64 = 32 << 20;
/// Cost of a step: a read of metadata takes 3.3 us, an LZ4 decoder 0.27 ns a byte.
const STEP_COST: u64 = 12 << 10;

/// Why a request is aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// Too many reads of metadata.
    #[error("the request takes more than {MAX_STEPS} reads of metadata")]
    Steps,
    /// Too many bytes.
    #[error("the request takes more than {MAX_BYTES} fetched and decoded bytes")]
    Bytes,
    /// Another request takes more than half of its budget.
    #[error("another request takes too much work already")]
    Busy,
    /// The engine is shutting down.
    #[error("interrupted: the image is being closed")]
    Closed,
}

impl Exceeded {
    /// Whether it is a limit, which the same request would exceed again.
    pub(crate) fn is_limit(self) -> bool {
        matches!(self, Exceeded::Steps | Exceeded::Bytes)
    }
}

/// Limits of a request.
#[derive(Clone, Copy, Debug)]
struct Limits {
    steps: u64,
    bytes: u64,
}

impl Limits {
    /// For a request that asks for `length` bytes of content. Requests of a mount ask for 1 MiB at
    /// most.
    fn new(length: u64) -> Self {
        Self {
            steps: MAX_STEPS + length / 64,
            bytes: MAX_BYTES.saturating_add(length.saturating_mul(4)),
        }
    }
}

#[derive(Debug)]
struct Spent {
    limits: Limits,
    steps: u64,
    bytes: u64,
    cost: u64,
    exceeded: Option<Exceeded>,
    turn: Turn,
    control: ThreadControl,
}

/// Whether a request may be heavy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Not yet.
    Open,
    /// It is the one heavy request.
    Taken,
    /// It works for another thread's request.
    Helps,
}

impl Spent {
    fn new(limits: Limits, turn: Turn, control: &ThreadControl) -> Self {
        Self {
            limits,
            steps: 0,
            bytes: 0,
            cost: 0,
            exceeded: control.is_closing().then_some(Exceeded::Closed),
            turn,
            control: Arc::clone(control),
        }
    }

    fn step(&mut self) -> Result<(), Exceeded> {
        if self.steps >= self.limits.steps {
            return Err(Exceeded::Steps);
        }
        self.steps += 1;
        self.take(STEP_COST)
    }

    fn charge(&mut self, bytes: u64, cost: u64) -> Result<(), Exceeded> {
        let total = self.bytes.saturating_add(bytes);
        if total > self.limits.bytes {
            return Err(Exceeded::Bytes);
        }
        self.bytes = total;
        self.take(cost)
    }

    /// Adds what comes next to the cost.
    fn take(&mut self, cost: u64) -> Result<(), Exceeded> {
        if self.control.is_closing() {
            return Err(Exceeded::Closed);
        }
        let was_long = self.is_long();
        self.cost = self.cost.saturating_add(cost);
        if self.is_long() && !was_long {
            cpu_workers::lower();
        }
        match self.is_heavy() {
            true => self.take_turn(),
            false => Ok(()),
        }
    }

    fn take_turn(&mut self) -> Result<(), Exceeded> {
        if self.turn == Turn::Open {
            if !self.control.take_turn() {
                return Err(Exceeded::Busy);
            }
            self.turn = Turn::Taken;
        }
        Ok(())
    }

    /// Before other requests of this thread: those are not long, and may be heavy.
    fn pause(&mut self) {
        if self.is_long() {
            cpu_workers::raise();
        }
        if self.turn == Turn::Taken {
            self.control.end_turn();
            self.turn = Turn::Open;
        }
    }

    /// After [`pause`](Self::pause). A turn is taken again by the next step of a heavy request.
    fn resume(&self) {
        if self.is_long() {
            cpu_workers::lower();
        }
    }

    /// Beyond half of its budget.
    fn is_heavy(&self) -> bool {
        self.steps > self.limits.steps / 2 || self.bytes > self.limits.bytes / 2
    }

    fn is_long(&self) -> bool {
        self.cost > LONG_COST
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        self.control.record(self.steps, self.bytes, self.is_long());
        if self.is_long() {
            cpu_workers::raise();
        }
        if self.turn == Turn::Taken {
            self.control.end_turn();
        }
    }
}

thread_local!(static CURRENT: RefCell<Option<Spent>> = const { RefCell::new(None) });

/// A request on this thread, until it is dropped. A request inside of another one is a part of it.
#[derive(Debug)]
pub(crate) struct Scope {
    outermost: bool,
    _without_waiting: Option<WithoutWaiting>,
}

impl Scope {
    /// A request for `length` bytes of content; 0: for metadata.
    pub(crate) fn begin(control: &ThreadControl, length: u64) -> Self {
        Self::open(|| Spent::new(Limits::new(length), Turn::Open, control))
    }

    /// A request for an inode that had a heavy one: it takes the turn at once.
    pub(crate) fn begin_heavy(control: &ThreadControl, length: u64) -> Self {
        let scope = Self::begin(control, length);
        // A refusal is kept, and ends the request at its first step.
        let _ = with(Spent::take_turn);
        scope
    }

    fn open(spent: impl FnOnce() -> Spent) -> Self {
        CURRENT.with_borrow_mut(|current| {
            let outermost = current.is_none();
            if outermost {
                *current = Some(spent());
            }
            Scope {
                outermost,
                _without_waiting: None,
            }
        })
    }

    /// Whether it is no part of another request.
    pub(crate) fn is_outermost(&self) -> bool {
        self.outermost
    }

    /// Restarts the budget for the next part of a request.
    pub(crate) fn renew(&self) {
        with(|spent| {
            (spent.steps, spent.bytes) = (0, 0);
            Ok(())
        })
        .unwrap_or(());
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.outermost {
            CURRENT.take();
        }
    }
}

/// The request of this thread, set aside until this is dropped.
#[derive(Debug)]
struct Paused(Option<Spent>);

impl Drop for Paused {
    fn drop(&mut self) {
        if let Some(spent) = self.0.take() {
            spent.resume();
            CURRENT.set(Some(spent));
        }
    }
}

/// Runs a caller's code in the middle of a request: requests that it makes have budgets of their
/// own, and fail alone.
pub(crate) fn outside<R>(work: impl FnOnce() -> R) -> R {
    let _paused = Paused(CURRENT.take().map(|mut spent| {
        spent.pause();
        spent
    }));
    work()
}

/// The request of this thread, for a thread that works for it.
#[derive(Debug)]
pub(crate) struct Share {
    limits: Limits,
    control: ThreadControl,
    waits: bool,
}

/// `None`: there is no request on this thread.
pub(crate) fn share() -> Option<Share> {
    CURRENT.with_borrow(|current| {
        current.as_ref().map(|spent| Share {
            limits: spent.limits,
            control: Arc::clone(&spent.control),
            waits: remote::waits(),
        })
    })
}

impl Share {
    /// On the thread that works for the request.
    pub(crate) fn enter(&self) -> Scope {
        let mut scope = Scope::open(|| Spent::new(self.limits, Turn::Helps, &self.control));
        // What is missing is found out by the thread that asked, when it gets the error.
        scope._without_waiting = (!self.waits && remote::waits()).then(WithoutWaiting::begin);
        scope
    }
}

/// The limit that the request of this thread exceeded, if it did.
pub(crate) fn exceeded() -> Option<Exceeded> {
    CURRENT.with_borrow(|current| current.as_ref().and_then(|spent| spent.exceeded))
}

/// Whether the request of this thread is heavy.
pub(crate) fn is_heavy() -> bool {
    CURRENT.with_borrow(|current| current.as_ref().is_some_and(Spent::is_heavy))
}

/// Charges a read of metadata to the request of this thread, if there is one.
pub(crate) fn step() -> Result<(), Exceeded> {
    with(Spent::step)
}

/// Charges bytes that are fetched: copying them takes as long as decoding as many.
pub(crate) fn charge(bytes: u64) -> Result<(), Exceeded> {
    charge_decoding(bytes, bytes)
}

/// Charges bytes that are about to be decoded; `cost` is what it takes, in bytes of an LZ4 stream.
pub(crate) fn charge_decoding(bytes: u64, cost: u64) -> Result<(), Exceeded> {
    with(|spent| spent.charge(bytes, cost))
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
mod tests;
