//! Devices whose blocks are verified before they are decoded or parsed.

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use dm_verity::{HashDevice, MAX_BLOCK_SIZE, Mismatch, RootHash, Tree};
use erofs_format::ReadAt;
use remote_image::RemoteFile;

use crate::Error;
use crate::device::root_hash_signature::RootHashSignature;
use crate::device::version::Change;
use crate::device::{Device, OpenFile};
use crate::options::{EngineOptions, Offset};
use crate::remote::{self, Missing};

/// Bytes verified at once by [`StoredDevice::scan`].
const SCAN: u64 = 1 << 20;

/// Bytes with the superblock of a tree and its first block.
const TOP: u64 = 2 * MAX_BLOCK_SIZE as u64;

/// A device, and the hash tree for it if there is one. All stored bytes of an image come through
/// here.
#[derive(Debug)]
pub(crate) struct StoredDevice {
    device: Arc<Device>,
    tree: Option<Tree<Arc<Device>>>,
    root: Option<RootHash>,
}

/// A hash area that was opened and not yet read.
#[derive(Debug)]
pub(crate) struct HashArea {
    root: RootHash,
    signature: Option<RootHashSignature>,
    device: Arc<Device>,
    offset: u64,
}

impl HashArea {
    /// Opens the hash area of the image at `path`, whose device is `image`; `None` if nothing is to
    /// be verified.
    pub(crate) fn open(
        path: &Path,
        image: &Arc<Device>,
        options: &EngineOptions,
        open: OpenFile<'_>,
    ) -> Result<Option<Self>, Error> {
        let refuse = |what| Err(Error::verity(remote::shown(path), what));
        let verity = &options.verity;
        let root = match verity.root(open) {
            Ok(Some(root)) => root,
            Ok(None) => return Ok(None),
            Err(what) => return refuse(what),
        };
        let signature = match RootHashSignature::open(verity, open) {
            Ok(signature) => signature,
            Err(what) => return refuse(what),
        };
        if !options.devices.is_empty() {
            return refuse("a hash tree covers one device, so device= cannot be verified".into());
        }
        if options.offset == Offset::Auto {
            return refuse("offset=auto reads before it verifies: say where the image is".into());
        }
        let (device, offset) = match (&verity.hash_device, verity.hash_offset) {
            (Some(path), offset) => (Device::open_named(path, 0, open)?, offset.unwrap_or(0)),
            (None, Some(offset)) => (image.clone(), offset),
            (None, None) => {
                return refuse("verity.hashdevice= or verity.hashoffset= is missing".into());
            }
        };
        Ok(Some(Self {
            root,
            signature,
            device,
            offset,
        }))
    }

    /// The device with the hashes.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Checks the signature, reads the superblock and opens the tree.
    fn tree(self, image: &Device) -> Result<Tree<Arc<Device>>, String> {
        if let Some(signature) = &self.signature {
            signature.check(&self.root)?;
        }
        let parameters = dm_verity::read_superblock(&self.device, self.offset);
        let parameters = parameters.map_err(|error| error.to_string())?;
        let (covered, size) = (parameters.data_size(), ReadAt::size(image));
        if covered > size {
            return Err(format!(
                "the hash tree covers {covered} bytes, the image has {size}"
            ));
        }
        let device = Arc::clone(&self.device);
        Tree::open(parameters, &self.root, self.device).map_err(|error| {
            device.forget(self.offset..self.offset.saturating_add(TOP));
            error.to_string()
        })
    }
}

impl StoredDevice {
    /// The devices of an image, the first of them verified if there is a hash area for it.
    pub(crate) fn all(
        name: &Arc<str>,
        devices: Vec<Arc<Device>>,
        hash_area: Option<HashArea>,
    ) -> Result<Vec<Arc<Self>>, Error> {
        let mut hash_area = hash_area;
        devices
            .into_iter()
            .map(|device| {
                let area = hash_area.take();
                let root = area.as_ref().map(|area| area.root.clone());
                let tree = area.map(|area| area.tree(&device)).transpose();
                let tree = tree.map_err(|what| Error::verity(name.clone(), what))?;
                Ok(Arc::new(Self { device, tree, root }))
            })
            .collect()
    }

    /// The root hash that the device is verified against.
    pub(crate) fn root_hash(&self) -> Option<&RootHash> {
        self.root.as_ref()
    }

    /// Fills `buf` from `offset`, as [`Device::fetch`].
    pub(crate) fn fetch(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.tree {
            None => self.device.fetch(buf, offset),
            Some(tree) => self.verified(tree, buf, offset),
        }
    }

