//! An opened image: its devices, metadata and inodes.
//!
//! `map.rs` and `xattr.rs` add the methods that map and read attributes.

use std::sync::Arc;

use crate::devices::{DeviceSlot, Devices};
use crate::meta::Meta;
use crate::xattr_prefix::LongPrefix;
use crate::{Error, FileType, Inode, NID_IN_METABOX, Nid, ReadAt, Result, Superblock};

/// An opened image. Cloning is cheap: everything large is shared.
///
/// An engine opens it in this order: [`Image::open`]; readers for [`Image::metabox_nid`] and
/// [`Image::packed_nid`] made with clones of the image, set by [`Image::set_metabox`] and
/// [`Image::set_packed`]; then [`Image::load_xattr_prefixes`] and [`Image::check_root`].
///
/// The metabox comes first: the packed inode may live in it. Mapping the metabox inode returns
/// fragments only if the packed inode does not live in the metabox, and mapping the packed inode
/// never returns fragments, so readers of the two cannot wait for each other in a circle.
#[derive(Clone, Debug)]
pub struct Image {
    superblock: Arc<Superblock>,
    devices: Arc<Devices>,
    metabox: Option<Holder>,
    packed: Option<Holder>,
    prefixes: Arc<[LongPrefix]>,
}

/// The decoded content of a special inode.
#[derive(Clone, Debug)]
struct Holder {
    reader: Arc<dyn ReadAt>,
    size: u64,
}

impl Holder {
    fn new(reader: Arc<dyn ReadAt>) -> Holder {
        let size = reader.size();
        Holder { reader, size }
    }
}

impl Image {
    /// Reads and checks the superblock, its checksum, the compression configurations, the device
    /// table, and the special inodes (root, packed, metabox) as far as they do not live in the
    /// metabox.
    ///
    /// `devices`: the primary one first, then the extra ones in the order of the device table. With
    /// the primary alone, an image of several devices is accepted if that one device holds all of
    /// them at their unified addresses.
    pub fn open(devices: Vec<Arc<dyn ReadAt>>) -> Result<Image> {
        Image::open_checked(devices, true)
    }

    /// As [`Image::open`], but a superblock with a wrong checksum is taken as it is.
    pub fn open_without_checksum(devices: Vec<Arc<dyn ReadAt>>) -> Result<Image> {
        Image::open_checked(devices, false)
    }

    fn open_checked(devices: Vec<Arc<dyn ReadAt>>, verify: bool) -> Result<Image> {
        let Some(primary) = devices.first() else {
            return Err(Error::NotErofs {
                reason: "no device was given".into(),
            });
        };
        let superblock = Superblock::read(&Meta::plain(&**primary, "primary device"), verify)?;
        let devices = Devices::new(devices, &superblock)?;
        let image = Image {
            superblock: Arc::new(superblock),
            devices: Arc::new(devices),
            metabox: None,
            packed: None,
            prefixes: Arc::default(),
        };
        image.check_special_inodes()?;
        Ok(image)
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// The extra devices that the image names, in the order of the device table.
    pub fn device_slots(&self) -> &[DeviceSlot] {
        &self.devices.slots
    }

    /// Nid of the metabox inode, for which the engine must provide a reader.
    pub fn metabox_nid(&self) -> Option<Nid> {
        self.superblock.metabox_nid
    }

    /// Nid of the packed inode, for which the engine must provide a reader.
    pub fn packed_nid(&self) -> Option<Nid> {
        self.superblock.packed_nid
    }

    /// Sets the decoded content of the metabox inode.
    pub fn set_metabox(&mut self, reader: Arc<dyn ReadAt>) {
        self.metabox = Some(Holder::new(reader));
    }

    /// Sets the decoded content of the packed inode: long xattr prefixes may live in it, and its
    /// size bounds fragments.
    pub fn set_packed(&mut self, reader: Arc<dyn ReadAt>) {
        self.packed = Some(Holder::new(reader));
    }

    /// Checks that the root is a directory: done by [`Image::open`] unless the root lives in the
    /// metabox, so an engine calls it once more after [`Image::set_metabox`].
    pub fn check_root(&self) -> Result<()> {
        self.check_type("root", self.superblock.root_nid, FileType::Directory)
    }

    /// Inodes in the metabox are left out: nothing can read them yet.
    fn check_special_inodes(&self) -> Result<()> {
        let outside = |nid: &Nid| nid & NID_IN_METABOX == 0;
        if let Some(nid) = self.metabox_nid() {
            self.check_type("metabox", nid, FileType::Regular)?;
        }
        if let Some(nid) = self.packed_nid().filter(outside) {
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

    /// A device: 0 is the primary one.
    pub fn device(&self, index: u16) -> Result<&Arc<dyn ReadAt>> {
        self.devices.get(index)
    }

    /// Both sizes of an image, or of an extra device, that was cut short; `None` for whole ones: a
    /// download that broke off opens as long as its metadata is there.
    pub fn truncation(&self) -> Option<String> {
        let superblock = &self.superblock;
        let claimed = superblock
            .blocks
            .saturating_mul(superblock.block_size.into());
        let present = self.device(0).ok()?.size();
        let what = || format!("cut short: superblock says {claimed} bytes, file has {present}");
        let primary = (present < claimed).then(what);
        primary.or_else(|| self.devices.truncation())
    }

    /// Fills `buf` from metadata: bytes of the primary device, or of the decoded metabox.
    pub fn read_meta(&self, metabox: bool, buf: &mut [u8], offset: u64) -> Result<()> {
        self.meta(metabox)?.read(buf, offset)
    }

    pub(crate) fn meta(&self, metabox: bool) -> Result<Meta<'_>> {
        if !metabox {
            return Ok(self.devices.primary());
        }
        match &self.metabox {
            Some(Holder { reader, size }) => Ok(Meta {
                reader,
                size: *size,
                name: "metabox",
                metabox: true,
            }),
            None if self.metabox_nid().is_some() => {
                corrupted!("metadata in the metabox is needed to read the metabox")
            }
            None => corrupted!("metadata in the metabox of an image without one"),
        }
    }

    /// The metadata that holds the inode: what its map and its inline data are read from.
    pub(crate) fn meta_of(&self, inode: &Inode) -> Result<Meta<'_>> {
        self.meta(inode.in_metabox())
    }

    pub(crate) fn packed(&self) -> Option<(&dyn ReadAt, u64)> {
        self.packed
            .as_ref()
            .map(|holder| (holder.reader.as_ref(), holder.size))
    }

    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

    pub(crate) fn prefixes(&self) -> &[LongPrefix] {
        &self.prefixes
    }

    pub(crate) fn set_prefixes(&mut self, prefixes: Vec<LongPrefix>) {
        self.prefixes = prefixes.into();
    }

    /// Byte address of a block.
    pub(crate) fn block_address(&self, block: u64) -> Result<u64> {
        match block.checked_mul(self.superblock.block_size.into()) {
            Some(address) => Ok(address),
            None => corrupted!("block address {block:#x} is no address at all"),
        }
    }
}
