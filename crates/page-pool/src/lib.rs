//! A reserved pool of memory pages: request-local list, pool, system.
//!
//! Decoders want contiguous memory for a moment. Asking the system each time costs a page fault a
//! page, and under memory pressure a wait for reclaim. Here a reserve of pages that were used
//! before stays ready:
//!
//! ```
//! use page_pool::{PagePool, PoolOptions, Wait};
//! let pool = PagePool::new(&PoolOptions { reserved_pages: 64, ..Default::default() })?;
//! let mut buffer = pool.alloc(64 * 1024, Wait::May).ok_or("out of memory")?;
//! buffer[0] = 1;
//! drop(buffer);
//! assert_eq!(pool.stats().missed_pages, 16); // first use
//! let _again = pool.alloc(64 * 1024, Wait::Never);
//! assert_eq!(pool.stats().hit_pages, 16);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! One thread's request puts a [`RequestPages`] in front of it.
//!
//! No two buffers can share a byte: they are runs of `sys::memory`, which are split and joined but
//! never copied. The counting is modelled under loom:
//! `RUSTFLAGS="--cfg loom" cargo test -p page-pool --release --lib loom_`.
#![forbid(unsafe_code)]

mod buffer;
mod free;
mod histogram;
mod kept;
mod meter;
#[cfg(all(test, loom))]
mod models;
mod options;
mod pool;
mod request;
mod stats;
mod sync;

pub use buffer::PageBuf;
pub use meter::AllocationTimes;
pub use options::{PAGE_SIZE, PoolOptions, Wait};
pub use pool::PagePool;
pub use request::RequestPages;
pub use stats::PoolStats;
