//! The server's side of listing directories ahead: packets are sent without waiting.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::fs::OFlags;

use super::broker::LIST;
use super::protocol::PACKET_BYTES;
use crate::error::Error;

/// Packets that the helper has not answered: one that it works on, and the next one.
const MOST: usize = 2;

/// Has the mount helper list directories.
#[derive(Debug)]
pub(crate) struct DirectoryLister {
    socket: OwnedFd,
    /// Atomic: packets without an answer.
    sent: AtomicUsize,
}

impl DirectoryLister {
    pub(super) fn new(socket: OwnedFd) -> Result<Self, Error> {
        let flags = rustix::fs::fcntl_getfl(&socket).map_err(Error::io("fcntl"))?;
        rustix::fs::fcntl_setfl(&socket, flags | OFlags::NONBLOCK).map_err(Error::io("fcntl"))?;
        Ok(Self {
            socket,
            sent: AtomicUsize::new(0),
        })
    }

    /// Whether the helper can take a packet.
    pub(crate) fn is_free(&self) -> bool {
        // What an answer says is not needed: the rest of one is dropped.
        let mut answer = [0; 1];
        while self.sent.load(Ordering::Relaxed) > 0
            && rustix::io::read(&self.socket, &mut answer).is_ok_and(|bytes| bytes > 0)
        {
            self.sent.fetch_sub(1, Ordering::Relaxed);
        }
        self.sent.load(Ordering::Relaxed) < MOST
    }

    /// Has directories listed, as many as a packet holds; false if the helper cannot take it.
    pub(crate) fn begin(&self, paths: &[Vec<u8>]) -> bool {
        let mut packet = paths.iter().fold(vec![LIST], |mut packet, path| {
            if packet.len() + path.len() < PACKET_BYTES {
                packet.extend(path);
                packet.push(0);
            }
            packet
        });
        // The last zero would be the end of another, empty path: the root.
        packet.pop();
        let sent = rustix::io::write(&self.socket, &packet).is_ok();
        if sent {
            self.sent.fetch_add(1, Ordering::Relaxed);
        }
        sent
    }
}
