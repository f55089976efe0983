//! The state of one mount in its helper: requested, mounted, served, unmounted.

use std::os::fd::OwnedFd;

use super::connection::Connection;
use super::enable_uring::EnableUringGuard;
use super::mount;
use super::mounted::Mounted;
use super::protocol::Request;
use super::{launch, passed, read_ahead};
use crate::error::Error;
use crate::request::MountRequest;

/// One mount, and what to undo.
pub(super) struct MountState {
    request: MountRequest,
    mounted: Option<(Mounted, Connection)>,
    /// Detached once: a compromised server must not have it repeated at a later time.
    detached: bool,
    /// Held until the handshake is complete.
    uring_guard: Option<EnableUringGuard>,
    handshake_done: bool,
}

impl MountState {
    pub(super) fn new(request: MountRequest) -> Self {
        Self {
            request,
            mounted: None,
            detached: false,
            uring_guard: None,
            handshake_done: false,
        }
    }

    pub(super) fn handle(&mut self, request: Request) -> Result<Option<OwnedFd>, Error> {
        if let Some(number) = self.request.passed_device() {
            return passed::handle(request, &self.request.mountpoint, number);
        }
        match (request, &self.mounted) {
            _ if self.detached => Err(out_of_order(request)),
            (Request::Mount { max_read }, None) => self.mount(max_read).map(Some),
            (Request::HandshakeDone, Some((mounted, _))) => {
                self.uring_guard = None;
                self.handshake_done = true;
                read_ahead::set(mounted, self.request.options.read_ahead_kb)?;
                Ok(None)
            }
            (Request::Launch, Some((mounted, _))) => {
                launch::start(&self.request.options, mounted).map(Some)
            }
            (Request::Detach, Some((mounted, _))) => {
                mounted.detach()?;
                self.detached = true;
                Ok(None)
            }
            (Request::Mark, Some((mounted, _))) => mounted.mark().map(|()| None),
            (Request::Expire, Some((mounted, _))) => mounted.expire().map(|()| None),
            _ => Err(out_of_order(request)),
        }
    }

    fn mount(&mut self, max_read: usize) -> Result<OwnedFd, Error> {
        self.uring_guard = EnableUringGuard::new(&self.request.options)?;
        let (mounted, device) = mount::mount(&self.request, max_read)?;
        self.mounted = Some((mounted, Connection::new(&device)?));
        Ok(device)
    }

    /// Cleans up after the server exited or died.
    pub(super) fn server_exited(self) -> Result<(), Error> {
        let Some((mounted, connection)) = self.mounted else {
            return Ok(());
        };
        let aborted = connection.abort(&mounted);
        let left_behind = self.request.options.auto_unmount || !self.handshake_done;
        if left_behind && !self.detached {
            mounted.detach()?;
        }
        aborted
    }
}

fn out_of_order(request: Request) -> Error {
    Error::Daemon(format!(
        "request '{request}' to the mount helper is out of order"
    ))
}
