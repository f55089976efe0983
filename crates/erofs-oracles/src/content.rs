//! The content of an inode, decoded extent by extent, within a budget.

use erofs_codecs::Decoder;
use erofs_engine::{codec, decoder_settings};
use erofs_format::{
    Coding, Error, Extent, ExtentKind, Holder, Image, Inode, Pcluster, ReadAt, Reader, Readers,
    interlaced_offset,
};
use std::io;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most bytes that an oracle decodes for one input.
const DECODED: u64 = 16 << 20;
/// The most calls that an oracle makes for one input.
const CALLS: u64 = 20_000;
/// Number of inode slots that are tried, from the start of the metadata.
const SLOTS: u64 = 3000;
/// The longest extent in bytes; the engine's memory limit relies on it.
const LONGEST_EXTENT: u64 = 12 << 20;
/// The most stored bytes of a pcluster, on which that limit also relies.
const LONGEST_PCLUSTER: u32 = 1 << 20;

/// The remaining work of an oracle for one input. It keeps the fuzzer fast; the reader has its own
/// limits.
#[derive(Debug)]
pub struct Budget {
    bytes: AtomicU64,
    calls: AtomicU64,
}

impl Budget {
    /// A full budget.
    pub fn new() -> Arc<Self> {
        Arc::new(Budget {
            bytes: AtomicU64::new(DECODED),
            calls: AtomicU64::new(CALLS),
        })
    }

    /// Whether the budget covers one more call that yields this many bytes.
    pub fn spend(&self, bytes: u64) -> bool {
        take(&self.calls, 1) && take(&self.bytes, bytes)
    }
}

fn take(left: &AtomicU64, amount: u64) -> bool {
    left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
        left.checked_sub(amount)
    })
    .is_ok()
}

/// The bytes of an image without its checksum, which a fuzzer could not compute.
pub(crate) fn without_checksum(data: &[u8]) -> Vec<u8> {
    let mut bytes = data.to_vec();
    // The checksum feature is bit 0 of the compatible features, 8 bytes into the superblock.
    if let Some(features) = bytes.get_mut(1024 + 8) {
        *features &= !1;
    }
    bytes
}

/// An image and the bytes that it is read from.
#[derive(Clone, Debug)]
pub struct Opened {
    image: Arc<Image>,
    readers: Readers,
}

impl Opened {
    fn new(devices: Vec<Arc<dyn ReadAt + Send + Sync>>) -> Result<Self, Error> {
        let readers = Readers::of(devices);
        let image = Arc::new(Image::open(&readers)?);
        Ok(Self { image, readers })
    }

    /// The reader of the image's structures.
    pub fn reader(&self) -> Reader<'_> {
        self.image.reader(&self.readers)
    }
}

/// Opens an image of fuzzed bytes: its checksum is not verified, and if it needs extra devices, it
/// serves as each of them itself.
pub fn open(data: &[u8]) -> Result<Opened, Error> {
    let device: Arc<dyn ReadAt + Send + Sync> = Arc::new(without_checksum(data));
    match Opened::new(vec![device.clone()]) {
        Err(Error::MissingDevices { needed, .. }) if needed <= 4 => {
            Opened::new(vec![device; 1 + usize::from(needed)])
        }
        result => result,
    }
}

/// Like [`open`], with the metabox and the packed inode supplied as an engine does.
pub fn open_whole(data: &[u8], budget: &Arc<Budget>) -> Result<Opened, Error> {
    let mut opened = open(data)?;
    let content = |opened: &Opened, nid| -> Result<Arc<dyn ReadAt + Send + Sync>, Error> {
        let inode = opened.reader().inode(nid)?;
        Ok(Arc::new(Content::new(opened, inode, budget)))
    };
    if let Some(nid) = opened.image.superblock().metabox_nid {
        opened.readers.metabox = Some(content(&opened, nid)?);
    }
    if let Some(nid) = opened.image.superblock().packed_nid {
        opened.readers.packed = Some(content(&opened, nid)?);
    }
    opened.reader().load_xattr_prefixes()?;
    Ok(opened)
}

/// The content of an inode.
#[derive(Debug)]
pub struct Content {
    image: Opened,
    inode: Inode,
    budget: Arc<Budget>,
    last: Mutex<Option<(Extent, Vec<u8>)>>,
}

impl Content {
    /// Content of which nothing has been read yet.
    pub fn new(image: &Opened, inode: Inode, budget: &Arc<Budget>) -> Self {
        Content {
            image: image.clone(),
            inode,
            budget: budget.clone(),
            last: Mutex::new(None),
        }
    }

    /// The inode whose content this is.
    pub fn inode(&self) -> &Inode {
        &self.inode
    }

