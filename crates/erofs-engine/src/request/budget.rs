//! One request of a caller, and its budget: a limit on its work, whatever the image contains.
//!
//! All code that works for a request receives the [`Request`]. Reads of metadata are charged as
//! steps, and decoding by the number of bytes, wherever they occur: tables in the metabox may map
//! the content of a directory, and the metabox itself has to be decoded. A thread that decodes for
//! another thread's request has a separate request, with a budget of the same size (`Share`). A
//! caller's own work in the middle of a request, such as a callback that reads each file of a
//! listing, does not count (`outside`).
//!
//! Budgets never read a clock. A request passes these stages:
//! 1. It becomes *long*, and from then on its thread has normal priority.
//! 2. It becomes *heavy*, which no valid image causes: only one heavy request is served at a time,
//!    so that threads remain for other requests.
//! 3. It is aborted.

use std::cell::RefCell;
use std::io;

use crate::request::control::Control;
use crate::request::missing::Missing;

/// Maximum number of reads of metadata and blocks of directories.
pub const MAX_STEPS: u64 = 1 << 18;
/// Maximum number of bytes fetched and decoded. A read of 1 MiB touches at most two partial
/// pclusters, for which 26 MiB are fetched and decoded.
pub const MAX_BYTES: u64 = 64 << 20;

/// Cost at which a request becomes long, in bytes of LZ4 output, which take 9 ms to decode. A read
/// of 1 MiB with LZ4 costs less, whatever the sizes of its pclusters.
pub const LONG_COST: u64 = 32 << 20;
/// Cost of a step: a read of metadata takes 3.3 us, an LZ4 decoder 0.27 ns per byte.
const STEP_COST: u64 = 12 << 10;

/// Why a request is aborted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Exceeded {
    /// Too many reads of metadata.
    #[error("the request needs more than {MAX_STEPS} reads of metadata")]
    Steps,
    /// Too many bytes.
    #[error("the request needs more than {MAX_BYTES} fetched and decoded bytes")]
    Bytes,
    /// Another request is already using more than half of its budget.
    #[error("another expensive request is already running")]
    Busy,
    /// The engine is shutting down.
    #[error("interrupted: the image is being closed")]
    Closed,
}

impl Exceeded {
    /// Whether the same request would exceed this limit again.
    pub(crate) fn is_limit(self) -> bool {
        matches!(self, Exceeded::Steps | Exceeded::Bytes)
    }
}

/// The budget of a request.
#[derive(Clone, Copy, Debug)]
struct Limits {
    steps: u64,
    bytes: u64,
}

impl Limits {
    /// Limits of a request for `length` bytes of content. Requests of a mount are for at most 1
    /// MiB.
    fn new(length: u64) -> Self {
        Self {
            steps: MAX_STEPS + length / 64,
            bytes: MAX_BYTES.saturating_add(length.saturating_mul(4)),
        }
    }
}

/// The kind of thread that makes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadContext {
    /// A worker, which decompresses its own requests.
    Worker,
    /// Any other thread.
    Reader {
        /// Whether no reader waits for the bytes yet.
        readahead: bool,
    },
}

#[derive(Debug)]
struct Spent {
    limits: Limits,
    steps: u64,
    bytes: u64,
    cost: u64,
    exceeded: Option<Exceeded>,
    turn: Turn,
}

/// Whether a request may become heavy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The request is not heavy.
    Open,
    /// The request is the only heavy one.
    Taken,
    /// The request works for another thread's request.
    Helps,
}

impl Spent {
    fn new(limits: Limits, turn: Turn, control: &Control) -> Self {
        Self {
            limits,
            steps: 0,
            bytes: 0,
            cost: 0,
            exceeded: control.is_closing().then_some(Exceeded::Closed),
            turn,
        }
    }

    fn step(&mut self, control: &Control) -> Result<(), Exceeded> {
        if self.steps >= self.limits.steps {
            return Err(Exceeded::Steps);
        }
        self.steps += 1;
        self.take(STEP_COST, control)
    }

    fn charge(&mut self, bytes: u64, cost: u64, control: &Control) -> Result<(), Exceeded> {
        let total = self.bytes.saturating_add(bytes);
        if total > self.limits.bytes {
            return Err(Exceeded::Bytes);
        }
        self.bytes = total;
        self.take(cost, control)
    }

