//! Images in the cache that are made from tar layers, by the digest of the archive (its diff ID).
//!
//! The entry of such an image has the same files as any other, but all blocks are present from the
//! beginning. The image is made in a directory within the entry by the holder of a lock, and the
//! record is written last, so an image that exists is complete. The remains of a maker that was
//! killed have no record, and are removed by the next maker or when the cache is pruned.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FlockOperation, Mode, OFlags, fchmod, fchown, flock, openat};
use rustix::io::Errno;
use rustix::process::{getegid, geteuid};

use crate::cache::{self, Folder, LOCK, Record};
use crate::message::Identity;
use crate::store::Store;
use crate::{ImageUrl, Options, home, shared_cache};

/// The directory in which an image is made.
const WORK: &str = "new";
/// The name of the image in that directory.
pub const IMAGE: &str = "image";
/// The name of the map in that directory, before it is renamed to `map`.
const NEW_MAP: &str = "map.new";

/// The identity of a layer with this diff ID, whose length is not known yet.
fn identity(diff_id: &str) -> Identity {
    Identity {
        diff_id: Some(diff_id.to_owned()),
        ..Identity::default()
    }
}

/// The image of a layer if it exists, marked as used now.
pub fn find(source: &ImageUrl, options: &Options, diff_id: &str) -> Option<(Identity, Store)> {
    let identity = identity(diff_id);
    let shared = shared_cache::open(source, options, &identity);
    let own = || {
        let store = cache::find(source, options, &identity)?;
        Some(store).filter(|store| store.is_whole() && store.is_verified())
    };
    let is_own = shared.is_none();
    let store = shared.or_else(|| own().filter(|_| !options.share))?;
    let identity = Identity {
        length: store.length(),
        ..identity
    };
    if is_own {
        let record = Record::new(source, options, &identity);
        let path = cache::directory(options)?.join(record.directory());
        // On failure, only the time of last use is lost.
        let _ = Folder::open(&path).and_then(|folder| record.settle(&folder));
    }
    Some((identity, store))
}

/// Whether the image of the layer existed but had damaged blocks.
pub fn is_damaged(source: &ImageUrl, options: &Options, diff_id: &str) -> bool {
    let store = cache::find(source, options, &identity(diff_id));
    !options.share && store.is_some_and(|store| !store.is_whole() || !store.is_verified())
}

/// An image that is being made. Dropping this value removes an unfinished image.
#[derive(Debug)]
pub struct Making {
    path: PathBuf,
    folder: Folder,
    record: Record,
    shared: bool,
    done: bool,
    _lock: File,
}

/// Who makes the image of a layer.
#[derive(Debug)]
pub enum Begun {
    /// Nobody: it exists already.
    There(Store),
    /// Another process.
    Elsewhere,
    /// The caller.
    Here(Box<Making>),
}

/// Begins to make the image of a layer.
pub fn begin(source: &ImageUrl, options: &Options, diff_id: &str) -> io::Result<Begun> {
    home::in_home(options, |root| begin_in(root, source, options, diff_id))
}

fn begin_in(root: &Path, source: &ImageUrl, options: &Options, diff_id: &str) -> io::Result<Begun> {
    let record = Record::new(source, options, &identity(diff_id));
    let (path, shared) = (root.join(record.directory()), options.share);
    let folder = home::folder(root, &record.directory(), shared)?;
    // The mode of the lock file prevents other users from locking it.
    let lock = folder.file(LOCK, OFlags::RDWR | OFlags::CREATE)?;
    match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(Errno::WOULDBLOCK) => return Ok(Begun::Elsewhere),
        locked => locked?,
    }
    // The previous holder of the lock has removed the file.
    if lock.metadata()?.nlink() == 0 {
        return Ok(Begun::Elsewhere);
    }
    if let Some((_, store)) = find(source, options, diff_id) {
        return Ok(Begun::There(store));
    }
    folder.remove_record()?;
    let making = Making {
        folder: folder.readable_if(shared),
        path,
        record,
        shared,
        done: false,
        _lock: lock,
    };
    remove_directory(&making.work())?;
    cache::make_one(&making.work(), 0o700)?;
    Ok(Begun::Here(Box::new(making)))
}

fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

impl Making {
    /// The directory in which [`IMAGE`] must be made.
    pub fn work(&self) -> PathBuf {
        self.path.join(WORK)
    }

