//! The data path of an opened image: the state that reads share, and the reader of one file.

mod beginning;
mod buffers;
pub(crate) mod claim;
pub(crate) mod decode;
pub(crate) mod decode_context;
mod fetch;
pub(crate) mod kept;
pub(crate) mod map;
#[cfg(all(test, feature = "loom"))]
mod models;
pub(crate) mod page_cache;
mod pipeline;
mod segment;
pub(crate) mod share;
mod shared_page;

use std::io;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use erofs_format::{Holder, Image, Inode, Pcluster, ReadAt, Reader, Source};
use page_pool::{PageBuf, PagePool};

use crate::cache::metadata::MetadataCache;
use crate::device::verified::StoredDevice;
use crate::read::claim::{Key, PclusterTable};
use crate::read::decode_context::ContextPool;
use crate::read::kept::{DecodedSink, DecodedSource};
use crate::read::page_cache::PageCacheWriter;
use crate::request::budget::{Exceeded, Request};
use crate::stats::AllCounters;
use crate::trace_spans::TraceSpans;
use crate::{Error, FileFault, Result};

/// State shared by all reads of an opened image. No field is replaced after the image is opened;
/// those whose contents change are guarded by locks.
#[derive(Debug)]
pub(crate) struct DataPath {
    /// The image's path, for messages.
    pub name: Arc<str>,
    /// The image's number among the tree's images; 0 is the top one.
    pub number: usize,
    pub image: Image,
    /// The inode whose content holds other inodes.
    pub metabox: Option<Inode>,
    /// The cache of the metabox, whose structures are as small and as close together as those on a
    /// device.
    pub metabox_blocks: MetadataCache,
    /// The inode that holds fragments.
    pub packed: Option<Inode>,
    /// The files; index 0 is the image itself.
    pub devices: Vec<StoredDevice>,
    /// Whether one of the files is at a URL.
    pub is_remote: bool,
    pub block_size: u64,
    /// Shared by all images with the same settings.
    pub contexts: Arc<ContextPool>,
    pub common: Arc<Common>,
}

/// State shared by all images of a tree: one cache, one set of counters.
#[derive(Debug)]
pub(crate) struct Common {
    pub pool: Arc<PagePool>,
    /// Memory of the cache's capacity, shared by cached pclusters and buffers in use; `None` if
    /// there is no cache.
    pub cache_memory: Option<Arc<PagePool>>,
    pub table: PclusterTable,
    pub counters: AllCounters,
    /// Kept bytes, used instead of decoding.
    pub kept: OnceLock<Arc<dyn DecodedSource>>,
    pub spans: TraceSpans,
}

impl Common {
    pub(crate) fn new(
        pool: Arc<PagePool>,
        cache_memory: Option<Arc<PagePool>>,
        cache_bytes: u64,
    ) -> Self {
        Self {
            pool,
            cache_memory,
            table: PclusterTable::new(cache_bytes),
            counters: AllCounters::new(),
            kept: OnceLock::new(),
            spans: TraceSpans::default(),
        }
    }
}

impl Deref for DataPath {
    type Target = Common;

    fn deref(&self) -> &Common {
        &self.common
    }
}

/// Bytes of devices, read for one request to open an image.
#[derive(Debug)]
pub(crate) struct DeviceBytes<'a> {
    pub devices: &'a [StoredDevice],
    pub request: &'a Request<'a>,
}

impl Source for DeviceBytes<'_> {
    fn read(&self, from: Holder, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let device = self.device(from).ok_or(io::ErrorKind::NotFound)?;
        device.read(self.request, buf, offset)
    }

    fn size(&self, of: Holder) -> Option<u64> {
        Some(self.device(of)?.size())
    }
}

impl DeviceBytes<'_> {
    fn device(&self, holder: Holder) -> Option<&StoredDevice> {
        match holder {
            Holder::Device(number) => self.devices.get(usize::from(number)),
            Holder::Metabox | Holder::Packed => None,
        }
    }
}

/// The special inodes in which a read may look for bytes. A read of a special inode itself may use
/// fewer of them, so that reads cannot form a cycle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Through {
    pub metabox: bool,
    pub packed: bool,
}

impl Through {
    pub(crate) const ALL: Through = Through {
        metabox: true,
        packed: true,
    };
}

/// Bytes of an image, read for one request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageBytes<'a> {
    pub path: &'a DataPath,
    pub request: &'a Request<'a>,
    pub through: Through,
}

