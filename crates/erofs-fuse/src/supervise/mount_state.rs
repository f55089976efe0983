//! The state of one mount in its helper: requested, mounted, served, unmounted.

use std::io;
use std::os::fd::OwnedFd;

use erofs_engine::Version;
use fuse_transport::{RequestsInFlight, TakenRequest};
use rustix::io::fcntl_dupfd_cloexec;

use super::deaths::Death;
use super::mount_fetcher::MountFetcher;
use super::replaceable::Replaceable;
use super::watcher;
use crate::child::ChildProcess;
use crate::companion::{DecodedFile, ProfileFile, Sleeping};
use crate::error::Error;
use crate::mounting::{self, Connection, EnableUringGuard, Mounted, passed, read_ahead};
use crate::options::ProfileLocation;
use crate::outside::MountRecord;
use crate::protocol::Request;
use crate::request::MountRequest;

/// Companions at a time: a server has two at most, and that which it replaces may be dying.
const COMPANIONS: usize = 4;

/// One mount, and what to undo.
pub(crate) struct MountState {
    request: MountRequest,
    mounted: Option<(Mounted, Connection)>,
    /// Detached once: a compromised server must not repeat it later.
    detached: bool,
    /// The server is about to end: its end is no death.
    ending: bool,
    replaceable: Replaceable,
    /// Companions that start with their first packet.
    asleep: Vec<Sleeping>,
    companions: Vec<ChildProcess>,
    /// With `profile=`, until a companion has it.
    profile: Option<ProfileFile>,
    /// Held until the handshake is complete.
    uring_guard: Option<EnableUringGuard>,
    handshake_done: bool,
    /// What shows the watcher, where there is one, that a process of the mount is alive.
    alive: Option<OwnedFd>,
    /// The process that serves.
    server: Option<i32>,
    /// While the mount is there.
    record: Option<MountRecord>,
    /// `/dev/null`, opened before anything was mounted.
    null: OwnedFd,
}

impl MountState {
    /// `null`: /dev/null; `ends`: see [`MountFetcher::new`].
    pub(crate) fn new(request: MountRequest, null: OwnedFd, ends: Vec<OwnedFd>) -> Self {
        let location = request.options.profile.clone();
        let profile = location.map(|location| ProfileFile::new(location, &request.mountpoint));
        Self {
            profile,
            companions: Vec::new(),
            null,
            request,
            mounted: None,
            detached: false,
            ending: false,
            replaceable: Replaceable::new(MountFetcher::new(ends)),
            asleep: Vec::new(),
            uring_guard: None,
            handshake_done: false,
            alive: None,
            server: None,
            record: None,
        }
    }

    pub(crate) fn handle(&mut self, request: Request) -> Result<Option<OwnedFd>, Error> {
        let passed = self.request.passed_device();
        let replaceable = &mut self.replaceable;
        match (request, &self.mounted) {
            (Request::Open { file, .. }, _) => replaceable.file(&self.request, file).map(Some),
            (Request::Mount { .. }, None) if passed.is_some() => {
                let number = passed.unwrap_or_default();
                passed::device(&self.request.mountpoint, number).map(Some)
            }
            _ if passed.is_some() => Ok(None),
            (Request::Decoded, _) => self.decoded(),
            (Request::InFlight, _) => replaceable.shared().map(Some),
            (Request::Clone { number }, Some((_, connection))) => {
                replaceable.clone(connection.device(), number).map(Some)
            }
            (Request::Resume, Some((_, connection))) if self.handshake_done => {
                let device = fcntl_dupfd_cloexec(connection.device(), 0);
                device.map(Some).map_err(Error::io("/dev/fuse"))
            }
            (Request::Served, Some(_)) if self.handshake_done => {
                replaceable.served = true;
                if self.is_replaceable() {
                    self.note(MountRecord::offer_upgrades);
                }
                self.alive()
            }
            // The mount stays detached; a server that is asked to end asks again.
            (Request::Detach, _) if self.detached => Ok(None),
            _ if self.detached => Err(out_of_order(request)),
            (Request::Mount { max_read }, None) => self.mount(max_read).map(Some),
            (Request::HandshakeDone, Some((mounted, _))) => {
                self.uring_guard = None;
                self.handshake_done = true;
                self.alive.iter().for_each(watcher::handshake_done);
                read_ahead::set(mounted, self.request.options.read_ahead_kb)?;
                self.alive()
            }
            (Request::Names, Some((mounted, _))) => {
                let mounted = mounted.clone();
                self.companion(&mounted, None)
            }
            (Request::Profile, Some((mounted, _))) => {
                let none = || Error::Protocol("no profile was requested".into());
                let (mounted, profile) = (mounted.clone(), self.profile.take());
                self.companion(&mounted, Some(profile.ok_or_else(none)?))
            }
            (Request::ReadAhead, Some((mounted, _))) => Ok(read_ahead::open(mounted)),
            (Request::Detach, Some(_)) => self.detach().map(|()| None),
            (Request::Mark, Some((mounted, _))) => mounted.mark().map(|()| None),
            (Request::Expire, Some((mounted, _))) => mounted.expire().map(|()| None),
            _ => Err(out_of_order(request)),
        }
    }

