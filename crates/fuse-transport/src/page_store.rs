//! Writes to the kernel's page cache (FUSE_NOTIFY_STORE).

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::message;
use crate::wire::StoreOut;

/// Writes to the page cache of one mount.
#[derive(Debug)]
pub struct PageStore {
    device: OwnedFd,
}

impl PageStore {
    pub(crate) fn new(device: BorrowedFd<'_>) -> io::Result<Self> {
        let device = rustix::io::fcntl_dupfd_cloexec(device, 0)?;
        Ok(Self { device })
    }

    /// Puts bytes of a file into the page cache. Only whole pages, and the last part of the file,
    /// become readable there; the bytes must be inside the file. Works with both transports.
    ///
    /// The call waits, unkillably, until pending reads of these pages are answered, so a thread
    /// that serves requests must not call it.
    ///
    /// # Errors
    /// ENOENT if the kernel does not know the node, or no longer does.
    pub fn store(&self, node: u64, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let store = StoreOut {
            nodeid: node,
            offset,
            size: u32::try_from(bytes.len()).map_err(|_| Errno::INVAL)?,
            padding: 0,
        };
        let body = [store.as_bytes(), bytes];
        message::notify(&self.device, StoreOut::CODE, body)
    }
}
