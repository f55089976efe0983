//! The companion's process, which looks ahead of the mount's readers ([`look_ahead`]), and the code
//! with which its parent, the mount helper, starts and ends it.
//!
//! The process is a fork of the helper. It reads nothing untrusted until it has work to do; then it
//! copies the mount and enters its own sandbox. If the companion dies, the mount works without it,
//! and the next event that needs the companion starts it again, a limited number of times.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use erofs_engine::remote;
use look_ahead::{Companion, Events, Origin, Reader, Settings};
use rustix::event::{EventfdFlags, PollFlags, eventfd};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::Signal;

use super::copied_mount::CopiedMount;
use super::errands::{self, Errands, LONGEST_NOTE, StoredProfile};
use super::profile_file::ProfileFile;
use super::sandbox;
use crate::child::ChildProcess;
use crate::inherited;
use crate::mounting::{Mounted, read_ahead, read_table};
use erofs_fuse::error::Error;
use erofs_fuse::options::{Prefetch, ProfileLocation, SandboxMode};
use erofs_fuse::packets::socket_pair;
use erofs_fuse::poll::{first_ready, has_ended};
use erofs_fuse::protocol::{Request, receive, respond};
use erofs_fuse::request::MountRequest;

/// The name of the process, as `ps` shows it.
const NAME: &std::ffi::CStr = c"erofs_companion";

/// Maximum number of lines that one mount's companion may write to the log.
const NOTES: usize = 4;

/// How many times the companion of one mount may be started.
const STARTS: u32 = 5;

/// How long the companion may take to write profiles after the mount has ended: on a busy machine
/// it may have to wait for a CPU.
const END: Duration = Duration::from_secs(10);

/// Maximum number of errands at a time. A child whose errand has been answered may still be ending.
const ERRANDS: usize = 4;

/// Interval between checks for errands that have ended.
const TICK: Duration = Duration::from_millis(1);

/// Exit status of a companion that will never have work in this mount.
const NEVER: i32 = 3;

/// The companion of a mount.
pub(crate) struct CompanionOfMount {
    /// The memory for events, which each server maps.
    events: OwnedFd,
    wake: OwnedFd,
    /// The helper's own mapping of the memory for events; the helper reads no events from it.
    reader: Reader,
    /// The memory in which the companion places the text of a profile that is to be written.
    text: OwnedFd,
    /// Set once the mount exists.
    mounted: Option<Mounted>,
    profile: Option<ProfileFile>,
    /// The profile that travels with the image.
    travelling: Option<OwnedFd>,
    /// Number of lines that the companion may still write to the log.
    notes: usize,
    running: Option<Running>,
    errands: Vec<ChildProcess>,
    /// Whether any event may be the beginning of a launch.
    any: bool,
    starts: u32,
    null: OwnedFd,
}

struct Running {
    child: ChildProcess,
    socket: OwnedFd,
    /// Closed when the mount has ended, so that the companion notices the end.
    end: Option<OwnedFd>,
}

impl CompanionOfMount {
    /// Creates the companion of a mount that does not exist yet.
    pub(crate) fn new(
        profile: Option<ProfileFile>,
        travelling: Option<OwnedFd>,
        null: &OwnedFd,
    ) -> Result<Self, Error> {
        const WHAT: &str = "memory for a companion";
        let events = Events::create().map_err(Error::std_io(WHAT))?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wake = eventfd(0, flags).map_err(Error::io(WHAT))?;
        let reader = map(&events, &wake)?;
        let any = profile
            .as_ref()
            .is_some_and(ProfileFile::begins_with_any_file);
        reader.set_unattended(any);
        let mut this = Self {
            any,
            travelling: None,
            notes: NOTES,
            reader,
            events,
            wake,
            text: memfd_create("profile", MemfdFlags::CLOEXEC)
                .map_err(Error::io("memfd_create"))?,
            mounted: None,
            profile,
            running: None,
            errands: Vec::new(),
            starts: 0,
            null: null.try_clone().map_err(Error::std_io("dup"))?,
        };
        if let Some(travelling) = travelling {
            this.has_come(travelling);
        }
        Ok(this)
    }

    /// Takes the profile that travels with the image, once it has arrived.
    pub(crate) fn has_come(&mut self, travelling: OwnedFd) {
        self.travelling = Some(travelling);
        self.reader.announce();
    }

    pub(crate) fn profile(&self) -> Option<&ProfileFile> {
        self.profile.as_ref()
    }

    /// A descriptor of the memory where a server records events.
    pub(crate) fn events(&self) -> Result<OwnedFd, Error> {
        self.events.try_clone().map_err(Error::std_io("dup"))
    }

    /// A descriptor of the eventfd by which a server wakes the companion.
    pub(crate) fn wake(&self) -> Result<OwnedFd, Error> {
        self.wake.try_clone().map_err(Error::std_io("dup"))
    }

