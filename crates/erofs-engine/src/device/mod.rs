//! The files that make up an image.

pub(crate) mod locate;
mod root_hash_signature;
pub(crate) mod verified;
pub(crate) mod version;

use std::fs::File;
use std::io::{self, IoSliceMut, Seek, SeekFrom};
use std::ops::Range;
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use dm_verity::HashDevice;
use erofs_format::{Holder, Source};
use remote_image::{Class, Parts, RemoteFile};
use rustix::fs::{Advice, Mode, OFlags};
use rustix::io::{Errno, ReadWriteFlags};

use self::version::{Change, Version};
use crate::remote;
use crate::request::budget::Request;
use crate::request::missing::Missing;
use crate::{Error, Result};

/// Maximum number of times that a read may be interrupted. Threads that read either block signals
/// or exit after receiving a few, but the underlying filesystem could return EINTR forever.
const INTERRUPTED: u32 = 100;

/// A file or block device that holds an image, or one of its extra devices.
///
/// It is read with pread and never mapped: if a mapped file were truncated, the process would be
/// killed.
#[derive(Debug)]
pub(crate) struct Device {
    storage: Storage,
    path: PathBuf,
    /// First byte of the image in the file.
    base: u64,
    /// Bytes from `base` to the end of the file, at the time it was opened.
    pub(crate) size: u64,
    /// The file's version when it was opened.
    version: Option<Version>,
    /// Set at most once. The file's version when an earlier process opened it.
    first_version: OnceLock<Version>,
    /// Cleared if the underlying filesystem does not support RWF_NOWAIT.
    nowait: AtomicBool,
}

/// Where stored bytes are read from.
#[derive(Debug, Clone)]
enum Storage {
    Local(Arc<File>),
    Remote(Arc<RemoteFile>),
}

/// Opens a file for reading.
pub type OpenFile<'o> = &'o dyn Fn(&Path) -> io::Result<File>;

/// Opens a file for reading, without waiting for a FIFO's writer.
pub fn open_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
}

/// Reads at most `limit` bytes of a regular file. Other kinds of files could block.
pub(crate) fn read_small_file(path: &Path, limit: u64, open: OpenFile<'_>) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    if !file.metadata()?.is_file() {
        let what = "not a regular file";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    let mut bytes = vec![0; file.metadata()?.len().min(limit) as usize];
    // Successive servers share the file's position, so this read does not use it.
    FileExt::read_exact_at(&file, &mut bytes, 0)?;
    Ok(bytes)
}

impl Device {
    /// The same file, starting at `base`.
    pub(crate) fn with_base(&self, base: u64) -> io::Result<Self> {
        let end = self.base.saturating_add(self.size);
        Ok(Self {
            first_version: self.first_version.clone(),
            ..Self::new(self.storage.clone(), &self.path, base, end)?
        })
    }

