//! Mounting and unmounting itself.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use super::Order;
use crate::mounting::{self, Mounted};
use crate::{Error, MountRequest, readahead, uring};

/// Looks at a mount whose server ended, 50 ms apart, before it is left alone: descriptors of a
/// dying process close one after another.
const LOOKS: usize = 100;

/// One mount in the making, made, or gone.
pub(super) struct Hands {
    request: MountRequest,
    mounted: Option<Mounted>,
    /// Until the handshake is over.
    knob: Option<uring::Knob>,
    agreed: bool,
}

impl Hands {
    pub(super) fn new(request: MountRequest) -> Self {
        Self {
            request,
            mounted: None,
            knob: None,
            agreed: false,
        }
    }

    pub(super) fn obey(&mut self, order: Order) -> Result<Option<OwnedFd>, Error> {
        match (order, &self.mounted) {
            (Order::Mount(max_read), None) => self.mount(max_read).map(Some),
            (Order::Agreed, Some(mounted)) => {
                self.knob = None;
                self.agreed = true;
                readahead::set(&mounted.mountpoint, self.request.options.read_ahead_kb)?;
                Ok(None)
            }
            (Order::Detach, Some(mounted)) => mounted.detach().map(|()| None),
            (Order::Expire, Some(mounted)) => mounted.expire().map(|()| None),
            _ => Err(Error::Daemon("the mounter was asked out of turn".into())),
        }
    }

    fn mount(&mut self, max_read: usize) -> Result<OwnedFd, Error> {
        self.knob = uring::Knob::turn(&self.request.options)?;
        let (mounted, device) = mounting::mount(&self.request, max_read)?;
        self.mounted = Some(mounted);
        Ok(device)
    }

    /// After the end of the server.
    pub(super) fn bury(self) -> Result<(), Error> {
        match self.mounted {
            Some(mounted) if self.request.options.auto_unmount || !self.agreed => {
                take_away(&mounted)
            }
            _ => Ok(()),
        }
    }
}

/// Takes a mount away whose server is dead, unless somebody did already.
///
/// fusermount3 has a mode for this, but it asks whether the mount's root can still be opened, and
/// here it can: what the kernel was told once it keeps, also when the server is dead.
fn take_away(mounted: &Mounted) -> Result<(), Error> {
    for _ in 0..LOOKS {
        if !mounted.is_there()? {
            return Ok(());
        }
        if crate::is_dead_mount(&mounted.mountpoint) {
            return mounted.detach();
        }
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
