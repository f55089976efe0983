//! Writes the decoded bytes of launches, in a separate process: a fork of the mount helper, created
//! when the server's first packet arrives. The process ends when its socket is closed.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::decoded_file::DecodedFile;
use crate::child::ChildProcess;
use erofs_fuse::error::Error;
use erofs_fuse::packets::socket_pair;
use erofs_fuse::protocol::{Answer, Request, receive, respond};

/// The name of the process, as `ps` shows it.
const NAME: &std::ffi::CStr = c"erofs_decoded";

/// A keeper whose process has not been created yet.
pub(crate) struct DecodedKeeper {
    socket: OwnedFd,
    file: DecodedFile,
}

impl AsFd for DecodedKeeper {
    /// Readable if a packet has arrived or the other end is closed.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl DecodedKeeper {
    /// Creates the keeper; the returned descriptor is for the server.
    pub(crate) fn new(file: DecodedFile) -> Result<(Self, OwnedFd), Error> {
        let (socket, theirs) = socket_pair()?;
        Ok((Self { socket, file }, theirs))
    }

    /// Creates the process. Its output is `null`, so that readers of the helper's output do not
    /// wait for this process. If it cannot be created, the server's requests fail.
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

/// Answers requests, which arrive on standard input, until the socket is closed.
fn serve(file: &mut DecodedFile) {
    let socket = rustix::stdio::stdin();
    loop {
        let outcome = match receive(socket) {
            Ok((Request::AddDecoded, bytes)) => file.add(&bytes),
            Ok((Request::WriteDecoded, _)) => file.commit(),
            Ok((request, _)) => Err(Error::Protocol(format!("unexpected request {request:?}"))),
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
