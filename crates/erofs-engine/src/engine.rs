//! An opened image: data path, workers, caches and counters.
//!
//! Start-up has ordered steps: devices, page pool (see [`Opened`]), superblock, special inodes,
//! workers. Each step owns what it creates, and the order of the fields makes shut-down run in
//! reverse.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cpu_workers::{Mode, Priority, SystemCpus, WorkerOptions, Workers};
use dm_verity::RootHash;
use erofs_format::{Extent, ExtentKind, Image, Inode, Nid, Reader, Xattr};
use figures::add;
use page_pool::PoolStats;
use remote_image::{Class, RemoteFile};

use crate::cache::inodes::{BorrowedInode, Inodes};
use crate::device::version::Change;
use crate::error::errno;
use crate::layers::directory::MergedDirectories;
use crate::layers::number::{ImageNames, Numbers};
use crate::layers::overlay;
use crate::load::watcher::WatchThread;
use crate::load::{Busy, CpuContention, OnContention};
use crate::options::{EngineOptions, Hipri, SyncDecompress};
use crate::read::kept::{DecodedSink, DecodedSource};
use crate::read::map::Stored;
use crate::read::page_cache::{PageCacheWriter, SMALL_READ};
use crate::read::share::Help;
use crate::read::{Common, File, FileReader, Through};
use crate::request::budget::{Exceeded, ReadContext, Request};
use crate::request::{RequestKey, Requests};
use crate::stats::EngineStats;
use crate::trace_spans::TraceSpans;
use crate::{Error, FileFault, Result};

mod directory;
mod images;
mod lent;
mod merged;
mod names;
mod opened;
mod resolve;

use directory::{DirectoryCache, cache_of_images};
use images::Images;

pub use images::decoder_settings;
pub use names::{EachEntry, EachItem};
pub use opened::Opened;

/// Maximum length of the chain of structures that leads to the location of a file's bytes: inode,
/// index, and the files in which these are stored.
const MOST_LEVELS: usize = 16;

/// Maximum number of extents that [`Engine::seek`] examines: 4 GiB of chunks of 64 KiB. Everything
/// beyond them is reported as data, which lseek(2) permits.
const MOST_EXTENTS: usize = 1 << 16;

/// An opened image, or several that make up one tree.
///
/// A call with a [`Request`] as an argument is part of that request; a method that takes none
/// creates a request that waits for networks.
#[derive(Debug)]
pub struct Engine {
    /// Watches the load unless the caller does so.
    _watch_thread: Option<WatchThread>,
    /// Never changes. Declared before the rest of the engine, which is therefore torn down after
    /// the workers: they may still read through it.
    workers: Option<Arc<Workers>>,
    /// Whether other programs keep the CPUs busy, and the resulting priority.
    contention: Arc<CpuContention>,
    images: Images,
    /// `Some` for several images, and for a single layer that was an archive.
    merged: Option<MergedDirectories>,
    /// For each image of a tree, whether its archive was rewritten, so that no name in it is a
    /// whiteout.
    rewritten: Box<[bool]>,
    common: Arc<Common>,
    inodes: Inodes,
    directories: DirectoryCache,
    pub(crate) requests: Requests,
    policy: SyncDecompress,
    /// Set at most once, before anything is read for programs.
    page_cache: OnceLock<Box<dyn PageCacheWriter>>,
    /// Atomic. The file about which [`relate`](Self::relate) last told the fetcher.
    related: AtomicU64,
    /// Never changes. Notices from start-up, to which [`notices`](Self::notices) adds those of the
    /// workers.
    notices: Vec<String>,
}

impl Engine {
    /// Opens an image.
    ///
    /// # Errors
    /// One line that names the file and what is wrong: it cannot be opened, is not an EROFS image,
    /// uses an unsupported feature, contradicts itself, or lacks extra devices.
    pub fn open(path: &Path, options: &EngineOptions) -> Result<Arc<Engine>> {
        Engine::start(Opened::new(path, options)?)
    }

