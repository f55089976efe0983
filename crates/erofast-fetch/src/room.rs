//! Stores blocks: in the cache, or in the spare file if the cache has no room.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;

use remote_image::message::Identity;
use remote_image::store::{BLOCK, Store};
use remote_image::{ImageUrl, Options, answers, cache, home, shared_cache};
use rustix::fs::{
    CWD, MemfdFlags, Mode, OFlags, fcntl_getfl, fstat, ftruncate, memfd_create, openat,
};
use rustix::process::{Resource, getrlimit};

use crate::failure::{Failure, ensure};

/// Message if the cache is not used.
pub const NOT_KEPT: &str = "nothing is kept in the cache";

/// Maximum number of blocks in the spare file, which is in memory.
const SPARE: usize = (64 << 20) / BLOCK as usize;
/// Number of new bytes after which the size of the cache is checked again.
const GROWTH: u64 = 64 << 20;

/// The store and the spare file of an image.
#[derive(Debug)]
pub struct Room {
    pub store: Store,
    spare: Store,
    /// Blocks in the spare file, oldest first.
    spared: RefCell<VecDeque<u64>>,
    /// The cache's directory, and its size limit.
    cache: Option<(PathBuf, u64)>,
    grown: Cell<u64>,
    /// Why new blocks are not put into the cache; `None` if they are, or if the options say that
    /// nothing is kept.
    not_kept: RefCell<Option<String>>,
    began_empty: bool,
    /// Whether the store is a complete image in the shared cache, which is used read-only.
    is_shared: bool,
}

impl Room {
    /// Opens files of the cache or, without a cache, a file that disappears when it is closed.
    pub fn open(
        source: &ImageUrl,
        options: &Options,
        identity: &Identity,
    ) -> Result<Room, Failure> {
        check_limit(identity.length)?;
        let hash = identity.digest.as_ref().or(options.root_hash.as_ref());
        let is_known = hash.is_some() || identity.etag.is_some() || identity.modified.is_some();
        let opened = match (options.keep, is_known) {
            (false, _) => Err(None),
            (_, false) => Err(Some(
                "the server sent neither ETag nor Last-Modified".to_owned(),
            )),
            _ => from_cache(source, options, identity).map_err(|error| Some(error.to_string())),
        };
        let (store, why) = match opened {
            Ok(store) => (store, None),
            Err(why) => (temporary(identity.length).map_err(no_space)?, why),
        };
        let room = Room::begin(store, options)?;
        room.not_kept.replace(why);
        Ok(room)
    }

    /// Uses the store of an image that is completely present.
    pub fn whole(store: Store, options: &Options) -> Result<Room, Failure> {
        check_limit(store.length())?;
        Room::begin(store, options)
    }

    fn begin(store: Store, options: &Options) -> Result<Room, Failure> {
        let spare = in_memory(store.length()).map_err(no_space)?;
        let room = Room::new(store, spare, options);
        room.prune();
        Ok(room)
    }

    /// Continues with the files of a fetcher that died.
    pub fn resume(files: Vec<OwnedFd>, options: &Options, length: u64) -> Result<Room, Failure> {
        let files = <[OwnedFd; 4]>::try_from(files);
        let [data, map, spare, spare_map] = files.map_err(|_| Failure::lasting("four files"))?;
        // The order of the spare file's blocks was lost with the fetcher, so the file is emptied.
        let emptied = ftruncate(&spare_map, 0).and_then(|()| ftruncate(&spare, 0));
        emptied.map_err(Failure::lasting)?;
        let (store, spare) = (
            Store::new(data, map, length),
            Store::new(spare, spare_map, length),
        );
        Ok(Room::new(store, spare, options))
    }

    fn new(store: Store, spare: Store, options: &Options) -> Room {
        let directory = cache::directory(options).filter(|_| !options.share);
        Room {
            began_empty: store.present().is_ok_and(|bytes| bytes == 0),
            is_shared: is_read_only(store.data()),
            store,
            spare,
            spared: RefCell::default(),
            cache: directory.map(|directory| (directory, options.cache_size)),
            grown: Cell::new(0),
            not_kept: RefCell::default(),
        }
    }

    /// Data and map of the store, and of the spare file.
    pub fn files(&self) -> [BorrowedFd<'_>; 4] {
        let [store, spare] = [&self.store, &self.spare];
        [store.data(), store.map(), spare.data(), spare.map()].map(AsFd::as_fd)
    }

    /// Whether the store is in the cache, where its files have names.
    pub fn is_kept(&self) -> bool {
        fstat(self.store.data()).is_ok_and(|file| file.st_nlink > 0)
    }

    /// Why new blocks are not put into the cache; `None` if they are, or if the options say that
    /// nothing is kept.
    pub fn not_kept(&self) -> Option<String> {
        self.not_kept.borrow().clone()
    }

    /// Marks the bytes as verified. If the mark cannot be written, the bytes are verified again.
    pub fn mark_verified(&self) {
        let _ = self.store.mark_verified();
    }

    /// Marks all blocks as absent, so that they are fetched again.
    pub fn forget_all(&self) {
        // If the disk refuses this, reads fail as well.
        let _ = self.store.forget_all();
        let _ = self.spare.forget_all();
    }

