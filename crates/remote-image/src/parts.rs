//! What makes a remote file, to be passed between processes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ImageUrl;
use crate::message::{pair, receive, send};

/// What a [`RemoteFile`](crate::RemoteFile) is made of.
#[derive(Debug)]
pub struct Parts {
    /// Bytes and map of the cache of the image, then those of where blocks go that the cache has no
    /// room for; readable only.
    pub files: [OwnedFd; 4],
    /// To the fetcher.
    pub socket: OwnedFd,
    /// What goes with them.
    pub about: About,
}

/// What a reader knows of the image.
#[derive(Debug, Serialize, Deserialize)]
pub struct About {
    /// Bytes of the image.
    pub length: u64,
    /// All bytes are compared with a digest once they are there.
    #[serde(default)]
    pub compared: bool,
    /// How long a read may wait without a byte of its blocks.
    pub timeout: Duration,
    /// The image's extra devices, as its manifest in a registry lists them.
    #[serde(default)]
    pub devices: Vec<ImageUrl>,
    /// The layers below it that its manifest in a registry lists, from top to bottom.
    #[serde(default)]
    pub layers: Vec<ImageUrl>,
    /// Why nothing is kept for the next to open the image, if that was wanted.
    #[serde(default)]
    pub not_kept: Option<String>,
    /// Of an image out of the cache whose server did not answer: why, and since when it is there.
    #[serde(default)]
    pub offline: Option<String>,
}

impl Parts {
    /// As one descriptor, for another process or another part of this one.
    pub fn into_descriptor(self) -> io::Result<OwnedFd> {
        let (end, reader) = pair()?;
        let files = self.files.iter().chain([&self.socket]);
        send(
            &end,
            &self.about,
            &files.map(AsFd::as_fd).collect::<Vec<_>>(),
        )?;
        Ok(reader)
    }

    /// From what [`into_descriptor`](Self::into_descriptor) made; does not wait.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Parts> {
        let (about, mut files) =
            receive::<About>(&descriptor)?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let socket = files.pop().ok_or(io::ErrorKind::InvalidData)?;
        let files = files.try_into();
        Ok(Parts {
            files: files.map_err(|_| io::ErrorKind::InvalidData)?,
            socket,
            about,
        })
    }
}