    /// Adds to the cost. A request that becomes long lowers its thread's priority; one that becomes
    /// heavy takes the turn of heavy requests.
    fn take(&mut self, cost: u64, control: &Control) -> Result<(), Exceeded> {
        if control.is_closing() {
            return Err(Exceeded::Closed);
        }
        let was_long = self.is_long();
        self.cost = self.cost.saturating_add(cost);
        if self.is_long() && !was_long {
            cpu_workers::lower();
        }
        match self.is_heavy() {
            true => self.take_turn(control),
            false => Ok(()),
        }
    }

    fn take_turn(&mut self, control: &Control) -> Result<(), Exceeded> {
        if self.turn == Turn::Open {
            if !control.take_turn() {
                return Err(Exceeded::Busy);
            }
            self.turn = Turn::Taken;
        }
        Ok(())
    }

    /// Called before the thread serves other requests: restores its priority and gives up the turn.
    fn pause(&mut self, control: &Control) {
        if self.is_long() {
            cpu_workers::raise();
        }
        if self.turn == Turn::Taken {
            control.end_turn();
            self.turn = Turn::Open;
        }
    }

    /// Called after [`pause`](Self::pause). A heavy request takes its turn again in its next step.
    fn resume(&self) {
        if self.is_long() {
            cpu_workers::lower();
        }
    }

    fn end(mut self, control: &Control) {
        control.record(self.steps, self.bytes, self.is_long());
        self.pause(control);
    }

    /// Whether the request has used more than half of its budget.
    fn is_heavy(&self) -> bool {
        self.steps > self.limits.steps / 2 || self.bytes > self.limits.bytes / 2
    }

    fn is_long(&self) -> bool {
        self.cost > LONG_COST
    }
}

/// One request of a caller, on the thread that serves it: the kind of thread, whether it may wait
/// for a network, which bytes it lacks, and the budget of the current call.
#[derive(Debug)]
pub struct Request<'e> {
    control: &'e Control,
    pub(crate) context: ReadContext,
    /// The budget spent by the current call.
    spent: RefCell<Option<Spent>>,
    /// `None` if the request waits for networks.
    missing: RefCell<Option<Missing>>,
}

impl<'e> Request<'e> {
    /// A request that waits for networks.
    pub(crate) fn new(control: &'e Control, context: ReadContext) -> Self {
        Self {
            control,
            context,
            spent: RefCell::new(None),
            missing: RefCell::new(None),
        }
    }

    /// Makes reads fail and record what they lack, instead of waiting for a network.
    #[must_use]
    pub fn without_waiting(self) -> Self {
        self.missing.replace(Some(Missing::default()));
        self
    }

    /// The data that the request lacks, if any: in that case the results of all of its calls must
    /// be dropped.
    pub fn missing(&self) -> Option<Missing> {
        let mut missing = self.missing.borrow_mut();
        let missing = missing.as_mut().map(std::mem::take);
        missing.filter(|missing| !missing.is_empty())
    }

    /// Whether the request lacks data.
    pub fn lacks(&self) -> bool {
        let missing = self.missing.borrow();
        missing.as_ref().is_some_and(|missing| !missing.is_empty())
    }

    pub(crate) fn waits(&self) -> bool {
        self.missing.borrow().is_none()
    }

    /// Waits for all of these uncached bytes together, or records that they are missing.
    pub(crate) fn need(&self, missing: Missing) -> io::Result<()> {
        if missing.is_empty() {
            return Ok(());
        }
        match &mut *self.missing.borrow_mut() {
            None => missing.wait(&|| true),
            Some(all) => {
                all.extend(missing);
                Err(io::ErrorKind::WouldBlock.into())
            }
        }
    }

