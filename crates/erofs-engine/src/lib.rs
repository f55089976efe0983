//! Reads EROFS files: map, fetch, kickoff, decompress, pcluster cache.
//!
//! Open an image, find a file, and read it:
//!
//! ```
//! use erofs_engine::{Engine, EngineOptions, ReadContext};
//!
//! # let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../erofast/tests/fixtures");
//! # std::env::set_current_dir(images).expect("images");
//! let engine = Engine::open("lz4-full-index-64k.erofs".as_ref(), &EngineOptions::default())?;
//! let file = engine.resolve(b"/mixed-90000", true)?;
//! let mut tail = [0; 4096];
//! let request = engine.request(ReadContext::Reader { readahead: false });
//! let count = engine.read_at(&request, &file, file.size - 100, &mut tail)?;
//! assert_eq!(count, 100); // fewer than requested only at the end of the file
//! # Ok::<(), erofs_engine::Error>(())
//! ```
//!
//! List a directory. The callback returns whether to continue, and receives the position after each
//! entry:
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
//! Read extended attributes and symlinks:
//!
//! ```
//! # use erofs_engine::{Engine, EngineOptions, ReadContext};
//! # let images = concat!(env!("CARGO_MANIFEST_DIR"), "/../erofast/tests/fixtures");
//! # std::env::set_current_dir(images).expect("images");
//! let engine = Engine::open("lz4-full-index-64k.erofs".as_ref(), &EngineOptions::default())?;
//! let request = engine.request(ReadContext::Reader { readahead: false });
//! let link = engine.resolve(b"/link", false)?;
//! assert_eq!(engine.read_link(&request, &link)?, b"t/s50");
//! for xattr in engine.xattrs(&request, &link)? {
//!     println!("{} has {} bytes", String::from_utf8_lossy(&xattr.name), xattr.value.len());
//! }
//! assert_eq!(engine.xattr(&request, &link, b"user.none")?, None);
//! # Ok::<(), erofs_engine::Error>(())
//! ```
//!
//! Show where a file is stored, extent by extent:
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
//! `read/map.rs` maps the range to extents and serves uncompressed ones; `read/share.rs` decides
//! which threads decompress the rest, and `read/pipeline.rs` takes each run of segments through the
//! steps: claim, fetch, decode, place.
#![forbid(unsafe_code)]

mod cache;
mod device;
mod engine;
mod error;
mod layers;
mod load;
mod options;
mod per_thread;
mod read;
pub mod remote;
mod request;
mod stats;
mod sync;
pub mod trace_spans;

pub use cache::inodes::BorrowedInode;
pub use cpu_workers;
pub use device::version::{Change, Version};
pub use device::{OpenFile, open_file};
pub use dm_verity::RootHash;
pub use engine::{EachEntry, EachItem, Engine, Opened, decoder_settings};
pub use erofs_format;
pub use error::{Error, FileFault, Result, errno};
pub use layers::number::{MOST_IMAGES, Numbers};
pub use load::{Busy, OnContention};
pub use options::{
    DEFAULT_CACHE_BYTES, EngineOptions, Hipri, LowerImage, Offset, SyncDecompress, VerityOptions,
    WorkersMode, choice_option, documented_option, escape_option, number_option, size_option,
    split_options,
};
pub use page_pool::PoolStats;
pub use read::decode::codec;
pub use read::kept::{DecodedSink, DecodedSource};
pub use read::page_cache::{PageCacheWriter, Remainder};
pub use remote_image;
pub use request::budget::{self, ReadContext, Request};
pub use request::control::RequestPeaks;
pub use request::missing::Missing;
pub use stats::{CacheStats, EngineStats};
