//! The promises of the pool.

use super::*;

fn pool(reserved_pages: usize) -> Arc<PagePool> {
    PagePool::new(&PoolOptions {
        reserved_pages,
        ..Default::default()
    })
    .unwrap()
}

fn pages(count: usize) -> usize {
    count * PAGE_SIZE
}

#[test]
fn it_starts_empty_and_is_filled_by_releases() {
    let pool = pool(16);
    assert_eq!((pool.stats().free_pages, pool.stats().ready_pages), (16, 0));
    drop(pool.alloc(pages(4)).unwrap());
    drop(pool.alloc(pages(4)).unwrap());
    let stats = pool.stats();
    assert_eq!(
        (
            stats.misses,
            stats.missed_pages,
            stats.hits,
            stats.hit_pages
        ),
        (1, 4, 1, 4)
    );
    assert_eq!(stats.ready_pages, 4);
}

#[test]
fn a_partly_ready_request_counts_its_pages_apart() {
    let pool = pool(4);
    drop(pool.alloc(pages(1)).unwrap());
    drop(pool.alloc(pages(4)).unwrap());
    let stats = pool.stats();
    assert_eq!(
        (
            stats.hits,
            stats.misses,
            stats.hit_pages,
            stats.missed_pages
        ),
        (0, 2, 1, 4)
    );
}

#[test]
fn prefilled_pages_are_hits_from_the_first_request() {
    let options = PoolOptions {
        reserved_pages: 8,
        prefill: true,
        ..Default::default()
    };
    let pool = PagePool::new(&options).unwrap();
    let _held = pool.alloc(pages(8)).unwrap();
    assert_eq!((pool.stats().hits, pool.stats().misses), (1, 0));
}

#[test]
fn beyond_the_arena_the_system_serves() {
    let pool = pool(2);
    let inside = pool.alloc(pages(2)).unwrap();
    let outside = pool.alloc(pages(3)).unwrap();
    assert_eq!(
        (pool.stats().in_use_pages, pool.state().system_pages),
        (5, 3)
    );
    drop((inside, outside));
    let stats = pool.stats();
    assert_eq!(
        (
            stats.free_pages,
            stats.in_use_pages,
            stats.peak_in_use_pages
        ),
        (2, 0, 5)
    );
    assert_eq!(pool.state().system_pages, 0);
}

#[test]
fn no_reserve_means_every_page_comes_from_the_system() {
    let pool = pool(0);
    drop(pool.alloc(pages(16)).unwrap());
    drop(pool.alloc(pages(16)).unwrap());
    assert_eq!((pool.stats().hits, pool.stats().missed_pages), (0, 32));
}

#[test]
fn growing_again_after_a_failure_works_and_leaks_nothing() {
    let pool = pool(4);
    let held = pool.alloc(pages(3)).unwrap();
    let before = pool.stats();
    assert!(pool.alloc(usize::MAX / 2).is_none());
    let after = pool.stats();
    assert_eq!(after.failed, 1);
    assert_eq!(PoolStats { failed: 0, ..after }, before);
    let more = pool.alloc(pages(9)).unwrap();
    drop((held, more));
    let stats = pool.stats();
    assert_eq!((stats.in_use_pages, stats.free_pages), (0, 4));
}

#[test]
fn an_arena_that_cannot_be_mapped_is_an_error() {
    let options = PoolOptions {
        reserved_pages: usize::MAX / PAGE_SIZE,
        ..Default::default()
    };
    assert!(PagePool::new(&options).is_err());
}

#[test]
fn buffers_never_overlap_and_all_come_back() {
    let pool = pool(32);
    let mut random = 1_u64;
    let mut held: Vec<(u8, PageBuf)> = Vec::new();
    for round in 0..20_000_u32 {
        random = random
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let pick = (random >> 33) as usize;
        if held.len() > 8 || (pick.is_multiple_of(2) && !held.is_empty()) {
            let (mark, buffer) = held.swap_remove(pick % held.len());
            assert!(buffer.iter().step_by(PAGE_SIZE).all(|&byte| byte == mark));
            assert_eq!(buffer[buffer.len() - 1], mark);
        } else {
            let mark = round as u8;
            let mut buffer = pool.alloc(1 + pick % pages(8)).unwrap();
            buffer.fill(mark);
            held.push((mark, buffer));
        }
    }
    held.clear();
    let stats = pool.stats();
    assert_eq!((stats.in_use_pages, stats.free_pages), (0, 32));
    assert!(stats.hits > 0 && stats.misses > 0);
}