impl<'a> ImageBytes<'a> {
    /// The content of a special inode, if this read may use it.
    pub(crate) fn special(&self, holder: Holder) -> Option<FileReader<'a>> {
        let (path, mut through) = (self.path, self.through);
        let inode = match holder {
            Holder::Metabox if through.metabox => path.metabox.as_ref()?,
            Holder::Packed if through.packed => path.packed.as_ref()?,
            _ => return None,
        };
        if holder == Holder::Metabox {
            let packed = path.packed.as_ref();
            through.metabox = false;
            through.packed &= packed.is_some_and(|packed| !packed.in_metabox());
        } else {
            through.packed = false;
        }
        let file = File::new(path, through, inode);
        let request = self.request;
        Some(FileReader { file, request })
    }
}

impl Source for ImageBytes<'_> {
    fn read(&self, from: Holder, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match self.special(from) {
            Some(metabox) if from == Holder::Metabox => {
                self.request.step().map_err(io::Error::other)?;
                self.path.metabox_blocks.read(&metabox, buf, offset)
            }
            Some(packed) => packed.read_exact_at(buf, offset),
            None => self.path.devices(self.request).read(from, buf, offset),
        }
    }

    fn size(&self, of: Holder) -> Option<u64> {
        let special = self.special(of).map(|special| special.inode.size);
        special.or_else(|| self.path.devices(self.request).size(of))
    }
}

impl DataPath {
    fn devices<'a>(&'a self, request: &'a Request<'a>) -> DeviceBytes<'a> {
        let devices = &self.devices;
        DeviceBytes { devices, request }
    }

    /// Calls `look` with the image's structures.
    pub(crate) fn with_image<R>(
        &self,
        request: &Request<'_>,
        through: Through,
        look: impl FnOnce(Reader<'_>) -> R,
    ) -> R {
        look(self.image.reader(&self.bytes(request, through)))
    }

    pub(crate) fn bytes<'a>(
        &'a self,
        request: &'a Request<'a>,
        through: Through,
    ) -> ImageBytes<'a> {
        ImageBytes {
            path: self,
            request,
            through,
        }
    }
}

/// A file being read, by any number of threads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct File<'a> {
    pub path: &'a DataPath,
    pub through: Through,
    pub inode: &'a Inode,
    /// Receives the rest of a partly read pcluster.
    pub page_cache: Option<&'a dyn PageCacheWriter>,
    /// Receives all decoded bytes, even those of cached pclusters.
    pub sink: Option<&'a dyn DecodedSink>,
}

/// Reads one file for one request, on the thread that serves the request: fetches stored bytes
/// (`fetch`), decodes them (`decode`) and places the result (`place`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct FileReader<'a> {
    pub file: File<'a>,
    pub request: &'a Request<'a>,
}

impl<'a> Deref for FileReader<'a> {
    type Target = File<'a>;

    fn deref(&self) -> &File<'a> {
        &self.file
    }
}

impl<'a> File<'a> {
    pub(crate) fn new(path: &'a DataPath, through: Through, inode: &'a Inode) -> Self {
        Self {
            path,
            through,
            inode,
            page_cache: None,
            sink: None,
        }
    }

    /// The identity of one of the file's pclusters.
    pub(crate) fn key(&self, pcluster: &Pcluster) -> Key {
        Key::of(self.path.number, pcluster)
    }

    /// An error about this file.
    pub(crate) fn error(&self, fault: impl Into<FileFault>) -> Error {
        let (nid, own) = (self.inode.nid, self.inode.own_nid());
        Error::file(&self.path.name, nid, own, fault)
    }
}

impl FileReader<'_> {
    /// Calls `look` with the image's structures.
    pub(crate) fn with_image<R>(&self, look: impl FnOnce(Reader<'_>) -> R) -> R {
        self.path.with_image(self.request, self.through, look)
    }

    /// A buffer for decoded bytes.
    pub(crate) fn buffer(&self, bytes: usize) -> Result<PageBuf> {
        let buffer = self.path.alloc(bytes);
        buffer.ok_or_else(|| self.error(FileFault::Memory(bytes)))
    }

    /// Turns an exceeded budget into an error about this file.
    pub(crate) fn within(&self, charged: Result<(), Exceeded>) -> Result<()> {
        charged.map_err(|exceeded| self.error(exceeded))
    }
}