    /// Begins a call for `length` bytes of content, or 0 for metadata. A call inside another is
    /// part of it.
    pub(crate) fn begin(&self, length: u64) -> Scope<'_> {
        let mut spent = self.spent.borrow_mut();
        let is_outermost = spent.is_none();
        if is_outermost {
            *spent = Some(Spent::new(Limits::new(length), Turn::Open, self.control));
        }
        Scope {
            request: self,
            is_outermost,
        }
    }

    /// Begins a call for an inode that had a heavy call before: the new call takes the turn
    /// immediately.
    pub(crate) fn begin_heavy(&self, length: u64) -> Scope<'_> {
        let scope = self.begin(length);
        // A refusal is remembered, and ends the call at its first step.
        let _ = self.with(Spent::take_turn);
        scope
    }

    /// Runs a caller's code in the middle of a call. Calls made by that code have their own budgets
    /// and errors.
    pub(crate) fn outside<R>(&self, work: impl FnOnce() -> R) -> R {
        let mut spent = self.spent.take();
        if let Some(spent) = &mut spent {
            spent.pause(self.control);
        }
        let _paused = Paused(self, spent);
        work()
    }

    /// The share for a thread that helps this request.
    pub(crate) fn share(&self) -> Share<'e> {
        Share {
            limits: self.spent.borrow().as_ref().map(|spent| spent.limits),
            control: self.control,
            waits: self.waits(),
        }
    }

    /// The limit that the call exceeded, if it did.
    pub(crate) fn exceeded(&self) -> Option<Exceeded> {
        self.spent.borrow().as_ref()?.exceeded
    }

    /// Whether the call is heavy.
    pub(crate) fn is_heavy(&self) -> bool {
        self.spent.borrow().as_ref().is_some_and(Spent::is_heavy)
    }

    /// Charges a read of metadata, if a call is in progress.
    pub(crate) fn step(&self) -> Result<(), Exceeded> {
        self.with(Spent::step)
    }

    /// Charges fetched bytes, because copying takes as long as decoding the same number.
    pub(crate) fn charge(&self, bytes: u64) -> Result<(), Exceeded> {
        self.charge_decoding(bytes, bytes)
    }

    /// Charges bytes that are about to be decoded; `cost` is the work, as an equivalent number of
    /// LZ4 bytes.
    pub(crate) fn charge_decoding(&self, bytes: u64, cost: u64) -> Result<(), Exceeded> {
        self.with(|spent, control| spent.charge(bytes, cost, control))
    }

    fn with(
        &self,
        work: impl FnOnce(&mut Spent, &Control) -> Result<(), Exceeded>,
    ) -> Result<(), Exceeded> {
        let mut spent = self.spent.borrow_mut();
        let Some(spent) = spent.as_mut() else {
            return Ok(());
        };
        if let Some(exceeded) = spent.exceeded {
            return Err(exceeded);
        }
        work(spent, self.control).inspect_err(|&exceeded| spent.exceeded = Some(exceeded))
    }

    fn end(&self) {
        if let Some(spent) = self.spent.take() {
            spent.end(self.control);
        }
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        self.end();
    }
}

/// A call of a request, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Scope<'r> {
    request: &'r Request<'r>,
    /// Whether the call is not part of another.
    pub(crate) is_outermost: bool,
}

impl Scope<'_> {
    /// Restarts the budget for the next part of a call.
    pub(crate) fn renew(&self) {
        // A limit once exceeded stays exceeded.
        let _ = self.request.with(|spent, _| {
            (spent.steps, spent.bytes) = (0, 0);
            Ok(())
        });
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        if self.is_outermost {
            self.request.end();
        }
    }
}

/// A call that is suspended until this is dropped.
struct Paused<'r>(&'r Request<'r>, Option<Spent>);

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        if let Some(spent) = self.1.take() {
            spent.resume();
            self.0.spent.replace(Some(spent));
        }
    }
}

/// A request's share for a thread that helps it.
#[derive(Debug)]
pub(crate) struct Share<'e> {
    limits: Option<Limits>,
    control: &'e Control,
    waits: bool,
}

impl<'e> Share<'e> {
    /// Called on the helping thread; the original request later receives what this one lacks.
    pub(crate) fn enter(&self) -> Request<'e> {
        let request = Request::new(self.control, ReadContext::Worker);
        let spent = self.limits;
        let spent = spent.map(|limits| Spent::new(limits, Turn::Helps, self.control));
        request.spent.replace(spent);
        match self.waits {
            true => request,
            false => request.without_waiting(),
        }
    }
}

#[cfg(test)]
mod tests;
