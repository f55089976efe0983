//! Measures the time of each allocation, and how often the allocating thread reclaimed memory
//! during it.
//!
//! Two clocks are read before and after each allocation. The cost of an empty window (the same
//! readings with nothing between them) is measured at the start, so that it can be subtracted. The
//! kernel's tracepoints count reclaim per thread, so reclaim by other threads does not count.

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use sys::tracepoint_count::TracepointCount;

/// The tracepoints that a thread passes when it begins to reclaim memory because its memory cgroup,
/// or the machine, has none left.
const EVENTS: [&str; 2] = [
    "mm_vmscan_memcg_reclaim_begin",
    "mm_vmscan_direct_reclaim_begin",
];
const TRACEFS: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];
/// Number of empty windows measured; their median is used.
const EMPTY_WINDOWS: usize = 501;

figures::figures! {
    /// Sums over all allocations since the pool was created.
    #[derive(Clone, PartialEq, Eq, Debug, Serialize)]
    pub struct AllocationTimes {
        /// Number of allocations.
        pub allocations: u64,
        /// CPU time of the allocating threads.
        pub cpu_ns: u64,
        /// Wall-clock time.
        pub wall_ns: u64,
        /// CPU time of one empty window; `cpu_ns` includes it once per allocation.
        pub empty_cpu_ns: u64,
        /// Wall-clock time of one empty window; `wall_ns` includes it once per allocation.
        pub empty_wall_ns: u64,
        /// Number of times that an allocating thread began to reclaim memory.
        pub reclaims: Option<u64>,
        /// Why `reclaims` is unknown, if it is.
        pub reclaims_unknown: Option<String>,
        /// Numbers of pages in use after an allocation, and how often each occurred.
        pub in_use_pages: Vec<(usize, u64)>,
    }
}

#[derive(Debug)]
pub(crate) struct Meter {
    /// Never changes. The numbers of the tracepoints, or why they are unknown.
    events: Result<Vec<u64>, String>,
    /// Never changes.
    empty_cpu_ns: u64,
    /// Never changes.
    empty_wall_ns: u64,
    /// Atomic.
    allocations: AtomicU64,
    /// Atomic.
    cpu_ns: AtomicU64,
    /// Atomic.
    wall_ns: AtomicU64,
    /// Atomic.
    reclaims: AtomicU64,
    /// Atomic. Number of threads that could not count reclaims.
    blind_threads: AtomicU64,
}

/// The counters of one thread.
enum Counters {
    Untried,
    Blind,
    Counting(Vec<TracepointCount>),
}

thread_local! {
    /// The counters of this thread, shared by all pools, because they count per thread and not per
    /// pool.
    static COUNTERS: RefCell<Counters> = const { RefCell::new(Counters::Untried) };
}

impl Meter {
    pub(crate) fn new() -> Self {
        let empty: Vec<(u64, u64)> = (0..EMPTY_WINDOWS).map(|_| window(|| ()).1).collect();
        let median = |of: fn(&(u64, u64)) -> u64| {
            let mut times: Vec<u64> = empty.iter().map(of).collect();
            times.sort_unstable();
            times[EMPTY_WINDOWS / 2]
        };
        Meter {
            events: events(),
            empty_cpu_ns: median(|times| times.0),
            empty_wall_ns: median(|times| times.1),
            allocations: AtomicU64::default(),
            cpu_ns: AtomicU64::default(),
            wall_ns: AtomicU64::default(),
            reclaims: AtomicU64::default(),
            blind_threads: AtomicU64::default(),
        }
    }

