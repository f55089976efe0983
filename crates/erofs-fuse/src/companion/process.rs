//! The process of a companion: a fork of the mount helper, made when the first packet comes, since
//! many mounts need none. It ends with its socket.
//!
//! The names that a server passes reach nothing outside of its mount, and no file but the profile
//! is written. A server that an image has taken over gets no more: requests are bounded in number
//! and size (docs/sandbox.md).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use super::detached_copy::DetachedCopy;
use super::profile_file::ProfileFile;
use super::visit;
use crate::child::ChildProcess;
use crate::error::Error;
use crate::inherited;
use crate::mounting::Mounted;
use crate::packets::socket_pair;
use crate::protocol::{Request, receive, respond};

/// Its name for `ps`.
const NAME: &std::ffi::CStr = c"erofs_companion";

/// A companion whose process is not there yet.
pub(crate) struct Sleeping {
    socket: OwnedFd,
    mounted: Mounted,
    /// The profile of the mount, which one companion has.
    profile: Option<ProfileFile>,
}

impl AsFd for Sleeping {
    /// Readable when there is a packet, or never will be.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Sleeping {
    /// The descriptor is for the server.
    pub(crate) fn new(
        mounted: &Mounted,
        profile: Option<ProfileFile>,
    ) -> Result<(Self, OwnedFd), Error> {
        let (socket, theirs) = socket_pair()?;
        let mounted = mounted.clone();
        let this = Self {
            socket,
            mounted,
            profile,
        };
        Ok((this, theirs))
    }

    /// Makes the process. Its output is `null`: who reads that of the helper does not wait for it.
    /// If it cannot be made, the server's requests fail.
    pub(crate) fn wake(self, null: &OwnedFd) -> io::Result<ChildProcess> {
        let (mounted, mut profile) = (self.mounted, self.profile);
        // The file of the profile may be a descriptor.
        let mut kept = inherited::named_descriptors();
        kept.push(null.as_raw_fd());
        ChildProcess::fork(self.socket, &kept, || {
            let _ = rustix::thread::set_name(NAME);
            let _ = rustix::stdio::dup2_stdout(null);
            let _ = rustix::stdio::dup2_stderr(null);
            serve(mounted, profile.as_mut());
            0
        })
    }
}

/// Answers requests, which come over the standard input, to their end.
fn serve(mounted: Mounted, mut profile: Option<&mut ProfileFile>) {
    let socket = rustix::stdio::stdin();
    let mut copy = DetachedCopy::new(mounted);
    loop {
        copy.wait_beside(socket);
        let outcome = match receive(socket) {
            Ok((request, bytes)) => handle(request, &bytes, profile.as_deref_mut(), &mut copy),
            // Of a server of another version.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(Error::std_io("companion")(error))
            }
            Err(_) => return,
        };
        let response = outcome.map(Into::into).map_err(|error| (&error).into());
        if respond(socket, &response).is_err() {
            return;
        }
    }
}

fn handle(
    request: Request,
    bytes: &[u8],
    profile: Option<&mut ProfileFile>,
    copy: &mut DetachedCopy,
) -> Result<Option<OwnedFd>, Error> {
    let none = || Error::Protocol("no profile was requested".into());
    let profile = profile.ok_or_else(none);
    match request {
        Request::OpenProfile => profile?.open(bytes),
        Request::AddToProfile => profile?.add(bytes).map(|()| None),
        Request::WriteProfile => profile?.commit().map(|()| None),
        Request::AddDecoded => profile?.decoded()?.add(bytes).map(|()| None),
        Request::WriteDecoded => profile?.decoded()?.commit().map(|()| None),
        Request::List => visit::list(copy, bytes).map(|()| None),
        Request::LookUp => visit::look_up(copy, bytes).map(|()| None),
        Request::Memory => Ok(File::open("/proc/meminfo").ok().map(OwnedFd::from)),
        _ => Err(Error::Protocol(format!("no companion does {request:?}"))),
    }
}
