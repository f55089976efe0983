//! Models of the pool under loom: every interleaving of two threads.
//!
//! `cargo test -p page-pool --features loom --lib loom_`

use loom::thread;

use crate::{PAGE_SIZE, PagePool, PoolOptions};

fn pool(reserved_pages: usize) -> std::sync::Arc<PagePool> {
    let options = PoolOptions {
        reserved_pages,
        ..Default::default()
    };
    PagePool::new(&options).expect("four pages")
}

#[test]
fn loom_two_threads_never_share_a_page_and_leak_none() {
    loom::model(|| {
        let pool = pool(2);
        let other = pool.clone();
        let thread = thread::spawn(move || {
            let mut buffer = other.alloc(2 * PAGE_SIZE).expect("memory");
            buffer.fill(1);
            assert_eq!((buffer[0], buffer[PAGE_SIZE]), (1, 1));
        });
        let mut buffer = pool.alloc(PAGE_SIZE).expect("memory");
        buffer.fill(2);
        assert_eq!(buffer[0], 2);
        drop(buffer);
        thread.join().expect("no panic");
        let stats = pool.stats();
        assert_eq!((stats.free_pages, stats.in_use_pages), (2, 0));
    });
}