    fn read_piece(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut last = self.last.lock().map_err(|_| io::ErrorKind::Other)?;
        let hit = last
            .as_ref()
            .is_some_and(|(e, _)| (e.logical..e.end()).contains(&offset));
        if !hit {
            let extent = self
                .image
                .reader()
                .map(&self.inode, offset)
                .map_err(io::Error::other)?;
            check_extent(&extent, offset, self.inode.size);
            if !self.budget.spend(extent.length.min(LONGEST_EXTENT)) {
                return Err(io::Error::other("the oracle's budget is spent"));
            }
            if !matches!(extent.kind, ExtentKind::Compressed(_)) {
                return self.read_plain(&extent, buf, offset);
            }
            let bytes = self.decode(&extent)?;
            *last = Some((extent, bytes));
        }
        let Some((extent, bytes)) = last.as_ref() else {
            return Err(io::ErrorKind::Other.into());
        };
        let rest = &bytes[(offset - extent.logical) as usize..extent.length as usize];
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    /// Reads everything but pclusters.
    fn read_plain(&self, extent: &Extent, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let skip = offset - extent.logical;
        let count = buf
            .len()
            .min(usize::try_from(extent.length - skip).unwrap_or(usize::MAX));
        let buf = &mut buf[..count];
        match extent.kind {
            ExtentKind::Hole => buf.fill(0),
            ExtentKind::Raw { device, physical } => {
                let source = self.image.reader().source();
                source.read(Holder::Device(device), buf, physical + skip)?;
            }
            ExtentKind::Meta { metabox, physical } => {
                self.image
                    .reader()
                    .read_meta(metabox, buf, physical + skip)
                    .map_err(io::Error::other)?;
            }
            ExtentKind::Fragment { offset } => self.read_packed(buf, offset + skip)?,
            ExtentKind::Compressed(_) => unreachable!("decoded by the caller"),
        }
        Ok(count)
    }

    fn read_packed(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let image = self.image.reader();
        let nid = image
            .superblock()
            .packed_nid
            .ok_or(io::ErrorKind::NotFound)?;
        let packed = image.inode(nid).map_err(io::Error::other)?;
        if self.inode.nid == packed.nid {
            return Err(io::Error::other("a fragment of the packed inode in itself"));
        }
        Content::new(&self.image, packed, &self.budget).read_exact_at(buf, offset)
    }

    fn decode(&self, extent: &Extent) -> io::Result<Vec<u8>> {
        let ExtentKind::Compressed(pcluster) = &extent.kind else {
            unreachable!("plain extents are read in place")
        };
        let stored = self.stored(pcluster)?;
        let superblock = self.image.image.superblock();
        let mut output = vec![0; pcluster.decoded_length as usize];
        match pcluster.coding {
            Coding::Compressed(algorithm) => Decoder::new(decoder_settings(superblock))
                .decode(codec(algorithm), &stored, &mut output, pcluster.partial)
                .map_err(io::Error::other)?,
            Coding::Shifted => {
                let plain = stored
                    .get(..output.len())
                    .ok_or(io::ErrorKind::UnexpectedEof)?;
                output.copy_from_slice(plain);
            }
            Coding::Interlaced => {
                for (k, byte) in (0..).zip(&mut output) {
                    let length = u64::from(pcluster.length);
                    let block_size = superblock.block_size.into();
                    let at = interlaced_offset(extent.logical, k, block_size, length);
                    *byte = *stored
                        .get(at as usize)
                        .ok_or(io::ErrorKind::UnexpectedEof)?;
                }
            }
        }
        Ok(output)
    }

    fn stored(&self, pcluster: &Pcluster) -> io::Result<Vec<u8>> {
        let mut stored = vec![0; pcluster.length as usize];
        let place = pcluster.location;
        if place.metabox {
            self.image
                .reader()
                .read_meta(true, &mut stored, place.physical)
                .map_err(io::Error::other)?;
        } else {
            let source = self.image.reader().source();
            source.read(Holder::Device(place.device), &mut stored, place.physical)?;
        }
        Ok(stored)
    }
}

impl ReadAt for Content {
    fn read_exact_at(&self, mut buf: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buf.is_empty() {
            if offset >= self.inode.size {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let count = self.read_piece(buf, offset)?;
            buf = &mut buf[count..];
            offset += count as u64;
        }
        Ok(())
    }

    fn size(&self) -> u64 {
        self.inode.size
    }
}

/// Calls `check` with each inode in the first slots, whether or not a directory names it.
pub(crate) fn each_inode(data: &[u8], check: impl Fn(Reader<'_>, &Inode)) {
    let budget = Budget::new();
    let Ok(opened) = open_whole(data, &budget) else {
        return;
    };
    let image = opened.reader();
    for nid in 0..SLOTS.min(data.len() as u64 / 32) {
        if let Ok(inode) = image.inode(nid) {
            check(image, &inode);
        }
        if !budget.spend(0) {
            return;
        }
    }
}

/// Checks the invariants of [`Extent`].
pub(crate) fn check_extent(extent: &Extent, offset: u64, size: u64) {
    assert!(extent.length > 0, "empty {extent:?}");
    let end = extent
        .logical
        .checked_add(extent.length)
        .expect("an extent ends");
    assert!(
        (extent.logical..end).contains(&offset),
        "{offset} is not in {extent:?}"
    );
    assert!(
        end <= size,
        "{extent:?} reaches beyond the file of {size} bytes"
    );
    if let ExtentKind::Compressed(pcluster) = &extent.kind {
        assert!(
            pcluster.length <= LONGEST_PCLUSTER && pcluster.length > 0,
            "{extent:?}"
        );
        assert!(pcluster.decoded_length <= LONGEST_EXTENT, "{extent:?}");
        assert!(pcluster.decoded_length >= extent.length, "{extent:?}");
    }
}
