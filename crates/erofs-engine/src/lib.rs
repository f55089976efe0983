//! Reads of EROFS files: map, fetch, kickoff, decompress, pcluster cache.
//!
//! Open an image, find a file, read:
//!
//! ```
//! use erofs_engine::{Engine, EngineOptions, ReadContext};
//!
//! # let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../erofast/tests/fixtures");
//! # std::env::set_current_dir(images).expect("images");
//! let engine = Engine::open("lz4-full-index-64k.erofs".as_ref(), &EngineOptions::default())?;
//! let file = engine.resolve(b"/mixed-90000", true)?;
//! let mut tail = [0; 4096];
//! let context = ReadContext::Reader { readahead: false };
//! let count = engine.read_at(&file, file.size - 100, &mut tail, context)?;
//! assert_eq!(count, 100); // fewer than requested only at the end of the file
//! # Ok::<(), erofs_engine::Error>(())
//! ```
//!
//! List a directory. The callback says whether to go on, and each entry has the position behind it:
//!
//! ```
//! # use erofs_engine::{Engine, EngineOptions};
//! use std::ops::ControlFlow;
//!
//! # let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../erofast/tests/fixtures");
//! # std::env::set_current_dir(images).expect("images");
//! let engine = Engine::open("lz4-full-index-64k.erofs".as_ref(), &EngineOptions::default())?;
//! let root = engine.inode(engine.root())?;
//! let mut names = Vec::new();
//! engine.read_dir(&root, 0, &mut |name, _nid, _file_type, _next| {
//!     names.push(String::from_utf8_lossy(name).into_owned());
//!     ControlFlow::Continue(())
//! })?;
//! assert!(names.contains(&"zeros-20000".to_owned()));
//! # Ok::<(), erofs_engine::Error>(())
//! ```
//!
//! Extended attributes and symlinks:
//!
//! ```
//! # use erofs_engine::{Engine, EngineOptions};
//! # let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../erofast/tests/fixtures");
//! # std::env::set_current_dir(images).expect("images");
//! let engine = Engine::open("lz4-full-index-64k.erofs".as_ref(), &EngineOptions::default())?;
//! let link = engine.resolve(b"/link", false)?;
//! assert_eq!(engine.read_link(&link)?, b"t/s50");
//! for xattr in engine.xattrs(&link)? {
//!     println!("{} has {} bytes", String::from_utf8_lossy(&xattr.name), xattr.value.len());
//! }
//! assert_eq!(engine.xattr(&link, b"user.none")?, None);
//! # Ok::<(), erofs_engine::Error>(())
//! ```
//!
//! Where a file is stored, extent by extent:
//!
//! ```
//! # use erofs_engine::{Engine, EngineOptions};
//! # let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../erofast/tests/fixtures");
//! # std::env::set_current_dir(images).expect("images");
//! let engine = Engine::open("lz4-full-index-64k.erofs".as_ref(), &EngineOptions::default())?;
//! let file = engine.resolve(b"/mixed-90000", true)?;
//! let mut offset = 0;
//! while let Some(extent) = engine.extent(&file, offset)? {
//!     println!("{} bytes at {offset}: {:?}", extent.length, extent.kind);
//!     offset = extent.end();
//! }
//! assert_eq!(offset, file.size);
//! # Ok::<(), erofs_engine::Error>(())
//! ```
//!
//! # The path of a read
//! `read` maps the range to extents and serves uncompressed ones; `kickoff` decides which thread
//! decompresses the rest (`segment`). A `FileReader` (`data_path`) fetches the stored bytes
//! (`fetch`), decodes them (`decode`) and places the result (`place`). `pcluster` ensures that
//! no pcluster is decoded twice at the same time (`in_flight`), and caches pclusters read in part
//! (`read_cache`).
#![forbid(unsafe_code)]

pub mod budget;
mod buffers;
mod control;
mod cpu_contention;
mod cpu_idle;
mod data_path;
mod decode;
mod decode_context;
mod decoded;
mod device;
mod directory;
mod engine;
mod error;
mod fetch;
mod in_flight;
mod inodes;
mod kickoff;
mod load_monitor;
mod load_thread;
mod locate;
mod metadata_cache;
#[cfg(all(test, feature = "loom"))]
mod models;
mod opened;
mod options;
mod page_buffer;
mod page_cache;
mod path;
mod pcluster;
mod peaks;
mod per_thread;
mod place;
mod read;
mod read_cache;
mod requests;
mod root_hash_signature;
mod seek;
mod segment;
mod shared_page;
mod special_inodes;
mod stats;
mod structures;
mod sync;
pub mod trace_spans;
mod verified;
mod verity_options;
mod windows;

pub use cpu_contention::{Busy, OnContention};
pub use cpu_workers;
pub use decode::codec;
pub use device::{OpenFile, open_file};
pub use dm_verity::RootHash;
pub use engine::{EachEntry, EachItem, Engine, decoder_settings};
pub use erofs_format;
pub use error::{Error, errno};
pub use inodes::BorrowedInode;
pub use kickoff::ReadContext;
pub use opened::Opened;
pub use options::{
    DEFAULT_CACHE_BYTES, EngineOptions, Hipri, Offset, SyncDecompress, WorkersMode, escape_option,
    number_option, split_options,
};
pub use page_cache::{PageCacheWriter, Remainder};
#[cfg(feature = "experiments")]
pub use page_pool::AllocationTimes;
pub use page_pool::PoolStats;
pub use peaks::RequestPeaks;
pub use stats::{CacheStats, EngineStats};
pub use verity_options::VerityOptions;
