//! Writes what launches decode: a process of its own, a fork of the mount helper, which is made
//! with the first packet of the server and ends with its socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::decoded_file::DecodedFile;
use crate::child::ChildProcess;
use crate::error::Error;
use crate::packets::socket_pair;
use crate::protocol::{Answer, Request, receive, respond};

/// Its name for `ps`.
const NAME: &std::ffi::CStr = c"erofs_decoded";

/// One whose process is not there yet.
pub(crate) struct DecodedKeeper {
    socket: OwnedFd,
    file: DecodedFile,
}

impl AsFd for DecodedKeeper {
    /// Readable when there is a packet, or never will be.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl DecodedKeeper {
    /// The descriptor is for the server.
    pub(crate) fn new(file: DecodedFile) -> Result<(Self, OwnedFd), Error> {
        let (socket, theirs) = socket_pair()?;
        Ok((Self { socket, file }, theirs))
    }

    /// Makes the process. Its output is `null`: who reads that of the helper does not wait for it.
    /// If it cannot be made, the server's requests fail.
    pub(crate) fn wake(mut self, null: &OwnedFd) -> io::Result<ChildProcess> {
        ChildProcess::fork(self.socket, &[null.as_raw_fd()], || {
            let _ = rustix::thread::set_name(NAME);
            let _ = rustix::stdio::dup2_stdout(null);
            let _ = rustix::stdio::dup2_stderr(null);
            serve(&mut self.file);
            0
        })
    }
}

/// Answers requests, which come over the standard input, to their end.
fn serve(file: &mut DecodedFile) {
    let socket = rustix::stdio::stdin();
    loop {
        let outcome = match receive(socket) {
            Ok((Request::AddDecoded, bytes)) => file.add(&bytes),
            Ok((Request::WriteDecoded, _)) => file.commit(),
            Ok((request, _)) => Err(Error::Protocol(format!("nobody does {request:?} here"))),
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Error::std_io("a request")(error))
            }
            Err(_) => return,
        };
        let response = outcome.map(|()| Answer::default());
        if respond(socket, &response.map_err(|error| (&error).into())).is_err() {
            return;
        }
    }
}
