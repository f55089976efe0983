//! The server's side of keeping the decoded bytes of launches.

use std::os::fd::OwnedFd;

use sys::pi_mutex::PiMutex;

use super::messages::Request;
use crate::error::Error;

/// Passes on the decoded bytes of launches, to be written to a file.
#[derive(Debug)]
pub(crate) struct DecodedWriter {
    /// Locked from each request until its answer.
    socket: PiMutex<OwnedFd>,
}

impl DecodedWriter {
    pub(super) fn new(socket: OwnedFd) -> Self {
        let socket = PiMutex::new(socket);
        Self { socket }
    }

    /// Appends to the next file of decoded bytes.
    pub(crate) fn add(&self, bytes: &[u8]) -> Result<(), Error> {
        let request = Request::AddDecoded;
        let mut parts = bytes.chunks(request.room());
        parts.try_for_each(|part| self.ask(request, part))
    }

    /// Replaces the earlier content with the bytes that were [added](Self::add).
    pub(crate) fn commit(&self) -> Result<(), Error> {
        self.ask(Request::WriteDecoded, b"")
    }

    fn ask(&self, request: Request, bytes: &[u8]) -> Result<(), Error> {
        let answer = request.ask(&*self.socket.lock(), bytes);
        answer.map_err(Error::std_io(
            "the process that writes decoded bytes is gone",
        ))??;
        Ok(())
    }
}
