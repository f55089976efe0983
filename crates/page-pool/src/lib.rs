//! A reserved pool of memory pages: request-local list, pool, system.
#![forbid(unsafe_code)]

mod buffer;
mod options;
mod pool;
mod request;
mod stats;

pub use buffer::PageBuf;
pub use options::{PAGE_SIZE, PoolOptions, Wait};
pub use pool::PagePool;
pub use request::RequestPages;
pub use stats::PoolStats;
