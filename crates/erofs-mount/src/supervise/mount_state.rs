//! The state of one mount in its helper: requested, mounted, served, unmounted.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use erofs_engine::Version;
use fuse_transport::TakenRequest;
use rustix::io::fcntl_dupfd_cloexec;

use super::deaths::Death;
use super::mount_fetcher::MountFetcher;
use super::replaceable::Replaceable;
use super::watcher;
use crate::child::ChildProcess;
use crate::companion::{
    CompanionOfMount, DecodedFile, DecodedKeeper, ProfileFile, travelling_file,
};
use crate::mounting::{self, Connection, EnableUringGuard, Made, Mounted, passed, read_ahead};
use crate::outside::MountRecord;
use erofs_fuse::error::Error;
use erofs_fuse::options::ProfileLocation;
use erofs_fuse::packets::socket_pair;
use erofs_fuse::protocol::Request;
use erofs_fuse::request::MountRequest;

/// One mount, and everything that must be undone at its end.
pub(crate) struct MountState {
    request: MountRequest,
    mounted: Option<(Mounted, Connection)>,
    /// Whether the mount was detached. This is done only once, so that a compromised server cannot
    /// do it again later.
    detached: bool,
    /// Whether the server is about to end, so that its end does not count as a death.
    ending: bool,
    pub(super) replaceable: Replaceable,
    /// The profile named by `profile=`, until the companion has it.
    profile: Option<ProfileFile>,
    /// A profile that travels with the image, until the companion has it.
    travelling: Option<OwnedFd>,
    /// The companion, which the server requests before the mount is made.
    companion: Option<CompanionOfMount>,
    /// Whether the companion starts with the mount.
    looks_ahead: bool,
    /// A copy of the mount, until the companion has it.
    copy: Option<OwnedFd>,
    /// The file of the decoded bytes of launches, until the server asks to write it.
    decoded: Option<DecodedFile>,
    /// The keeper of that file, until its first packet arrives.
    pub(super) keeper: Option<DecodedKeeper>,
    /// The keeper's process, which starts when that packet arrives.
    keeping: Option<ChildProcess>,
    /// Whether the mount has had a keeper.
    has_kept: bool,
    /// Held until the handshake is complete.
    uring_guard: Option<EnableUringGuard>,
    handshake_done: bool,
    /// While open, shows the watcher, if there is one, that a process of the mount is alive.
    alive: Option<OwnedFd>,
    /// ID of the process that serves.
    server: Option<i32>,
    /// The record of the mount for the commands; it exists as long as the mount does.
    record: Option<MountRecord>,
    /// `/dev/null`, opened before anything was mounted.
    null: OwnedFd,
}

impl MountState {
    /// Creates the state. `null` is `/dev/null`; for `ends` see [`MountFetcher::new`].
    pub(crate) fn new(request: MountRequest, null: OwnedFd, ends: Vec<OwnedFd>) -> Self {
        let location = request.options.profile.clone();
        let profile = location.map(|location| ProfileFile::new(location, &request.mountpoint));
        let travelling = profile
            .as_ref()
            .and_then(|_| travelling_file::beside(&request));
        Self {
            profile,
            travelling,
            companion: None,
            looks_ahead: false,
            copy: None,
            decoded: None,
            keeper: None,
            keeping: None,
            has_kept: false,
            null,
            request,
            mounted: None,
            detached: false,
            ending: false,
            replaceable: Replaceable::new(MountFetcher::new(ends)),
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
            // The helper has detached the mount already; a server that was told to end asks for it
            // even so.
            (Request::Detach, _) if self.detached => Ok(None),
            _ if self.detached => Err(out_of_order(request)),
            (Request::Mount { max_read }, None) => self.mount(max_read).map(Some),
            (Request::HandshakeDone, Some((mounted, _))) => {
                self.uring_guard = None;
                self.handshake_done = true;
                self.alive.iter().for_each(watcher::handshake_done);
                read_ahead::set(mounted, &self.request.options)?;
                self.alive()
            }
            (Request::Events, _) => self.companion()?.events().map(Some),
            (Request::Wake, _) => self.companion()?.wake().map(Some),
            (Request::LookAhead, None) => {
                self.looks_ahead = true;
                Ok(None)
            }
            // The process for which a server of version 1.0.0 asks no longer exists. This socket
            // ignores the server's requests, because its other end is closed.
            (Request::Broker, Some(_)) => Ok(Some(socket_pair()?.1)),
            (Request::KeepDecoded, _) => self.keep_decoded().map(Some),
            (Request::ReadAhead, Some((mounted, _))) => Ok(read_ahead::open(mounted)),
            (Request::Detach, Some(_)) => self.detach().map(|()| None),
            (Request::Mark, Some((mounted, _))) => mounted.mark().map(|()| None),
            (Request::Expire, Some((mounted, _))) => mounted.expire().map(|()| None),
            _ => Err(out_of_order(request)),
        }
    }

