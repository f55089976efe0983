//! An opened image: data path, workers, caches and counters.
//!
//! Start-up is a ladder: devices, page pool (see [`Opened`]), superblock, special inodes, workers.
//! Each rung owns what it made, so that shut-down is its mirror by the order of the fields.

use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cpu_workers::{Mode, Priority, SystemCpus, WorkerOptions, Workers};
use dm_verity::RootHash;
use erofs_codecs::Settings;
use erofs_format::{
    ErrorClass, Extent, ExtentKind, Image, Inode, NID_IN_METABOX, Nid, Reader, Superblock, Xattr,
};
use figures::add;
use page_pool::{PagePool, PoolStats};
use remote_image::{Class, RemoteFile};

use crate::cache::inodes::{BorrowedInode, Inodes};
use crate::cache::metadata::MetadataCache;
use crate::device::verified::StoredDevice;
use crate::device::version::Change;
use crate::load::watcher::WatchThread;
use crate::load::{Busy, CpuContention, OnContention};
use crate::options::{EngineOptions, Hipri, SyncDecompress};
use crate::read::buffers::Buffers;
use crate::read::claim::PclusterTable;
use crate::read::decode_context::ContextPool;
use crate::read::kept::{DecodedSink, DecodedSource};
use crate::read::map::Stored;
use crate::read::page_cache::{PageCacheWriter, SMALL_READ};
use crate::read::share::{self, Help};
use crate::read::{DataPath, DeviceBytes, File, FileReader, Through};
use crate::request::budget::{Exceeded, ReadContext, Request};
use crate::request::{RequestKey, Requests};
use crate::stats::{AllCounters, EngineStats};
use crate::trace_spans::TraceSpans;
use crate::{Error, FileFault};

mod directory;
mod names;
mod opened;
mod resolve;

use directory::DirectoryCache;

pub use names::{EachEntry, EachItem};
pub use opened::Opened;

/// Structures that lead from one to the next until the place of a file's bytes is known: inode,
/// index, and what these are stored in.
const MOST_LEVELS: usize = 16;

/// Extents that [`Engine::seek`] examines: 4 GiB of chunks of 64 KiB. Beyond, everything counts as
/// data, which is always allowed.
const MOST_EXTENTS: usize = 1 << 16;

/// An opened image.
///
/// A method that takes a [`Request`] is a part of it; one that takes none makes one that waits for
/// networks.
#[derive(Debug)]
pub struct Engine {
    /// Watches where the caller does not.
    _watch_thread: Option<WatchThread>,
    /// Set at start. The rest of the engine is torn down after the workers, which may still read
    /// through it.
    workers: Option<Arc<Workers>>,
    /// Whether other programs keep the CPUs busy, and the resulting priority.
    contention: Arc<CpuContention>,
    path: DataPath,
    pool: Arc<PagePool>,
    /// Decoded inodes.
    inodes: Inodes,
    /// Windows of directories.
    directories: DirectoryCache,
    pub(crate) requests: Requests,
    policy: SyncDecompress,
    /// Set at most once, before anything is read for programs.
    page_cache: OnceLock<Box<dyn PageCacheWriter>>,
    /// Set at start. From the beginning; the workers add theirs.
    notices: Vec<String>,
}

impl Engine {
    /// Opens an image.
    ///
    /// # Errors
    /// One line that names the file and what is wrong: it cannot be opened, is no EROFS image, uses
    /// something that is not supported, contradicts itself, or lacks extra devices.
    pub fn open(path: &Path, options: &EngineOptions) -> Result<Arc<Engine>, Error> {
        Engine::start(Opened::new(path, options)?)
    }

