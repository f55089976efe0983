//! The pool: ready pages first, then the system.

use std::io;
use std::sync::Arc;

use sys::memory::Run;

use crate::buffer::Origin;
use crate::free::FreeRuns;
use crate::histogram::PageHistogram;
use crate::kept::ThreadBuffers;
use crate::meter::Meter;
use crate::sync::{Mutex, MutexGuard};
use crate::{PAGE_SIZE, PageBuf, PoolOptions, PoolStats, Wait};

/// Pages kept ready for contiguous buffers.
///
/// The reserve starts empty and fills with what is given back, up to its limit: it is a stretch of
/// address space whose pages take memory at their first use and keep it. What it cannot serve is
/// mapped for the occasion and unmapped afterwards. It never shrinks and never grows.
///
/// Fields: I = set when made, read only afterwards; L = under the lock. Modelled in `models.rs`.
#[derive(Debug)]
pub struct PagePool {
    /// I: pages of the arena.
    reserved_pages: usize,
    /// I: see [`PoolOptions::nowait_limit_pages`].
    nowait_limit_pages: usize,
    /// I: the arena is locked in memory.
    locked: bool,
    /// I: lines for the user.
    notices: Vec<String>,
    /// I: where threads keep buffers of their own.
    thread_buffers: Option<ThreadBuffers>,
    /// I: where allocations are measured.
    meter: Option<Meter>,
    /// L. Memory is mapped, unmapped and touched outside of the lock.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: FreeRuns,
    /// Pages in use that are mapped beside the arena.
    system_pages: usize,
    in_use: usize,
    peak: usize,
    hits: u64,
    misses: u64,
    local_hits: u64,
    hit_pages: u64,
    missed_pages: u64,
    refused: u64,
    failed: u64,
    in_use_histogram: PageHistogram,
    request_histogram: PageHistogram,
}

impl PagePool {
    /// Reserves the address space; with `prefill` also the memory, all of it or none: where it
    /// cannot be had, this is an error and nothing stays behind.
    pub fn new(options: &PoolOptions) -> io::Result<Arc<PagePool>> {
        let mut notices = Vec::new();
        let mut arena = match options.reserved_pages {
            0 => None,
            pages => Some(Run::map(pages)?),
        };
        let mut locked = false;
        if let Some(arena) = arena.as_mut() {
            if options.lock {
                locked = lock(arena, &mut notices);
            }
            if options.prefill {
                arena.populate()?;
            }
        }
        Ok(Arc::new(PagePool {
            reserved_pages: options.reserved_pages,
            nowait_limit_pages: options.nowait_limit_pages,
            locked,
            notices,
            thread_buffers: options.thread_buffers.then(ThreadBuffers::default),
            meter: options.measure.then(Meter::new),
            state: Mutex::new(State::new(FreeRuns::new(arena, options.prefill))),
        }))
    }

    /// A buffer of `bytes` bytes (contents unspecified), in whole pages.
    ///
    /// All its memory is there when this returns: what has to wait for the system waits here, once
    /// for the whole buffer and not at every page's first touch.
    ///
    /// `Wait::May` gets None only when the system is out of memory. `Wait::Never` is the twin of
    /// the kernel's GFP_NOWAIT. No mmap can be asked not to reclaim memory, so the promise is kept
    /// by bounds instead: ready pages are free for the taking, but untouched pages and fresh
    /// mappings only as long as the pages from the system that are in use, the new ones included,
    /// stay within [`PoolOptions::nowait_limit_pages`]. Beyond it the answer is None: drop the
    /// read-ahead silently, the reader asks again and waits.
    pub fn alloc(self: &Arc<Self>, bytes: usize, wait: Wait) -> Option<PageBuf> {
        self.measured(|| self.get(bytes, wait))
    }

    /// The same, but None where the reserve has no such stretch: the system is not asked for one.
    pub fn alloc_reserved(self: &Arc<Self>, bytes: usize, wait: Wait) -> Option<PageBuf> {
        let run = self.measured(|| self.take_from_arena(pages_of(bytes), wait))?;
        Some(PageBuf::new(run, bytes, Origin::Arena, Arc::clone(self)))
    }

    fn measured<R>(&self, allocate: impl FnOnce() -> R) -> R {
        match &self.meter {
            Some(meter) => meter.measure(allocate),
            None => allocate(),
        }
    }

    fn get(self: &Arc<Self>, bytes: usize, wait: Wait) -> Option<PageBuf> {
        let pages = pages_of(bytes);
        let (run, origin) = if let Some(run) = self.take_from_arena(pages, wait) {
            (run, Origin::Arena)
        } else if let Some(run) = self.take_of_thread(pages) {
            (run, Origin::System)
        } else {
            (self.map_from_system(pages, wait)?, Origin::System)
        };
        Some(PageBuf::new(run, bytes, origin, Arc::clone(self)))
    }