    fn new(storage: Storage, path: &Path, base: u64, end: u64) -> io::Result<Self> {
        if base > 0 && base >= end {
            let what = format!("offset {base} is past the end of the file (byte {end})");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let version = match &storage {
            Storage::Local(file) => Version::of(file),
            Storage::Remote(_) => None,
        };
        Ok(Self {
            storage,
            path: path.to_path_buf(),
            base,
            size: end.saturating_sub(base),
            version,
            first_version: OnceLock::new(),
            nowait: AtomicBool::new(true),
        })
    }

    /// The remote file, if the device is at a URL.
    pub(crate) fn remote(&self) -> Option<&Arc<RemoteFile>> {
        match &self.storage {
            Storage::Local(_) => None,
            Storage::Remote(file) => Some(file),
        }
    }

    /// One line with the file's name and the reason, if the file is at a URL and nothing of it is
    /// kept in the cache.
    pub(crate) fn not_kept(&self) -> Option<String> {
        let (name, why) = (self.name(), self.remote()?.not_kept()?);
        Some(format!("{name}: nothing is kept in the cache: {why}"))
    }

    /// One line with the file's name and the reason, if the file is at a URL and is used from the
    /// cache because its server did not answer.
    pub(crate) fn offline(&self) -> Option<String> {
        let why = self.remote()?.offline()?;
        Some(format!("{}: {why}", self.name()))
    }

    /// URLs of the layers below this one, from top to bottom, as listed by the image's manifest in
    /// a registry.
    pub(crate) fn layers(&self) -> Vec<PathBuf> {
        let layers = self.remote().map_or(&[][..], |file| file.layers());
        layers.iter().map(|layer| layer.url().into()).collect()
    }

    /// Whether the device is the image that a registry's tag or digest names, and not one of its
    /// layers.
    pub(crate) fn is_image_of_registry(&self) -> bool {
        remote::is_image_of_registry(&self.path)
    }

    /// From now on, [`change`](Self::change) compares the file with the version that an earlier
    /// process opened.
    pub(crate) fn was_opened_as(&self, versions: &dyn Fn(&Path) -> Option<Version>) {
        if let Some(version) = versions(&self.path) {
            let _ = self.first_version.set(version);
        }
    }

    /// How the file differs from its state when it was opened, as far as the system knows.
    pub(crate) fn change(&self) -> Option<Change> {
        let Storage::Local(file) = &self.storage else {
            return None;
        };
        let then = self.first_version.get().copied().or(self.version)?;
        then.change(Version::of(file)?, &self.name())
    }

    /// URLs of the extra devices that the image's manifest in a registry lists.
    pub(crate) fn extra_devices(&self) -> Vec<PathBuf> {
        let devices = self.remote().map_or(&[][..], |file| file.devices());
        devices.iter().map(|device| device.url().into()).collect()
    }

    /// The name of the file in messages.
    pub(crate) fn name(&self) -> String {
        remote::shown(&self.path)
    }

    /// Starts fetching these bytes, in this order and without waiting, if the file is at a URL.
    /// Only a hint.
    pub(crate) fn prefetch(&self, ranges: &[Range<u64>], class: Class) {
        if let Some(file) = self.remote() {
            let ranges: Vec<_> = ranges.iter().map(|range| self.in_file(range)).collect();
            let _ = file.prefetch(&ranges, class);
        }
    }

    /// A range of the image, as a range of the file.
    fn in_file(&self, range: &Range<u64>) -> Range<u64> {
        self.base.saturating_add(range.start)..self.base.saturating_add(range.end)
    }

    /// Tells the fetcher that a reader will want more of these bytes, if the file is at a URL. Only
    /// a hint.
    pub(crate) fn relate(&self, range: &Range<u64>) {
        if let Some(file) = self.remote() {
            file.relate(&self.in_file(range));
        }
    }

    /// Tells the cache to drop the file, which is not an image. Has an effect only on a file at a
    /// URL. Only a hint.
    pub(crate) fn discard(&self) {
        let _ = self.remote().map(|file| file.discard());
    }

    /// Makes the cache drop bytes that do not match their hash, so that they are fetched again, if
    /// the file is at a URL. Only a hint.
    pub(crate) fn forget(&self, request: &Request<'_>, offset: u64, length: u64) {
        if let Some(file) = self.remote() {
            let forgotten = file.forget(&self.in_file(&(offset..offset.saturating_add(length))));
            let _ = forgotten.map(|forgotten| request.waits().then(|| forgotten.wait()));
        }
    }

    /// Adds the ranges that are not cached to `missing`.
    pub(crate) fn add_missing(&self, ranges: &[Range<u64>], missing: &mut Missing) {
        let Some(file) = self.remote() else { return };
        let ranges = ranges.iter().map(|range| self.in_file(range));
        let lacking = ranges.filter(|range| !file.is_cached(range));
        lacking.for_each(|range| missing.add(file, range));
    }

    /// Opens the file at `path`; errors name the path.
    pub(crate) fn open_named(path: &Path, base: u64, open: OpenFile<'_>) -> Result<Arc<Self>> {
        open(path)
            .and_then(|file| Self::from_file(file, path, base))
            .map(Arc::new)
            .map_err(|source| Error::open(path, source))
    }

    /// Uses a file that is already open; `path` is its name in messages.
    pub(crate) fn from_file(mut file: File, path: &Path, base: u64) -> io::Result<Self> {
        let kind = file.metadata()?.file_type();
        if kind.is_socket() {
            let file = RemoteFile::new(Parts::from_descriptor(file.into())?);
            let end = file.length();
            return Self::new(Storage::Remote(Arc::new(file)), path, base, end);
        }
        if kind.is_dir() {
            return Err(io::ErrorKind::IsADirectory.into());
        }
        if !kind.is_file() && !kind.is_block_device() {
            let what = "neither a regular file nor a block device";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        // The length of a block device is found by seeking to its end; its inode does not record
        // it.
        let position = file.stream_position()?;
        let end = file.seek(SeekFrom::End(0))?;
        // The caller may use the position of a file that it opened, so restore it.
        file.seek(SeekFrom::Start(position))?;
        Self::new(Storage::Local(Arc::new(file)), path, base, end)
    }

    /// Fills `buf` from `offset`. If the bytes are not cached, the kernel is advised of the whole
    /// range before this thread starts to wait for the first of them.
    pub(crate) fn fetch(
        &self,
        request: &Request<'_>,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<()> {
        let Storage::Local(file) = &self.storage else {
            return self.read(request, buf, offset);
        };
        let done = self.read_cached(file, buf, offset);
        if done == buf.len() {
            return Ok(());
        }
        let offset = offset + done as u64;
        let ahead = std::num::NonZeroU64::new((buf.len() - done) as u64);
        // Only a hint: if the kernel refuses it, the read below still works.
        let _ = rustix::fs::fadvise(file, self.base + offset, ahead, Advice::WillNeed);
        self.read(request, &mut buf[done..], offset)
    }

    /// Refuses a read beyond byte `size`.
    pub(crate) fn check_range(&self, length: usize, offset: u64, size: u64) -> io::Result<()> {
        let end = offset.checked_add(length as u64);
        if end.is_some_and(|end| end <= size) {
            return Ok(());
        }
        let path = self.name();
        let what = format!("{path} ends at byte {size}, but {length} bytes at {offset} are needed");
        Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
    }

    /// Reads as much of `buf` as is available without waiting for the disk.
    fn read_cached(&self, file: &File, buf: &mut [u8], offset: u64) -> usize {
        let position = self.base.checked_add(offset);
        let Some(position) = position.filter(|_| self.nowait.load(Ordering::Relaxed)) else {
            return 0;
        };
        let mut slices = [IoSliceMut::new(buf)];
        match rustix::io::preadv2(file, &mut slices, position, ReadWriteFlags::NOWAIT) {
            Ok(done) => done,
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                self.nowait.store(false, Ordering::Relaxed);
                0
            }
            Err(_) => 0,
        }
    }

    /// Fills `buf` from `offset`.
    pub(crate) fn read(
        &self,
        request: &Request<'_>,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<()> {
        self.check_range(buf.len(), offset, self.size)?;
        match &self.storage {
            Storage::Local(file) => read_whole(self.base + offset, buf, &mut |buf, offset| {
                FileExt::read_at(&**file, buf, offset)
            }),
            Storage::Remote(file) => remote::read(request, file, buf, self.base + offset),
        }
    }
}

/// A device, read for one request.
#[derive(Debug)]
pub(crate) struct Bound<'a, D> {
    pub device: &'a D,
    pub request: &'a Request<'a>,
}

