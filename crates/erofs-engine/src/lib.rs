//! Reads of EROFS files: map, fetch, kickoff, decompress, pcluster cache.
//!
//! ```no_run
//! use erofs_engine::{Engine, EngineOptions, ReadContext};
//! let engine = Engine::open("image.erofs".as_ref(), &EngineOptions::default())?;
//! let root = engine.inode(engine.root())?;
//! if let Some(nid) = engine.lookup(&root, b"hello")? {
//!     let mut head = [0; 4096];
//!     let context = ReadContext::Reader { readahead: false };
//!     let count = engine.read_at(&*engine.inode(nid)?, 0, &mut head, context)?;
//!     println!("{} bytes", count);
//! }
//! # Ok::<(), erofs_engine::Error>(())
//! ```
//!
//! # The path of a read
//! `read` maps the range to extents and serves uncompressed ones; `kickoff` decides which thread
//! decompresses the rest (`segment`). A `FileReader` (`data_path`) fetches the stored bytes
//! (`fetch`), decodes them (`decode`) and places the result (`place`). `pcluster` ensures that
//! no pcluster is decoded twice at the same time (`in_flight`), and caches pclusters read in part
//! (`cache`) as long as that pays (`reuse`).
#![forbid(unsafe_code)]

pub mod budget;
mod buffers;
mod cache;
mod control;
mod cpu_contention;
mod data_path;
mod decode;
mod decode_context;
mod decoded;
mod device;
mod directory;
mod engine;
mod error;
mod exceeded;
mod fetch;
mod heavy;
mod in_flight;
mod kickoff;
mod load_monitor;
mod locate;
mod metadata_cache;
#[cfg(all(test, loom))]
mod models;
mod opened;
mod options;
mod page_cache;
mod path;
mod pcluster;
mod peaks;
mod place;
mod read;
mod requests;
mod reuse;
mod seek;
mod segment;
mod shared_page;
mod special_inodes;
mod stats;
mod sync;
pub mod trace_spans;
mod verified;
mod verity_options;

pub use control::LongRequests;
pub use cpu_contention::Busy;
pub use cpu_workers;
pub use decode::codec;
pub use dm_verity::RootHash;
pub use engine::{EachEntry, Engine, decoder_settings};
pub use erofs_format;
pub use error::{Error, errno};
pub use kickoff::ReadContext;
pub use opened::Opened;
pub use options::{DEFAULT_CACHE_BYTES, EngineOptions, Hipri, Offset, SyncDecompress, WorkersMode};
pub use page_cache::{PageCacheWriter, Remainder};
#[cfg(feature = "experiments")]
pub use page_pool::AllocationTimes;
pub use page_pool::PoolStats;
pub use peaks::RequestPeaks;
pub use stats::{CacheStats, EngineStats};
pub use verity_options::VerityOptions;