    /// Readable when [`attend`](Self::attend) has something to do.
    pub(crate) fn watched(&self) -> Option<BorrowedFd<'_>> {
        match &self.running {
            // Accept more errands only after one of these has ended.
            Some(_) if self.errands.len() >= ERRANDS => None,
            Some(running) => Some(running.socket.as_fd()),
            // While the process does not run, an event that would wake it starts it instead.
            None => (self.starts < STARTS).then(|| self.wake.as_fd()),
        }
    }

    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Notes that the mount exists: from now on the process may be started when there is work.
    pub(crate) fn is_mounted(&mut self, mounted: &Mounted) {
        self.mounted = Some(mounted.clone());
    }

    /// Starts the process if a launch may be expected, before programs can use the mount, so that
    /// no launch gets ahead of the companion. `copy` is a copy of the mount, if one was made.
    pub(crate) fn start_with(&mut self, copy: Option<OwnedFd>, request: &MountRequest) {
        if self.profile.is_some() {
            self.start(request, copy);
        }
    }

    fn start(&mut self, request: &MountRequest, copy: Option<OwnedFd>) {
        self.starts += 1;
        let Ok((socket, theirs)) = socket_pair() else {
            return;
        };
        let Ok((end, held)) = std::io::pipe() else {
            return;
        };
        // The companion gets no other descriptor of the helper: some are for the server only, and
        // programs that wait for the mount wait until the last copy of another is closed.
        let named = inherited::named_by_profile(request.options.profile.as_ref());
        let open = [&self.events, &self.wake, &self.text, &self.null];
        let files = [&self.travelling, &copy].into_iter().flatten();
        let open = open.into_iter().chain(files).map(AsRawFd::as_raw_fd);
        let kept = open.chain(named).chain([end.as_raw_fd()]);
        let kept: Vec<_> = kept.collect();
        let child = ChildProcess::fork(theirs, &kept, || {
            ChildProcess::begin(NAME, &self.null);
            self.run(request, copy, end.as_fd())
        });
        self.running = child.ok().map(|child| Running {
            child,
            socket,
            end: Some(held.into()),
        });
        if self.running.is_none() {
            self.gone();
        }
    }

    /// Does the work that is due. Call this when [`watched`](Self::watched) is readable. Returns a
    /// line for the log.
    pub(crate) fn attend(&mut self, request: &MountRequest) -> Option<String> {
        let Some(running) = &self.running else {
            self.start(request, None);
            return None;
        };
        match receive(&running.socket) {
            Ok((Request::Note, line)) => {
                self.notes = self.notes.checked_sub(1)?;
                let line = &line[..line.len().min(LONGEST_NOTE)];
                return Some(String::from_utf8_lossy(line).into_owned());
            }
            Ok((Request::Travelling, _)) => {
                let file = self.travelling.as_ref().map(OwnedFd::try_clone).transpose();
                let file = file.map_err(Error::std_io("dup"));
                let _ = respond(&running.socket, &file.map(Into::into));
            }
            Ok(asked) => {
                let mounted = self.mounted.as_ref()?;
                let child = errands::run(
                    asked,
                    running.socket.as_fd(),
                    &self.text,
                    mounted,
                    self.profile.as_mut(),
                );
                self.errands.extend(child);
            }
            // The companion has ended or violated the protocol.
            Err(_) => self.end_process(),
        }
        None
    }

    fn end_process(&mut self) {
        let Some(running) = self.running.take() else {
            return;
        };
        if !has_ended(running.socket.as_fd()) {
            let _ = running.child.signal(Signal::KILL);
        }
        drop(running.socket);
        let status = running.child.wait_for(Duration::from_secs(1));
        let is_over =
            matches!(status, Ok(Some(status)) if matches!(status.code(), Some(0 | NEVER)));
        if is_over {
            self.starts = STARTS;
        }
        self.gone();
    }

    /// Closes the pipe of the companion, in a standby: only the helper itself keeps the pipe open,
    /// so that the companion notices when the mount or the helper ends.
    pub(crate) fn stands_by(&mut self) {
        if let Some(running) = &mut self.running {
            running.end = None;
        }
    }

    /// Gives up the errands and the companion that a dead mount helper started. The next event
    /// starts another companion.
    pub(crate) fn is_orphaned(&mut self) {
        self.errands.clear();
        self.end_process();
    }

    fn gone(&mut self) {
        self.reader.set_unattended(self.any);
        if self.starts >= STARTS {
            self.reader.set_closed(true);
        }
    }

    fn reap_errands(&mut self) {
        self.errands
            .retain(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// Reaps children. Call this when a child of this process has changed its state. A stopped
    /// companion is ended, because it could keep the mount busy.
    pub(crate) fn reap(&mut self) {
        self.reap_errands();
        if let Some(running) = &self.running
            && running.child.has_stopped()
        {
            let _ = running.child.signal(Signal::KILL);
            self.end_process();
        }
    }

    /// Kills the companion of a mount that failed before it was served, which leaves nothing to
    /// write. Does not wait for the companion: its pending request may not be answered before this
    /// process ends.
    pub(crate) fn kill(&mut self) {
        if let Some(running) = self.running.take() {
            let _ = running.child.signal(Signal::KILL);
        }
    }

    /// Lets the companion write its profiles after the mount has ended.
    pub(crate) fn finish(&mut self, request: &MountRequest) {
        let deadline = Instant::now() + END;
        if let Some(running) = &mut self.running {
            running.end = None;
        }
        while let Some(running) = &self.running {
            let left = deadline.saturating_duration_since(Instant::now());
            // The end of an errand, such as a write, is noticed only by checking.
            let limit = if self.errands.is_empty() {
                left
            } else {
                left.min(TICK)
            };
            let socket = self.watched().map(|socket| (socket, PollFlags::IN));
            match first_ready(socket.as_slice(), Some(limit)) {
                Ok(Some(_)) => drop(self.attend(request)),
                _ if left.is_zero() => {
                    let _ = running.child.signal(Signal::KILL);
                    return;
                }
                _ => {}
            }
            self.reap_errands();
        }
        while !self.errands.is_empty() && Instant::now() < deadline {
            thread::sleep(TICK);
            self.reap_errands();
        }
    }

    /// Runs in the companion's process. Returns its exit status.
    fn run(&self, request: &MountRequest, copy: Option<OwnedFd>, end: BorrowedFd<'_>) -> i32 {
        let reader = map(&self.events, &self.wake);
        let (Ok(reader), Some(mounted)) = (reader, &self.mounted) else {
            return NEVER;
        };
        match self.look_ahead(request, mounted, copy, &reader, end) {
            Ok(status) => status,
            Err(error) => {
                Companion::fail(&reader, &format!("no read-ahead for launches: {error}"));
                NEVER
            }
        }
    }

    fn look_ahead(
        &self,
        request: &MountRequest,
        mounted: &Mounted,
        mut copy: Option<OwnedFd>,
        reader: &Reader,
        end: BorrowedFd<'_>,
    ) -> Result<i32, Error> {
        let name = reader.file();
        let open = || -> Result<Option<File>, Error> {
            let Some(profile) = &self.profile else {
                return Ok(None);
            };
            let mut profile = profile.clone();
            profile.choose(&name)?;
            Ok(profile.open()?.map(File::from))
        };
        let known = open();
        let mut settings = self.settings(request, mounted, known.as_ref().err());
        let mut known = known.ok().flatten();
        if !Companion::has_work(reader, known.as_ref(), &settings) {
            // While this process sleeps, the copy would keep the filesystem alive.
            copy = None;
            if !Companion::wait_for_work(reader, &settings, end) {
                return Ok(0);
            }
            // Other mounts may have written the file by now.
            let opened = open();
            settings.trouble = opened.as_ref().err().map(ToString::to_string);
            known = opened.ok().flatten();
        }
        let socket = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3);
        let socket = socket.map_err(Error::io("stdin"))?;
        let text = self.text.try_clone().map_err(Error::std_io("dup"))?;
        let errands = Arc::new(Errands::new(socket, text));
        let is_mounted = || read_table().is_ok_and(|table| mounted.id.find(&table).is_some());
        let root = match copy.map_or_else(|| errands.copy(), Ok) {
            Ok(root) => Some(root),
            Err(error) if is_mounted() => return Err(error),
            // The mount is gone, so no more names can be looked up, but those already recorded are
            // used.
            Err(_) => None,
        };
        let mount = CopiedMount::new(mounted.clone(), Arc::clone(&errands))?;
        if request.options.sandbox != SandboxMode::Off {
            sandbox::enter(root.as_ref());
        }
        mount.keep(root);
        let travelling = self.travelling.as_ref().map(OwnedFd::try_clone);
        let travelling = travelling.transpose().map_err(Error::std_io("dup"))?;
        let store = Box::new(StoredProfile {
            errands,
            name,
            version: None,
            travelling: travelling.map(File::from),
        });
        let reader = map(&self.events, &self.wake)?;
        let companion = Companion::new(reader, Arc::new(mount), store, settings);
        companion.run(known, end);
        Ok(0)
    }

    fn settings(
        &self,
        request: &MountRequest,
        mounted: &Mounted,
        trouble: Option<&Error>,
    ) -> Settings {
        let location = request.options.profile.as_ref();
        let records = request.options.records();
        let fetches = request.options.prefetch != Prefetch::None || !request.is_remote();
        Settings {
            learns: location.is_some() && trouble.is_none(),
            any_file: location.is_some_and(|location| *location != ProfileLocation::Learned),
            one_launch: !records,
            is_named: matches!(location, Some(ProfileLocation::File(_))),
            replays: fetches && !records,
            origin: match remote::url(&request.image) {
                Some(Ok(url)) if url.reference().is_some() => Origin::Registry,
                _ => Origin::Beside,
            },
            read_ahead: read_ahead::open_to_read(mounted),
            memory: File::open("/proc/meminfo").ok(),
            trouble: trouble.map(ToString::to_string),
        }
    }
}

fn map(events: &OwnedFd, wake: &OwnedFd) -> Result<Reader, Error> {
    let wake = wake.try_clone().map_err(Error::std_io("dup"))?;
    Reader::map(events.as_fd(), wake).map_err(Error::std_io("memory for a companion"))
}
