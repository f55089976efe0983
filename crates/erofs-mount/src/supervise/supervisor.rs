//! The main loop of the mount helper process.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use fuse_transport::TakenRequest;
use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

use super::deaths::Deaths;
use super::mount_state::MountState;
use super::readiness::{Readiness, report_ready};
use super::server::{How, Serve, Server, Servers};
use super::standby::{Right, Standby, outlive_helper};
use crate::inherited;
use crate::outside::{Family, MountRecord};
use crate::patience::{Patience, not_mounted};
use crate::respawn;
use erofs_fuse::error::Error;
use erofs_fuse::log::Log;
use erofs_fuse::poll::first_ready;
use erofs_fuse::protocol::{self, Answer, Request};
use erofs_fuse::request::MountRequest;

/// How long the new server of an upgrade may take to open its image and ask for the mount.
const UPGRADE: Duration = Duration::from_secs(60);

/// How long the program of an upgrade may take to ask for the mount of a server that died. A
/// program whose files are in the mount cannot ask at all.
const REPLACEMENT: Duration = Duration::from_secs(5);

/// Interval between checks of processes that are dying.
const REAP: Duration = Duration::from_millis(100);

/// How long a server may take to end after its mount is gone. This includes up to two seconds for
/// programs that still use the mount.
const END: Duration = Duration::from_secs(5);

/// Starts the server of a mount, and acts as its mount helper until the mount ends. `serve` is
/// called in a fork of this process.
///
/// # Errors
/// Returns the reason why the mount failed or did not end properly.
pub(crate) fn run(request: MountRequest, serve: Serve) -> Result<(), Error> {
    // What this process and its children create must stay accessible to their user.
    let mask = rustix::process::umask(Mode::RWXU);
    rustix::process::umask(mask.difference(Mode::RWXU));
    // Checked in this process because a filesystem that does not answer may keep it waiting.
    if request.image.is_dir() && request.mountpoint.is_file() {
        let image = request.image.display();
        return Err(Error::Server(format!(
            "{image}: is a directory; the image comes first, then the directory"
        )));
    }
    let mut signals = Signals::block()?;
    if request.is_remote() {
        // Block these signals before the image is opened, because they must also end the fetcher's
        // work.
        signals.block_ending()?;
    }
    let log = Log::open(&request.options, !request.foreground)?;
    let readiness = Readiness::new(request.options.ready_fd, request.foreground)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(Error::io("/dev/null, which the mount helper needs"))?;
    // In the background, standard output is the pipe that the process waiting for the mount reads.
    let waiting = (!request.foreground).then(rustix::stdio::stdout);
    let ends = signals.ending.iter().map(AsFd::as_fd).chain(waiting);
    let ends = ends.map(|fd| fd.try_clone_to_owned()).collect();
    let ends: Vec<OwnedFd> = Result::map_err(ends, Error::std_io("dup"))?;
    let servers = Servers::new(request, log, serve, null);
    let server = servers.start(&How::First)?;
    let request = &servers.request;
    let null = servers.null.try_clone().map_err(Error::std_io("dup"))?;
    if !request.foreground {
        rustix::stdio::dup2_stdin(&null).map_err(Error::io("/dev/null"))?;
        rustix::stdio::dup2_stderr(&null).map_err(Error::io("/dev/null"))?;
    }
    let mut helper = Helper {
        standby: None,
        right: None,
        // This process checks the server only in the foreground; in the background, the process
        // that waits for the mount checks both processes.
        looks: server
            .family()
            .filter(|_| request.foreground)
            .map(|family| (family, Patience::new(request))),
        state: MountState::new(request.clone(), null, ends),
        servers,
        server,
        signals,
        readiness: Some(readiness),
        next: How::Fork,
        upgraded: Instant::now(),
        deaths: Deaths::default(),
        upgrade_wanted: false,
        server_has_stopped: false,
        kill_at: None,
        failure: None,
        signalled: false,
    };
    helper.serve();
    helper.run_on(Ok(()))
}