    /// The second half of [`open`](Self::open): reads the opened files, and starts the threads.
    ///
    /// # Errors
    /// The same errors as for `open`.
    pub fn start(opened: Opened) -> Result<Arc<Engine>> {
        let Opened {
            options,
            images,
            pool,
            cache_memory,
            load_files,
            cpus,
            exposed_files,
        } = opened;
        let names = images.iter().map(|image| image.name.clone());
        let requests = Requests::new(ImageNames::new(names.collect()));
        let common = Arc::new(Common::new(pool, cache_memory, options.cache_bytes));
        let request = requests.request(ReadContext::Worker);
        let images = Images::read(images, &common, &options, &request)?;
        drop(request);
        let workers = start_workers(&options, cpus)?;
        let mut notices = common.pool.notices();
        notices.extend(images.notices.iter().cloned().chain(exposed_files));
        let contention =
            CpuContention::new(workers.as_ref(), options.hipri, load_files, &mut notices);
        let contention = Arc::new(contention.map_err(Error::start)?);
        // Workers start with real-time priority: if the CPUs are already busy, no request has to
        // wait until this is detected.
        contention.check();
        let watch_thread = match &workers {
            Some(workers) if options.watches => {
                Some(WatchThread::start(&contention, workers).map_err(Error::start)?)
            }
            _ => None,
        };
        let directories = cache_of_images(images.paths.len());
        let mut engine = Engine {
            _watch_thread: watch_thread,
            workers,
            contention,
            images,
            merged: None,
            rewritten: Box::default(),
            common,
            inodes: Inodes::new(),
            directories,
            requests,
            policy: options.sync_decompress,
            page_cache: OnceLock::new(),
            related: AtomicU64::new(u64::MAX),
            notices,
        };
        engine.merge()?;
        Ok(Arc::new(engine))
    }

    /// The structures of the image or, if there are several, of the top one.
    pub fn image(&self) -> &Image {
        &self.images.top().image
    }

    /// All images of the tree with their names, the top one first.
    pub fn images(&self) -> impl Iterator<Item = (&str, &Image)> {
        let all = self.images.paths.iter();
        all.map(|path| (&*path.name, &path.image))
    }

    /// How the inodes of the images are numbered.
    pub fn numbers(&self) -> Numbers {
        self.images.numbers
    }

    /// The image that an inode is in.
    pub fn image_of(&self, nid: Nid) -> &Image {
        &self.images.of(nid).image
    }

    /// The root directories of all images, the top one first.
    pub fn roots(&self) -> impl Iterator<Item = Nid> {
        self.images.roots()
    }

    /// Path of the image, or of the top one of several, as the caller specified it.
    pub fn name(&self) -> &str {
        &self.images.top().name
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

    /// The number of the root directory's inode.
    pub fn root(&self) -> Nid {
        self.image().superblock().root_nid
    }

    /// The number of images that make up the tree.
    pub fn image_count(&self) -> usize {
        self.images.paths.len()
    }

    /// A request on the calling thread, which may or may not be one of the engine's workers. It
    /// waits for networks unless told [otherwise](Request::without_waiting).
    pub fn request(&self, context: ReadContext) -> Request<'_> {
        self.requests.request(context)
    }

