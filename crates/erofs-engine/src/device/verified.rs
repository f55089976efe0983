//! Devices whose blocks are verified before they are decoded or parsed.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use dm_verity::{MAX_BLOCK_SIZE, Mismatch, RootHash, Tree};
use erofs_format::ReadAt;
use remote_image::RemoteFile;

use crate::cache::metadata::MetadataCache;
use crate::device::root_hash_signature::RootHashSignature;
use crate::device::version::Change;
use crate::device::{Bound, Device, OpenFile};
use crate::options::{EngineOptions, Offset};
use crate::remote;
use crate::request::budget::Request;
use crate::request::missing::Missing;
use crate::{Error, Result};

/// Bytes verified per step of [`StoredDevice::scan`].
const SCAN: u64 = 1 << 20;

/// Number of bytes that cover a tree's superblock and first block.
const TOP: u64 = 2 * MAX_BLOCK_SIZE as u64;

/// A device, and its hash tree if there is one. All stored bytes of an image are read through this
/// type.
#[derive(Debug)]
pub(crate) struct StoredDevice {
    pub(crate) device: Arc<Device>,
    verified: Option<Verified>,
    /// The device's metadata cache.
    pub(crate) metadata: MetadataCache,
}

/// A hash tree, its root hash, and the device that holds it.
#[derive(Debug)]
struct Verified {
    tree: Tree,
    root: RootHash,
    hashes: Arc<Device>,
}

/// A hash area that was opened but not yet read.
#[derive(Debug)]
pub(crate) struct HashArea {
    root: RootHash,
    signature: Option<RootHashSignature>,
    /// The device that contains the hashes.
    pub(crate) device: Arc<Device>,
    offset: u64,
}

impl HashArea {
    /// Opens the hash area of the image at `path`, whose device is `image`; `None` if nothing
    /// should be verified.
    pub(crate) fn open(
        path: &Path,
        image: &Arc<Device>,
        options: &EngineOptions,
        open: OpenFile<'_>,
    ) -> Result<Option<Self>> {
        let refused = |what: String| Error::verity(remote::shown(path), what);
        let refuse = |what: &str| Err(refused(what.to_owned()));
        let verity = &options.verity;
        let Some(root) = verity.root(open).map_err(refused)? else {
            return Ok(None);
        };
        let signature = RootHashSignature::open(verity, open).map_err(refused)?;
        if !options.devices.is_empty() {
            return refuse("a hash tree covers one device, so device= cannot be verified");
        }
        if options.offset == Offset::Auto {
            return refuse("offset=auto would read unverified data: give the offset");
        }
        let (device, offset) = match (&verity.hash_device, verity.hash_offset) {
            (Some(path), offset) => (Device::open_named(path, 0, open)?, offset.unwrap_or(0)),
            (None, Some(offset)) => (image.clone(), offset),
            (None, None) => {
                return refuse("verity.hashdevice= or verity.hashoffset= is missing");
            }
        };
        Ok(Some(Self {
            root,
            signature,
            device,
            offset,
        }))
    }

    /// Checks the signature, reads the superblock and opens the tree.
    fn tree(self, image: &Device, request: &Request<'_>) -> Result<Verified, String> {
        if let Some(signature) = &self.signature {
            signature.check(&self.root)?;
        }
        let device = &*self.device;
        let hashes = Bound { device, request };
        let parameters = dm_verity::read_superblock(&hashes, self.offset);
        let parameters = parameters.map_err(|error| error.to_string())?;
        let (covered, size) = (parameters.data_size(), image.size);
        if covered > size {
            return Err(format!(
                "the hash tree covers {covered} bytes, but the image has {size}"
            ));
        }
        let tree = Tree::open(parameters, &self.root, &hashes).map_err(|error| {
            device.forget(request, self.offset, TOP);
            error.to_string()
        })?;
        Ok(Verified {
            tree,
            root: self.root,
            hashes: self.device,
        })
    }
}

impl StoredDevice {
    /// Creates the devices of an image. If there is a hash area, the first device is verified
    /// against it. `images` is the number of images that share the caches' memory.
    pub(crate) fn all(
        name: &Arc<str>,
        devices: Vec<Arc<Device>>,
        mut hash_area: Option<HashArea>,
        images: usize,
        request: &Request<'_>,
    ) -> Result<Vec<Self>> {
        let stored = |device: Arc<Device>| {
            let verified = hash_area.take().map(|area| area.tree(&device, request));
            let verified = verified.transpose();
            Ok(Self {
                device,
                verified: verified.map_err(|what| Error::verity(name.clone(), what))?,
                metadata: MetadataCache::of_images(images),
            })
        };
        devices.into_iter().map(stored).collect()
    }

    /// The root hash that the device is verified against.
    pub(crate) fn root_hash(&self) -> Option<&RootHash> {
        self.verified.as_ref().map(|verified| &verified.root)
    }

    /// Fills `buf` from `offset`, like [`Device::fetch`].
    pub(crate) fn fetch(
        &self,
        request: &Request<'_>,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<()> {
        match &self.verified {
            None => self.device.fetch(request, buf, offset),
            Some(verified) => self.verify(verified, request, buf, offset),
        }
    }

