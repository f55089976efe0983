//! Lending a closure that borrows from the caller's stack to other threads.
//!
//! Several workers decode a big read in parallel, directly into the caller's buffer. Their jobs
//! must be `'static`, but the buffer is not. This module lets the jobs use the buffer until the
//! caller's call returns.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// How long the owner polls before it sleeps until the others leave. The other threads do equal
/// parts of the same work and are nearly done, and being woken by another CPU costs 5 to 40 us.
const PATIENCE: Duration = Duration::from_micros(100);

/// Lends `work` out while `own` runs, and returns the result of `own`.
///
/// `own` gets a [`Lent`] that it may clone and pass to other threads. Each [`Lent::join`] runs
/// `work` once, as long as `own` has not returned. When this function returns (or unwinds), no
/// other thread is inside `work` and none can enter it any more. A handle that is still queued
/// somewhere is harmless and need not be waited for.
pub fn lend<R>(work: &(dyn Fn() + Sync), own: impl FnOnce(&Lent) -> R) -> R {
    let short: *const (dyn Fn() + Sync + '_) = work;
    // SAFETY: only the lifetime in the trait object's type changes; both pointer types have the
    // same layout. The pointer is followed only between `enter` and `leave`, and `Recall` keeps
    // this frame, and with it the borrow of `work`, alive until that can no longer happen.
    let work: *const (dyn Fn() + Sync + 'static) = unsafe { std::mem::transmute(short) };
    let lent = Lent(Arc::new(Loan {
        work: Borrowed(work),
        gate: AtomicUsize::new(0),
        owner: thread::current(),
    }));
    let _recall = Recall(&lent.0);
    own(&lent)
}

/// A handle to a lent closure; see [`lend`].
#[derive(Clone, Debug)]
pub struct Lent(Arc<Loan>);

impl Lent {
    /// Runs the lent closure if it is still lent; returns whether it ran.
    pub fn join(&self) -> bool {
        let Some(_inside) = Inside::enter(&self.0) else {
            return false;
        };
        // SAFETY: `Inside` was entered while the loan was open, so `lend` has not returned, and
        // cannot return before `Inside` is dropped: the closure behind the pointer is alive.
        let work = unsafe { &*self.0.work.0 };
        work();
        true
    }
}

#[derive(Debug)]
struct Loan {
    /// Fixed at creation.
    work: Borrowed,
    /// Atomic. [`CLOSED`], plus [`ONE`] for each thread that is inside. No thread enters once the
    /// loan is closed.
    gate: AtomicUsize,
    /// Fixed at creation. The lending thread, which may sleep until the last other thread has left.
    owner: Thread,
}

const CLOSED: usize = 1;
const ONE: usize = 2;

impl Loan {
    fn is_over(&self) -> bool {
        // Acquire, so that the owner sees everything that the other threads wrote inside.
        self.gate.load(Ordering::Acquire) == CLOSED
    }
}

#[derive(Debug)]
struct Borrowed(*const (dyn Fn() + Sync + 'static));

// SAFETY: the pointer is only ever turned into a shared reference to a `Sync` closure.
unsafe impl Send for Borrowed {}
// SAFETY: as above; sharing the pointer shares only `&(dyn Fn() + Sync)`.
unsafe impl Sync for Borrowed {}

struct Inside<'a>(&'a Loan);

impl<'a> Inside<'a> {
    fn enter(loan: &'a Loan) -> Option<Self> {
        let enter = |gate| (gate & CLOSED == 0).then(|| gate + ONE);
        loan.gate
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, enter)
            .is_ok()
            // `then_some` would create the value even if this thread did not enter, and dropping
            // that value would leave a loan that was never entered.
            .then(|| Inside(loan))
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        // As soon as the owner sees this change of the gate, it may return, after which the closure
        // is gone; the loan itself lives on in the handle that this thread holds.
        if self.0.gate.fetch_sub(ONE, Ordering::Release) == CLOSED + ONE {
            self.0.owner.unpark();
        }
    }
}

/// Closes the loan and waits until every thread has left, on return and on unwinding alike.
struct Recall<'a>(&'a Loan);

impl Drop for Recall<'_> {
    fn drop(&mut self) {
        self.0.gate.fetch_or(CLOSED, Ordering::Relaxed);
        if self.0.is_over() {
            return;
        }
        let begin = Instant::now();
        while begin.elapsed() < PATIENCE {
            if self.0.is_over() {
                return;
            }
            std::hint::spin_loop();
        }
        // A spurious wake-up does no harm, because the gate decides.
        while !self.0.is_over() {
            thread::park();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_threads_fill_a_buffer_of_the_callers_stack() {
        let cells: [AtomicUsize; 64] = std::array::from_fn(|_| AtomicUsize::new(0));
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(cell) = cells.get(next.fetch_add(1, Ordering::Relaxed)) {
                cell.fetch_add(1, Ordering::Relaxed);
            }
        };
        let threads = lend(&work, |lent| {
            let handles: Vec<_> = (0..3)
                .map(|_| {
                    let lent = lent.clone();
                    thread::spawn(move || lent.join())
                })
                .collect();
            work();
            handles
        });
        assert!(cells.iter().all(|cell| cell.load(Ordering::Relaxed) == 1));
        for thread in threads {
            thread.join().expect("no panic");
        }
    }

    #[test]
    fn a_handle_that_comes_too_late_runs_nothing() {
        let runs = AtomicUsize::new(0);
        let work = || {
            runs.fetch_add(1, Ordering::Relaxed);
        };
        let late = lend(&work, Lent::clone);
        assert!(!late.join());
        assert_eq!(runs.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn who_comes_too_late_does_not_count_as_having_left() {
        let (entered, go_on) = (
            std::sync::Barrier::new(2),
            Arc::new(std::sync::Barrier::new(2)),
        );
        let go_on_too = Arc::clone(&go_on);
        let work = || {
            entered.wait();
            go_on.wait();
        };
        let (inside, late) = lend(&work, |lent| {
            let (inside, late) = (lent.clone(), lent.clone());
            let inside = thread::spawn(move || inside.join());
            entered.wait();
            // Arrives when the loan is closed, while the other thread is still inside.
            let late = thread::spawn(move || {
                while late.0.gate.load(Ordering::Relaxed) & CLOSED == 0 {
                    thread::yield_now();
                }
                let refused = (0..10).all(|_| !late.join());
                let gate = late.0.gate.load(Ordering::Relaxed);
                go_on_too.wait();
                (refused, gate)
            });
            (inside, late)
        });
        assert!(inside.join().expect("no panic"));
        assert_eq!(late.join().expect("no panic"), (true, CLOSED + ONE));
    }

    #[test]
    fn the_loan_ends_only_when_everybody_has_left() {
        let entered = std::sync::Barrier::new(2);
        let done = AtomicUsize::new(0);
        let work = || {
            entered.wait();
            thread::sleep(std::time::Duration::from_millis(20));
            done.store(1, Ordering::SeqCst);
        };
        let thread = lend(&work, |lent| {
            let lent = lent.clone();
            let thread = thread::spawn(move || lent.join());
            entered.wait();
            thread
        });
        assert_eq!(done.load(Ordering::SeqCst), 1);
        assert!(thread.join().expect("no panic"));
    }

    #[test]
    fn a_panic_of_a_helper_does_not_hang_the_owner() {
        let work = || panic!("on purpose");
        let thread = lend(&work, |lent| {
            let lent = lent.clone();
            let thread = thread::spawn(move || lent.join());
            while !thread.is_finished() {
                thread::yield_now();
            }
            thread
        });
        assert!(thread.join().is_err());
    }
}
