//! The pool and its buffers. The pool serves requests from its ready pages first, and otherwise
//! from the system.

use std::io;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use sys::memory::Run;

use crate::free::FreeRuns;
use crate::histogram::PageHistogram;
use crate::sync::{self, Mutex, MutexGuard};
use crate::{PAGE_SIZE, PoolOptions, PoolStats};

/// Pages kept ready for contiguous buffers.
///
/// The reserve starts empty, and released buffers fill it up to its limit: it is an arena of
/// address space whose pages take memory when first used and keep it. A request that the arena
/// cannot serve is mapped for that request only and unmapped afterwards. The arena never shrinks or
/// grows.
///
/// The counting is modelled in `models.rs`.
#[derive(Debug)]
pub struct PagePool {
    /// Never changes. Lines for the user.
    notices: Vec<String>,
    /// Never changes.
    #[cfg(feature = "experiments")]
    meter: Option<crate::meter::Meter>,
    /// Guarded by its own lock. Memory is mapped, unmapped and touched outside the lock.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: FreeRuns,
    /// Running counters; everything else is determined on request.
    counts: PoolStats,
    in_use: PageHistogram,
    requests: PageHistogram,
}

impl PagePool {
    /// Reserves the address space and, with `prefill`, all of the memory.
    ///
    /// # Errors
    /// The address space or the memory is not available; nothing remains reserved.
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
            notices,
            #[cfg(feature = "experiments")]
            meter: options.measure.then(crate::meter::Meter::new),
            state: Mutex::new(State {
                free: FreeRuns::new(arena, options.prefill),
                counts: PoolStats {
                    reserved_pages: options.reserved_pages,
                    locked,
                    ..PoolStats::default()
                },
                in_use: PageHistogram::new(),
                requests: PageHistogram::new(),
            }),
        }))
    }

    /// Allocates a buffer of `bytes` bytes (contents unspecified), in whole pages; `None` if the
    /// system is out of memory.
    ///
    /// All of the buffer's memory is present when this returns, so there is one wait for the whole
    /// buffer instead of one at the first touch of each page.
    pub fn alloc(self: &Arc<Self>, bytes: usize) -> Option<PageBuf> {
        self.measured(|| self.get(bytes))
    }

    /// Like [`alloc`](Self::alloc), but returns `None` if the arena has no free run of that length,
    /// instead of mapping memory outside the arena.
    pub fn alloc_reserved(self: &Arc<Self>, bytes: usize) -> Option<PageBuf> {
        let run = self.measured(|| self.take_from_arena(pages_of(bytes)))?;
        Some(self.buffer(run, bytes, Origin::Arena))
    }

    /// Runs `allocate`, and measures it if the options request that.
    fn measured<R>(&self, allocate: impl FnOnce() -> R) -> R {
        #[cfg(feature = "experiments")]
        if let Some(meter) = &self.meter {
            return meter.measure(allocate);
        }
        allocate()
    }

    fn get(self: &Arc<Self>, bytes: usize) -> Option<PageBuf> {
        let pages = pages_of(bytes);
        let (run, origin) = match self.take_from_arena(pages) {
            Some(run) => (run, Origin::Arena),
            None => (self.map_from_system(pages)?, Origin::System),
        };
        Some(self.buffer(run, bytes, origin))
    }

    fn buffer(self: &Arc<Self>, run: Run, length: usize, origin: Origin) -> PageBuf {
        PageBuf {
            run: Some(run),
            length,
            origin,
            pool: self.clone(),
        }
    }

    fn take_from_arena(&self, pages: usize) -> Option<Run> {
        let mut state = self.state();
        let mut taken = state.free.take(pages)?;
        state.count_request(pages, taken.cold_pages);
        drop(state);
        if taken.cold_pages > 0 {
            // If the system is out of memory, the first touch fails as with any mapping.
            let _ = taken.run.populate();
        }
        Some(taken.run)
    }

    fn map_from_system(&self, pages: usize) -> Option<Run> {
        let run = Run::map(pages).and_then(|mut run| run.populate().map(|()| run));
        let mut state = self.state();
        match run {
            Ok(run) => {
                state.count_request(pages, pages);
                Some(run)
            }
            Err(_) => {
                state.counts.failed += 1;
                None
            }
        }
    }

    /// The counters; takes the lock briefly.
    pub fn stats(&self) -> PoolStats {
        let state = self.state();
        PoolStats {
            free_pages: state.free.free_pages,
            ready_pages: state.free.ready_pages(),
            in_use_p95_pages: state.in_use.percentile(95),
            request_p95_pages: state.requests.percentile(95),
            #[cfg(feature = "experiments")]
            times: (self.meter.as_ref()).map(|meter| meter.times(state.in_use.counts())),
            ..state.counts.clone()
        }
    }

    /// Lines for the user: requests that the system refused.
    pub fn notices(&self) -> Vec<String> {
        self.notices.clone()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        sync::lock(&self.state)
    }

    /// Takes back the pages of a dropped buffer.
    fn release(&self, run: Run, origin: Origin) {
        let mut state = self.state();
        state.counts.in_use_pages -= run.pages();
        match origin {
            Origin::Arena => state.free.put(run),
            // Unmapped after the lock is released.
            Origin::System => drop(state),
        }
    }
}

/// Where a buffer's pages come from and return to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Origin {
    Arena,
    System,
}

/// A contiguous buffer of whole pages, returned to the pool when dropped. Its contents are
/// unspecified until written.
#[derive(Debug)]
pub struct PageBuf {
    /// The pages; `None` only inside `drop`.
    run: Option<Run>,
    length: usize,
    origin: Origin,
    pool: Arc<PagePool>,
}

impl PageBuf {
    /// Bytes in the buffer's pages: the length rounded up to whole pages.
    pub fn capacity(&self) -> usize {
        self.run.as_deref().map_or(0, <[u8]>::len)
    }

    /// Changes the length.
    ///
    /// # Panics
    /// `length` exceeds [`capacity`](Self::capacity).
    pub fn resize(&mut self, length: usize) {
        assert!(
            length <= self.capacity(),
            "{length} bytes in {}",
            self.capacity()
        );
        self.length = length;
    }
}

impl Deref for PageBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        self.run
            .as_deref()
            .map_or(&[], |bytes| &bytes[..self.length])
    }
}

impl DerefMut for PageBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.run
            .as_deref_mut()
            .map_or(&mut [], |bytes| &mut bytes[..self.length])
    }
}

impl Drop for PageBuf {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.pool.release(run, self.origin);
        }
    }
}

impl State {
    fn count_request(&mut self, pages: usize, missed: usize) {
        let counts = &mut self.counts;
        match missed {
            0 => counts.hits += 1,
            _ => counts.misses += 1,
        }
        counts.hit_pages += (pages - missed) as u64;
        counts.missed_pages += missed as u64;
        counts.in_use_pages += pages;
        counts.peak_in_use_pages = counts.peak_in_use_pages.max(counts.in_use_pages);
        self.in_use.record(counts.in_use_pages);
        self.requests.record(pages);
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
mod tests;
