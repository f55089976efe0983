//! What makes a remote file, to be passed between processes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ImageUrl;
use crate::message::{pair, receive, send};

/// What a [`RemoteFile`](crate::RemoteFile) is made of, all readable only.
#[derive(Debug)]
pub struct Parts {
    /// The cache of the image: bytes, and the map.
    pub store: [OwnedFd; 2],
    /// Where blocks go that the cache has no room for: bytes, and the map.
    pub spare: [OwnedFd; 2],
    /// To the fetcher.
    pub socket: OwnedFd,
    /// Bytes of the image.
    pub length: u64,
    /// All bytes are compared with a digest once they are there.
    pub compared: bool,
    /// How long a read may wait without a byte of its blocks.
    pub timeout: Duration,
    /// The image's extra devices, as its manifest in a registry lists them.
    pub devices: Vec<ImageUrl>,
}

/// What goes with the descriptors of [`Parts`].
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    length: u64,
    #[serde(default)]
    compared: bool,
    timeout: Duration,
    #[serde(default)]
    devices: Vec<ImageUrl>,
}

impl Parts {
    /// As one descriptor, for another process or another part of this one.
    pub fn into_descriptor(self) -> io::Result<OwnedFd> {
        let (end, reader) = pair()?;
        let header = Header {
            length: self.length,
            compared: self.compared,
            timeout: self.timeout,
            devices: self.devices,
        };
        let [data, map] = &self.store;
        let [spare, spare_map] = &self.spare;
        let files = [data, map, spare, spare_map, &self.socket];
        send(&end, &header, &files.map(AsFd::as_fd))?;
        Ok(reader)
    }

    /// From what [`into_descriptor`](Self::into_descriptor) made; does not wait.
    pub fn from_descriptor(descriptor: OwnedFd) -> io::Result<Parts> {
        let received = receive(&descriptor)?;
        let (header, files): (Header, Vec<OwnedFd>) =
            received.ok_or(io::ErrorKind::UnexpectedEof)?;
        let files: Result<[OwnedFd; 5], _> = files.try_into();
        let [data, map, spare, spare_map, socket] =
            files.map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Parts {
            store: [data, map],
            spare: [spare, spare_map],
            socket,
            length: header.length,
            compared: header.compared,
            timeout: header.timeout,
            devices: header.devices,
        })
    }
}