#[test]
fn threads_share_it_without_losing_a_page() {
    let pool = pool(16);
    std::thread::scope(|scope| {
        for mark in 1..=4_u8 {
            let pool = &pool;
            scope.spawn(move || {
                for bytes in 1..500 {
                    let mut buffer = pool.alloc(bytes * 50).unwrap();
                    buffer.fill(mark);
                    assert!(buffer.iter().all(|&byte| byte == mark));
                }
            });
        }
    });
    let stats = pool.stats();
    assert_eq!((stats.in_use_pages, stats.free_pages), (0, 16));
    assert_eq!(stats.hits + stats.misses, 4 * 499);
}

#[test]
fn a_buffer_keeps_its_pool_alive() {
    let pool = pool(2);
    let mut buffer = pool.alloc(1).unwrap();
    drop(pool);
    buffer[0] = 1;
}

#[test]
fn percentiles_of_sizes_and_use_are_reported() {
    let pool = pool(64);
    for count in 1..=100 {
        drop(pool.alloc(pages(count)).unwrap());
    }
    assert_eq!(pool.stats().request_p95_pages, 95);
    assert_eq!(pool.stats().in_use_p95_pages, 95);
}

#[test]
fn locking_works_or_names_the_limit_to_raise() {
    let options = PoolOptions {
        reserved_pages: 4,
        lock: true,
        ..Default::default()
    };
    let pool = PagePool::new(&options).unwrap();
    assert_eq!(pool.stats().locked, pool.notices().is_empty());
    assert!(
        pool.notices()
            .iter()
            .all(|line| line.contains("RLIMIT_MEMLOCK"))
    );
}

#[test]
fn an_empty_buffer_is_a_buffer() {
    assert_eq!(pool(1).alloc(0).unwrap().len(), 0);
}

#[test]
fn all_memory_of_a_buffer_is_there_before_it_is_handed_out() {
    // Touching it afterwards faults nowhere, wherever it came from.
    let pool = pool(4);
    for count in [4, 64] {
        let mut buffer = pool.alloc(pages(count)).unwrap();
        let before = faults();
        buffer
            .iter_mut()
            .step_by(PAGE_SIZE)
            .for_each(|byte| *byte = 1);
        assert!(faults() - before < count as u64 / 2, "{count} pages");
    }
}

/// Minor faults of this thread.
fn faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
    let fields = stat.rsplit_once(')').unwrap().1;
    fields
        .split_ascii_whitespace()
        .nth(7)
        .unwrap()
        .parse()
        .unwrap()
}

#[test]
#[cfg(feature = "experiments")]
fn a_thread_that_keeps_its_buffer_asks_the_system_once() {
    let options = PoolOptions {
        thread_buffers: true,
        ..Default::default()
    };
    let pool = PagePool::new(&options).unwrap();
    for count in [8, 3, 8, 1] {
        drop(pool.alloc(pages(count)).unwrap());
    }
    let stats = pool.stats();
    assert_eq!((stats.misses, stats.hits, stats.thread_pages), (1, 3, 8));
    assert_eq!((stats.in_use_pages, stats.peak_in_use_pages), (0, 8));
    let two = [1, 2].map(|_| pool.alloc(pages(2)).unwrap());
    assert_eq!(pool.stats().misses, 2, "one buffer a thread, not more");
    drop(two);
    assert_eq!(pool.state().system_pages, 0);
}

#[test]
#[cfg(feature = "experiments")]
fn measuring_counts_every_allocation_and_what_was_in_use() {
    let options = PoolOptions {
        reserved_pages: 4,
        measure: true,
        ..Default::default()
    };
    let pool = PagePool::new(&options).unwrap();
    assert!(pool.alloc(usize::MAX / 2).is_none());
    let held = pool.alloc(pages(3)).unwrap();
    drop(pool.alloc(pages(2)).unwrap());
    drop(held);
    let times = pool.stats().times.unwrap();
    assert_eq!(
        (times.allocations, times.in_use_pages),
        (3, vec![(3, 1), (5, 1)])
    );
    assert!(times.wall_ns > 0);
}