    /// A request that waits for networks, on a thread that does all the work itself.
    pub fn waiting(&self) -> Request<'_> {
        self.request(ReadContext::Worker)
    }

    /// An inode, decoded and checked.
    pub fn inode(&self, nid: Nid) -> Result<Arc<Inode>> {
        Ok(Arc::clone(
            self.borrow_inode(&self.waiting(), nid)?.shared(),
        ))
    }

    /// An inode, borrowed for the duration of one request.
    pub fn borrow_inode(&self, request: &Request<'_>, nid: Nid) -> Result<BorrowedInode> {
        self.inodes
            .borrow(nid, true, || self.read_inode(request, nid))
    }

    /// Like [`borrow_inode`](Self::borrow_inode), for one entry among many: the inode is not
    /// cached.
    pub fn peek_inode(&self, request: &Request<'_>, nid: Nid) -> Result<BorrowedInode> {
        self.inodes
            .borrow(nid, false, || self.read_inode(request, nid))
    }

    fn read_inode(&self, request: &Request<'_>, nid: Nid) -> Result<Inode> {
        let mut inode = self.read_own_inode(request, nid)?;
        self.check_content(request, &inode)?;
        if self.is_merged(request, &inode)? {
            // As in overlayfs, a link count of 1 tells programs not to derive the number of
            // subdirectories from the count.
            inode.nlink = 1;
        }
        self.lend(request, &mut inode)?;
        Ok(inode)
    }

    /// Reads an inode as its image stores it.
    fn read_own_inode(&self, request: &Request<'_>, nid: Nid) -> Result<Inode> {
        let numbers = self.images.numbers;
        if numbers.image(nid) >= self.image_count() {
            return Err(self.fault(nid, "not in any of the images"));
        }
        let own = numbers.own(nid);
        let read = self.metadata(request, RequestKey::Inode(nid), |image| image.inode(own));
        Ok(read?.renumbered(nid))
    }

    /// Runs a call for metadata; its errors name the inode.
    fn metadata<R>(
        &self,
        request: &Request<'_>,
        key: RequestKey,
        work: impl FnOnce(Reader<'_>) -> erofs_format::Result<R>,
    ) -> Result<R> {
        let failed = |error| self.error(key.nid(), error);
        self.requests.run(request, key, 0, |_| {
            self.with_image(request, key.nid(), work).map_err(failed)
        })
    }

    /// Calls `look` with the structures of the image that an inode is in. What `look` reads counts
    /// towards the budget of `request`.
    pub fn with_image<R>(
        &self,
        request: &Request<'_>,
        nid: Nid,
        look: impl FnOnce(Reader<'_>) -> R,
    ) -> R {
        let path = self.images.of(nid);
        path.with_image(request, Through::ALL, look)
    }

    /// Whether a file has holes; see [`Reader::has_holes`].
    pub fn has_holes(&self, inode: &Inode, entries: &mut u64) -> Option<bool> {
        let has_holes = |image: Reader<'_>| image.has_holes(inode, entries);
        self.with_image(&self.waiting(), inode.nid, has_holes)
    }

    /// Detects contradictions in a file; see [`Reader::contradiction`].
    pub fn contradiction(&self, inode: &Inode) -> Option<u64> {
        let contradiction = |image: Reader<'_>| image.contradiction(inode);
        self.with_image(&self.waiting(), inode.nid, contradiction)
    }

    /// All extended attributes of an inode.
    pub fn xattrs(&self, request: &Request<'_>, inode: &Inode) -> Result<Vec<Xattr>> {
        let mut all = self.stored_xattrs(request, inode)?;
        if self.merged.is_none() {
            all.retain(|xattr| overlay::is_listed_alone(&xattr.name));
            return Ok(all);
        }
        for lender in self.lenders(request, inode)? {
            let lent = self.stored_xattrs(request, &lender)?.into_iter();
            for xattr in lent.filter(|xattr| overlay::is_lent(&xattr.name)) {
                if all.iter().all(|known| known.name != xattr.name) {
                    all.push(xattr);
                }
            }
        }
        all.retain_mut(|xattr| {
            let shown = overlay::shown(&xattr.name).map(Cow::into_owned);
            shown.map(|name| xattr.name = name).is_some()
        });
        Ok(all)
    }

    /// All attributes, under the names by which the image stores them.
    fn stored_xattrs(&self, request: &Request<'_>, inode: &Inode) -> Result<Vec<Xattr>> {
        let key = RequestKey::Xattrs(inode.nid);
        self.metadata(request, key, |image| image.xattrs(inode))
    }

    /// One extended attribute, by its full name.
    pub fn xattr(
        &self,
        request: &Request<'_>,
        inode: &Inode,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let stored = match self.merged {
            Some(_) => overlay::stored(name),
            None => name.into(),
        };
        let own = self.stored_xattr(request, inode, &stored)?;
        if own.is_some() || !overlay::is_lent(&stored) {
            return Ok(own);
        }
        for lender in self.lenders(request, inode)? {
            let lent = self.stored_xattr(request, &lender, &stored)?;
            if lent.is_some() {
                return Ok(lent);
            }
        }
        Ok(None)
    }

    /// Looks up an attribute by the name under which the image stores it.
    fn stored_xattr(
        &self,
        request: &Request<'_>,
        inode: &Inode,
        name: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        if inode.xattr_icount == 0 {
            return Ok(None);
        }
        let key = RequestKey::Xattrs(inode.nid);
        self.metadata(request, key, |image| image.xattr(inode, name))
    }

    /// The extent that holds byte `offset` of a file; `None` at or beyond its end.
    pub fn extent(&self, inode: &Inode, offset: u64) -> Result<Option<Extent>> {
        if offset >= inode.size {
            return Ok(None);
        }
        let key = RequestKey::Extent(inode.nid, offset);
        let request = self.waiting();
        self.metadata(&request, key, |image| image.map(inode, offset).map(Some))
    }

    /// Reads from byte `offset` of a file and returns the number of bytes, which is less than
    /// requested only at the end of the file.
    pub fn read_at(
        &self,
        request: &Request<'_>,
        inode: &Inode,
        offset: u64,
        out: &mut [u8],
    ) -> Result<usize> {
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
        add(&self.common.counters.own().reads, 1);
        let key = RequestKey::Read(inode.nid, offset);
        let result = self.requests.run(request, key, count as u64, |_| {
            reader.read(offset, &mut out[..count], help)
        });
        match result {
            Ok(()) => add(&self.common.counters.own().delivered_bytes, count as u64),
            // Not an error: the request will be repeated.
            Err(_) if request.lacks() => self.relate(inode),
            Err(_) => add(&self.common.counters.own().errors, 1),
        }
        result.map(|()| count)
    }

    /// Tells the fetcher where the bytes of a file are. They are usually close together, and a
    /// reader that lacks some of them will go on to read the others.
    fn relate(&self, inode: &Inode) {
        // The fetcher remembers the last file that it was told about.
        if self.related.load(Ordering::Relaxed) == inode.nid {
            return;
        }
        let request = self.waiting().without_waiting();
        let reader = self.file(&request, inode);
        let stored = |range| reader.stored(range).ok()?.pop_first();
        let last = inode.size.saturating_sub(1);
        if let Some((device, first)) = stored(0..1)
            && let Some((other, last)) = stored(last..inode.size)
            && device == other
            && let (Some(first), Some(last)) = (first.first(), last.last())
            && let Some(device) = reader.path.devices.get(device)
        {
            device.device.relate(&(first.start..last.end));
            self.related.store(inode.nid, Ordering::Relaxed);
        }
    }

    /// Whether other CPUs are known to have time for work ahead of readers.
    pub fn has_idle_cpus(&self) -> bool {
        let several = |workers: &Workers| workers.count() > 1;
        self.workers.as_deref().is_some_and(several) && !self.contention.contended()
    }

    /// Whether other programs are known to keep the CPUs busy.
    pub fn is_contended(&self) -> bool {
        self.contention.contended()
    }

    /// Judges the load of the CPUs and sets the priority of the workers, for an engine that was
    /// opened without [`watches`](EngineOptions::watches). Returns how long to wait before the next
    /// call; `None` means until [`load_event`](Self::load_event) is readable.
    pub fn check_load(&self) -> Option<Duration> {
        self.contention.check()
    }

    /// Becomes readable when requests arrive after a pause.
    pub fn load_event(&self) -> BorrowedFd<'_> {
        self.contention.as_fd()
    }

    /// Sets the callback of the thread that judges the load, which calls it when
    /// [`is_contended`](Self::is_contended) may have changed. Later calls have no effect.
    pub fn on_contention(&self, changed: OnContention) {
        self.contention.on_change(changed);
    }

    /// Ends the requests that are being served, and all later ones, with EINTR, because the mount
    /// is shutting down.
    pub fn close(&self) {
        self.requests.control.close();
    }

    /// Fills `out` from byte `offset` of a file ahead of its readers, without help from workers,
    /// and adds nothing to the kernel's page cache. The range must be inside the file.
    pub fn read_ahead_at(
        &self,
        request: &Request<'_>,
        inode: &Inode,
        offset: u64,
        out: &mut [u8],
    ) -> Result<()> {
        let key = RequestKey::Read(inode.nid, offset);
        self.requests.run(request, key, out.len() as u64, |_| {
            self.file(request, inode).read(offset, out, None)
        })
    }

    /// Decodes the pclusters that contain these bytes, which must be inside the file, and passes
    /// them to `sink`.
    pub fn decode_for(
        &self,
        inode: &Inode,
        range: Range<u64>,
        sink: &dyn DecodedSink,
    ) -> Result<()> {
        let (request, key) = (self.waiting(), RequestKey::Read(inode.nid, range.start));
        // With a sink, this buffer is not filled with the file's content.
        let mut out = vec![0; (range.end - range.start) as usize];
        let mut reader = self.file(&request, inode);
        reader.file.sink = Some(sink);
        self.requests.run(&request, key, out.len() as u64, |_| {
            reader.read(range.start, &mut out, None)
        })
    }

    /// From now on, takes decoded bytes from `source` if it has them. Later calls have no effect.
    pub fn set_decoded(&self, source: Arc<dyn DecodedSource>) {
        let _ = self.common.kept.set(source);
    }

    /// The first byte at or after `offset` that is in a hole, or in data if `hole` is false; `None`
    /// if there is none. `offset` must be inside the file. The end of a file is a hole.
    pub fn seek(
        &self,
        request: &Request<'_>,
        inode: &Inode,
        offset: u64,
        hole: bool,
    ) -> Result<Option<u64>> {
        let key = RequestKey::Read(inode.nid, offset);
        self.metadata(request, key, |image| {
            let end = hole.then_some(inode.size);
            let mut examined = offset;
            for extent in image.extents(inode, offset..inode.size).take(MOST_EXTENTS) {
                let (part, extent) = match extent {
                    Ok(extent) => extent,
                    // The request may examine no more extents.
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

    /// Counts the calling thread as busy for the engine while it does work other than reading.
    pub fn busy(&self) -> Busy<'_> {
        self.contention.enter()
    }

    /// Like [`busy`](Self::busy), for a request of the client thread with this ID: the work that
    /// the client does after the reply does not count as load for which the workers would need a
    /// higher priority.
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
        self.common.counters.read(&self.common.table, requests)
    }

    /// The root hash that stored blocks are verified against; `None` if they are not.
    pub fn root_hash(&self) -> Option<&RootHash> {
        self.images.top().devices.first()?.root_hash()
    }

    /// How one of the image's files has changed since it was opened: a definite change if there is
    /// one, otherwise a possible one. Call this only after a fault, since it makes system calls.
    pub fn change(&self) -> Option<Change> {
        let changes = self.images.devices().flat_map(|it| it.changes());
        changes.max_by_key(|change| change.is_certain)
    }

    /// Whether stored bytes come from a network.
    pub fn is_remote(&self) -> bool {
        self.images.paths.iter().any(|path| path.is_remote)
    }

    /// The files at URLs that belong to the image, with their names for messages.
    pub fn remote_files(&self) -> impl Iterator<Item = (String, &Arc<RemoteFile>)> {
        self.images.devices().flat_map(|device| device.remote())
    }

    /// Call this after the last read of an image that may come from a registry: the digest of a
    /// blob is compared once all of it has arrived.
    ///
    /// # Errors
    /// The digest does not match.
    pub fn settle(&self) -> io::Result<()> {
        self.remote_files().try_for_each(|(_, file)| file.settle())
    }

    /// Fetches the stored bytes of these parts of files, in this order, if they are at a URL. Waits
    /// for the structures that locate them, but not for the bytes.
    ///
    /// # Errors
    /// Errors of the network.
    pub fn fetch_ahead(&self, parts: &[(Nid, Range<u64>)]) -> io::Result<()> {
        if !self.is_remote() {
            return Ok(());
        }
        for _ in 0..MOST_LEVELS {
            let request = self.waiting().without_waiting();
            let stored = |part| self.stored(&request, part).ok();
            let stored: Vec<_> = parts.iter().filter_map(stored).collect();
            let Some(lacks) = request.missing() else {
                // One query per device, so that adjacent bytes of different parts are fetched
                // together.
                let mut all: BTreeMap<_, Vec<_>> = BTreeMap::new();
                for (image, stored) in stored {
                    for (device, ranges) in stored {
                        all.entry((image, device)).or_default().extend(ranges);
                    }
                }
                for ((image, device), ranges) in &all {
                    if let Some(device) = self.images.paths[*image].devices.get(*device) {
                        device.device.prefetch(ranges, Class::Profile);
                    }
                }
                return Ok(());
            };
            lacks.wait(&|| true)?;
        }
        Ok(())
    }

    /// Fetches everything at URLs while no other bytes are requested. Only a hint.
    pub fn fetch_all(&self) {
        for (_, file) in self.remote_files() {
            let whole = 0..file.length();
            let _ = file.prefetch(std::slice::from_ref(&whole), Class::Fill);
        }
    }

    /// Finds where bytes are stored, and the number of the image that stores them.
    fn stored(
        &self,
        request: &Request<'_>,
        (nid, range): &(Nid, Range<u64>),
    ) -> Result<(usize, Stored)> {
        let inode = self.borrow_inode(request, *nid)?;
        let range = range.start..range.end.min(inode.size);
        let stored = self.file(request, &inode).stored(range)?;
        Ok((self.images.of(inode.nid).number, stored))
    }

    /// Verifies all blocks of an image that was opened with a hash tree, even those that no file
    /// uses, and calls `each` with one line for each mismatch. Does nothing for an image that was
    /// opened without a tree.
    pub fn verify_blocks(&self, each: &mut dyn FnMut(String)) {
        for device in self.images.devices() {
            device.scan(&self.waiting(), each);
        }
    }

    /// Counters of the page pool.
    pub fn pool_stats(&self) -> PoolStats {
        self.common.pool.stats()
    }

    fn file<'a>(&'a self, request: &'a Request<'a>, inode: &'a Inode) -> FileReader<'a> {
        let file = File::new(self.images.of(inode.nid), Through::ALL, inode);
        FileReader { file, request }
    }

    /// The recorded work of the engine's threads over time.
    pub fn trace_spans(&self) -> &TraceSpans {
        &self.common.spans
    }

    pub(crate) fn error(&self, nid: Nid, fault: impl Into<FileFault>) -> Error {
        self.requests.images.error(nid, fault)
    }

    /// An error for an inode of the wrong kind.
    fn kind(&self, nid: Nid, what: &'static str, errno: i32) -> Error {
        self.error(nid, FileFault::Kind { what, errno })
    }

    /// An error for an inode that contradicts the rest of its image.
    fn fault(&self, nid: Nid, what: &'static str) -> Error {
        self.kind(nid, what, errno::EUCLEAN)
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if let Some(workers) = &self.workers {
            workers.shutdown();
        }
    }
}

/// Starts the workers; returns `None` if there are no `cpus`.
fn start_workers(
    options: &EngineOptions,
    cpus: Option<SystemCpus>,
) -> Result<Option<Arc<Workers>>> {
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
