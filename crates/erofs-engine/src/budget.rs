//! Budgets: a limit on the work of one request, whatever the image contains.
//!
//! A request opens a `Scope` for its thread. Reads of metadata are charged as steps, and decoders
//! by their bytes, wherever on the way they happen: the content of a directory may be mapped by
//! tables in the metabox, which is decoded in turn. A thread that decodes for another one's request
//! has a budget of its own, of the same size (`Share`).
//!
//! On its way a request passes these marks:
//! 1. It is *long*: its thread has normal priority, and the server has others take its place.
//! 2. It can be interrupted: by a signal for its reader, or because the reader is gone.
//! 3. It is *heavy*, beyond what a sound image causes: one request of that inode at a time.
//! 4. It ends.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use erofs_format::Nid;
use rustix::time::{ClockId, clock_gettime};

use crate::control::ThreadControl;
use crate::heavy::Turn;
use crate::peaks::Taken;

/// Reads of metadata and blocks of directories.
pub const MAX_STEPS: u64 = 1 << 18;
/// Bytes fetched and decoded: a read of 1 MiB has two partial pclusters at most, 26 MiB in all.
pub const MAX_BYTES: u64 = 64 << 20;
/// CPU time: far beyond the time for these steps and bytes on a slow machine.
pub const MAX_CPU: Duration = Duration::from_secs(4);

/// Time on a CPU, the decoding ahead included, from which on a request is long.
pub const LONG_CPU: Duration = Duration::from_millis(8);
/// The same in bytes fetched and decoded: twice what a read of 1 MiB with pclusters of 1 MiB takes.
pub const LONG_BYTES: u64 = 4 << 20;
/// Time on a CPU from which on a request can be interrupted. Not from its beginning: programs that
/// get signals all the time do not expect that reads of files end with EINTR.
pub const INTERRUPTIBLE_CPU: Duration = Duration::from_millis(50);

/// Steps between two reads of the clock, which is a system call.
const CLOCK_STEPS: u64 = 16;
/// The same in bytes fetched or decoded, those of slow codecs counted as what an LZ4 stream has in
/// the same time: 0.3 ms.
const CLOCK_BYTES: u64 = 1 << 20;
/// Bytes from which on the CPU time of a request is measured to its end.
const MEASURED_BYTES: u64 = 1 << 20;
/// Nanoseconds that decoding takes for 1024 bytes of an LZ4 stream, the unit of a segment's cost.
const NS_PER_KIB: u64 = 270;

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
    /// Another request of the same inode takes more than half of its budget.
    #[error("another request of this inode takes too much work already")]
    Busy,
    /// Its reader is gone, or got a signal.
    #[error("interrupted: its reader is gone, or got a signal")]
    Interrupted,
    /// The engine is shutting down.
    #[error("interrupted: the image is being closed")]
    Closed,
}

impl Exceeded {
    /// Whether it is one of the limits, rather than another request or the end.
    pub(crate) fn is_limit(self) -> bool {
        self.lasts() || self == Exceeded::Time
    }

    /// Whether the same request would end like this again: the image decides on steps and bytes.
    /// Time may have gone to others, as on a machine that was paused.
    pub(crate) fn lasts(self) -> bool {
        matches!(self, Exceeded::Steps | Exceeded::Bytes)
    }
}

/// Limits of a request.
#[derive(Clone, Copy, Debug)]
struct Limits {
    steps: u64,
    bytes: u64,
    cpu: Duration,
    /// Bytes that make it long.
    long: u64,
}

impl Limits {
    /// For a request that asks for `length` bytes of content. Requests of a mount ask for 1 MiB at
    /// most.
    fn new(length: u64) -> Self {
        let four_times = length.saturating_mul(4);
        Self {
            steps: MAX_STEPS + length / 64,
            bytes: MAX_BYTES.saturating_add(four_times),
            cpu: MAX_CPU.saturating_add(Duration::from_secs(length >> 20)),
            long: LONG_BYTES.saturating_add(four_times),
        }
    }
}

#[derive(Debug)]
struct Spent {
    limits: Limits,
    nid: Nid,
    steps: u64,
    bytes: u64,
    /// Work since the clock was read, or since the beginning: up to [`CLOCK_BYTES`], of which a
    /// step is a part.
    unclocked: u64,
    /// CPU time of the thread when the request began; taken when the clock is first read.
    began: Option<Duration>,
    /// CPU time since then, when the clock was last read, and when it was found to be long.
    used: Duration,
    raised: Duration,
    exceeded: Option<Exceeded>,
    /// The server knows that it takes long.
    long: bool,
    /// Of an inode that is heavy.
    turn: Option<Turn>,
    /// Works for another thread's request, which has the turn.
    helps: bool,
    control: ThreadControl,
}

impl Spent {
    fn new(limits: Limits, nid: Nid, control: &ThreadControl) -> Self {
        Self {
            limits,
            nid,
            steps: 0,
            bytes: 0,
            unclocked: 0,
            began: None,
            used: Duration::ZERO,
            raised: Duration::ZERO,
            exceeded: control.is_closing().then_some(Exceeded::Closed),
            long: false,
            turn: None,
            helps: false,
            control: Arc::clone(control),
        }
    }

    /// With its turn, if the inode is one of those that are served once at a time.
    fn with_turn(mut self) -> Self {
        match self.control.heavy.enter(self.nid) {
            Ok(turn) => self.turn = turn,
            Err(()) => self.exceeded = self.exceeded.or(Some(Exceeded::Busy)),
        }
        self
    }

