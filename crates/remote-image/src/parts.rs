//! The parts of a remote file, for passing it between processes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ImageUrl;
use crate::message::{pair, receive, send};

/// The parts of a [`RemoteFile`](crate::RemoteFile).
#[derive(Debug)]
pub struct Parts {
    /// The cache's data and map files of the image, then those for blocks that the cache has no
    /// room for; read-only.
    pub files: [OwnedFd; 4],
    /// The socket to the fetcher.
    pub socket: OwnedFd,
    /// The reader's knowledge about the image.
    pub about: About,
}

/// What a reader knows about the image.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct About {
    /// The length of the image in bytes.
    pub length: u64,
    /// Whether all bytes are compared with a digest once they are present.
    #[serde(default)]
    pub compared: bool,
    /// How long a read may wait without receiving a byte of its blocks.
    pub timeout: Duration,
    /// The image's extra devices, as its manifest in a registry lists them.
    #[serde(default)]
    pub devices: Vec<ImageUrl>,
    /// The layers below the image that its manifest in a registry lists, from top to bottom.
    #[serde(default)]
    pub layers: Vec<ImageUrl>,
    /// Why nothing is kept for later openings of the image, although that was requested.
    #[serde(default)]
    pub not_kept: Option<String>,
    /// If the image is used from the cache because its server did not answer: the reason, and when
    /// the server last confirmed the image.
    #[serde(default)]
    pub offline: Option<String>,
}

impl Parts {
    /// Packs the parts into one descriptor, for another process or another part of this one.
    pub fn into_descriptor(self) -> io::Result<OwnedFd> {
        let (end, reader) = pair()?;
        let files = self.files.iter().chain([&self.socket]);
        let files: Vec<_> = files.map(AsFd::as_fd).collect();
        send(&end, &self.about, &files)?;
        Ok(reader)
    }

    /// Unpacks a descriptor from [`into_descriptor`](Self::into_descriptor); does not wait.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Parts> {
        let received = receive(&descriptor)?;
        let (about, mut files) = received.ok_or(io::ErrorKind::UnexpectedEof)?;
        let socket = files.pop().ok_or(io::ErrorKind::InvalidData)?;
        let files = files.try_into();
        Ok(Parts {
            files: files.map_err(|_| io::ErrorKind::InvalidData)?,
            socket,
            about,
        })
    }
}