    /// The second half of [`open`](Self::open): reads what was opened, and starts the threads.
    ///
    /// # Errors
    /// As for `open`.
    pub fn start(opened: Opened) -> Result<Arc<Engine>, Error> {
        let Opened {
            name,
            options,
            mut devices,
            hash_area,
            pool,
            cache_memory,
            load_files,
            cpus,
            exposed_files,
        } = opened;
        let requests = Requests::new(name.clone());
        let request = requests.request(ReadContext::Worker);
        crate::engine::opened::locate_image(&request, &name, &options, &mut devices)?;
        let primary = Arc::clone(&devices[0]);
        let of_cache: Vec<_> = devices
            .iter()
            .flat_map(|device| [device.offline(), device.not_kept()])
            .flatten()
            .collect();
        let devices = StoredDevice::all(&name, devices, hash_area, &request)?;
        let scope = request.begin(0);
        let whole = |source| Error::Image {
            image: name.clone(),
            source: Arc::new(source),
        };
        let open = match options.ignore_checksum {
            true => Image::open_without_checksum,
            false => Image::open,
        };
        let bytes = DeviceBytes {
            devices: &devices,
            request: &request,
        };
        let image = open(&bytes).inspect_err(|error| {
            if error.class() == ErrorClass::NotErofs {
                primary.discard();
            }
        });
        let image = image.map_err(whole)?;
        let mut path = DataPath {
            name: name.clone(),
            block_size: u64::from(image.superblock().block_size),
            contexts: ContextPool::new(decoder_settings(image.superblock())),
            is_remote: devices
                .iter()
                .any(|device| device.remote().next().is_some()),
            devices,
            buffers: Buffers {
                pool: pool.clone(),
                cache_memory,
            },
            table: PclusterTable::new(options.cache_bytes),
            counters: AllCounters::new(),
            kept: OnceLock::new(),
            spans: TraceSpans::default(),
            metabox: None,
            metabox_blocks: MetadataCache::new(),
            packed: None,
            image,
        };
        let cut_short = path.image.truncation();
        let cut_short = cut_short.map(|what| format!("{name}: {what}"));
        read_special_inodes(&mut path, &request).map_err(whole)?;
        drop(scope);
        drop(request);
        let workers = start_workers(&options, cpus)?;
        let mut notices = pool.notices();
        notices.extend(cut_short.into_iter().chain(exposed_files).chain(of_cache));
        let contention =
            CpuContention::new(workers.as_ref(), options.hipri, load_files, &mut notices);
        let contention = Arc::new(contention.map_err(Error::start)?);
        // Workers begin real-time: where the CPUs are busy already, no request waits for the one
        // that finds that out.
        contention.check();
        let watch_thread = match &workers {
            Some(workers) if options.watches => {
                Some(WatchThread::start(&contention, workers).map_err(Error::start)?)
            }
            _ => None,
        };
        Ok(Arc::new(Engine {
            _watch_thread: watch_thread,
            workers,
            contention,
            path,
            pool,
            inodes: Inodes::new(),
            directories: DirectoryCache::new(),
            requests,
            policy: options.sync_decompress,
            page_cache: OnceLock::new(),
            notices,
        }))
    }

    /// The image's structures.
    pub fn image(&self) -> &Image {
        &self.path.image
    }

    /// Path of the image, as the caller named it.
    pub fn name(&self) -> &str {
        &self.path.name
    }

    /// Notices for the user: what the system refused, and what was done instead.
    pub fn notices(&self) -> Vec<String> {
        let workers = self.workers.iter().flat_map(|workers| workers.notices());
        self.notices.iter().cloned().chain(workers).collect()
    }

    /// The worker threads, unless the image was opened with [`crate::WorkersMode::Inline`].
    pub fn workers(&self) -> Option<&Arc<Workers>> {
        self.workers.as_ref()
    }

    /// The workers, if each is pinned to a CPU.
    pub fn pinned_workers(&self) -> Option<&Arc<Workers>> {
        let workers = self.workers.as_ref();
        workers.filter(|workers| workers.mode() == Mode::PerCpu)
    }

    /// The root directory.
    pub fn root(&self) -> Nid {
        self.image().superblock().root_nid
    }

