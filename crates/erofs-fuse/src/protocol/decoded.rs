//! The server's side of what launches decode.

use std::os::fd::OwnedFd;

use sys::pi_mutex::PiMutex;

use super::messages::Request;
use crate::error::Error;

/// Has what launches decode written.
#[derive(Debug)]
pub(crate) struct DecodedWriter {
    /// Locked from a request to its answer.
    socket: PiMutex<OwnedFd>,
}

impl DecodedWriter {
    pub(super) fn new(socket: OwnedFd) -> Self {
        let socket = PiMutex::new(socket);
        Self { socket }
    }

    /// Adds to what the file of decoded bytes will have.
    pub(crate) fn add(&self, bytes: &[u8]) -> Result<(), Error> {
        let request = Request::AddDecoded;
        let mut parts = bytes.chunks(request.room());
        parts.try_for_each(|part| self.ask(request, part))
    }

    /// Takes what was [added](Self::add) for what was there before.
    pub(crate) fn commit(&self) -> Result<(), Error> {
        self.ask(Request::WriteDecoded, b"")
    }

    fn ask(&self, request: Request, bytes: &[u8]) -> Result<(), Error> {
        let answer = request.ask(&*self.socket.lock(), bytes);
        answer.map_err(Error::std_io("what writes decoded bytes is gone"))??;
        Ok(())
    }
}
