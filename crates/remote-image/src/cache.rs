//! The cache directory: one directory for each image.
//!
//! An image's directory is named by a hash of its key. Its files are `data` and `map`, the two
//! files of a [`Store`]; `image.json`, which says what they contain; and `launches`, the launch
//! profile that came with the image. The modification time of `image.json` is the time of the
//! image's last use. Fetchers of an image hold a shared lock on `map`. The cache directory may
//! belong to another user, so its contents are not trusted, and symlinks in it are not followed.

use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{
    AtFlags, CWD, FlockOperation, Mode, OFlags, Stat, fchmod, flock, fstat, openat, renameat,
    unlinkat,
};
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use crate::message::{Identity, PACKET};
use crate::store::{BLOCK, Store};
use crate::{ImageUrl, Options, last_use};

/// The error if [`default_directory`] finds none.
pub const NO_DIRECTORY: &str = "HOME is not set and no cache directory was given";

/// The parent directory of root's caches.
const SYSTEM_CACHES: &str = "/var/cache";

/// The file that says which image this is; its size is limited to that of the packet in which its
/// parts arrived.
const RECORD: &str = "image.json";

/// A file in the directory of an image that is being [made](crate::converted): its maker holds a
/// lock on this file.
pub(crate) const LOCK: &str = "lock";

/// The version of the recipe for making images from tar layers. Images made by another recipe count
/// as different images.
const RECIPE: u32 = 1;

/// `$XDG_CACHE_HOME/erofast`; otherwise `/var/cache/erofast` for root, and `~/.cache/erofast` for
/// other users.
pub fn default_directory() -> Option<PathBuf> {
    let set = |name| {
        let value = std::env::var_os(name)?;
        (!value.is_empty()).then(|| PathBuf::from(value))
    };
    let root = rustix::process::geteuid().is_root();
    let caches = set("XDG_CACHE_HOME").or_else(|| match root {
        true => Some(SYSTEM_CACHES.into()),
        false => Some(set("HOME")?.join(".cache")),
    });
    Some(caches?.join("erofast"))
}

/// Creates a directory that only its owner may enter, and any missing parents, as the XDG base
/// directory specification says. The system's own cache directory is open to all users.
pub fn make_directory(path: &Path) -> io::Result<()> {
    if path.starts_with(SYSTEM_CACHES) {
        make_with_parents(Path::new(SYSTEM_CACHES), 0o755)?;
    }
    make_with_parents(path, 0o700)
}

fn make_with_parents(path: &Path, mode: u32) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => make_with_parents(parent, mode)?,
        _ => {}
    }
    match make_one(path, mode) {
        Err(_) if path.is_dir() => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            Err(rustix::io::Errno::NOTDIR.into())
        }
        made => made,
    }
}

/// Creates a directory with this mode, even if the umask would keep its owner out.
pub(crate) fn make_one(path: &Path, mode: u32) -> io::Result<()> {
    fs::DirBuilder::new().mode(mode).create(path)?;
    // The mode may forbid opening the directory without `O_PATH`, and fchmod(2) does not accept a
    // descriptor opened with it.
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(CWD, path, flags, Mode::empty())?;
    let stat = fstat(&made)?;
    let is_own = stat.st_uid == rustix::process::geteuid().as_raw();
    if is_own && stat.st_mode & mode != mode {
        let by_descriptor = format!("/proc/self/fd/{}", made.as_raw_fd());
        fs::set_permissions(by_descriptor, Permissions::from_mode(stat.st_mode | mode))?;
    }
    Ok(())
}

/// The contents of a cache entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The URL from which the image was first fetched, without its query.
    pub url: String,
    /// Other URLs with the same bytes, as many as there is room for.
    #[serde(default)]
    pub other_urls: Vec<String>,
    /// Identifies the bytes at the URL.
    pub identity: Identity,
    /// The root hash, if one was given. It identifies the image unless there is a digest.
    pub root_hash: Option<String>,
    /// A second hash of the key.
    key: u64,
    /// The first hash, which is the directory's name.
    #[serde(skip)]
    place: u64,
}