    /// Measures `work`, an allocation.
    pub(crate) fn measure<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.reclaimed();
        let (result, (cpu, wall)) = window(work);
        let reclaims = self.reclaimed().saturating_sub(before);
        let add = |sum: &AtomicU64, count| sum.fetch_add(count, Ordering::Relaxed);
        add(&self.allocations, 1);
        add(&self.cpu_ns, cpu);
        add(&self.wall_ns, wall);
        add(&self.reclaims, reclaims);
        result
    }

    pub(crate) fn times(&self, in_use_pages: Vec<(usize, u64)>) -> AllocationTimes {
        let get = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        let reclaims = match (&self.events, get(&self.blind_threads)) {
            (Err(reason), _) => Err(reason.clone()),
            (Ok(_), 0) => Ok(get(&self.reclaims)),
            (Ok(_), threads) => Err(format!(
                "{threads} threads may not count kernel events (needs root or CAP_PERFMON)"
            )),
        };
        AllocationTimes {
            allocations: get(&self.allocations),
            cpu_ns: get(&self.cpu_ns),
            wall_ns: get(&self.wall_ns),
            empty_cpu_ns: self.empty_cpu_ns,
            empty_wall_ns: self.empty_wall_ns,
            reclaims: reclaims.as_ref().ok().copied(),
            reclaims_unknown: reclaims.err(),
            in_use_pages,
        }
    }

    /// How often this thread has begun to reclaim so far.
    fn reclaimed(&self) -> u64 {
        let Ok(events) = &self.events else { return 0 };
        COUNTERS.with_borrow_mut(|counters| {
            if let Counters::Untried = counters {
                let started: Result<Vec<_>, _> = events
                    .iter()
                    .map(|&event| TracepointCount::start(event))
                    .collect();
                *counters = started.map_or(Counters::Blind, Counters::Counting);
                if let Counters::Blind = counters {
                    self.blind_threads.fetch_add(1, Ordering::Relaxed);
                }
            }
            match counters {
                Counters::Counting(counts) => {
                    counts.iter().map(|count| count.read().unwrap_or(0)).sum()
                }
                _ => 0,
            }
        })
    }
}

/// The result of `work`, its CPU time in this thread and its wall-clock time.
fn window<T>(work: impl FnOnce() -> T) -> (T, (u64, u64)) {
    let wall = now(ClockId::Monotonic);
    // Called twice: the first call loads the clock's code into the cache, as for the empty window.
    now(ClockId::ThreadCPUTime);
    let cpu = now(ClockId::ThreadCPUTime);
    let result = work();
    let cpu = now(ClockId::ThreadCPUTime) - cpu;
    let wall = now(ClockId::Monotonic) - wall;
    (result, (cpu, wall))
}

fn now(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

fn events() -> Result<Vec<u64>, String> {
    let number = |event: &&str| {
        let read = |root| std::fs::read_to_string(format!("{root}/events/vmscan/{event}/id"));
        let text = TRACEFS.into_iter().find_map(|root| read(root).ok());
        text.and_then(|text| text.trim().parse().ok())
    };
    let numbers: Option<Vec<u64>> = EVENTS.iter().map(number).collect();
    numbers.ok_or_else(|| {
        format!(
            "cannot find the kernel event {} (needs tracefs and root)",
            EVENTS[0]
        )
    })
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn every_window_adds_its_time() {
        let meter = Meter::new();
        let work = || std::hint::black_box((0..200_000_u64).fold(0, |a, b| a ^ b.wrapping_mul(a)));
        assert_eq!(meter.measure(|| 7), 7);
        let before = meter.times(Vec::new());
        meter.measure(work);
        let after = meter.times(vec![(3, 1)]);
        assert_eq!((before.allocations, after.allocations), (1, 2));
        assert!(after.cpu_ns > before.cpu_ns && after.wall_ns > before.wall_ns);
        assert!(after.empty_wall_ns > 0 && after.in_use_pages == [(3, 1)]);
    }

    #[test]
    fn reclaim_is_counted_or_the_reason_is_given() {
        let meter = Meter::new();
        meter.measure(|| ());
        let times = meter.times(Vec::new());
        match times.reclaims_unknown {
            // The window contained no allocation.
            None => assert_eq!(times.reclaims, Some(0)),
            Some(reason) => assert!(reason.contains("root"), "{reason}"),
        }
    }
}