    /// Of what was requested; `None` if it is no file, or the server cannot take the version.
    pub(crate) fn version(&self, request: Request) -> Option<Version> {
        match request {
            Request::Open {
                file,
                versioned: true,
            } => self.replaceable.version(file),
            _ => None,
        }
    }

    /// Of an image in one file, which nothing verifies while it is read.
    fn decoded(&mut self) -> Result<Option<OwnedFd>, Error> {
        let request = &self.request;
        let profile = self.profile.as_mut().filter(|_| request.keeps_decoded());
        let profile = profile.ok_or_else(|| Error::Protocol("no profile was requested".into()))?;
        let image = self.replaceable.file(request, 0)?;
        let options = &request.options;
        let decoded = DecodedFile::of(&image, options.engine.offset, options.decoded_bytes());
        profile.keep_decoded(decoded)
    }

    fn companion(
        &mut self,
        mounted: &Mounted,
        profile: Option<ProfileFile>,
    ) -> Result<Option<OwnedFd>, Error> {
        self.reap();
        if self.asleep.len() + self.companions.len() >= COMPANIONS {
            let why = format!("a mount has at most {COMPANIONS} companions");
            return Err(Error::Protocol(why));
        }
        let (sleeping, theirs) = Sleeping::new(mounted, profile)?;
        self.asleep.push(sleeping);
        Ok(Some(theirs))
    }

    /// Waits for companions that have ended.
    pub(crate) fn reap(&mut self) {
        self.companions
            .retain(|companion| matches!(companion.try_wait(), Ok(None)));
    }

    fn mount(&mut self, max_read: usize) -> Result<OwnedFd, Error> {
        let request = &self.request;
        self.uring_guard = EnableUringGuard::new(&request.options)?;
        if let Some(profile) = &request.options.profile
            && *profile != ProfileLocation::Learned
            && let Ok(mountpoint) = request.mountpoint.canonicalize()
        {
            ProfileFile::check_place(profile, &mountpoint)?;
        }
        let auto_unmount = request.options.auto_unmount;
        let is_watched = auto_unmount || request.foreground;
        let (null, alive) = (&self.null, &mut self.alive);
        let made = mounting::mount(request, max_read, |expected| {
            if is_watched {
                *alive = Some(watcher::start(expected, null, auto_unmount)?);
            }
            Ok(())
        });
        let (mounted, device) = made.inspect_err(|_| drop(alive.take()))?;
        alive.iter().for_each(watcher::is_mounted);
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
    pub(crate) fn is_served_by(&mut self, server: Option<i32>) {
        self.server = server;
        self.note(|record| record.set_server(server));
    }

    /// The end of the server is no death, and there is nothing to upgrade: the next mount may get
    /// the number that is in the record.
    pub(crate) fn ends(&mut self) {
        self.ending = true;
        self.record = None;
    }

    /// Takes the mount out of the tree, whatever the server does.
    pub(crate) fn detach(&mut self) -> Result<(), Error> {
        self.ends();
        if let Some((mounted, _)) = self.mounted.as_ref().filter(|_| !self.detached) {
            mounted.detach()?;
            self.detached = true;
        }
        Ok(())
    }

    /// Reports an error when the connection has ended.
    pub(crate) fn device(&self) -> Option<&OwnedFd> {
        let mounted = self.mounted.as_ref();
        mounted.map(|(_, connection)| connection.device())
    }

    /// The process that fetches from URLs.
    pub(crate) fn fetcher(&self) -> &MountFetcher {
        &self.replaceable.fetcher
    }

    pub(crate) fn fetcher_mut(&mut self) -> &mut MountFetcher {
        &mut self.replaceable.fetcher
    }

    /// Companions that start when their descriptor is readable.
    pub(crate) fn asleep(&self) -> &[Sleeping] {
        &self.asleep
    }

    /// Starts one of them.
    pub(crate) fn start(&mut self, index: usize) {
        // If it cannot start, the requests of the server fail.
        let started = self.asleep.swap_remove(index).wake(&self.null);
        self.companions.extend(started);
    }

    pub(crate) fn upgrade_begins(&mut self) {
        self.note(MountRecord::begin);
    }

    pub(crate) fn upgrade_ends(&mut self, outcome: &Result<(), Error>) {
        self.note(|record| record.end(outcome));
    }

    /// The launch profile that was requested.
    pub(crate) fn profile(&self) -> Option<&ProfileLocation> {
        self.request.options.profile.as_ref()
    }

    /// Whether another server can take the place of this one.
    pub(crate) fn is_replaceable(&self) -> bool {
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
    pub(crate) fn death(&self) -> Death {
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
    pub(crate) fn refuse(&self, request: TakenRequest) -> bool {
        let shared = self.in_flight();
        shared.is_some_and(|shared| shared.refuse(request))
    }

    /// Before a server gets the mount of another one: see [`RequestsInFlight::begin_again`].
    pub(crate) fn begin_again(&self, one_by_one: bool) {
        if let Some(shared) = self.in_flight() {
            shared.begin_again(one_by_one);
        }
    }

    /// Cleans up after the server exited or died.
    pub(crate) fn server_exited(self) -> Result<(), Error> {
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
    Error::Protocol(format!(
        "request {request:?} to the mount helper is out of order"
    ))
}
