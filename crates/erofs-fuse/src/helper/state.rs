//! The state of one mount in its helper: requested, mounted, served, unmounted.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use erofs_engine::Version;
use fuse_transport::{RequestsInFlight, TakenRequest};
use rustix::io::fcntl_dupfd_cloexec;

use super::broker::{BrokerThread, SharedProfile};
use super::connection::Connection;
use super::deaths::Death;
use super::decoded_file::DecodedFile;
use super::enable_uring::EnableUringGuard;
use super::mount;
use super::mount_fetcher::MountFetcher;
use super::mounted::Mounted;
use super::profile_file::ProfileFile;
use super::protocol::HelperRequest;
use super::record::MountRecord;
use super::replaceable::Replaceable;
use super::{passed, read_ahead, watcher};
use crate::error::Error;
use crate::options::ProfileLocation;
use crate::request::MountRequest;

/// One mount, and what to undo.
pub(super) struct MountState {
    request: MountRequest,
    mounted: Option<(Mounted, Connection)>,
    /// Detached once: a compromised server must not repeat it later.
    detached: bool,
    /// The server is about to end: its end is no death.
    ending: bool,
    replaceable: Replaceable,
    /// Brokers that start with their first packet, since many mounts need none.
    asleep: Vec<BrokerThread>,
    /// Shared by all brokers, asleep or not.
    brokers: Arc<()>,
    /// With `profile=`.
    profile_file: Option<SharedProfile>,
    /// Held until the handshake is complete.
    uring_guard: Option<EnableUringGuard>,
    handshake_done: bool,
    /// With `auto_unmount`: what shows that a process of the mount is alive.
    alive: Option<OwnedFd>,
    /// The process that serves.
    server: Option<i32>,
    /// While the mount is there.
    record: Option<MountRecord>,
}

impl MountState {
    pub(super) fn new(request: MountRequest) -> Self {
        let location = request.options.profile.clone();
        let profile = location.map(|location| ProfileFile::new(location, &request.mountpoint));
        Self {
            profile_file: profile.map(|file| Arc::new(Mutex::new(file))),
            brokers: Arc::new(()),
            request,
            mounted: None,
            detached: false,
            ending: false,
            replaceable: Replaceable::default(),
            asleep: Vec::new(),
            uring_guard: None,
            handshake_done: false,
            alive: None,
            server: None,
            record: None,
        }
    }

    pub(super) fn handle(&mut self, request: HelperRequest) -> Result<Option<OwnedFd>, Error> {
        if let Some(number) = self.request.passed_device() {
            return passed::handle(request, &self.request.mountpoint, number);
        }
        let replaceable = &mut self.replaceable;
        match (request, &self.mounted) {
            (HelperRequest::Open { file, .. }, _) => {
                replaceable.file(&self.request, file).map(Some)
            }
            (HelperRequest::Decoded, _) => self.decoded(),
            (HelperRequest::InFlight, _) => replaceable.shared().map(Some),
            (HelperRequest::Clone { number }, Some((_, connection))) => {
                replaceable.clone(connection.device(), number).map(Some)
            }
            (HelperRequest::Resume, Some((_, connection))) if self.handshake_done => {
                let device = fcntl_dupfd_cloexec(connection.device(), 0);
                device.map(Some).map_err(Error::io("/dev/fuse"))
            }
            (HelperRequest::Served, Some(_)) if self.handshake_done => {
                replaceable.served = true;
                if self.is_replaceable() {
                    self.note(MountRecord::offer_upgrades);
                }
                self.alive()
            }
            // The mount stays detached; a server that is asked to end asks again.
            (HelperRequest::Detach, _) if self.detached => Ok(None),
            _ if self.detached => Err(out_of_order(request)),
            (HelperRequest::Mount { max_read }, None) => self.mount(max_read).map(Some),
            (HelperRequest::HandshakeDone, Some((mounted, _))) => {
                self.uring_guard = None;
                self.handshake_done = true;
                read_ahead::set(mounted, self.request.options.read_ahead_kb)?;
                self.alive()
            }
            (HelperRequest::Broker, Some((mounted, _))) => {
                let profile = self.profile_file.clone();
                let (broker, theirs) = BrokerThread::new(mounted, profile, &self.brokers)?;
                self.asleep.push(broker);
                Ok(Some(theirs))
            }
            (HelperRequest::ReadAhead, Some((mounted, _))) => Ok(read_ahead::open(mounted)),
            (HelperRequest::Detach, Some(_)) => self.detach().map(|()| None),
            (HelperRequest::Mark, Some((mounted, _))) => mounted.mark().map(|()| None),
            (HelperRequest::Expire, Some((mounted, _))) => mounted.expire().map(|()| None),
            _ => Err(out_of_order(request)),
        }
    }

    /// Of what was requested; `None` if it is no file, or the server cannot take the version.
    pub(super) fn version(&self, request: HelperRequest) -> Option<Version> {
        match request {
            HelperRequest::Open {
                file,
                versioned: true,
            } => self.replaceable.version(file),
            _ => None,
        }
    }