/// An image in the cache.
#[derive(Debug)]
pub struct Entry {
    /// The image's directory.
    pub path: PathBuf,
    /// The record in the directory.
    pub record: Record,
    /// Bytes on disk.
    pub allocated: u64,
    /// When the image was last used.
    pub used: SystemTime,
    /// Whether a fetcher is using the image now.
    pub busy: bool,
    /// Whether the image is in the [shared cache](crate::shared_cache), whose readers hold no lock.
    pub shared: bool,
}

/// The user's cache directory: the one that the options name, or otherwise the default one.
pub fn directory(options: &Options) -> Option<PathBuf> {
    options.cache_dir.clone().or_else(default_directory)
}

/// The files of an image that is at least partly present.
pub fn find(source: &ImageUrl, options: &Options, identity: &Identity) -> Option<Store> {
    let record = Record::new(source, options, identity);
    let folder = Folder::open(&directory(options)?.join(record.directory())).ok()?;
    folder.check_owner().ok()?;
    let store = folder.store_of(&record, OFlags::RDWR)?;
    flock(store.map(), FlockOperation::LockShared).ok()?;
    Some(store)
}

/// The key, which is the same for two images if they have the same bytes, in blocks of the same
/// size.
fn key(source: &ImageUrl, options: &Options, identity: &Identity) -> String {
    let Identity {
        length,
        etag,
        modified,
        digest,
        diff_id,
    } = identity;
    if let Some(diff_id) = diff_id {
        return format!("{BLOCK} tar {RECIPE} {diff_id}");
    }
    match digest.as_ref().or(options.root_hash.as_ref()) {
        Some(hash) => format!("{BLOCK} {length} {hash}"),
        None => format!("{BLOCK} {length} {} {etag:?} {modified:?}", source.url()),
    }
}

/// A directory. Only regular files in it are opened, and no symlinks are followed.
#[derive(Debug)]
pub(crate) struct Folder {
    descriptor: OwnedFd,
    path: PathBuf,
    /// The mode of files that are created in the directory.
    mode: Mode,
}

impl Folder {
    pub(crate) fn open(path: &Path) -> io::Result<Folder> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Folder {
            descriptor: openat(CWD, path, flags, Mode::empty())?,
            path: path.to_owned(),
            mode: Mode::RUSR | Mode::WUSR,
        })
    }

    /// If `shared`, makes files that are created in the directory readable by all users.
    pub(crate) fn readable_if(mut self, shared: bool) -> Folder {
        if shared {
            self.mode |= Mode::RGRP | Mode::ROTH;
        }
        self
    }

    pub(crate) fn stat(&self) -> io::Result<Stat> {
        Ok(fstat(&self.descriptor)?)
    }

    /// Opens the files of an image, creating missing ones, and marks them as used now. Unless the
    /// cache is `shared`, the map is locked before anything is written.
    pub(crate) fn writable_store(self, record: &Record, shared: bool) -> io::Result<Store> {
        let folder = self.readable_if(shared);
        let made = OFlags::RDWR | OFlags::CREATE;
        let (data, map) = (folder.file("data", made)?, folder.file("map", made)?);
        if !shared {
            flock(&map, FlockOperation::LockShared)?;
        }
        let length = record.identity.length;
        record.clone().settle(&folder)?;
        if data.metadata()?.len() != length {
            data.set_len(length)?;
        }
        Ok(Store::new(data.into(), map.into(), length))
    }

    /// The files of an image, if the directory has the image that the record describes.
    pub(crate) fn store_of(&self, record: &Record, flags: OFlags) -> Option<Store> {
        let there = Record::read(self).filter(|there| there.is_of(record))?;
        let file = |name| Some(self.file(name, flags).ok()?.into());
        Some(Store::new(
            file("data")?,
            file("map")?,
            there.identity.length,
        ))
    }

    /// Replaces a file in one step.
    pub(crate) fn replace(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        let new = format!("{name}.{}", std::process::id());
        let made = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC;
        self.file(&new, made)?.write_all(bytes)?;
        self.rename(&new, name)
    }

    /// Renames a file within the directory.
    pub(crate) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let descriptor = &self.descriptor;
        Ok(renameat(descriptor, from, descriptor, to)?)
    }

    /// Removes the record; without it, the directory does not count as an image.
    pub(crate) fn remove_record(&self) -> io::Result<()> {
        match unlinkat(&self.descriptor, RECORD, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) | Ok(()) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The mode of files that are created in the directory.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Refuses another user's directory: its owner can choose the bytes in it, and the checksums
    /// are not signatures.
    pub(crate) fn check_owner(&self) -> io::Result<()> {
        match self.stat()?.st_uid {
            owner if owner == rustix::process::geteuid().as_raw() => Ok(()),
            owner => Err(io::Error::other(format!(
                "the image's directory belongs to user {owner}"
            ))),
        }
    }

    pub(crate) fn file(&self, name: &str, flags: OFlags) -> io::Result<File> {
        let made = flags.contains(OFlags::CREATE);
        // A FIFO is opened without waiting, and then refused.
        let flags = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(openat(&self.descriptor, name, flags, self.mode)?);
        let metadata = file.metadata()?;
        if !metadata.is_file() {
            return Err(io::Error::other(format!("{name} is not a regular file")));
        }
        if made && !Mode::from_raw_mode(metadata.mode()).contains(self.mode) {
            // The mode must not depend on the umask.
            fchmod(&file, self.mode)?;
        }
        Ok(file)
    }
}

