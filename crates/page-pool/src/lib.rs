//! A pool of reserved memory pages. A request that the pool cannot serve goes to the system.
//!
//! Decoders need contiguous memory for a short time. Asking the system each time costs one page
//! fault per page, and under memory pressure a wait for reclaim. The pool keeps used pages ready:
//!
//! ```
//! use page_pool::{PagePool, PoolOptions};
//! let pool = PagePool::new(&PoolOptions { reserved_pages: 64, ..Default::default() })?;
//! let mut buffer = pool.alloc(64 * 1024).ok_or("out of memory")?;
//! buffer[0] = 1;
//! drop(buffer);
//! assert_eq!(pool.stats().missed_pages, 16); // first use
//! let _again = pool.alloc(64 * 1024);
//! assert_eq!(pool.stats().hit_pages, 16);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! No two buffers can share a byte: they are runs of `sys::memory`, which are split and joined but
//! never copied. The feature `experiments` adds the measurements of `erofast lab pressure`. The
//! counting is modelled under loom: `cargo test -p page-pool --features loom --lib loom_`.
#![forbid(unsafe_code)]

mod free;
mod histogram;
#[cfg(feature = "experiments")]
mod meter;
#[cfg(all(test, feature = "loom"))]
mod models;
mod options;
mod pool;
mod stats;
mod sync;

#[cfg(feature = "experiments")]
pub use meter::AllocationTimes;
pub use options::{PAGE_SIZE, PoolOptions};
pub use pool::{PageBuf, PagePool};
pub use stats::PoolStats;