    /// Of an image in one file, which nothing verifies while it is read.
    fn decoded(&mut self) -> Result<Option<OwnedFd>, Error> {
        let request = &self.request;
        let profile = self
            .profile_file
            .as_ref()
            .filter(|_| request.keeps_decoded());
        let profile = profile.ok_or_else(|| Error::Protocol("no profile was requested".into()))?;
        let image = self.replaceable.file(request, 0)?;
        let options = &request.options;
        let decoded = DecodedFile::of(&image, options.engine.offset, options.decoded_bytes());
        let mut profile = profile.lock().unwrap_or_else(PoisonError::into_inner);
        profile.keep_decoded(decoded)
    }

    fn mount(&mut self, max_read: usize) -> Result<OwnedFd, Error> {
        self.uring_guard = EnableUringGuard::new(&self.request.options)?;
        let (mounted, device) = mount::mount(&self.request, max_read)?;
        if self.request.options.auto_unmount {
            let watcher = watcher::start(&mounted);
            let held = watcher.inspect_err(|_| drop(mounted.detach()))?;
            self.alive = Some(held);
        }
        self.record = MountRecord::new(&mounted.id.device).ok();
        let server = self.server;
        self.note(|record| record.set_server(server));
        self.mounted = Some((mounted, Connection::new(&device)?));
        Ok(device)
    }

    /// For the server to hold.
    fn alive(&self) -> Result<Option<OwnedFd>, Error> {
        let held = self.alive.as_ref();
        let held = held.map(|held| fcntl_dupfd_cloexec(held, 0));
        held.transpose().map_err(Error::io("a descriptor"))
    }

    /// Writes into the record. Without memory for it, the commands know less of the mount.
    fn note(&mut self, write: impl FnOnce(&mut MountRecord) -> io::Result<()>) {
        if let Some(record) = &mut self.record {
            let _ = write(record);
        }
    }

    /// This process serves from here on.
    pub(super) fn is_served_by(&mut self, server: Option<i32>) {
        self.server = server;
        self.note(|record| record.set_server(server));
    }

    /// The end of the server is no death, and there is nothing to upgrade: the next mount may get
    /// the number that is in the record.
    pub(super) fn ends(&mut self) {
        self.ending = true;
        self.record = None;
    }

    /// Takes the mount out of the tree, whatever the server does.
    pub(super) fn detach(&mut self) -> Result<(), Error> {
        self.ends();
        if let Some((mounted, _)) = self.mounted.as_ref().filter(|_| !self.detached) {
            mounted.detach()?;
            self.detached = true;
        }
        Ok(())
    }

    /// Reports an error when the connection has ended.
    pub(super) fn device(&self) -> Option<&OwnedFd> {
        let mounted = self.mounted.as_ref();
        mounted.map(|(_, connection)| connection.device())
    }

    /// The process that fetches from URLs.
    pub(super) fn fetcher(&self) -> &MountFetcher {
        &self.replaceable.fetcher
    }

    pub(super) fn fetcher_mut(&mut self) -> &mut MountFetcher {
        &mut self.replaceable.fetcher
    }

    /// Threads that start when their descriptor is readable.
    pub(super) fn asleep(&self) -> &[BrokerThread] {
        &self.asleep
    }

    /// Starts one of them.
    pub(super) fn start(&mut self, index: usize) {
        self.asleep.swap_remove(index).start();
    }

    pub(super) fn upgrade_begins(&mut self) {
        self.note(MountRecord::begin);
    }

    pub(super) fn upgrade_ends(&mut self, outcome: &Result<(), Error>) {
        self.note(|record| record.end(outcome));
    }

    /// The launch profile that was requested.
    pub(super) fn profile(&self) -> Option<&ProfileLocation> {
        self.request.options.profile.as_ref()
    }

    /// Whether another server can take the place of this one.
    pub(super) fn is_replaceable(&self) -> bool {
        let alive = self
            .mounted
            .as_ref()
            .map(|(_, connection)| connection.is_alive());
        let ends = self.detached || self.ending;
        !ends && alive == Some(true) && self.replaceable.in_flight().is_some()
    }

    /// What the server of a mount that is served shares.
    fn in_flight(&self) -> Option<&RequestsInFlight> {
        self.replaceable.in_flight()
    }

    /// What a server that died had done. Counts the death.
    pub(super) fn death(&self) -> Death {
        self.in_flight().map_or_else(Death::default, |shared| {
            shared.count_restart();
            Death {
                taken: shared.requests(),
                last: shared.last(),
                answered: shared.has_answered(),
            }
        })
    }

    /// Has a request answered with EIO when it is sent again; false if it is already.
    pub(super) fn refuse(&self, request: TakenRequest) -> bool {
        let shared = self.in_flight();
        shared.is_some_and(|shared| shared.refuse(request))
    }

    /// Before a server gets the mount of another one: see [`RequestsInFlight::begin_again`].
    pub(super) fn begin_again(&self, one_by_one: bool) {
        if let Some(shared) = self.in_flight() {
            shared.begin_again(one_by_one);
        }
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

fn out_of_order(request: HelperRequest) -> Error {
    Error::Protocol(format!(
        "request {request:?} to the mount helper is out of order"
    ))
}
