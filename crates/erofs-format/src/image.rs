//! An opened image.

use std::sync::Arc;

use crate::{Extent, Inode, Nid, ReadAt, Result, Superblock, Xattr};

/// An opened image. Cloning is cheap: everything large is shared.
///
/// An engine opens it in this order: [`Image::open`]; readers for [`Image::metabox_nid`] and
/// [`Image::packed_nid`] made with clones of the image, given by [`Image::set_metabox`] and
/// [`Image::set_packed`]; then [`Image::load_xattr_prefixes`] and [`Image::check_root`].
#[derive(Clone, Debug)]
pub struct Image {
    superblock: Arc<Superblock>,
    devices: Arc<[Arc<dyn ReadAt>]>,
    metabox: Option<Arc<dyn ReadAt>>,
    packed: Option<Arc<dyn ReadAt>>,
}

impl Image {
    /// Reads and checks the superblock, its checksum, the compression configurations, the device
    /// table, and the special inodes (root, packed, metabox) as far as they do not live in the metabox.
    ///
    /// `devices`: the primary one first, then the extra ones in the order of the device table. With
    /// the primary alone, an image of several devices is accepted if that one device holds all of
    /// them at their unified addresses.
    pub fn open(devices: Vec<Arc<dyn ReadAt>>) -> Result<Image> {
        let _ = devices;
        todo!()
    }

    /// The superblock.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Nid of the metabox inode, which the engine must supply a reader for.
    pub fn metabox_nid(&self) -> Option<Nid> {
        self.superblock.metabox_nid
    }

    /// Nid of the packed inode, which the engine must supply a reader for.
    pub fn packed_nid(&self) -> Option<Nid> {
        self.superblock.packed_nid
    }

    /// Gives the decoded content of the metabox inode.
    pub fn set_metabox(&mut self, reader: Arc<dyn ReadAt>) {
        self.metabox = Some(reader);
    }

    /// Gives the decoded content of the packed inode: long xattr prefixes may live in it, and its
    /// size bounds fragments.
    pub fn set_packed(&mut self, reader: Arc<dyn ReadAt>) {
        self.packed = Some(reader);
    }

    /// Loads the long xattr name prefixes, wherever they live. To be called once, when metabox and
    /// packed inode are set.
    pub fn load_xattr_prefixes(&mut self) -> Result<()> {
        todo!()
    }

    /// Checks that the root is a directory: done by [`Image::open`] unless the root lives in the
    /// metabox, so an engine calls it once more after [`Image::set_metabox`].
    pub fn check_root(&self) -> Result<()> {
        todo!()
    }

    /// Reads and checks an inode.
    pub fn inode(&self, nid: Nid) -> Result<Inode> {
        let _ = nid;
        todo!()
    }

    /// The extent that contains byte `offset` of the inode; `offset` must be below its size. Small
    /// reads only, no allocation that depends on the image, every walk bounded.
    pub fn map(&self, inode: &Inode, offset: u64) -> Result<Extent> {
        let _ = (inode, offset);
        todo!()
    }

    /// All xattrs of an inode, names whole. Attributes of unknown namespaces are left out.
    pub fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>> {
        let _ = inode;
        todo!()
    }

    /// One xattr by its whole name.
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>> {
        let _ = (inode, name);
        todo!()
    }

    /// A device: 0 is the primary one.
    pub fn device(&self, index: u16) -> Result<&Arc<dyn ReadAt>> {
        let _ = index;
        todo!()
    }

    /// Fills `buf` from metadata: bytes of the primary device, or of the decoded metabox.
    pub fn read_meta(&self, metabox: bool, buf: &mut [u8], offset: u64) -> Result<()> {
        let _ = (metabox, buf, offset);
        todo!()
    }
}