    /// The version of the requested file; `None` if something else is requested, or if the server
    /// does not know versions.
    pub(crate) fn version(&self, request: Request) -> Option<Version> {
        match request {
            Request::Open {
                file,
                versioned: true,
            } => self.replaceable.version(file),
            _ => None,
        }
    }

    /// Opens the file of decoded bytes; only for an image in one file that is not verified while it
    /// is read.
    fn decoded(&mut self) -> Result<Option<OwnedFd>, Error> {
        let request = &self.request;
        let is_kept = request.keeps_decoded() && !self.has_kept;
        let companion = self.companion.as_ref();
        let profile = companion.map_or(self.profile.as_ref(), CompanionOfMount::profile);
        let is_reachable = profile.is_none_or(ProfileFile::is_reachable);
        if !is_kept || !is_reachable {
            return Err(no_decoded());
        }
        let image = self.replaceable.file(request, 0)?;
        let options = &request.options;
        let decoded = DecodedFile::of(&image, options.engine.offset, options.decoded_bytes());
        self.decoded = decoded;
        Ok(self.decoded.as_ref().ok_or_else(no_decoded)?.open())
    }

    /// Starts keeping decoded bytes. Succeeds only once: a server that asks again must not be able
    /// to write more often.
    fn keep_decoded(&mut self) -> Result<OwnedFd, Error> {
        let file = self.decoded.take().ok_or_else(no_decoded)?;
        let (socket, theirs) = socket_pair()?;
        self.keeper = Some(DecodedKeeper { socket, file });
        self.has_kept = true;
        Ok(theirs)
    }

    /// Gets or creates the companion of the mount. The companion's process is started later.
    fn companion(&mut self) -> Result<&CompanionOfMount, Error> {
        match &mut self.companion {
            Some(companion) => Ok(companion),
            none => {
                let (profile, travelling) = (self.profile.take(), self.travelling.take());
                Ok(none.insert(CompanionOfMount::new(profile, travelling, &self.null)?))
            }
        }
    }

    /// Starts the companion of a mount that was just made. Meanwhile the server does the handshake,
    /// and the companion asks for a copy of the mount if it got none.
    pub(crate) fn start_companion(&mut self) {
        let copy = self.copy.take();
        if let Some(companion) = &mut self.companion
            && let Some((mounted, _)) = &self.mounted
        {
            companion.is_mounted(mounted);
            if self.looks_ahead {
                companion.start_with(copy, &self.request);
            }
        }
    }

    /// Handles a change in the state of a child.
    pub(crate) fn reap(&mut self) {
        if let Some(companion) = &mut self.companion {
            companion.reap();
        }
        self.keeping
            .take_if(|keeping| !matches!(keeping.try_wait(), Ok(None)));
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
        let Made {
            mounted,
            device,
            copy,
        } = made.inspect_err(|_| drop(alive.take()))?;
        self.copy = copy.filter(|_| self.looks_ahead);
        alive.iter().for_each(watcher::is_mounted);
        self.record = MountRecord::new(&mounted.id.device).ok();
        let server = self.server;
        self.note(|record| record.set_server(server));
        self.mounted = Some((mounted, Connection::new(&device)?));
        Ok(device)
    }

    /// The descriptor that the server holds while it is alive.
    fn alive(&self) -> Result<Option<OwnedFd>, Error> {
        let held = self.alive.as_ref();
        let held = held.map(|held| fcntl_dupfd_cloexec(held, 0));
        held.transpose().map_err(Error::io("a descriptor"))
    }

    /// Writes to the record. If there is no memory for that, commands such as `erofast stat` know
    /// less about the mount.
    pub(super) fn note(&mut self, write: impl FnOnce(&mut MountRecord) -> io::Result<()>) {
        if let Some(record) = &mut self.record {
            let _ = write(record);
        }
    }

    /// Notes which process serves from now on.
    pub(crate) fn is_served_by(&mut self, server: Option<i32>) {
        self.server = server;
        self.note(|record| record.set_server(server));
    }

    /// From now on the end of the server does not count as a death. The record is removed, because
    /// the next mount may get the device number in it.
    pub(crate) fn ends(&mut self) {
        self.ending = true;
        self.record = None;
    }

    /// Detaches the mount from the tree, whatever the server does.
    pub(crate) fn detach(&mut self) -> Result<(), Error> {
        self.ends();
        if let Some((mounted, _)) = self.mounted.as_ref().filter(|_| !self.detached) {
            mounted.detach()?;
            self.detached = true;
        }
        Ok(())
    }

    /// The descriptor of the device; it reports an error once the connection has ended.
    pub(crate) fn device(&self) -> Option<&OwnedFd> {
        let mounted = self.mounted.as_ref();
        mounted.map(|(_, connection)| connection.device())
    }