    /// A request of a thread that is the engine's worker or not. It waits for networks unless it
    /// is told [otherwise](Request::without_waiting).
    pub fn request(&self, context: ReadContext) -> Request<'_> {
        self.requests.request(context)
    }

    /// A request that waits for networks, of a thread that does all by itself.
    pub fn waiting(&self) -> Request<'_> {
        self.request(ReadContext::Worker)
    }

    /// An inode, decoded and checked.
    pub fn inode(&self, nid: Nid) -> Result<Arc<Inode>, Error> {
        let read = || self.read_inode(&self.waiting(), nid);
        self.inodes.get(nid, read)
    }

    /// An inode for the length of one request, without a reference count that threads share.
    pub fn borrow_inode(&self, request: &Request<'_>, nid: Nid) -> Result<BorrowedInode, Error> {
        self.inodes.borrow(nid, || self.read_inode(request, nid))
    }

    /// As [`borrow_inode`](Self::borrow_inode), of one entry among many: not kept for later.
    pub fn peek_inode(&self, request: &Request<'_>, nid: Nid) -> Result<BorrowedInode, Error> {
        self.inodes.peek(nid, || self.read_inode(request, nid))
    }

    fn read_inode(&self, request: &Request<'_>, nid: Nid) -> Result<Inode, Error> {
        self.metadata(request, RequestKey::Inode(nid), |image| image.inode(nid))
    }

    /// Runs a call for metadata, whose errors are those of its inode.
    fn metadata<R>(
        &self,
        request: &Request<'_>,
        key: RequestKey,
        work: impl FnOnce(Reader<'_>) -> erofs_format::Result<R>,
    ) -> Result<R, Error> {
        let failed = |error| self.error(key.nid(), error);
        self.requests.run(request, key, 0, |_| {
            self.with_image(request, work).map_err(failed)
        })
    }

    /// Calls `look` with the structures of the image, for a request.
    pub fn with_image<R>(&self, request: &Request<'_>, look: impl FnOnce(Reader<'_>) -> R) -> R {
        self.path.with_image(request, Through::ALL, look)
    }

    /// See [`Reader::has_holes`].
    pub fn has_holes(&self, inode: &Inode, entries: &mut u64) -> Option<bool> {
        self.with_image(&self.waiting(), |image| image.has_holes(inode, entries))
    }

    /// See [`Reader::contradiction`].
    pub fn contradiction(&self, inode: &Inode) -> Option<u64> {
        self.with_image(&self.waiting(), |image| image.contradiction(inode))
    }

    /// All extended attributes of an inode.
    pub fn xattrs(&self, request: &Request<'_>, inode: &Inode) -> Result<Vec<Xattr>, Error> {
        let key = RequestKey::Xattrs(inode.nid);
        self.metadata(request, key, |image| image.xattrs(inode))
    }

    /// One extended attribute, by its whole name.
    pub fn xattr(
        &self,
        request: &Request<'_>,
        inode: &Inode,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>, Error> {
        let key = RequestKey::Xattrs(inode.nid);
        self.metadata(request, key, |image| image.xattr(inode, name))
    }

    /// The extent that holds byte `offset` of a file; `None` from its end on.
    pub fn extent(&self, inode: &Inode, offset: u64) -> Result<Option<Extent>, Error> {
        if offset >= inode.size {
            return Ok(None);
        }
        let key = RequestKey::Extent(inode.nid, offset);
        let request = self.waiting();
        self.metadata(&request, key, |image| image.map(inode, offset).map(Some))
    }

    /// Reads from byte `offset` of a file, and returns how many bytes: fewer than requested
    /// only at the end of the file.
    pub fn read_at(
        &self,
        request: &Request<'_>,
        inode: &Inode,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize, Error> {
        let left = inode.size.saturating_sub(offset);
        let count = usize::try_from(left).map_or(out.len(), |left| left.min(out.len()));
        let _busy = self.contention.enter();
        let help = self.workers.as_deref().map(|workers| Help {
            workers,
            contention: &self.contention,
            policy: self.policy,
        });
        let page_cache = self.page_cache.get().filter(|_| count <= SMALL_READ);
        let mut reader = self.file(request, inode);
        reader.file.page_cache = page_cache.map(|cache| &**cache);
        add(&self.path.counters.own().reads, 1);
        let key = RequestKey::Read(inode.nid, offset);
        let result = self.requests.run(request, key, count as u64, |_| {
            reader.read(offset, &mut out[..count], help)
        });
        match result {
            Ok(()) => add(&self.path.counters.own().delivered_bytes, count as u64),
            // It is repeated.
            Err(_) if request.lacks() => {}
            Err(_) => add(&self.path.counters.own().errors, 1),
        }
        result.map(|()| count)
    }

    /// Whether other CPUs have time for work ahead of readers, as far as is known.
    pub fn has_idle_cpus(&self) -> bool {
        let several = |workers: &Workers| workers.count() > 1;
        self.workers.as_deref().is_some_and(several) && !self.contention.contended()
    }

    /// CPUs whose pinned workers are idle, `most` at most and the caller's own left out.
    pub fn idle_helpers(&self, most: usize) -> usize {
        let here = rustix::thread::sched_getcpu();
        let workers = self.pinned_workers();
        workers.map_or(0, |workers| workers.idle_helpers(here, most).count())
    }

    /// Calls `work` on the calling thread and on those of [`idle_helpers`](Self::idle_helpers), the
    /// nearest first; returns when all of them have returned.
    pub fn spread(&self, most: usize, work: &(dyn Fn() + Sync)) {
        let Some(workers) = self.pinned_workers() else {
            return work();
        };
        let here = rustix::thread::sched_getcpu();
        let helpers = workers.idle_helpers(here, most).map(Some);
        share::spread(workers, helpers, work, work);
    }

    /// Whether other programs keep the CPUs busy, as far as is known.
    pub fn is_contended(&self) -> bool {
        self.contention.contended()
    }

    /// Judges the load of the CPUs and sets the priority of the workers, for an engine that was
    /// opened without [`watches`](EngineOptions::watches). Returns when to call it again; `None`
    /// for when [`load_event`](Self::load_event) is readable.
    pub fn check_load(&self) -> Option<Duration> {
        self.contention.check()
    }

    /// Readable when requests come again after a pause.
    pub fn load_event(&self) -> BorrowedFd<'_> {
        self.contention.as_fd()
    }

    /// Sets what is called by the thread that judges the load when
    /// [`is_contended`](Self::is_contended) may have changed. Later calls have no effect.
    pub fn on_contention(&self, changed: OnContention) {
        self.contention.on_change(changed);
    }

    /// Ends the requests that are being served, and all later ones, with EINTR: the mount is
    /// shutting down.
    pub fn close(&self) {
        self.requests.control.close();
    }

    /// Fills `out` from byte `offset` of a file ahead of its readers: without help, and leaving
    /// nothing in the page cache above. All of it must be inside of the file.
    pub fn prefetch_at(&self, inode: &Inode, offset: u64, out: &mut [u8]) -> Result<(), Error> {
        let (request, key) = (self.waiting(), RequestKey::Read(inode.nid, offset));
        self.requests.run(&request, key, out.len() as u64, |_| {
            self.file(&request, inode).read(offset, out, None)
        })
    }

    /// Decodes for `sink` the pclusters that reading these bytes takes, all inside of the file.
    pub fn decode_for(
        &self,
        inode: &Inode,
        range: Range<u64>,
        sink: &dyn DecodedSink,
    ) -> Result<(), Error> {
        let (request, key) = (self.waiting(), RequestKey::Read(inode.nid, range.start));
        // What it has then is not the file.
        let mut out = vec![0; (range.end - range.start) as usize];
        let mut reader = self.file(&request, inode);
        reader.file.sink = Some(sink);
        self.requests.run(&request, key, out.len() as u64, |_| {
            reader.read(range.start, &mut out, None)
        })
    }

    /// Takes decoded bytes from here on from `source`, where it has them. Later calls have no
    /// effect.
    pub fn set_decoded(&self, source: Arc<dyn DecodedSource>) {
        let _ = self.path.kept.set(source);
    }

    /// The first byte from `offset` on, which is inside of the file, that is a hole or data; `None`
    /// if there is none. The end of a file is a hole.
    pub fn seek(
        &self,
        request: &Request<'_>,
        inode: &Inode,
        offset: u64,
        hole: bool,
    ) -> Result<Option<u64>, Error> {
        let key = RequestKey::Read(inode.nid, offset);
        self.metadata(request, key, |image| {
            let end = hole.then_some(inode.size);
            let mut examined = offset;
            for extent in image.extents(inode, offset..inode.size).take(MOST_EXTENTS) {
                let (part, extent) = match extent {
                    Ok(extent) => extent,
                    // As many extents as a request may examine.
                    Err(_) if request.exceeded().is_some_and(Exceeded::is_limit) => break,
                    Err(error) => return Err(error),
                };
                if matches!(extent.kind, ExtentKind::Hole) == hole {
                    return Ok(Some(part.start));
                }
                examined = part.end;
            }
            Ok(match examined == inode.size {
                true => end,
                false => end.or(Some(examined)),
            })
        })
    }

    /// Threads that work for readers now.
    pub fn busy_threads(&self) -> usize {
        self.contention.busy_threads()
    }

    /// Counts the calling thread as busy for the engine while it does other work than reading.
    pub fn busy(&self) -> Busy<'_> {
        self.contention.enter()
    }

    /// The same for a request of the client thread with this id: what it does because it was
    /// answered is no load that would require a higher priority of the workers.
    pub fn asked_by(&self, thread: u32) -> Busy<'_> {
        self.contention.asked_by(thread)
    }

    /// Sets the page cache that takes the remainders of small reads. Later calls have no effect.
    pub fn set_page_cache(&self, page_cache: Box<dyn PageCacheWriter>) {
        let _ = self.page_cache.set(page_cache);
    }

    /// Counters of reads, decoding and the cache.
    pub fn stats(&self) -> EngineStats {
        let requests = self.requests.control.peaks();
        self.path.counters.read(&self.path.table, requests)
    }

    /// The root hash that stored blocks are verified against; `None` if they are not.
    pub fn root_hash(&self) -> Option<&RootHash> {
        self.path.devices.first()?.root_hash()
    }

    /// How a file of the image differs from what was opened: one that certainly does, or else one
    /// that may. For the moment of a fault, since it asks the system.
    pub fn change(&self) -> Option<Change> {
        let changes = self.path.devices.iter().flat_map(|it| it.changes());
        changes.max_by_key(|change| change.is_certain)
    }

    /// Whether stored bytes come from a network.
    pub fn is_remote(&self) -> bool {
        self.path.is_remote
    }

    /// The files at URLs that the image is made of, with their names for messages.
    pub fn remote_files(&self) -> impl Iterator<Item = (String, &Arc<RemoteFile>)> {
        self.path.devices.iter().flat_map(|device| device.remote())
    }

    /// To be called after the last read of an image that may be in a registry: the digest of a blob
    /// is compared once all of it is there.
    ///
    /// # Errors
    /// It is another one.
    pub fn settle(&self) -> io::Result<()> {
        self.remote_files().try_for_each(|(_, file)| file.settle())
    }

    /// Has the stored bytes of these parts of files fetched, in this order, where they are at a
    /// URL. Waits for what says where they are, and not for them.
    ///
    /// # Errors
    /// Those of the network.
    pub fn fetch_ahead(&self, parts: &[(Nid, Range<u64>)]) -> io::Result<()> {
        if !self.is_remote() {
            return Ok(());
        }
        for _ in 0..MOST_LEVELS {
            let request = self.waiting().without_waiting();
            let stored = parts
                .iter()
                .filter_map(|part| self.stored(&request, part).ok());
            let stored: Vec<_> = stored.collect();
            let Some(lacks) = request.missing() else {
                // One question a device: neighbours of different parts come together.
                let mut all = Stored::new();
                for (device, ranges) in stored.into_iter().flatten() {
                    all.entry(device).or_default().extend(ranges);
                }
                for (device, ranges) in &all {
                    if let Some(device) = self.path.devices.get(*device) {
                        device.prefetch(ranges);
                    }
                }
                return Ok(());
            };
            lacks.wait(&|| true)?;
        }
        Ok(())
    }

    /// Has everything that is at a URL fetched when nothing else is asked for. Only a hint.
    pub fn fetch_all(&self) {
        for (_, file) in self.remote_files() {
            let whole = 0..file.length();
            let _ = file.prefetch(std::slice::from_ref(&whole), Class::Fill);
        }
    }

    fn stored(
        &self,
        request: &Request<'_>,
        (nid, range): &(Nid, Range<u64>),
    ) -> Result<Stored, Error> {
        let inode = self.borrow_inode(request, *nid)?;
        let range = range.start..range.end.min(inode.size);
        self.file(request, &inode).stored(range)
    }

    /// Verifies all blocks of an image that was opened with a hash tree, also those that no file
    /// uses, and calls `each` with one line for each block that does not match. Does nothing for an
    /// image that was opened without.
    pub fn verify_blocks(&self, each: &mut dyn FnMut(String)) {
        for device in &self.path.devices {
            device.scan(&self.waiting(), each);
        }
    }

    /// Use of the page pool.
    pub fn pool_stats(&self) -> PoolStats {
        self.pool.stats()
    }

    fn file<'a>(&'a self, request: &'a Request<'a>, inode: &'a Inode) -> FileReader<'a> {
        let file = File::new(&self.path, Through::ALL, inode);
        FileReader { file, request }
    }

    /// What its threads do and when.
    pub fn trace_spans(&self) -> &TraceSpans {
        &self.path.spans
    }

    pub(crate) fn error(&self, nid: Nid, fault: impl Into<FileFault>) -> Error {
        Error::file(&self.path.name, nid, fault)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(workers) = &self.workers {
            workers.shutdown();
        }
    }
}