/// The signals that the helper receives through descriptors. They do not kill it: it outlives the
/// server so that it can clean up.
struct Signals {
    /// Receives the signals that request the end of the mount; `None` while there is nothing to
    /// clean up.
    ending: Option<OwnedFd>,
    /// Receives the signal that requests an upgrade.
    upgrade: OwnedFd,
    /// Receives SIGCHLD: a child has ended, stopped or continued.
    child: OwnedFd,
}

impl Signals {
    fn block() -> Result<Self, Error> {
        sys::fuse_signals::obey_ending_signals();
        let upgrade = sys::fuse_signals::upgrade_signal().map_err(Error::std_io("signalfd"))?;
        let child = sys::fuse_signals::child_signal().map_err(Error::std_io("signalfd"))?;
        Ok(Self {
            ending: None,
            upgrade,
            child,
        })
    }

    fn block_ending(&mut self) -> Result<(), Error> {
        if self.ending.is_none() {
            let ending = sys::fuse_signals::ending_signals().map_err(Error::std_io("signalfd"))?;
            self.ending = Some(ending);
        }
        Ok(())
    }

    /// Drops the signals that arrived while this process was a standby, which acts on none of them.
    fn forget(&self) {
        for signals in self.ending.iter().chain([&self.upgrade]) {
            while rustix::io::read(signals, &mut [0; 128]).is_ok() {}
        }
    }
}

struct Helper {
    /// The process that takes over when this one is killed.
    standby: Option<Standby>,
    /// With `-o standby`: the right to take over, which a standby needs.
    right: Option<Right>,
    servers: Servers,
    state: MountState,
    server: Server,
    signals: Signals,
    /// Set until the mount is served.
    readiness: Option<Readiness>,
    looks: Option<(Family, Patience)>,
    /// How the next server is started: as a fork of this process or, after an upgrade, as the
    /// program that took over, unless that program fails to start again or dies twice.
    next: How,
    /// When the last upgrade completed.
    upgraded: Instant,
    deaths: Deaths,
    /// Whether an upgrade was requested. The upgrade waits until the server has the mount.
    upgrade_wanted: bool,
    /// Whether the server is stopped. A stopped server cannot notice the end of its mount, so this
    /// process polls the device in its place. Otherwise it does not poll the device, because each
    /// request would wake it.
    server_has_stopped: bool,
    /// When to kill the server, which was asked to end or has lost its mount.
    kill_at: Option<Instant>,
    /// The reason that the server reported for its end.
    failure: Option<String>,
    /// Whether a signal arrived before the mount was served; if so, this process dies of that
    /// signal in the end.
    signalled: bool,
}

impl Helper {
    /// Replaces servers until the mount ends; `outcome` is an error if none could be started.
    fn run_on(&mut self, mut outcome: Result<(), Error>) -> Result<(), Error> {
        while outcome.is_ok() && self.state.is_replaceable() {
            outcome = self.replace();
            if outcome.is_ok() {
                self.serve();
            }
        }
        let is_unheard = self.is_served() && !self.servers.request.foreground;
        // Call this first: threads of a dead server may be waiting for requests, and this call ends
        // that wait.
        let exited = self.state.server_exited();
        if let Some(standby) = self.standby.take() {
            standby.retire();
        }
        if let Some(ending) = self.signals.ending.take().filter(|_| self.signalled) {
            sys::fuse_signals::end_by(ending);
        }
        outcome?;
        match self.failure.take() {
            Some(line) => {
                if is_unheard {
                    self.servers.report(&format!("the server ended: {line}"));
                }
                Err(Error::Daemon(line))
            }
            None => exited.and_then(|()| self.server.outcome()),
        }
    }

    /// Whether programs can use the mount.
    fn is_served(&self) -> bool {
        self.readiness.is_none()
    }

