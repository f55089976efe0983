//! Extended attributes and extents of files.

use erofs_format::{Extent, Inode, Xattr};

use crate::request::RequestKey;
use crate::{Engine, Error};

impl Engine {
    /// All extended attributes of an inode.
    pub fn xattrs(&self, inode: &Inode) -> Result<Vec<Xattr>, Error> {
        self.metadata(RequestKey::Xattrs(inode.nid), |image| image.xattrs(inode))
    }

    /// One extended attribute, by its whole name.
    pub fn xattr(&self, inode: &Inode, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let request = RequestKey::Xattrs(inode.nid);
        self.metadata(request, |image| image.xattr(inode, name))
    }

    /// The extent that holds byte `offset` of a file; `None` from its end on.
    pub fn extent(&self, inode: &Inode, offset: u64) -> Result<Option<Extent>, Error> {
        if offset >= inode.size {
            return Ok(None);
        }
        let request = RequestKey::Extent(inode.nid, offset);
        self.metadata(request, |image| image.map(inode, offset).map(Some))
    }
}
