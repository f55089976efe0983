//! An opened image, with the content of its superblock and device table, and methods that read its
//! structures.
//!
//! The methods that map files are in `map.rs`, and those that read attributes are in `xattr.rs`.

use std::ops::Deref;
use std::sync::OnceLock;

use crate::devices::{DeviceSlot, Devices};
use crate::meta::Meta;
use crate::xattr_prefix::LongPrefix;
use crate::{Error, FileType, Holder, Inode, NID_IN_METABOX, Nid, Result, Source, Superblock};

/// An opened image. It holds no files: each caller reads through its own [`Source`]; see
/// [`Image::reader`].
///
/// An engine calls [`Image::open`] and then, through a source that also has the metabox and the
/// packed inode, [`Reader::load_xattr_prefixes`] and [`Reader::check_root`].
///
/// The metabox must be readable first, because the packed inode may be stored in it. Mapping the
/// metabox inode returns fragments only if the packed inode is not in the metabox, and mapping the
/// packed inode never returns fragments, so their contents cannot refer to each other in a cycle.
#[derive(Debug)]
pub struct Image {
    superblock: Superblock,
    pub(crate) devices: Devices,
    /// Set as soon as the metabox and the packed inode can be read.
    pub(crate) prefixes: OnceLock<Vec<LongPrefix>>,
}

/// An image and the source of its bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    image: &'a Image,
    source: &'a dyn Source,
}

impl Deref for Reader<'_> {
    type Target = Image;

    fn deref(&self) -> &Image {
        self.image
    }
}

impl Image {
    /// Reads and checks the superblock, its checksum, the compression configurations, the device
    /// table, and those special inodes (root, packed, metabox) that are not in the metabox.
    ///
    /// `source` has the primary device first, then the extra ones in the order of the device table.
    /// If only the primary device is given, an image of several devices is accepted provided that
    /// this device contains all of them at their unified addresses.
    pub fn open(source: &dyn Source) -> Result<Image> {
        Image::open_checked(source, true)
    }

    /// Like [`Image::open`], but if `verify` is false, accepts a superblock with a wrong checksum.
    pub fn open_checked(source: &dyn Source, verify: bool) -> Result<Image> {
        let holder = Holder::Device(0);
        let Some(size) = source.size(holder) else {
            return Err(Error::NotErofs {
                reason: "no device was given".into(),
            });
        };
        let primary = Meta {
            source,
            holder,
            size,
        };
        let superblock = Superblock::read(&primary, verify)?;
        let image = Image {
            devices: Devices::new(source, &superblock)?,
            superblock,
            prefixes: OnceLock::new(),
        };
        image.reader(source).check_special_inodes()?;
        Ok(image)
    }

    /// A reader of the image that gets bytes from `source`.
    pub fn reader<'a>(&'a self, source: &'a dyn Source) -> Reader<'a> {
        Reader {
            image: self,
            source,
        }
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The extra devices that the image names, in the order of the device table.
    pub fn device_slots(&self) -> &[DeviceSlot] {
        &self.devices.slots
    }

    /// Size of a device in bytes; device 0 is the primary one.
    pub fn device_size(&self, index: u16) -> Option<u64> {
        self.devices.size(index)
    }

    /// The stated and actual size of the image, or of an extra device, if it is truncated; `None`
    /// if everything is complete. An incomplete download can be opened as long as its metadata is
    /// present.
    pub fn truncation(&self) -> Option<String> {
        let block_size = self.superblock.block_size.into();
        let claimed = self.superblock.blocks.saturating_mul(block_size);
        let present = self.device_size(0)?;
        let what = || {
            format!(
                "the superblock says {claimed} bytes, but the file has {present}; data \
                 beyond its end cannot be read"
            )
        };
        let primary = (present < claimed).then(what);
        primary.or_else(|| self.devices.truncation())
    }

    pub(crate) fn prefixes(&self) -> &[LongPrefix] {
        self.prefixes.get().map_or(&[], Vec::as_slice)
    }

    /// Byte address of a block.
    pub(crate) fn block_address(&self, block: u64) -> Result<u64> {
        match block.checked_mul(self.superblock.block_size.into()) {
            Some(address) => Ok(address),
            None => corrupted!("block number {block:#x} is too large"),
        }
    }
}

impl<'a> Reader<'a> {
    /// Checks that the root is a directory: [`Image::open`] does this unless the root is in the
    /// metabox, so an engine calls this method as soon as it has the metabox.
    pub fn check_root(&self) -> Result<()> {
        self.check_type("root", self.superblock.root_nid, FileType::Directory)
    }

    /// Checks the special inodes, except those in the metabox, which cannot be read yet.
    fn check_special_inodes(&self) -> Result<()> {
        let outside = |nid: &Nid| nid & NID_IN_METABOX == 0;
        if let Some(nid) = self.superblock.metabox_nid {
            self.check_type("metabox", nid, FileType::Regular)?;
        }
        if let Some(nid) = self.superblock.packed_nid.filter(outside) {
            self.check_type("packed inode", nid, FileType::Regular)?;
        }
        match outside(&self.superblock.root_nid) {
            true => self.check_root(),
            false => Ok(()),
        }
    }

    fn check_type(&self, name: &str, nid: Nid, wanted: FileType) -> Result<()> {
        match self.inode(nid)?.file_type() {
            found if found == wanted => Ok(()),
            found => corrupted!("the {name}, nid {nid:#x}, is a {found:?}"),
        }
    }

    /// Reads and checks an inode.
    pub fn inode(&self, nid: Nid) -> Result<Inode> {
        let in_metabox = nid & NID_IN_METABOX != 0;
        let base = match in_metabox {
            true => 0,
            false => self.block_address(self.superblock.meta_block.into())?,
        };
        Inode::read(&self.meta(in_metabox)?, base, nid, &self.superblock)
    }

    /// The source of the image's bytes.
    pub fn source(&self) -> &'a dyn Source {
        self.source
    }

    /// Fills `buf` from metadata: bytes of the primary device, or of the decoded metabox.
    pub fn read_meta(&self, metabox: bool, buf: &mut [u8], offset: u64) -> Result<()> {
        self.meta(metabox)?.read(buf, offset)
    }

    pub(crate) fn meta(&self, metabox: bool) -> Result<Meta<'a>> {
        if !metabox {
            return Ok(self.image.devices.primary(self.source));
        }
        match self.holder(Holder::Metabox) {
            Some(meta) => Ok(meta),
            None if self.superblock.metabox_nid.is_some() => {
                corrupted!("metadata in the metabox is needed to read the metabox")
            }
            None => corrupted!("metadata in the metabox of an image without one"),
        }
    }

    /// The metadata that contains the inode: its map and its inline data are read from there.
    pub(crate) fn meta_of(&self, inode: &Inode) -> Result<Meta<'a>> {
        self.meta(inode.in_metabox())
    }

    /// The decoded content of a special inode, if the source provides it.
    pub(crate) fn holder(&self, holder: Holder) -> Option<Meta<'a>> {
        let size = self.source.size(holder)?;
        let source = self.source;
        Some(Meta {
            source,
            holder,
            size,
        })
    }
}