    fn step(&mut self) -> Result<(), Exceeded> {
        if self.steps >= self.limits.steps {
            return Err(Exceeded::Steps);
        }
        self.steps += 1;
        self.unclocked += CLOCK_BYTES / CLOCK_STEPS;
        if self.unclocked < CLOCK_BYTES {
            return Ok(());
        }
        self.check(0)
    }

    /// `cost`: what the decoding ahead will take, in bytes of an LZ4 stream.
    fn charge(&mut self, bytes: u64, cost: u64) -> Result<(), Exceeded> {
        let total = self.bytes.saturating_add(bytes);
        if total > self.limits.bytes {
            return Err(Exceeded::Bytes);
        }
        self.bytes = total;
        self.unclocked = self.unclocked.saturating_add(bytes.max(cost));
        if self.unclocked < CLOCK_BYTES && total <= self.limits.long {
            return self.check_closing();
        }
        self.check(cost)
    }

    fn check_closing(&self) -> Result<(), Exceeded> {
        match self.control.is_closing() {
            true => Err(Exceeded::Closed),
            false => Ok(()),
        }
    }

    /// Reads the clock, and passes the marks that the request has come to.
    fn check(&mut self, cost: u64) -> Result<(), Exceeded> {
        self.check_closing()?;
        let used = self.read_clock();
        if used > self.limits.cpu {
            return Err(Exceeded::Time);
        }
        let ahead = Duration::from_nanos((cost >> 10).saturating_mul(NS_PER_KIB));
        if !self.long && (used + ahead > LONG_CPU || self.bytes > self.limits.long) {
            self.long = true;
            self.raised = used;
            self.control.begin_long();
        }
        if used > INTERRUPTIBLE_CPU && self.control.is_interrupted() {
            return Err(Exceeded::Interrupted);
        }
        if self.turn.is_none() && !self.helps && self.is_heavy(used) {
            let turn = self.control.heavy.mark(self.nid);
            self.turn = Some(turn.map_err(|()| Exceeded::Busy)?);
        }
        Ok(())
    }

    /// CPU time of the request.
    fn read_clock(&mut self) -> Duration {
        let now = cpu_time();
        self.unclocked = 0;
        self.used = now.saturating_sub(*self.began.get_or_insert(now));
        self.used
    }

    fn taken(&self) -> Taken {
        Taken {
            steps: self.steps,
            bytes: self.bytes,
            cpu: self.used,
            raised: if self.long { self.raised } else { self.used },
            long: self.long,
        }
    }

    /// Beyond half of its budget.
    fn is_heavy(&self, used: Duration) -> bool {
        let Limits {
            steps, bytes, cpu, ..
        } = self.limits;
        self.steps > steps / 2 || self.bytes > bytes / 2 || used > cpu / 2
    }
}

impl Drop for Spent {
    fn drop(&mut self) {
        if self.bytes >= MEASURED_BYTES {
            // The last decoding came after the last check.
            self.read_clock();
        }
        self.control.peaks.record(self.taken());
        if self.long {
            self.control.end_long();
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
    /// A request for metadata of an inode.
    pub(crate) fn begin(control: &ThreadControl, nid: Nid) -> Self {
        Self::for_content(control, nid, 0)
    }

    /// A request for `length` bytes of an inode's content.
    pub(crate) fn for_content(control: &ThreadControl, nid: Nid, length: u64) -> Self {
        Self::open(|| Spent::new(Limits::new(length), nid, control).with_turn())
    }

    fn open(spent: impl FnOnce() -> Spent) -> Self {
        CURRENT.with_borrow_mut(|current| {
            let outermost = current.is_none();
            if outermost {
                *current = Some(spent());
            }
            Scope { outermost }
        })
    }

    /// Restarts the budget for the next part of a request.
    pub(crate) fn renew(&self) {
        with(|spent| {
            (spent.steps, spent.bytes, spent.began) = (0, 0, None);
            Ok(())
        })
        .unwrap_or(());
    }
}

impl Drop for Scope {
    fn drop(&mut self) {
        if self.outermost {
            // Dropped when the place is free again: a server is called at the end of a long one.
            drop(CURRENT.take());
        }
    }
}

/// The request of this thread, for a thread that works for it.
#[derive(Debug)]
pub(crate) struct Share {
    limits: Limits,
    nid: Nid,
    control: ThreadControl,
}

/// `None`: there is no request on this thread.
pub(crate) fn share() -> Option<Share> {
    CURRENT.with_borrow(|current| {
        current.as_ref().map(|spent| Share {
            limits: spent.limits,
            nid: spent.nid,
            control: Arc::clone(&spent.control),
        })
    })
}

impl Share {
    /// On the thread that works for the request.
    pub(crate) fn enter(&self) -> Scope {
        Scope::open(|| {
            let mut spent = Spent::new(self.limits, self.nid, &self.control);
            spent.helps = true;
            spent
        })
    }
}

/// The limit that the request of this thread exceeded, if it did.
pub(crate) fn exceeded() -> Option<Exceeded> {
    CURRENT.with_borrow(|current| current.as_ref().and_then(|spent| spent.exceeded))
}

/// Charges a read of metadata to the request of this thread, if there is one.
pub(crate) fn step() -> Result<(), Exceeded> {
    with(Spent::step)
}

/// Charges bytes that are fetched.
pub(crate) fn charge(bytes: u64) -> Result<(), Exceeded> {
    charge_decoding(bytes, 0)
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