    /// The buffer that this thread kept.
    fn take_of_thread(&self, pages: usize) -> Option<Run> {
        let run = self.thread_buffers.as_ref()?.take(pages)?;
        let mut state = self.state();
        state.system_pages += run.pages();
        state.count_request(run.pages(), 0);
        Some(run)
    }

    fn take_from_arena(&self, pages: usize, wait: Wait) -> Option<Run> {
        let mut state = self.state();
        let limit = self.nowait_limit_pages;
        let system_pages = state.system_pages;
        let allow = |cold| cold == 0 || wait == Wait::May || system_pages + cold <= limit;
        let mut taken = state.free.take(pages, allow)?;
        state.count_request(pages, taken.cold_pages);
        drop(state);
        if taken.cold_pages > 0 {
            // Where the system has no page left, the first touch says so, as it always did.
            let _ = taken.run.populate();
        }
        Some(taken.run)
    }

    fn map_from_system(&self, pages: usize, wait: Wait) -> Option<Run> {
        {
            let mut state = self.state();
            if wait == Wait::Never && state.system_pages + pages > self.nowait_limit_pages {
                state.refused += 1;
                return None;
            }
            // Counted before the mapping is made: callers at the same time see one another.
            state.system_pages += pages;
        }
        let run = Run::map(pages).and_then(|mut run| run.populate().map(|()| run));
        let mut state = self.state();
        match run {
            Ok(run) => {
                state.count_request(pages, pages);
                Some(run)
            }
            Err(_) => {
                state.system_pages -= pages;
                state.failed += 1;
                None
            }
        }
    }

    /// Puts the pages of a dropped buffer where they came from.
    pub(crate) fn release(&self, run: Run, origin: Origin) {
        let mut state = self.state();
        state.in_use -= run.pages();
        match origin {
            Origin::Arena => state.free.put(run),
            Origin::System => {
                state.system_pages -= run.pages();
                drop(state);
                match &self.thread_buffers {
                    Some(buffers) => buffers.put(run),
                    None => drop(run),
                }
            }
        }
    }

    pub(crate) fn count_local_hits(&self, hits: u64) {
        self.state().local_hits += hits;
    }

    /// Counters; takes the lock for a moment.
    pub fn stats(&self) -> PoolStats {
        let state = self.state();
        PoolStats {
            reserved_pages: self.reserved_pages,
            free_pages: state.free.free_pages(),
            ready_pages: state.free.ready_pages(),
            locked: self.locked,
            hits: state.hits,
            misses: state.misses,
            local_hits: state.local_hits,
            hit_pages: state.hit_pages,
            missed_pages: state.missed_pages,
            refused: state.refused,
            failed: state.failed,
            in_use_pages: state.in_use,
            peak_in_use_pages: state.peak,
            in_use_p95_pages: state.in_use_histogram.percentile(95),
            request_p95_pages: state.request_histogram.percentile(95),
            thread_pages: self.thread_buffers.as_ref().map_or(0, ThreadBuffers::pages),
            times: self
                .meter
                .as_ref()
                .map(|meter| meter.times(state.in_use_histogram.counts())),
        }
    }

    /// Lines to show the user: what was refused.
    pub fn notices(&self) -> Vec<String> {
        self.notices.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // A panic under the lock would be a bug of ours; the counters stay usable all the same.
        self.state
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl State {
    fn new(free: FreeRuns) -> Self {
        State {
            free,
            system_pages: 0,
            in_use: 0,
            peak: 0,
            hits: 0,
            misses: 0,
            local_hits: 0,
            hit_pages: 0,
            missed_pages: 0,
            refused: 0,
            failed: 0,
            in_use_histogram: PageHistogram::new(),
            request_histogram: PageHistogram::new(),
        }
    }

    fn count_request(&mut self, pages: usize, missed: usize) {
        match missed {
            0 => self.hits += 1,
            _ => self.misses += 1,
        }
        self.hit_pages += (pages - missed) as u64;
        self.missed_pages += missed as u64;
        self.in_use += pages;
        self.peak = self.peak.max(self.in_use);
        self.in_use_histogram.record(self.in_use);
        self.request_histogram.record(pages);
    }
}

fn pages_of(bytes: usize) -> usize {
    bytes.div_ceil(PAGE_SIZE).max(1)
}

fn lock(arena: &mut Run, notices: &mut Vec<String>) -> bool {
    match arena.lock_on_fault() {
        Ok(()) => true,
        Err(error) => {
            notices.push(format!(
                "the {} reserved pages are not locked in memory: {error}; raise RLIMIT_MEMLOCK \
                 (ulimit -l) to {} KiB or more, or run as root",
                arena.pages(),
                arena.len() / 1024
            ));
            false
        }
    }
}

#[cfg(all(test, not(loom)))]
#[path = "pool_tests.rs"]
mod tests;