impl Record {
    pub(crate) fn new(source: &ImageUrl, options: &Options, identity: &Identity) -> Record {
        let key = key(source, options, identity);
        Record {
            url: source.to_string(),
            other_urls: Vec::new(),
            identity: identity.clone(),
            root_hash: options.root_hash.clone(),
            key: XxHash3_64::oneshot_with_seed(1, key.as_bytes()),
            place: XxHash3_64::oneshot(key.as_bytes()),
        }
    }

    /// The name of the image's directory.
    pub(crate) fn directory(&self) -> String {
        format!("{:016x}", self.place)
    }

    /// Whether both records describe the same image.
    pub(crate) fn is_of(&self, other: &Record) -> bool {
        self.key == other.key
    }

    /// Writes the record, or accepts the existing one, which may differ only in the URL.
    pub(crate) fn settle(mut self, folder: &Folder) -> io::Result<()> {
        if let Some(mut there) = Record::read(folder) {
            if !there.is_of(&self) {
                return Err(io::Error::other(format!(
                    "{} holds a different image",
                    folder.path.display()
                )));
            }
            let is_known = there.has(&self.url);
            there.other_urls.push(self.url);
            if is_known || serde_json::to_vec(&there)?.len() > PACKET {
                let record = folder.file(RECORD, OFlags::RDONLY)?;
                return record.set_modified(SystemTime::now());
            }
            self = there;
        }
        folder.replace(RECORD, &serde_json::to_vec(&self)?)
    }

    /// All URLs from which the image was fetched, without their queries.
    pub fn urls(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.url).chain(&self.other_urls)
    }

    /// Whether the image was fetched from this URL, which has no query.
    pub(crate) fn has(&self, url: &str) -> bool {
        self.urls().any(|known| known == url)
    }

    pub(crate) fn read(folder: &Folder) -> Option<Record> {
        let file = folder.file(RECORD, OFlags::RDONLY).ok()?;
        let mut text = Vec::new();
        file.take(PACKET as u64).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// All images of a cache, least recently used first. Anything that is not an image is left out.
pub fn list(directory: &Path) -> io::Result<Vec<Entry>> {
    list_kind(directory, false)
}

pub(crate) fn list_kind(directory: &Path, shared: bool) -> io::Result<Vec<Entry>> {
    let folders = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        folders => folders?,
    };
    let entries = folders.filter_map(|folder| Entry::read(folder.ok()?.path(), shared));
    let entries = entries.map(|entry| (entry.used, entry)).collect();
    let entries = last_use::sorted(entries, SystemTime::now(), |entry: &Entry| {
        Folder::open(&entry.path)?.file(RECORD, OFlags::RDONLY)
    });
    let settled = |(used, entry)| Entry { used, ..entry };
    Ok(entries.into_iter().map(settled).collect())
}

