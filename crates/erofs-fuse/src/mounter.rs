//! Who mounts and unmounts: this process, or another one beside it.
//!
//! A process in the [sandbox](crate::sandbox) can neither mount nor unmount, so another one, which
//! is this program started again, does both for it and nothing else. It never looks into an image.
//!
//! 1. The server starts it with [`MARK`](crate::daemon::MARK) set to [`APART`], the command line of
//!    a daemon behind that word, and a socket as its standard input.
//! 2. It takes [`Order`]s from the socket, one at a time, and answers each. With the answer to
//!    `mount` comes the descriptor of `/dev/fuse`; it keeps none of its own.
//! 3. When the socket ends, so did the server. The mount is then taken away if nobody ever served
//!    it, or with `auto_unmount`.

mod apart;
mod hands;

use std::ffi::OsString;
use std::os::fd::OwnedFd;

use crate::{Error, MountRequest, daemon};

use apart::Apart;
use hands::Hands;

/// The value of [`daemon::MARK`] that makes a mounter of this program.
pub(crate) const APART: &str = "mounter";

/// What can be asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    /// Mount, for reads of at most this many bytes.
    Mount(usize),
    /// The handshake with the kernel is over.
    Agreed,
    /// Take the mount out of the tree; programs that use it keep what they have.
    Detach,
    /// Unmount if it was not used since the last time.
    Expire,
}

/// Mounts once, and unmounts.
pub(crate) struct Mounter(Kind);

enum Kind {
    Here(Box<Hands>),
    Apart(Apart),
}

impl Mounter {
    /// The mounter of one mount.
    pub(crate) fn new(request: &MountRequest) -> Result<Self, Error> {
        let options = &request.options;
        Ok(Self(if options.sandbox || options.auto_unmount {
            Kind::Apart(Apart::start(request)?)
        } else {
            Kind::Here(Box::new(Hands::new(request.clone())))
        }))
    }

    /// Mounts. The descriptor of `/dev/fuse` waits for the kernel's first request.
    pub(crate) fn mount(&mut self, max_read: usize) -> Result<OwnedFd, Error> {
        let device = self.order(Order::Mount(max_read))?;
        device.ok_or_else(|| Error::Daemon("the mounter sent no descriptor".to_owned()))
    }

    /// To be called when the handshake is over, so that the kernel's settings can be.
    pub(crate) fn agreed(&mut self) -> Result<(), Error> {
        self.order(Order::Agreed).map(drop)
    }

    /// Takes the mount out of the tree; programs that use it keep what they have.
    pub(crate) fn detach(&mut self) -> Result<(), Error> {
        self.order(Order::Detach).map(drop)
    }

    /// Unmounts if it was not used since the last call (as root) or is not in use (else).
    pub(crate) fn expire(&mut self) -> Result<(), Error> {
        self.order(Order::Expire).map(drop)
    }

    fn order(&mut self, order: Order) -> Result<Option<OwnedFd>, Error> {
        match &mut self.0 {
            Kind::Here(hands) => hands.obey(order),
            Kind::Apart(apart) => apart.order(order),
        }
    }
}

/// The life of a mounter that is a process of its own.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Error> {
    // The first one only names the process.
    apart::run(daemon::parse(arguments.get(1..).unwrap_or_default())?)
}
