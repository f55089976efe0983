//! Writes the decoded bytes of launches, in a separate process: a fork of the mount helper, created
//! when the server's first packet arrives. The process ends when its socket is closed.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use super::decoded_file::DecodedFile;
use crate::child::ChildProcess;
use erofs_fuse::error::Error;
use erofs_fuse::protocol::{Answer, Request, receive, respond};

/// The name of the process, as `ps` shows it.
const NAME: &std::ffi::CStr = c"erofs_decoded";

/// A keeper whose process has not been created yet.
pub(crate) struct DecodedKeeper {
    /// Readable if a packet of the server has arrived, or if the server's end is closed.
    pub(crate) socket: OwnedFd,
    pub(crate) file: DecodedFile,
}

impl DecodedKeeper {
    /// Creates the process, with `null` as its output. If it cannot be created, the server's
    /// requests fail.
    pub(crate) fn wake(mut self, null: &OwnedFd) -> io::Result<ChildProcess> {
        ChildProcess::fork(self.socket, &[null.as_raw_fd()], || {
            ChildProcess::begin(NAME, null);
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
        if respond(socket, &outcome.map(|()| Answer::default())).is_err() {
            return;
        }
    }
}