/// Removes unused images, least recently used first, until the cache has at most `size` bytes.
pub fn prune(directory: &Path, size: u64) -> io::Result<Pruned> {
    Ok(Pruned {
        images: prune_entries(list(directory)?, size)?,
        unfinished: remove_leftovers(directory)?,
    })
}

/// What was removed from a cache.
#[derive(Debug)]
pub struct Pruned {
    /// The images.
    pub images: Vec<Entry>,
    /// Directories of images whose makers were killed.
    pub unfinished: Vec<PathBuf>,
}

/// Removes the remains of makers that were killed. Returns their directories.
pub(crate) fn remove_leftovers(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut removed = Vec::new();
    let Ok(folders) = fs::read_dir(directory) else {
        return Ok(removed);
    };
    for path in folders.filter_map(|folder| Some(folder.ok()?.path())) {
        if is_left_over(&path).unwrap_or(false) {
            fs::remove_dir_all(&path)?;
            removed.push(path);
        }
    }
    Ok(removed)
}

/// Whether this directory has an unfinished image that nobody is making any more.
fn is_left_over(path: &Path) -> io::Result<bool> {
    let folder = Folder::open(path)?;
    let lock = folder.file(LOCK, OFlags::RDONLY)?;
    folder.check_owner()?;
    let is_free = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    Ok(is_free && Record::read(&folder).is_none())
}

pub(crate) fn prune_entries(entries: Vec<Entry>, size: u64) -> io::Result<Vec<Entry>> {
    let mut total: u64 = entries.iter().map(|entry| entry.allocated).sum();
    let mut removed = Vec::new();
    for entry in entries {
        if total > size && entry.remove()? {
            total -= entry.allocated;
            removed.push(entry);
        }
    }
    Ok(removed)
}

