//! Tests what the pool guarantees.

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
fn requests_and_their_pages_are_counted_by_where_they_came_from() {
    for (what, reserved_pages, prefill, requests, counted, ready_pages) in [
        (
            "filled by releases",
            16,
            false,
            &[4, 4][..],
            [1, 1, 4, 4],
            4,
        ),
        ("partly ready", 4, false, &[1, 4], [0, 2, 1, 4], 4),
        ("prefilled", 8, true, &[8], [1, 0, 8, 0], 8),
        ("no reserve", 0, false, &[16, 16], [0, 2, 0, 32], 0),
    ] {
        let options = PoolOptions {
            reserved_pages,
            prefill,
            ..Default::default()
        };
        let pool = PagePool::new(&options).unwrap();
        assert_eq!(pool.stats().free_pages, reserved_pages);
        for &count in requests {
            drop(pool.alloc(pages(count)).unwrap());
        }
        let s = pool.stats();
        let counts = [s.hits, s.misses, s.hit_pages, s.missed_pages];
        assert_eq!((counts, s.ready_pages), (counted, ready_pages), "{what}");
    }
}

#[test]
fn beyond_the_arena_the_system_serves() {
    let pool = pool(2);
    let inside = pool.alloc(pages(2)).unwrap();
    let outside = pool.alloc(pages(3)).unwrap();
    assert_eq!((pool.stats().in_use_pages, pool.stats().free_pages), (5, 0));
    drop((inside, outside));
    let stats = pool.stats();
    assert_eq!((stats.free_pages, stats.in_use_pages), (2, 0));
    assert_eq!(stats.peak_in_use_pages, 5);
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
    // Touching a buffer afterwards causes no faults, whatever its origin.
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

/// Number of this thread's minor faults.
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