    /// Puts the finished image into the cache.
    pub fn finish(mut self) -> io::Result<(Identity, Store)> {
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let image = File::from(openat(CWD, self.work().join(IMAGE), flags, Mode::empty())?);
        let stat = image.metadata()?;
        if !stat.is_file() || stat.nlink() != 1 || stat.len() == 0 {
            return Err(io::Error::other("no image was written"));
        }
        // mkfs.erofs may have run as another user.
        fchown(&image, Some(geteuid()), Some(getegid()))?;
        fchmod(&image, self.folder.mode())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC;
        let map = self.folder.file(NEW_MAP, flags)?;
        if !self.shared {
            flock(&map, FlockOperation::LockShared)?;
        }
        let store = Store::new(image.into(), map.into(), stat.len());
        store.adopt()?;
        // The bytes must be on disk before the record exists, even if the power fails.
        store.data().sync_data()?;
        store.map().sync_data()?;
        fs::rename(self.work().join(IMAGE), self.path.join("data"))?;
        self.folder.rename(NEW_MAP, "map")?;
        remove_directory(&self.work())?;
        self.record.identity.length = store.length();
        self.record.clone().settle(&self.folder)?;
        self.done = true;
        Ok((self.record.identity.clone(), store))
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        if !self.done {
            // Whatever remains is removed by the next maker.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff_id() -> String {
        format!("sha256:{}", "0a".repeat(32))
    }

    fn place() -> (tempfile::TempDir, ImageUrl, Options) {
        let place = tempfile::tempdir().unwrap();
        let source = ImageUrl::parse("oci://host/a:v1").unwrap().unwrap();
        let options = Options {
            cache_dir: Some(place.path().join("own")),
            shared_dir: Some(place.path().join("shared")),
            ..Options::default()
        };
        (place, source, options)
    }

    fn begun(source: &ImageUrl, options: &Options) -> Making {
        match begin(source, options, &diff_id()).unwrap() {
            Begun::Here(making) => *making,
            other => panic!("{other:?}"),
        }
    }

    fn entries(options: &Options) -> usize {
        let folders = fs::read_dir(options.cache_dir.as_ref().unwrap());
        folders.map_or(0, Iterator::count)
    }

    #[test]
    fn an_image_is_there_once_it_is_finished_and_one_maker_makes_it() {
        let (_place, source, options) = place();
        let there = || find(&source, &options, &diff_id());
        let making = begun(&source, &options);
        assert!(there().is_none());
        let again = || begin(&source, &options, &diff_id()).unwrap();
        assert!(matches!(again(), Begun::Elsewhere));
        fs::write(making.work().join(IMAGE), [7; 20_000]).unwrap();
        cache::prune(options.cache_dir.as_ref().unwrap(), 0).unwrap();
        let (identity, store) = making.finish().unwrap();
        assert_eq!(identity.length, 20_000);
        assert_eq!(store.read_block(1).unwrap().unwrap(), [7; 20_000 - 16_384]);
        let (found, other) = there().unwrap();
        assert_eq!(found, identity);
        assert!(matches!(again(), Begun::There(_)));
        let listed = cache::list(options.cache_dir.as_ref().unwrap()).unwrap();
        assert_eq!(listed[0].record.identity.diff_id, Some(diff_id()));
        assert!(listed[0].busy);
        drop((store, other));
        // A block that was found damaged is gone: the image is made again.
        there().unwrap().1.forget_block(0).unwrap();
        assert!(there().is_none());
        assert!(matches!(again(), Begun::Here(_)));
        assert_eq!(entries(&options), 0, "the maker gave up");
    }

    #[test]
    fn what_a_killed_maker_leaves_goes_when_the_cache_is_pruned() {
        let (_place, source, options) = place();
        let making = begun(&source, &options);
        fs::write(making.work().join(IMAGE), "half").unwrap();
        let folder = options.cache_dir.as_ref().unwrap();
        let unfinished = || cache::prune(folder, u64::MAX).unwrap().unfinished;
        assert!(unfinished().is_empty(), "its maker is at work");
        assert_eq!(entries(&options), 1);
        // The killed process only loses its lock; its files remain.
        let Making { path, _lock, .. } = &making;
        flock(_lock, FlockOperation::Unlock).unwrap();
        assert!(path.exists());
        assert_eq!(unfinished(), std::slice::from_ref(path));
        assert_eq!(entries(&options), 0);
    }

    #[test]
    fn what_is_shared_is_for_all_to_read() {
        let (_place, source, options) = place();
        let share = Options {
            share: true,
            ..options.clone()
        };
        let making = begun(&source, &share);
        fs::write(making.work().join(IMAGE), [7; 5]).unwrap();
        making.finish().unwrap();
        let (_, store) = find(&source, &options, &diff_id()).unwrap();
        assert!(
            store.write_block(0, &[7; 5]).is_err(),
            "readers never write"
        );
        let listed = shared_cache::list(options.shared_dir.as_ref().unwrap()).unwrap();
        let mode = |name: &str| listed[0].path.join(name).metadata().unwrap().mode() & 0o777;
        assert_eq!(
            (mode("data"), mode("map"), mode(LOCK)),
            (0o644, 0o644, 0o600)
        );
    }
}