    /// Waits until these bytes and what verifies them are cached, or remembers that they are not.
    pub(crate) fn need(&self, ranges: &[Range<u64>]) -> io::Result<()> {
        let mut missing = Missing::default();
        self.device.add_missing(ranges, &mut missing);
        if let Some(tree) = &self.tree {
            let hashes: Vec<_> = ranges
                .iter()
                .flat_map(|range| tree.hashes(range.clone()))
                .collect();
            tree.hash_device().add_missing(&hashes, &mut missing);
        }
        remote::need(missing)
    }

    /// As [`Device::prefetch`].
    pub(crate) fn prefetch(&self, ranges: &[Range<u64>]) {
        self.device.prefetch(ranges);
    }

    /// The files at URLs, with their names for messages.
    pub(crate) fn remote(&self) -> impl Iterator<Item = (String, &Arc<RemoteFile>)> {
        self.files()
            .filter_map(|device| Some((device.name(), device.remote()?)))
    }

    /// How its files differ from what was opened.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Change> {
        self.files().filter_map(|device| device.change())
    }

    /// The device, and that of the tree if it is another one.
    fn files(&self) -> impl Iterator<Item = &Arc<Device>> {
        let tree = self.tree.as_ref().map(Tree::hash_device);
        let tree = tree.filter(|tree| !Arc::ptr_eq(tree, &self.device));
        std::iter::once(&self.device).chain(tree)
    }

    /// Verifies every block that the tree covers, whether a file uses it or not, and calls `each`
    /// with a line for each that does not match. Nothing is verified without a tree.
    pub(crate) fn scan(&self, each: &mut dyn FnMut(String)) {
        let Some(tree) = &self.tree else { return };
        let block = u64::from(tree.parameters().data_block_size());
        let mut buf = vec![0; SCAN.max(block) as usize];
        for start in (0..self.size()).step_by(buf.len()) {
            let length = (self.size() - start).min(buf.len() as u64);
            if self.fetch(&mut buf[..length as usize], start).is_ok() {
                continue;
            }
            for at in (start..start + length).step_by(block as usize) {
                if let Err(error) = self.fetch(&mut buf[..block as usize], at) {
                    each(error.to_string());
                }
            }
        }
    }

    /// Reads whole blocks into `buf` and verifies them there: the verified bytes are decoded, even
    /// if the file changes meanwhile. Of the blocks at the ends only a part may be wanted.
    fn verified(
        &self,
        tree: &Tree<Arc<Device>>,
        mut buf: &mut [u8],
        mut offset: u64,
    ) -> io::Result<()> {
        self.device.check_range(buf.len(), offset, self.size())?;
        if self.device.remote().is_some() {
            let range = offset..offset + buf.len() as u64;
            self.need(std::slice::from_ref(&range))?;
        }
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
            self.device.fetch(target, offset - within as u64)?;
            tree.verify(target, offset / size as u64)
                .map_err(|error| self.mismatch(tree, &error))?;
            if !(within == 0 && whole > 0) {
                buf[..count].copy_from_slice(&scratch[within..within + count]);
            }
            buf = &mut buf[count..];
            offset += count as u64;
        }
        Ok(())
    }
}

impl StoredDevice {
    /// What a web server sent once may be right the next time.
    fn mismatch(&self, tree: &Tree<Arc<Device>>, error: &dm_verity::Error) -> io::Error {
        let mut kind = io::ErrorKind::Other;
        match error {
            dm_verity::Error::Mismatch(Mismatch::Data { offset, .. }) => {
                let size = tree.parameters().data_block_size();
                self.device.forget(*offset..offset + u64::from(size));
            }
            dm_verity::Error::Mismatch(Mismatch::Hash { offset, .. }) => {
                let size = tree.parameters().hash_block_size();
                tree.hash_device().forget(*offset..offset + u64::from(size));
            }
            dm_verity::Error::Read { source, .. } => kind = source.kind(),
            _ => {}
        }
        io::Error::new(kind, format!("verity: {error}"))
    }
}

impl ReadAt for StoredDevice {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        match &self.tree {
            None => ReadAt::read_exact_at(&self.device, buf, offset),
            Some(tree) => self.verified(tree, buf, offset),
        }
    }

    /// With a tree: the bytes that it covers.
    fn size(&self) -> u64 {
        match &self.tree {
            None => ReadAt::size(&*self.device),
            Some(tree) => tree.parameters().data_size(),
        }
    }
}

impl HashDevice for Device {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        ReadAt::read_exact_at(self, buf, offset)
    }

    fn size(&self) -> u64 {
        ReadAt::size(self)
    }
}