impl Source for Bound<'_, Device> {
    fn read(&self, _: Holder, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.device.read(self.request, buf, offset)
    }

    fn size(&self, of: Holder) -> Option<u64> {
        (of == Holder::Device(0)).then_some(self.device.size)
    }
}

impl HashDevice for Bound<'_, Device> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        self.device.read(self.request, buf, offset)
    }

    fn size(&self) -> u64 {
        self.device.size
    }
}

/// Fills `buf` from byte `offset` of a file by calling `read`. Fails if `read` returns no bytes:
/// the file may be on a filesystem that returns none forever.
fn read_whole(
    mut offset: u64,
    mut buf: &mut [u8],
    read: &mut dyn FnMut(&mut [u8], u64) -> io::Result<usize>,
) -> io::Result<()> {
    let mut interrupted = 0;
    while !buf.is_empty() {
        match read(buf, offset) {
            Ok(0) => {
                let what = "the file has been truncated since it was opened";
                return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what));
            }
            Ok(done) => {
                buf = &mut buf[done..];
                offset += done as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                interrupted += 1;
                if interrupted > INTERRUPTED {
                    let what = format!("interrupted {interrupted} times: {error}");
                    return Err(io::Error::other(what));
                }
            }
            // To the caller, WouldBlock would mean that the bytes have yet to arrive from a
            // network.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::other(error.to_string()));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::budget::ReadContext;
    use crate::request::control::Control;

    #[test]
    fn a_read_that_is_always_interrupted_ends_and_one_that_is_short_goes_on() {
        let read = |answers: &mut dyn FnMut(&mut [u8]) -> io::Result<usize>| {
            let (mut calls, mut bytes) = (0, [0; 10]);
            let read = read_whole(7, &mut bytes, &mut |buf, _| {
                calls += 1;
                answers(buf)
            });
            (read.map_err(|error| error.kind()), calls)
        };
        let interrupted = read(&mut |_| Err(Errno::INTR.into()));
        assert_eq!(interrupted, (Err(io::ErrorKind::Other), INTERRUPTED + 1));
        assert_eq!(read(&mut |buf| Ok(buf.len().min(3))), (Ok(()), 4));
        assert_eq!(read(&mut |_| Ok(0)).0, Err(io::ErrorKind::UnexpectedEof));
        let again = read(&mut |_| Err(Errno::AGAIN.into()));
        assert_eq!(again, (Err(io::ErrorKind::Other), 1));
        let mut signals = 5;
        let signalled = read(&mut |buf| {
            signals -= 1;
            match signals > 0 {
                true => Err(Errno::INTR.into()),
                false => Ok(buf.len()),
            }
        });
        assert_eq!(signalled, (Ok(()), 5));
    }

    #[test]
    fn a_file_that_was_cut_short_is_named() {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = File::from(rustix::fs::memfd_create("a", flags).unwrap());
        file.set_len(8192).unwrap();
        let device = Device::from_file(file.try_clone().unwrap(), Path::new("a"), 0).unwrap();
        let control = Control::default();
        let request = Request::new(&control, ReadContext::Worker);
        let read = |length| device.read(&request, &mut vec![0; length], 4096);
        assert!(read(4096).is_ok());
        file.set_len(6000).unwrap();
        let error = read(4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(
            error.to_string(),
            "the file has been truncated since it was opened"
        );
    }
}