    /// Readable when the companion has sent a request or has work to do.
    pub(crate) fn companion_socket(&self) -> Option<BorrowedFd<'_>> {
        let is_served = self.replaceable.served;
        let companion = self.companion.as_ref();
        let companion = companion.filter(|it| is_served || it.is_running());
        companion.and_then(CompanionOfMount::watched)
    }

    /// Does the companion's work. Returns a line for the log.
    pub(crate) fn attend_companion(&mut self) -> Option<String> {
        self.companion.as_mut()?.attend(&self.request)
    }

    /// Takes the profile that travels with the image, if it has been fetched.
    pub(crate) fn take_travelling(&mut self) {
        let Some(file) = self.replaceable.fetcher.take_launches() else {
            return;
        };
        match &mut self.companion {
            Some(companion) => companion.has_come(file),
            None => self.travelling = Some(file),
        }
    }

    /// Starts the process of the keeper, whose socket has become readable.
    pub(crate) fn wake_decoded(&mut self) {
        let keeper = self.keeper.take();
        // If the process cannot start, the requests of the server fail.
        self.keeping = keeper.and_then(|keeper| keeper.wake(&self.null).ok());
    }

    /// Whether another server can replace this one.
    pub(crate) fn is_replaceable(&self) -> bool {
        let is_alive = |(_, connection): &(Mounted, Connection)| connection.is_alive();
        let has_mount = self.mounted.as_ref().is_some_and(is_alive);
        has_mount && !self.ending && self.replaceable.in_flight().is_some()
    }

    /// The state that a server had reached when it died. Counts the death.
    pub(crate) fn death(&self) -> Death {
        let Some(shared) = self.replaceable.in_flight() else {
            return Death::default();
        };
        shared.count_restart();
        Death {
            taken: shared.requests(),
            last: shared.last(),
            answered: shared.has_answered(),
        }
    }

    /// Marks a request to be answered with EIO when the kernel resends it; returns false if it is
    /// already marked.
    pub(crate) fn refuse(&self, request: TakenRequest) -> bool {
        let shared = self.replaceable.in_flight();
        shared.is_some_and(|shared| shared.refuse(request))
    }

    /// Prepares for a server that takes over the mount: see [`RequestsInFlight::begin_again`].
    pub(crate) fn begin_again(&self, one_by_one: bool) {
        if let Some(shared) = self.replaceable.in_flight() {
            shared.begin_again(one_by_one);
        }
    }

    /// Hides this process's record, in a standby: the active helper has the record that counts.
    /// Closes the pipe and the socket that must close as soon as the helper closes them.
    pub(crate) fn stands_by(&mut self) {
        let Self { record, null, .. } = self;
        if let Some(record) = record {
            let _ = record.hide(null);
        }
        if let Some(companion) = &mut self.companion {
            companion.stands_by();
        }
        (self.keeper, self.keeping) = (None, None);
    }

    /// Takes over from a mount helper that is dead, and gives up the processes that the dead helper
    /// started.
    pub(crate) fn takes_over(&mut self) {
        self.note(|record| record.set_server(None));
        if let Some(companion) = &mut self.companion {
            companion.is_orphaned();
        }
        self.replaceable.fetcher.is_orphaned();
    }

    /// Cleans up after the server exited or died.
    pub(crate) fn server_exited(&mut self) -> Result<(), Error> {
        let Some((mounted, connection)) = self.mounted.take() else {
            return Ok(());
        };
        let aborted = connection.abort(&mounted);
        // This comes after aborting, because a companion may be waiting for the dead server.
        if let Some(companion) = &mut self.companion {
            match self.replaceable.served {
                true => companion.finish(&self.request),
                false => companion.kill(),
            }
        }
        let left_behind = self.request.options.auto_unmount || !self.handshake_done;
        if left_behind && !self.detached {
            mounted.detach()?;
        }
        aborted
    }
}

fn no_decoded() -> Error {
    Error::Protocol("decoded bytes of this image are not kept".into())
}

fn out_of_order(request: Request) -> Error {
    Error::Protocol(format!(
        "request {request:?} to the mount helper is out of order"
    ))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use erofs_fuse::options::MountOptions;

    #[test]
    fn a_mount_keeps_decoded_bytes_once_even_if_the_keeper_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let image = folder.path().join("image");
        std::fs::write(&image, "bytes").unwrap();
        let options = MountOptions::parse(&["profile=learn,decoded_size=1M"]).unwrap();
        let request = MountRequest {
            image,
            mountpoint: folder.path().to_owned(),
            options,
            foreground: false,
        };
        let null = File::open("/dev/null").unwrap();
        let mut state = MountState::new(request, null.into(), Vec::new());
        if state.handle(Request::Decoded).is_err() {
            return println!("skipped: {} is no place for them", folder.path().display());
        }
        state.handle(Request::KeepDecoded).unwrap();
        // As if the keeper's process had started and ended.
        state.keeper = None;
        assert!(state.handle(Request::Decoded).is_err());
        assert!(state.handle(Request::KeepDecoded).is_err());
    }
}