/// Removes the least recently used image that nobody is using; false if there is none.
pub fn shrink(directory: &Path) -> io::Result<bool> {
    for entry in list(directory)? {
        if entry.remove()? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes the image with this map, which the caller has open and locked, unless others are using
/// it.
pub fn discard(directory: &Path, map: &File) -> io::Result<()> {
    flock(map, FlockOperation::NonBlockingLockExclusive)?;
    let file = |map: &File| map.metadata().map(|file| (file.dev(), file.ino()));
    let known = file(map)?;
    for entry in list(directory)? {
        if file(entry.store()?.map())? == known {
            fs::remove_dir_all(&entry.path)?;
        }
    }
    Ok(())
}

impl Entry {
    fn read(path: PathBuf, shared: bool) -> Option<Entry> {
        let folder = Folder::open(&path).ok()?;
        let record = Record::read(&folder)?;
        let file = |name| folder.file(name, OFlags::RDONLY).ok();
        let (data, map) = (file("data")?, file("map")?);
        let blocks = map.metadata().ok()?.blocks() + data.metadata().ok()?.blocks();
        let used = file(RECORD)?.metadata().ok()?.modified().ok()?;
        let lock = || flock(&map, FlockOperation::NonBlockingLockExclusive);
        let busy = !shared && lock().is_err();
        Some(Entry {
            path,
            record,
            allocated: blocks * 512,
            used,
            busy,
            shared,
        })
    }

    /// Opens the store, to see which blocks are present.
    pub fn store(&self) -> io::Result<Store> {
        let folder = Folder::open(&self.path)?;
        let open = |name| folder.file(name, OFlags::RDONLY);
        Ok(Store::new(
            open("data")?.into(),
            open("map")?.into(),
            self.record.identity.length,
        ))
    }

    /// Removes the image; returns false if it is in use.
    fn remove(&self) -> io::Result<bool> {
        let map = Folder::open(&self.path)?.file("map", OFlags::RDONLY)?;
        let lock = || flock(&map, FlockOperation::NonBlockingLockExclusive);
        if !self.shared && lock().is_err() {
            return Ok(false);
        }
        fs::remove_dir_all(&self.path)?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::home::open;

    fn options(directory: &Path) -> Options {
        Options {
            cache_dir: Some(directory.to_owned()),
            ..Options::default()
        }
    }

    fn identity(etag: &str) -> Identity {
        Identity {
            length: 10 * BLOCK,
            etag: Some(etag.into()),
            ..Identity::default()
        }
    }

    fn fill(directory: &Path, url: &str, etag: &str) -> Store {
        let source = ImageUrl::parse(url).unwrap().unwrap();
        let store = open(&source, &options(directory), &identity(etag)).unwrap();
        store.write_block(3, &[7; BLOCK as usize]).unwrap();
        store
    }

    /// The umask belongs to the whole process, so the test sets it in a process of its own.
    #[test]
    fn directories_are_open_to_their_owner_whatever_the_umask() {
        const PLACE: &str = "EROFAST_TEST_UMASK";
        const SCRIPT: &str = "umask 0777; exec \"$0\" --exact \"$1\"";
        let name = "cache::tests::directories_are_open_to_their_owner_whatever_the_umask";
        if let Some(place) = std::env::var_os(PLACE) {
            return make_directory(&Path::new(&place).join("a/b")).unwrap();
        }
        let place = tempfile::tempdir().unwrap();
        let mut other = std::process::Command::new("sh");
        other
            .args(["-c", SCRIPT])
            .arg(std::env::current_exe().unwrap());
        let output = other.arg(name).env(PLACE, place.path()).output().unwrap();
        for made in ["a", "a/b"] {
            let mode = place
                .path()
                .join(made)
                .metadata()
                .map(|found| found.mode() & 0o777);
            assert_eq!(mode.ok(), Some(0o700), "{made}: {output:?}");
        }
    }

    /// A cache with one image; returns its source and its entry.
    fn with_an_entry() -> (tempfile::TempDir, ImageUrl, PathBuf) {
        let place = tempfile::tempdir().unwrap();
        let source = ImageUrl::parse("http://host/a").unwrap().unwrap();
        drop(fill(place.path(), "http://host/a", "1"));
        let entry = list(place.path()).unwrap().remove(0).path;
        (place, source, entry)
    }

    #[test]
    fn an_entry_is_found_by_url_and_validator_or_by_root_hash() {
        let place = tempfile::tempdir().unwrap();
        let source = ImageUrl::parse("http://host/a?b").unwrap().unwrap();
        drop(fill(place.path(), "http://host/a?b", "1"));
        let there = |options: &Options, etag: &str| {
            let store = open(&source, options, &identity(etag)).unwrap();
            store.read_block(3).unwrap().is_some()
        };
        let plain = options(place.path());
        assert!(there(&plain, "1") && !there(&plain, "2"));
        let verified = Options {
            root_hash: Some("ab".into()),
            ..plain
        };
        assert!(!there(&verified, "1"));
        open(&source, &verified, &identity("1"))
            .unwrap()
            .write_block(3, &[1; BLOCK as usize])
            .unwrap();
        assert!(there(&verified, "3"));
        let other = ImageUrl::parse("http://other/a?b").unwrap().unwrap();
        for long in [
            "",
            &"c".repeat(6000),
            &"d".repeat(6000),
            &"e".repeat(6000),
            "",
        ] {
            let other = other.beside(long);
            let store = open(&other, &verified, &identity("4")).unwrap();
            assert!(store.read_block(3).unwrap().is_some());
        }
        let entries = list(place.path()).unwrap();
        assert_eq!(entries.len(), 3);
        let others = entries.iter().map(|entry| entry.record.other_urls.len());
        assert_eq!(others.sum::<usize>(), 3);
        assert!(
            entries
                .iter()
                .all(|entry| entry.record.url == "http://host/a" && !entry.busy)
        );
    }

    /// Another user may put links and pipes into an image's directory.
    #[test]
    fn links_and_pipes_are_refused_and_nothing_is_written_through_them() {
        use rustix::fs::{FileType, mknodat};
        use std::os::unix::fs::symlink;
        let (place, source, entry) = with_an_entry();
        let victim = place.path().join("victim");
        let refused = |why: &str| {
            let opened = open(&source, &options(place.path()), &identity("1"));
            let error = opened.unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        };
        for name in ["data", "map"] {
            fs::remove_file(entry.join(name)).unwrap();
            fs::write(&victim, "mine").unwrap();
            symlink(&victim, entry.join(name)).unwrap();
            refused("symbolic links");
            assert_eq!(fs::read(&victim).unwrap(), b"mine");
            assert!(list(place.path()).unwrap().is_empty());
            fs::remove_file(entry.join(name)).unwrap();
            let pipe = (FileType::Fifo, Mode::RUSR | Mode::WUSR);
            mknodat(CWD, entry.join(name), pipe.0, pipe.1, 0).unwrap();
            refused("is not a regular file");
            assert!(list(place.path()).unwrap().is_empty());
            fs::remove_file(entry.join(name)).unwrap();
        }
        fs::remove_file(&victim).unwrap();
        fs::rename(&entry, &victim).unwrap();
        symlink(&victim, &entry).unwrap();
        refused("Not a directory");
    }

    /// This runs only as root: other users cannot change an owner.
    #[test]
    fn the_directory_of_another_user_is_no_cache() {
        let (place, source, entry) = with_an_entry();
        if std::os::unix::fs::chown(&entry, Some(65534), None).is_err() {
            println!("skipped: no right to change an owner");
            return;
        }
        let opened = open(&source, &options(place.path()), &identity("1"));
        let line = opened.unwrap_err().to_string();
        assert!(
            line.ends_with("the image's directory belongs to user 65534"),
            "{line}"
        );
        assert_eq!(list(place.path()).unwrap().len(), 1);
    }

    /// The clock was set back by a day after most of the images were used.
    #[test]
    fn a_clock_that_was_set_back_has_no_image_kept_that_was_not_used_since() {
        let place = tempfile::tempdir().unwrap();
        let tomorrow = SystemTime::now() + std::time::Duration::from_secs(86_400);
        for name in ["first", "second"] {
            drop(fill(place.path(), &format!("http://host/{name}"), "1"));
        }
        for entry in list(place.path()).unwrap() {
            let late = u64::from(entry.record.url.ends_with("second"));
            let time = tomorrow + std::time::Duration::from_secs(late);
            let record = File::open(entry.path.join(RECORD)).unwrap();
            record.set_modified(time).unwrap();
        }
        let urls = |entries: Vec<Entry>| -> Vec<String> {
            entries.into_iter().map(|entry| entry.record.url).collect()
        };
        let two = ["http://host/first", "http://host/second"];
        assert_eq!(urls(list(place.path()).unwrap()), two);
        drop(fill(place.path(), "http://host/now", "1"));
        let removed = prune(place.path(), 2 * (BLOCK + 4096)).unwrap();
        assert_eq!(urls(removed.images), two[..1]);
        let left = urls(list(place.path()).unwrap());
        assert_eq!(left, ["http://host/second", "http://host/now"]);
    }

    #[test]
    fn images_not_used_for_longest_go_first_and_those_in_use_stay() {
        let place = tempfile::tempdir().unwrap();
        drop(fill(place.path(), "http://host/old", "1"));
        let used = fill(place.path(), "http://host/used", "1");
        drop(fill(place.path(), "http://host/new", "1"));
        let left = || -> Vec<String> {
            let entries = list(place.path()).unwrap();
            entries.into_iter().map(|entry| entry.record.url).collect()
        };
        for (age, entry) in (1..).zip(list(place.path()).unwrap().iter()) {
            let name = entry.record.url.rsplit('/').next().unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(age);
            let time = if name == "new" {
                SystemTime::now()
            } else {
                time
            };
            File::open(entry.path.join("image.json"))
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        let removed = prune(place.path(), 2 * (BLOCK + 4096)).unwrap();
        assert_eq!(removed.images[0].record.url, "http://host/old");
        assert_eq!(left(), ["http://host/used", "http://host/new"]);
        prune(place.path(), 0).unwrap();
        assert_eq!(left(), ["http://host/used"]);
        assert!(!shrink(place.path()).unwrap());
        drop(used);
        assert!(shrink(place.path()).unwrap());
        assert!(left().is_empty());
    }
}
