//! The state of one mount in its helper: requested, mounted, served, unmounted.

use std::os::fd::OwnedFd;
use std::thread;
use std::time::Duration;

use super::enable_uring::EnableUringGuard;
use super::mount;
use super::mounted::Mounted;
use super::protocol::Request;
use super::{read_ahead, table};
use crate::error::Error;
use crate::request::MountRequest;

/// Number of checks, [`CHECK_INTERVAL`] apart, whether a mount whose server exited is dead, before it
/// is left alone: a dying process closes its descriptors one after another.
const CHECKS: usize = 100;
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// One mount, and what to undo.
pub(super) struct MountState {
    request: MountRequest,
    mounted: Option<Mounted>,
    /// Held until the handshake is complete.
    uring_guard: Option<EnableUringGuard>,
    handshake_done: bool,
}

impl MountState {
    pub(super) fn new(request: MountRequest) -> Self {
        Self {
            request,
            mounted: None,
            uring_guard: None,
            handshake_done: false,
        }
    }

    pub(super) fn handle(&mut self, request: Request) -> Result<Option<OwnedFd>, Error> {
        match (request, &self.mounted) {
            (Request::Mount { max_read }, None) => self.mount(max_read).map(Some),
            (Request::HandshakeDone, Some(mounted)) => {
                self.uring_guard = None;
                self.handshake_done = true;
                read_ahead::set(&mounted.mountpoint, self.request.options.read_ahead_kb)?;
                Ok(None)
            }
            (Request::Detach, Some(mounted)) => mounted.detach().map(|()| None),
            (Request::Expire, Some(mounted)) => mounted.expire().map(|()| None),
            _ => Err(Error::Daemon(format!(
                "request '{request}' to the mount helper is out of order"
            ))),
        }
    }

    fn mount(&mut self, max_read: usize) -> Result<OwnedFd, Error> {
        self.uring_guard = EnableUringGuard::new(&self.request.options)?;
        let (mounted, device) = mount::mount(&self.request, max_read)?;
        self.mounted = Some(mounted);
        Ok(device)
    }

    /// Cleans up after the server exited.
    pub(super) fn server_exited(self) -> Result<(), Error> {
        match self.mounted {
            Some(mounted) if self.request.options.auto_unmount || !self.handshake_done => {
                unmount_dead(&mounted)
            }
            _ => Ok(()),
        }
    }
}

/// Unmounts a mount whose server is dead, unless it is unmounted already.
///
/// fusermount3 has a mode for this, but it checks whether the mount's root can still be opened, and
/// here it can: the kernel keeps attributes that it was given after the server is dead.
fn unmount_dead(mounted: &Mounted) -> Result<(), Error> {
    for _ in 0..CHECKS {
        if !mounted.is_mounted()? {
            return Ok(());
        }
        if table::is_dead(&mounted.mountpoint) {
            return mounted.detach();
        }
        thread::sleep(CHECK_INTERVAL);
    }
    Ok(())
}
