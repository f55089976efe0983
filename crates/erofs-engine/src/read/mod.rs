//! The data path of an opened image: what its reads share, and the reader of one file.

mod beginning;
pub(crate) mod buffers;
pub(crate) mod claim;
pub(crate) mod decode;
pub(crate) mod decode_context;
mod fetch;
mod in_flight;
pub(crate) mod kept;
pub(crate) mod map;
pub(crate) mod missing;
#[cfg(all(test, feature = "loom"))]
mod models;
pub(crate) mod page_cache;
mod pipeline;
mod segment;
pub(crate) mod share;
mod shared_page;

use std::sync::{Arc, OnceLock};

use erofs_format::{Image, Inode};
use page_pool::PageBuf;

use crate::device::verified::StoredDevice;
use crate::read::buffers::Buffers;
use crate::read::claim::PclusterTable;
use crate::read::decode_context::ContextPool;
use crate::read::kept::{DecodedSink, DecodedSource};
use crate::read::page_cache::PageCacheWriter;
use crate::request::budget::Exceeded;
use crate::stats::AllCounters;
use crate::{Error, FileFault};

/// State shared by all reads of an opened image. All fields are set at start; those that change
/// have locks.
#[derive(Debug)]
pub(crate) struct DataPath {
    /// The image's path, for messages.
    pub name: Arc<str>,
    /// The files; index 0 is the image itself.
    pub devices: Vec<Arc<StoredDevice>>,
    /// One of them is at a URL.
    pub is_remote: bool,
    pub block_size: u64,
    pub contexts: ContextPool,
    pub buffers: Buffers,
    pub table: PclusterTable,
    pub counters: AllCounters,
    /// Taken instead of decoding.
    pub kept: OnceLock<Arc<dyn DecodedSource>>,
}

/// Reads one file: fetches stored bytes (`fetch`), decodes them (`decode`) and places the result
/// (`place`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileReader<'a> {
    pub path: &'a DataPath,
    pub image: &'a Image,
    pub inode: &'a Inode,
    /// Receives the rest of a pcluster that is read in part.
    pub page_cache: Option<&'a dyn PageCacheWriter>,
    /// Receives all that is decoded, also what is cached.
    pub sink: Option<&'a dyn DecodedSink>,
}

impl FileReader<'_> {
    /// A buffer for decoded bytes.
    pub(crate) fn buffer(&self, bytes: usize) -> Result<PageBuf, Error> {
        let DataPath { buffers, table, .. } = self.path;
        let buffer = buffers.alloc(table, bytes);
        buffer.ok_or_else(|| self.error(FileFault::Memory(bytes)))
    }

    /// The end of a request that exceeds its budget, as an error of this file.
    pub(crate) fn within(&self, charged: Result<(), Exceeded>) -> Result<(), Error> {
        charged.map_err(|exceeded| self.error(exceeded))
    }

    /// An error of this file.
    pub(crate) fn error(&self, fault: impl Into<FileFault>) -> Error {
        Error::file(&self.path.name, self.inode.nid, fault)
    }
}
