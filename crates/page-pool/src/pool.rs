//! The pool: ready pages first, then the system.

use std::io;
use std::sync::Arc;

use sys::memory::Run;

use crate::buffer::{Origin, PageBuf, Release};
use crate::free::FreeRuns;
use crate::histogram::PageHistogram;
use crate::instruments::Instruments;
use crate::sync::{self, Mutex, MutexGuard};
use crate::{PAGE_SIZE, PoolOptions, PoolStats};

/// Pages kept ready for contiguous buffers.
///
/// The reserve starts empty and is filled by released buffers up to its limit: it is an arena of
/// address space whose pages take memory at their first use and keep it. A request which the arena
/// cannot serve is mapped for that request and unmapped afterwards. The arena never shrinks or
/// grows.
///
/// Modelled in `models.rs`.
#[derive(Debug)]
pub struct PagePool {
    /// Set at start: pages of the arena.
    reserved_pages: usize,
    /// Set at start: the arena is locked in memory.
    locked: bool,
    /// Set at start: lines for the user.
    notices: Vec<String>,
    /// Set at start: what experiments add; nothing without the feature `experiments`.
    instruments: Instruments,
    /// Guarded by its own lock. Memory is mapped, unmapped and touched outside of the lock.
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
    hit_pages: u64,
    missed_pages: u64,
    failed: u64,
    in_use_histogram: PageHistogram,
    request_histogram: PageHistogram,
}

impl PagePool {
    /// Reserves the address space, with `prefill` also all of the memory.
    ///
    /// # Errors
    /// The address space or the memory is not available; nothing stays reserved.
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
            locked,
            notices,
            instruments: Instruments::new(options),
            state: Mutex::new(State::new(FreeRuns::new(arena, options.prefill))),
        }))
    }

    /// A buffer of `bytes` bytes (contents unspecified), in whole pages; `None` when the system is
    /// out of memory.
    ///
    /// All its memory is present when this returns, so the wait for the system is one wait for the
    /// whole buffer instead of one at the first touch of each page.
    pub fn alloc(self: &Arc<Self>, bytes: usize) -> Option<PageBuf> {
        self.instruments.measure(|| self.get(bytes))
    }

    /// The same, but `None` where the arena has no such run: no memory is allocated from the
    /// system.
    pub fn alloc_reserved(self: &Arc<Self>, bytes: usize) -> Option<PageBuf> {
        let run = self
            .instruments
            .measure(|| self.take_from_arena(pages_of(bytes)))?;
        Some(PageBuf::new(run, bytes, Origin::Arena, self.clone()))
    }

    fn get(self: &Arc<Self>, bytes: usize) -> Option<PageBuf> {
        let pages = pages_of(bytes);
        let (run, origin) = if let Some(run) = self.take_from_arena(pages) {
            (run, Origin::Arena)
        } else if let Some(run) = self.take_of_thread(pages) {
            (run, Origin::System)
        } else {
            (self.map_from_system(pages)?, Origin::System)
        };
        Some(PageBuf::new(run, bytes, origin, self.clone()))
    }

    /// The buffer that this thread kept.
    fn take_of_thread(&self, pages: usize) -> Option<Run> {
        let run = self.instruments.take(pages)?;
        let mut state = self.state();
        state.system_pages += run.pages();
        state.count_request(run.pages(), 0);
        Some(run)
    }

    fn take_from_arena(&self, pages: usize) -> Option<Run> {
        let mut state = self.state();
        let mut taken = state.free.take(pages)?;
        state.count_request(pages, taken.cold_pages);
        drop(state);
        if taken.cold_pages > 0 {
            // Where the system is out of memory, the first touch fails as it does for any mapping.
            let _ = taken.run.populate();
        }
        Some(taken.run)
    }

    fn map_from_system(&self, pages: usize) -> Option<Run> {
        let run = Run::map(pages).and_then(|mut run| run.populate().map(|()| run));
        let mut state = self.state();
        match run {
            Ok(run) => {
                state.system_pages += pages;
                state.count_request(pages, pages);
                Some(run)
            }
            Err(_) => {
                state.failed += 1;
                None
            }
        }
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
            hit_pages: state.hit_pages,
            missed_pages: state.missed_pages,
            failed: state.failed,
            in_use_pages: state.in_use,
            peak_in_use_pages: state.peak,
            in_use_p95_pages: state.in_use_histogram.percentile(95),
            request_p95_pages: state.request_histogram.percentile(95),
            #[cfg(feature = "experiments")]
            thread_pages: self.instruments.thread_pages(),
            #[cfg(feature = "experiments")]
            times: self.instruments.times(state.in_use_histogram.counts()),
        }
    }

    /// Lines to show the user: requests which the system refused.
    pub fn notices(&self) -> Vec<String> {
        self.notices.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        sync::lock(&self.state)
    }
}

impl Release for PagePool {
    fn release(&self, run: Run, origin: Origin) {
        let mut state = self.state();
        state.in_use -= run.pages();
        match origin {
            Origin::Arena => state.free.put(run),
            Origin::System => {
                state.system_pages -= run.pages();
                drop(state);
                self.instruments.put(run);
            }
        }
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
            hit_pages: 0,
            missed_pages: 0,
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

#[cfg(all(test, not(feature = "loom")))]
#[path = "pool_tests.rs"]
mod tests;
