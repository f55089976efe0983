//! Decoded inodes, by number.

use std::ops::Deref;
use std::sync::Arc;

use erofs_format::{Inode, Nid};

use crate::Result;
use crate::cache::{Hit, ReadCache};

/// Maximum number of inodes kept decoded. The kernel requests the attributes of an inode once and
/// then reads the file by the inode's number, so this many files can be read alternately without
/// decoding their inodes again.
const INODES_KEPT: u64 = 1024;

/// Recently read inodes.
#[derive(Debug)]
pub(crate) struct Inodes(ReadCache<Nid, Arc<Inode>>);

impl Inodes {
    pub(crate) fn new() -> Self {
        Self(ReadCache::new(INODES_KEPT, 1))
    }

    /// The inode `nid`, which is read if it is not cached, and then cached if `keeps` is true.
    pub(crate) fn borrow(
        &self,
        nid: Nid,
        keeps: bool,
        read: impl FnOnce() -> Result<Inode>,
    ) -> Result<BorrowedInode> {
        if let Some(inode) = self.0.get(&nid) {
            return Ok(BorrowedInode(Lender::Cache(inode)));
        }
        let inode = Arc::new(read()?);
        if keeps {
            self.0.put(nid, inode.clone(), 1);
        }
        Ok(BorrowedInode(Lender::Own(inode)))
    }
}

/// An inode, borrowed for the duration of one request, without a reference count that threads
/// share.
#[derive(Debug)]
pub struct BorrowedInode(Lender);

#[derive(Debug)]
enum Lender {
    Cache(Hit<Nid, Arc<Inode>>),
    Own(Arc<Inode>),
}

impl BorrowedInode {
    pub(crate) fn shared(&self) -> &Arc<Inode> {
        match &self.0 {
            Lender::Cache(inode) => inode,
            Lender::Own(inode) => inode,
        }
    }
}

impl Deref for BorrowedInode {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        self.shared()
    }
}