    /// Handles requests until the server is gone.
    fn serve(&mut self) {
        self.state.is_served_by(self.server.number());
        loop {
            match self.wait() {
                Event::Time => {}
                Event::Companion => {
                    if let Some(line) = self.state.attend_companion() {
                        self.servers.report(&line);
                    }
                }
                Event::Decoded => self.state.wake_decoded(),
                Event::Fetcher => self.state.replaceable.fetcher.hear(&self.servers.log),
                Event::End if !self.is_served() => {
                    self.signalled = true;
                    return self.give_up();
                }
                Event::End => self.end(),
                Event::Gone => {
                    self.state.ends();
                    self.kill_at = Some(Instant::now() + END);
                }
                Event::Upgrade => self.upgrade_wanted = true,
                Event::Child => {
                    self.server_has_stopped = self.server.has_stopped();
                    self.state.reap();
                    if self.standby.as_ref().is_some_and(Standby::has_died) {
                        self.renew_standby();
                    }
                }
                Event::Request => {
                    if !self.answer_next() {
                        return;
                    }
                }
            }
            if let Some((family, patience)) = &mut self.looks
                && let Some(why) = patience.look(family)
            {
                self.failure = Some(not_mounted(&self.servers.request, &why).to_string());
                return self.give_up();
            }
            self.state.replaceable.fetcher.attend(&self.servers.log);
            self.state.take_travelling();
            let refused = self.deaths.judge();
            self.refuse(&refused);
            if self.kill_at.is_some_and(|at| at <= Instant::now()) {
                self.kill_late_server();
                return;
            }
            if self.upgrade_wanted && self.state.is_replaceable() {
                self.upgrade_wanted = false;
                self.upgrade();
            }
        }
    }