    /// Whether the cache has no room for new blocks, so that few of them are kept.
    pub fn is_full(&self) -> bool {
        self.not_kept.borrow().is_some() && !self.spared.borrow().is_empty()
    }

    /// The number of bytes of the image in the store.
    pub fn present(&self) -> u64 {
        self.store.present().unwrap_or(0)
    }

    /// The number of bytes that are not in the store.
    pub fn missing(&self) -> u64 {
        self.store.length() - self.present()
    }

    /// Whether a block is present and intact.
    pub fn has(&self, block: u64) -> bool {
        let whole = |store: &Store| matches!(store.read_block(block), Ok(Some(_)));
        whole(&self.store) || whole(&self.spare)
    }

    /// Whether a block is present according to the maps.
    pub fn lists(&self, block: u64) -> bool {
        let listed = |store: &Store| store.has_block(block).unwrap_or(false);
        listed(&self.store) || listed(&self.spare)
    }

    /// Marks a block as absent, so that it is fetched when next wanted.
    pub fn forget(&self, block: u64) {
        // If the disk refuses this, reads fail as well.
        let _ = self.store.forget_block(block);
        let _ = self.spare.forget_block(block);
    }

    /// Removes the image from the cache if none of it was cached when it was opened. If that fails,
    /// the image will eventually be pruned.
    pub fn discard(&self) {
        if let Some((directory, _)) = self.cache.as_ref().filter(|_| self.began_empty) {
            let _ = cache::discard(directory, self.store.map());
        }
    }

    /// Stores a block in the cache or, if the cache has no room, in the spare file. Returns a line
    /// for the log when a block cannot be kept, unless the previous one could not be kept either.
    pub fn put(&self, block: u64, bytes: &[u8]) -> Result<Option<String>, Failure> {
        // The first answer of a server delivers blocks even if they are already present.
        if self.is_shared && self.has(block) {
            return Ok(None);
        }
        let Err(error) = self.put_in_store(block, bytes) else {
            if self.is_kept() {
                self.not_kept.take();
            }
            return Ok(None);
        };
        let cannot = |error| Failure::new(format!("no space for a block: {error}"));
        self.put_in_spare(block, bytes).map_err(cannot)?;
        let before = self.not_kept.replace(Some(error.to_string()));
        Ok(before.is_none().then(|| format!("{NOT_KEPT} now: {error}")))
    }

    fn put_in_store(&self, block: u64, bytes: &[u8]) -> io::Result<()> {
        if self.is_shared {
            return Err(io::Error::other("the image is damaged in the shared cache"));
        }
        self.grown.set(self.grown.get() + bytes.len() as u64);
        if self.grown.get() > GROWTH {
            self.prune();
        }
        loop {
            let written = self.store.write_block(block, bytes);
            let full = written.as_ref().is_err_and(is_full);
            match &self.cache {
                Some((directory, _)) if full && cache::shrink(directory)? => {}
                _ => return written,
            }
        }
    }

    fn put_in_spare(&self, block: u64, bytes: &[u8]) -> io::Result<()> {
        let mut spared = self.spared.borrow_mut();
        spared.retain(|&other| other != block);
        while spared.len() >= SPARE
            && let Some(oldest) = spared.pop_front()
        {
            self.spare.remove_block(oldest)?;
        }
        self.spare.write_block(block, bytes)?;
        spared.push_back(block);
        Ok(())
    }

    fn prune(&self) {
        self.grown.set(0);
        if let Some((directory, size)) = &self.cache {
            // A later call retries what cannot be removed now.
            let _ = cache::prune(directory, *size);
            answers::prune(directory);
        }
    }
}

/// With `share`, opens the image in the shared cache to fill it. Without it, opens the image
/// read-only in the shared cache if it is complete there, and otherwise in the private cache.
fn from_cache(source: &ImageUrl, options: &Options, identity: &Identity) -> io::Result<Store> {
    let shared = match options.share {
        true => None,
        false => shared_cache::open(source, options, identity),
    };
    shared.map_or_else(|| home::open(source, options, identity), Ok)
}

fn is_read_only(file: impl AsFd) -> bool {
    let flags = fcntl_getfl(file);
    flags.is_ok_and(|flags| flags & OFlags::ACCMODE == OFlags::RDONLY)
}

/// Files in memory are also subject to the file size limit of the process. Without this check,
/// reads would fail one by one.
fn check_limit(length: u64) -> Result<(), Failure> {
    let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
    ensure!(
        length <= limit,
        "the image has {length} bytes, but the file size limit is {limit} (ulimit -f)"
    );
    Ok(())
}

fn is_full(error: &io::Error) -> bool {
    [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded].contains(&error.kind())
}

fn no_space(error: io::Error) -> Failure {
    Failure::lasting(format!("no space for the image: {error}"))
}

fn in_memory(length: u64) -> io::Result<Store> {
    let file = || memfd_create("erofast-fetch", MemfdFlags::CLOEXEC);
    Ok(Store::new(file()?, file()?, length))
}

/// Creates a file on disk if possible, since the image may be larger than memory.
fn temporary(length: u64) -> io::Result<Store> {
    let flags = OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC;
    let file = || openat(CWD, "/var/tmp", flags, Mode::RUSR | Mode::WUSR);
    match (file(), file()) {
        (Ok(data), Ok(map)) => Ok(Store::new(data, map, length)),
        _ => in_memory(length),
    }
}
