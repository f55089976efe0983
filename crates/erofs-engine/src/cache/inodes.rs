//! Decoded inodes, by number.

use std::ops::Deref;
use std::sync::Arc;

use erofs_format::{Inode, Nid};

use crate::Error;
use crate::cache::{Hit, ReadCache};

/// Maximum number of inodes kept decoded. The kernel requests the attributes of each inode once and
/// then reads by number, so this many files can be read alternately without decoding their inodes
/// again.
const INODES_KEPT: u64 = 1024;

/// Recently read inodes.
#[derive(Debug)]
pub(crate) struct Inodes(ReadCache<Nid, Arc<Inode>>);

impl Inodes {
    pub(crate) fn new() -> Self {
        Self(ReadCache::new(INODES_KEPT, 1))
    }

    /// The inode `nid`, which is read if it is not cached.
    pub(crate) fn get(
        &self,
        nid: Nid,
        read: impl FnOnce() -> Result<Inode, Error>,
    ) -> Result<Arc<Inode>, Error> {
        match self.0.get(&nid) {
            Some(inode) => Ok(inode.clone()),
            None => Ok(self.keep(nid, read()?)),
        }
    }

    /// Like [`get`](Self::get), but without a reference count that threads share.
    pub(crate) fn borrow(
        &self,
        nid: Nid,
        read: impl FnOnce() -> Result<Inode, Error>,
    ) -> Result<BorrowedInode, Error> {
        match self.0.get(&nid) {
            Some(inode) => Ok(BorrowedInode(Lender::Cache(inode))),
            None => Ok(BorrowedInode(Lender::Own(self.keep(nid, read()?)))),
        }
    }

    /// Like [`borrow`](Self::borrow), but an inode that is not cached is not added to the cache.
    pub(crate) fn peek(
        &self,
        nid: Nid,
        read: impl FnOnce() -> Result<Inode, Error>,
    ) -> Result<BorrowedInode, Error> {
        match self.0.get(&nid) {
            Some(inode) => Ok(BorrowedInode(Lender::Cache(inode))),
            None => Ok(BorrowedInode(Lender::Own(Arc::new(read()?)))),
        }
    }

    fn keep(&self, nid: Nid, inode: Inode) -> Arc<Inode> {
        let inode = Arc::new(inode);
        self.0.put(nid, inode.clone(), 1);
        inode
    }
}

/// An inode, borrowed for the duration of one request.
#[derive(Debug)]
pub struct BorrowedInode(Lender);

#[derive(Debug)]
enum Lender {
    Cache(Hit<Nid, Arc<Inode>>),
    Own(Arc<Inode>),
}

impl Deref for BorrowedInode {
    type Target = Inode;

    fn deref(&self) -> &Inode {
        match &self.0 {
            Lender::Cache(inode) => inode,
            Lender::Own(inode) => inode,
        }
    }
}