    /// Waits until these bytes and their hashes are cached, or records that they are missing.
    pub(crate) fn need(&self, request: &Request<'_>, ranges: &[Range<u64>]) -> io::Result<()> {
        let mut missing = Missing::default();
        self.device.add_missing(ranges, &mut missing);
        if let Some(Verified { tree, hashes, .. }) = &self.verified {
            let needed = ranges.iter().flat_map(|range| tree.hashes(range.clone()));
            hashes.add_missing(&needed.collect::<Vec<_>>(), &mut missing);
        }
        request.need(missing)
    }

    /// The files at URLs, with their names for messages.
    pub(crate) fn remote(&self) -> impl Iterator<Item = (String, &Arc<RemoteFile>)> {
        self.files()
            .filter_map(|device| Some((device.name(), device.remote()?)))
    }

    /// How the device's files differ from those that were opened.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> {
        self.files().filter_map(|device| device.change())
    }

    /// The device, and the device that holds the hash tree if it is a separate one.
    fn files(&self) -> impl Iterator<Item = &Arc<Device>> {
        let hashes = self.verified.as_ref().map(|verified| &verified.hashes);
        let hashes = hashes.filter(|hashes| !Arc::ptr_eq(hashes, &self.device));
        std::iter::once(&self.device).chain(hashes)
    }

    /// Verifies every block that the tree covers, whether a file uses it or not, and calls `each`
    /// with one line for each block that does not match. Nothing is verified without a tree.
    pub(crate) fn scan(&self, request: &Request<'_>, each: &mut dyn FnMut(String)) {
        let Some(Verified { tree, .. }) = &self.verified else {
            return;
        };
        let block = u64::from(tree.parameters().data_block_size());
        let mut buf = vec![0; SCAN.max(block) as usize];
        for start in (0..self.size()).step_by(buf.len()) {
            let length = (self.size() - start).min(buf.len() as u64);
            let whole = self.fetch(request, &mut buf[..length as usize], start);
            if whole.is_ok() {
                continue;
            }
            for at in (start..start + length).step_by(block as usize) {
                if let Err(error) = self.fetch(request, &mut buf[..block as usize], at) {
                    each(error.to_string());
                }
            }
        }
    }

    /// Reads whole blocks into `buf` and verifies them there, so that the bytes that are decoded
    /// are the verified ones even if the file changes meanwhile. The reader may want only a part of
    /// the first and last block.
    fn verify(
        &self,
        Verified { tree, hashes, .. }: &Verified,
        request: &Request<'_>,
        mut buf: &mut [u8],
        mut offset: u64,
    ) -> io::Result<()> {
        self.device.check_range(buf.len(), offset, self.size())?;
        if self.device.remote().is_some() {
            let range = offset..offset + buf.len() as u64;
            self.need(request, std::slice::from_ref(&range))?;
        }
        let device = &**hashes;
        let from = Bound { device, request };
        let size = tree.parameters().data_block_size() as usize;
        let mut scratch = Vec::new();
        while !buf.is_empty() {
            let within = (offset % size as u64) as usize;
            let whole = buf.len() - buf.len() % size;
            let (target, count) = if within == 0 && whole > 0 {
                (&mut buf[..whole], whole)
            } else {
                scratch.resize(size, 0);
                (&mut scratch[..], buf.len().min(size - within))
            };
            self.device.fetch(request, target, offset - within as u64)?;
            tree.verify(&from, target, offset / size as u64)
                .map_err(|error| self.mismatch(tree, hashes, request, &error))?;
            if !(within == 0 && whole > 0) {
                buf[..count].copy_from_slice(&scratch[within..within + count]);
            }
            buf = &mut buf[count..];
            offset += count as u64;
        }
        Ok(())
    }

    /// Turns a failed verification into an error. The cache drops the bytes that do not match: a
    /// web server may send the right ones next time.
    fn mismatch(
        &self,
        tree: &Tree,
        hashes: &Device,
        request: &Request<'_>,
        error: &dm_verity::Error,
    ) -> io::Error {
        let mut kind = io::ErrorKind::Other;
        match error {
            dm_verity::Error::Mismatch(Mismatch::Data { offset, .. }) => {
                let size = tree.parameters().data_block_size();
                self.device.forget(request, *offset, size.into());
            }
            dm_verity::Error::Mismatch(Mismatch::Hash { offset, .. }) => {
                let size = tree.parameters().hash_block_size();
                hashes.forget(request, *offset, size.into());
            }
            dm_verity::Error::Read { source, .. } => kind = source.kind(),
            _ => {}
        }
        io::Error::new(kind, format!("verity: {error}"))
    }

    /// Fills `buf` from `offset` with metadata.
    pub(crate) fn read(
        &self,
        request: &Request<'_>,
        buf: &mut [u8],
        offset: u64,
    ) -> io::Result<()> {
        request.step().map_err(io::Error::other)?;
        let device = self;
        self.metadata.read(&Bound { device, request }, buf, offset)
    }

    /// The device's size or, with a tree, the number of bytes that the tree covers.
    pub(crate) fn size(&self) -> u64 {
        match &self.verified {
            None => self.device.size,
            Some(Verified { tree, .. }) => tree.parameters().data_size(),
        }
    }
}

impl ReadAt for Bound<'_, StoredDevice> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let Bound { device, request } = *self;
        match &device.verified {
            None => device.device.read(request, buf, offset),
            Some(verified) => device.verify(verified, request, buf, offset),
        }
    }

    fn size(&self) -> u64 {
        self.device.size()
    }
}