    fn wait(&self) -> Event {
        let reap = self.deaths.are_pending().then_some(REAP);
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        let fetcher = &self.state.replaceable.fetcher;
        let look = self.looks.as_ref().map(|(_, patience)| patience.left());
        let limits = [reap, self.kill_at.map(left), fetcher.limit(), look];
        let limit = limits.into_iter().flatten().min();
        // A device whose mount is known to be gone would end every wait immediately.
        let is_watched = self.server_has_stopped && self.kill_at.is_none();
        let device = self.state.device().filter(|_| is_watched);
        let signals = &self.signals;
        let ending = signals.ending.as_ref().map(|fd| (Event::End, fd.as_fd()));
        let mut sources: Vec<(Event, BorrowedFd<'_>)> = ending.into_iter().collect();
        sources.extend([
            (Event::Upgrade, signals.upgrade.as_fd()),
            (Event::Child, signals.child.as_fd()),
            (Event::Request, self.server.socket.as_fd()),
        ]);
        let companion = self.state.companion_socket();
        sources.extend(companion.map(|fd| (Event::Companion, fd)));
        let keeper = self.state.keeper.as_ref();
        sources.extend(keeper.map(|keeper| (Event::Decoded, keeper.socket.as_fd())));
        sources.extend(fetcher.watched().map(|fd| (Event::Fetcher, fd)));
        sources.extend(device.map(|fd| (Event::Gone, fd.as_fd())));
        let events = |event: &Event| match event {
            // Wait only for the end of the connection, not for its requests.
            Event::Gone => PollFlags::empty(),
            _ => PollFlags::IN,
        };
        let watched = sources.iter().map(|(event, fd)| (*fd, events(event)));
        let watched: Vec<_> = watched.collect();
        match first_ready(&watched, limit) {
            Ok(None) => Event::Time,
            // The signal is not read here, but left for the code that ends this process.
            Ok(Some(0)) if signals.ending.is_some() && !self.is_served() => Event::End,
            Ok(Some(index)) => match sources[index] {
                (event @ (Event::End | Event::Upgrade | Event::Child), signal) => {
                    taken(signal, event)
                }
                (event, _) => event,
            },
            // If poll fails, waiting for a request still notices the end of the server.
            Err(_) => Event::Request,
        }
    }

    /// Detaches the mount from the tree and ends the server. The helper does both because a stopped
    /// server can do neither.
    fn end(&mut self) {
        if let Err(error) = self.state.detach() {
            self.servers.report(&error.to_string());
        }
        self.server.end();
        self.kill_at.get_or_insert(Instant::now() + END);
    }

    /// Ends a mount that programs cannot use yet.
    fn give_up(&mut self) {
        // On failure the mount stays in the tree, without a server.
        let _ = self.state.detach();
        let _ = self.server.kill();
    }

    fn kill_late_server(&mut self) {
        let outcome = self.server.kill();
        let seconds = END.as_secs();
        self.servers.report(&match outcome {
            Ok(()) => format!("the server did not end within {seconds} s and was killed"),
            Err(error) => error.to_string(),
        });
    }

    /// Answers the next request. Returns false if the server has ended; it is killed if its request
    /// is invalid or if it does not take the answer.
    fn answer_next(&mut self) -> bool {
        let answered = match protocol::receive(&self.server.socket) {
            // The server ends after this request.
            Ok((Request::Failed, line)) => {
                self.failure = Some(String::from_utf8_lossy(&line).into_owned());
                true
            }
            Ok((request, _)) => self.answer(request),
            Err(_) => false,
        };
        if !answered && !self.server.has_ended() {
            let _ = self.server.kill();
        }
        answered
    }

    /// Starts another server in place of one that died.
    ///
    /// # Errors
    /// Returns an error that says why no server could be started.
    fn replace(&mut self) -> Result<(), Error> {
        if let Some(line) = self.failure.take() {
            self.servers.report(&format!("the server ended: {line}"));
        }
        let death = self.state.death();
        let refused = self.deaths.add(self.server.take_child(), death);
        self.refuse(&refused);
        let started = match self.deaths.are_too_many() {
            true => Err(Error::Server(self.deaths.describe())),
            false => {
                thread::sleep(self.deaths.pause());
                Ok(())
            }
        };
        started
            .and_then(|()| self.start_again(self.deaths.may_be_crash()))
            .inspect_err(|error| self.servers.report(&error.to_string()))
    }

    /// Starts a server and gives it the mount. For `one_by_one` see
    /// [`MountState::begin_again`](super::mount_state::MountState::begin_again).
    fn start_again(&mut self, one_by_one: bool) -> Result<(), Error> {
        let asks = self.start_replacement()?;
        // Do this before the new server gets the mount, which it must request from this thread.
        self.state.begin_again(one_by_one);
        if asks {
            // If the new server is already dead, it is replaced.
            self.answer(Request::Resume);
        }
        Ok(())
    }

    /// Starts a server for a mount that currently has none. Returns whether the new server has
    /// already asked for the mount.
    fn start_replacement(&mut self) -> Result<bool, Error> {
        if let How::Program(_) = self.next {
            let started = match self.deaths.came_twice_since(self.upgraded) {
                true => Err(Error::Server("the upgraded server died twice".into())),
                false => self.start_until_it_asks(&self.next.clone(), REPLACEMENT, false),
            };
            match started {
                Ok(server) => {
                    self.server = server;
                    return Ok(true);
                }
                Err(error) => {
                    let line = format!("{error}; the original program keeps serving");
                    self.servers.report(&line);
                    self.next = How::Fork;
                }
            }
        }
        self.server = self.servers.start(&How::Fork)?;
        Ok(false)
    }

    /// Ends a server that never had the mount. Does not wait, because a process that the server
    /// started may keep the socket open. A server that this process may not kill ends when the
    /// socket closes.
    fn discard(&mut self, mut server: Server) {
        let child = server.take_child();
        if let Some(child) = &child {
            let _ = child.signal(Signal::KILL);
        }
        self.deaths.expect(child);
    }

    /// Refuses and logs each of these requests once. A request may be passed here twice, because a
    /// third server may have died of the same request before it was known how the second one died.
    fn refuse(&self, requests: &[TakenRequest]) {
        for request in requests
            .iter()
            .filter(|&&request| self.state.refuse(request))
        {
            self.servers.report(&format!(
                "{request} was being served each time the server died, and is answered with EIO"
            ));
        }
    }

    fn answer(&mut self, request: Request) -> bool {
        let outcome = self.carry_out(request);
        // Renew the standby before the server has the answer: the next mount helper must know what
        // changed.
        if is_for_standby(request) && outcome.is_ok() {
            self.renew_standby();
        }
        let answered = self.respond(&self.server, request, outcome);
        if matches!(request, Request::Mount { .. }) {
            self.state.start_companion();
        }
        answered
    }

    /// Starts a standby with the current state of this process, then ends the previous standby.
    fn renew_standby(&mut self) {
        if !self.servers.request.options.standby || !self.state.is_replaceable() {
            return;
        }
        let last = self.standby.take();
        match self.start_standby(last.as_ref()) {
            Ok(next) => self.standby = Some(next),
            // The next request of this kind tries again.
            Err(error) => self.servers.report(&error.to_string()),
        }
        self.deaths.expect(last.map(Standby::retire));
    }

    fn start_standby(&mut self, last: Option<&Standby>) -> Result<Standby, Error> {
        if self.right.is_none() {
            self.right = Some(Right::new()?);
        }
        Standby::start(last, || {
            self.state.stands_by();
            outlive_helper();
            let takes_over = self.right.take().is_some_and(Right::take);
            if takes_over { self.take_over() } else { 0 }
        })
    }

    /// Acts as the mount helper from now on, in place of one that is dead; returns the exit status.
    fn take_over(&mut self) -> i32 {
        let _ = rustix::stdio::dup2_stdin(&self.servers.null);
        self.signals.forget();
        self.state.takes_over();
        let killed = self.server.kill();
        // The server is not a child of this process.
        let _ = self.server.take_child();
        let outcome = match killed {
            Ok(()) if self.state.is_replaceable() => {
                self.state.death();
                self.servers
                    .report("the mount helper was killed; its standby took over");
                (self.deaths, self.kill_at, self.failure) = (Deaths::default(), None, None);
                self.server_has_stopped = false;
                self.start_again(false).map(|()| self.serve())
            }
            outcome => outcome,
        };
        i32::from(self.run_on(outcome).is_err())
    }

    fn carry_out(&mut self, request: Request) -> Result<Option<OwnedFd>, Error> {
        if matches!(request, Request::Mount { .. }) {
            self.signals.block_ending()?;
        }
        let descriptor = self.state.handle(request)?;
        match request {
            // The mount point was resolved to an absolute path; the working directory must not be
            // pinned.
            Request::Mount { .. } => drop(rustix::process::chdir("/")),
            Request::HandshakeDone => {
                inherited::close_named(self.servers.request.options.profile.as_ref())
            }
            Request::Served => self.announce()?,
            _ => {}
        }
        Ok(descriptor)
    }

    fn announce(&mut self) -> Result<(), Error> {
        self.looks = None;
        let Some(readiness) = self.readiness.take() else {
            return Ok(());
        };
        self.state.replaceable.fetcher.is_served();
        readiness.announce();
        if self.servers.request.foreground {
            return Ok(());
        }
        // Do this only now: systemd lets only its own process group pass an automount point while
        // the mount is not ready; every other process waits for the mount.
        let _ = rustix::process::setsid();
        report_ready(&self.servers.null)
    }

    /// Sends an answer; returns false if the server is gone.
    fn respond(
        &self,
        server: &Server,
        request: Request,
        outcome: Result<Option<OwnedFd>, Error>,
    ) -> bool {
        let response = outcome.map(|descriptor| Answer {
            descriptor,
            version: self.state.version(request),
        });
        protocol::respond(&server.socket, &response).is_ok()
    }

    /// Makes the program that is now installed serve the mount. If the program fails, the current
    /// server continues. If the current server died meanwhile, the next server is upgraded.
    fn upgrade(&mut self) {
        self.state.note(MountRecord::begin);
        let handed_over = self
            .start_until_it_asks(&How::Installed, UPGRADE, true)
            .and_then(|server| self.hand_over(server));
        if handed_over.is_err() && self.server.has_ended() {
            self.upgrade_wanted = true;
            return;
        }
        if let Err(error) = &handed_over {
            self.servers.report(&format!("the upgrade failed: {error}"));
        }
        self.state.note(|record| record.end(&handed_over));
    }

    /// Starts a server and waits at most `limit` for it to ask for the mount. A program that is
    /// unable to ask may exit, crash or stay silent. With `serving`, the current server is answered
    /// in the meantime, and the wait ends if that server ends or a signal requests the end of the
    /// mount.
    fn start_until_it_asks(
        &mut self,
        how: &How,
        limit: Duration,
        serving: bool,
    ) -> Result<Server, Error> {
        let server = self.servers.start(how)?;
        let deadline = Instant::now() + limit;
        let mut why = None;
        while self.state.is_replaceable() {
            let ending = self.signals.ending.as_ref().map(AsFd::as_fd);
            let old = serving.then(|| self.server.socket.as_fd());
            let sockets = [Some(server.socket.as_fd()), old, ending].into_iter();
            let watched: Vec<_> = sockets.flatten().map(|fd| (fd, PollFlags::IN)).collect();
            let left = deadline.saturating_duration_since(Instant::now());
            match first_ready(&watched, Some(left)) {
                Ok(Some(0)) => match protocol::receive(&server.socket) {
                    Ok((Request::Resume, _)) => return Ok(server),
                    Ok((Request::Failed, line)) => {
                        why = Some(String::from_utf8_lossy(&line).into_owned());
                    }
                    Ok((request, _)) => {
                        let outcome = self.state.handle(request);
                        if !self.respond(&server, request, outcome) {
                            break;
                        }
                    }
                    Err(_) => break,
                },
                Ok(Some(1)) if serving && self.answer_next() => {}
                _ => break,
            }
        }
        let why = why.unwrap_or_else(|| server.why_silent());
        self.discard(server);
        let program = match how {
            How::Installed => respawn::installed(),
            How::First | How::Fork | How::Program(_) => "the program of the last upgrade".into(),
        };
        let program = program.display();
        Err(Error::Server(format!(
            "the new server did not start: {program}: {why}"
        )))
    }

    /// Kills the old server. The kernel then sends the requests that the old server left unanswered
    /// to the new one.
    fn hand_over(&mut self, server: Server) -> Result<(), Error> {
        if let Err(error) = self.server.kill() {
            self.discard(server);
            return Err(error);
        }
        self.state.begin_again(false);
        self.next = server.program().unwrap_or(How::Fork);
        self.upgraded = Instant::now();
        let mut old = std::mem::replace(&mut self.server, server);
        self.state.is_served_by(self.server.number());
        self.deaths.expect(old.take_child());
        // If the new server is already dead, it is replaced.
        self.answer(Request::Resume);
        Ok(())
    }
}

/// Whether the answer changes the state that a standby must have: the server that has the mount,
/// its files, the descriptors of the device. The companion is created before the first of these
/// requests.
fn is_for_standby(request: Request) -> bool {
    use Request::{Clone, Open, Resume, Served};
    matches!(request, Open { .. } | Clone { .. } | Resume | Served)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Event {
    /// The server has sent a request or has ended.
    Request,
    /// A signal requests the end of the mount. The signal is consumed if the mount is served.
    End,
    /// The mount is gone, or its connection was aborted, while the server is stopped.
    Gone,
    /// A child changed state.
    Child,
    /// The signal that requests an upgrade has arrived, and is consumed.
    Upgrade,
    /// The companion has sent a request or has work to do.
    Companion,
    /// There are decoded bytes to keep.
    Decoded,
    /// The fetcher has sent a message or has ended.
    Fetcher,
    Time,
}

fn taken(signal: BorrowedFd<'_>, event: Event) -> Event {
    // Size of struct signalfd_siginfo.
    match rustix::io::read(signal, &mut [0; 128]) {
        Ok(_) => event,
        Err(_) => Event::Time,
    }
}