/// The decoders' settings for an image.
pub fn decoder_settings(superblock: &Superblock) -> Settings {
    let default = Settings::default();
    let compression = &superblock.compression;
    Settings {
        block_size: superblock.block_size,
        lz4_zero_padding: superblock.zero_padding(),
        lzma_dictionary: compression
            .lzma
            .map_or(default.lzma_dictionary, |c| c.dict_size),
        zstd_window_log: compression
            .zstd
            .map_or(default.zstd_window_log, |c| u32::from(c.window_log)),
    }
}

/// Reads the special inodes, and what the image has in them.
fn read_special_inodes(path: &mut DataPath, request: &Request<'_>) -> erofs_format::Result<()> {
    let through = Through::ALL;
    let read = |path: &DataPath, nid| path.with_image(request, through, |image| image.inode(nid));
    let in_metabox = |nid: &Nid| nid & NID_IN_METABOX != 0;
    let (packed, metabox) = (path.image.packed_nid(), path.image.metabox_nid());
    if let Some(nid) = packed.filter(|nid| !in_metabox(nid)) {
        path.packed = Some(read(path, nid)?);
    }
    if let Some(nid) = metabox {
        path.metabox = Some(read(path, nid)?);
    }
    if let Some(nid) = packed.filter(in_metabox) {
        path.packed = Some(read(path, nid)?);
    }
    path.with_image(request, through, |image| {
        image.load_xattr_prefixes()?;
        image.check_root()
    })
}

/// None without `cpus`.
fn start_workers(
    options: &EngineOptions,
    cpus: Option<SystemCpus>,
) -> Result<Option<Arc<Workers>>, Error> {
    let (Some(mode), Some(cpus)) = (options.workers.mode(), cpus) else {
        return Ok(None);
    };
    let priority = match options.hipri {
        Hipri::On => Priority::High,
        // Lowered while the CPUs are not contended.
        Hipri::Auto => Priority::Best,
        Hipri::Off => Priority::Normal,
    };
    let options = WorkerOptions {
        mode,
        priority,
        ..WorkerOptions::default()
    };
    let started = Workers::start_on(options, Arc::new(cpus));
    let started = started.map_err(|error| Error::start(io::Error::other(error)))?;
    Ok(Some(started))
}
