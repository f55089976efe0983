//! The main loop of the mount helper process.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::thread;
use std::time::{Duration, Instant};

use fuse_transport::TakenRequest;
use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

use super::deaths::Deaths;
use super::protocol::{self, Answer, HelperRequest};
use super::server::{How, Serve, Server, Servers};
use super::state::MountState;
use crate::error::Error;
use crate::inherited;
use crate::log::Log;
use crate::poll::first_ready;
use crate::request::MountRequest;

/// Within this time a new server of an upgrade must have opened its image and ask for the mount.
const UPGRADE: Duration = Duration::from_secs(60);

/// What the process that waits for the mount reads when programs can use it, once or twice.
pub(crate) const READY: &[u8] = b"ready\n";

/// Within this time the program of an upgrade must ask for the mount of a server that died. A
/// program whose files lie in the mount cannot.
const REPLACEMENT: Duration = Duration::from_secs(5);

/// Interval between checks of processes that are dying.
const REAP: Duration = Duration::from_millis(100);

/// Within this time a server must end whose mount is gone. Programs that use the mount have two
/// seconds of it.
const END: Duration = Duration::from_secs(5);

/// Runs the mount helper of a server in the foreground, until that is gone. It is not replaced, and
/// logs by itself.
pub(crate) fn run(request: MountRequest, serve: Serve) -> Result<(), Error> {
    let signals = Signals::block()?;
    let _ = rustix::process::setsid();
    let servers = Servers::new(request, Log::None, serve);
    Helper::new(servers, Server::parent()?).run(&signals)
}

/// Starts the server of a mount in the background, and is its mount helper until the mount ends.
/// The server reports on the standard output. `serve` is how a fork of this process serves.
pub(crate) fn run_daemon(request: MountRequest, serve: Serve) -> Result<(), Error> {
    let signals = Signals::block()?;
    let log = Log::open(&request.options, true)?;
    let servers = Servers::new(request, log, serve);
    let server = servers.start(&How::First)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(Error::io("/dev/null"))?;
    rustix::stdio::dup2_stdin(&null).map_err(Error::io("/dev/null"))?;
    rustix::stdio::dup2_stderr(&null).map_err(Error::io("/dev/null"))?;
    Helper::new(servers, server).run(&signals)
}

/// Reports that programs can use the mount. The waiting parent continues when every copy of the
/// pipe is closed.
pub(crate) fn report_ready() -> Result<(), Error> {
    let mut pipe = std::io::stdout();
    pipe.write_all(READY)
        .and_then(|()| pipe.flush())
        .map_err(Error::std_io("reply to the parent"))?;
    close_stdout()
}

/// The standard error is /dev/null by then.
pub(crate) fn close_stdout() -> Result<(), Error> {
    rustix::stdio::dup2_stdout(rustix::stdio::stderr()).map_err(Error::io("/dev/null"))
}

/// Signals do not end the helper: it outlives the server to clean up.
struct Signals {
    /// Asks for the end of the mount.
    ending: OwnedFd,
    /// Asks for an upgrade.
    upgrade: OwnedFd,
    /// A server or a fetcher has ended, stopped or continued.
    child: OwnedFd,
}

impl Signals {
    fn block() -> Result<Self, Error> {
        let ending = sys::fuse_signals::ending_signals().map_err(Error::std_io("signalfd"))?;
        let upgrade = sys::fuse_signals::upgrade_signal().map_err(Error::std_io("signalfd"))?;
        let child = sys::fuse_signals::child_signal().map_err(Error::std_io("signalfd"))?;
        Ok(Self {
            ending,
            upgrade,
            child,
        })
    }
}

struct Helper {
    servers: Servers,
    state: MountState,
    server: Server,
    /// How the next server is started: as a fork of this process or, after an upgrade, as the
    /// program that took over, unless that does not start again or dies twice.
    next: How,
    /// When the last upgrade was complete.
    upgraded: Instant,
    deaths: Deaths,
    /// An upgrade was asked for; the server may not have the mount yet.
    upgrade_wanted: bool,
    /// The server has stopped: it does not see the end of its mount, so this process polls the
    /// device. Otherwise it does not, since each request would wake it.
    server_has_stopped: bool,
    /// When the server is killed: it was asked to end, or its mount is gone.
    kill_at: Option<Instant>,
}

impl Helper {
    fn new(servers: Servers, server: Server) -> Self {
        Self {
            state: MountState::new(servers.request.clone()),
            servers,
            server,
            next: How::Fork,
            upgraded: Instant::now(),
            deaths: Deaths::default(),
            upgrade_wanted: false,
            server_has_stopped: false,
            kill_at: None,
        }
    }

    fn run(mut self, signals: &Signals) -> Result<(), Error> {
        self.serve(signals);
        let mut outcome = Ok(());
        while outcome.is_ok() && self.state.is_replaceable() {
            outcome = self.replace(signals);
            if outcome.is_ok() {
                self.serve(signals);
            }
        }
        // First: threads of a dead server may wait for requests, which this ends.
        self.state.server_exited()?;
        outcome.and_then(|()| self.server.outcome(close_stdout))
    }

    /// Handles requests until the server is gone.
    fn serve(&mut self, signals: &Signals) {
        self.state.is_served_by(self.server.number());
        loop {
            match self.wait(signals) {
                Event::Time => {}
                Event::Packet(index) => self.state.start(index),
                Event::Fetcher => self.state.fetcher_mut().hear(&self.servers.log),
                Event::End => self.end(),
                Event::Gone => {
                    self.state.ends();
                    self.kill_at = Some(Instant::now() + END);
                }
                Event::Upgrade => self.upgrade_wanted = true,
                Event::Child => self.server_has_stopped = self.server.has_stopped(),
                Event::Request => {
                    if !self.answer_next() {
                        return;
                    }
                }
            }
            self.state.fetcher_mut().attend(&self.servers.log);
            let refused = self.deaths.judge();
            self.refuse(&refused);
            if self.kill_at.is_some_and(|at| at <= Instant::now()) {
                self.kill_late_server();
                return;
            }
            if self.upgrade_wanted && self.state.is_replaceable() {
                self.upgrade_wanted = false;
                self.upgrade(signals);
            }
        }
    }

    fn wait(&self, signals: &Signals) -> Event {
        let reap = self.deaths.are_pending().then_some(REAP);
        let left = |at: Instant| at.saturating_duration_since(Instant::now());
        let fetcher = self.state.fetcher();
        let limits = [reap, self.kill_at.map(left), fetcher.limit()];
        let limit = limits.into_iter().flatten().min();
        // A mount that is known to be gone would end every wait.
        let is_watched = self.server_has_stopped && self.kill_at.is_none();
        let device = self.state.device().filter(|_| is_watched);
        let first = [
            &signals.ending,
            &signals.upgrade,
            &signals.child,
            &self.server.socket,
        ];
        let asleep = self.state.asleep();
        let readable = first
            .map(AsFd::as_fd)
            .into_iter()
            .chain(asleep.iter().map(AsFd::as_fd))
            .chain(fetcher.watched());
        let readable = readable.map(|fd| (fd, PollFlags::IN));
        // Last, and without events: only its end is of interest.
        let device = device.map(|device| (device.as_fd(), PollFlags::empty()));
        let watched: Vec<_> = readable.chain(device).collect();
        let packets = first.len()..first.len() + asleep.len();
        let fetches = fetcher.watched().is_some();
        match first_ready(&watched, limit) {
            Ok(None) => Event::Time,
            Ok(Some(0)) => taken(&signals.ending, Event::End),
            Ok(Some(1)) => taken(&signals.upgrade, Event::Upgrade),
            Ok(Some(2)) => taken(&signals.child, Event::Child),
            Ok(Some(3)) => Event::Request,
            Ok(Some(index)) if packets.contains(&index) => Event::Packet(index - packets.start),
            Ok(Some(index)) if index == packets.end && fetches => Event::Fetcher,
            Ok(Some(_)) => Event::Gone,
            // Without poll the end of the server is seen by waiting for a request.
            Err(_) => Event::Request,
        }
    }

    /// Unmounts, and has the server end: a stopped server can do neither by itself.
    fn end(&mut self) {
        if let Err(error) = self.state.detach() {
            self.servers.report(&error.to_string());
        }
        self.server.end();
        self.kill_at.get_or_insert(Instant::now() + END);
    }

    fn kill_late_server(&mut self) {
        let outcome = self.server.kill();
        let seconds = END.as_secs();
        self.servers.report(&match outcome {
            Ok(()) => format!("the server did not end within {seconds} s and was killed"),
            Err(error) => error.to_string(),
        });
    }

    /// Answers the next request. False at the end of the server: it is killed if the request is
    /// invalid or the answer not taken.
    fn answer_next(&mut self) -> bool {
        let request = protocol::receive(&self.server.socket);
        let answered = request.is_ok_and(|request| self.answer(request));
        if !answered && !self.server.has_ended() {
            let _ = self.server.kill();
        }
        answered
    }

    /// Starts another server in the place of one that died.
    ///
    /// # Errors
    /// There is none, and why.
    fn replace(&mut self, signals: &Signals) -> Result<(), Error> {
        let death = self.state.death();
        let refused = self.deaths.add(self.server.take_child(), death);
        self.refuse(&refused);
        let started = match self.deaths.are_too_many() {
            true => Err(Error::Server(self.deaths.describe())),
            false => {
                thread::sleep(self.deaths.pause());
                self.start_replacement(signals)
            }
        };
        let asks = started.inspect_err(|error| self.servers.report(&error.to_string()))?;
        // Before the new server has the mount, since it must ask this thread for it.
        self.state.begin_again(self.deaths.may_be_crash());
        if asks {
            // If it is dead by now, it is replaced.
            self.answer(HelperRequest::Resume);
        }
        Ok(())
    }

    /// While nobody serves the mount. Whether the server has asked for the mount already.
    fn start_replacement(&mut self, signals: &Signals) -> Result<bool, Error> {
        if let How::Program(_) = self.next {
            let started = match self.deaths.came_twice_since(self.upgraded) {
                true => Err(Error::Server(
                    "the program of the upgrade died twice".into(),
                )),
                false => self.start_until_it_asks(&self.next.clone(), REPLACEMENT, false, signals),
            };
            match started {
                Ok(server) => {
                    self.server = server;
                    return Ok(true);
                }
                Err(error) => {
                    let line = format!("{error}; the program that mounted serves on");
                    self.servers.report(&line);
                    self.next = How::Fork;
                }
            }
        }
        self.server = self.servers.start(&How::Fork)?;
        Ok(false)
    }

    /// Ends a server that never had the mount, without waiting: a process that it started may hold
    /// its socket. A server that this process may not kill ends when the socket closes.
    fn discard(&mut self, mut server: Server) {
        let child = server.take_child();
        if let Some(child) = &child {
            let _ = child.signal(Signal::KILL);
        }
        self.deaths.expect(child);
    }

    /// Has each request refused and logged once: a third server may have died of the same request
    /// before it was known how the second one died.
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

    fn answer(&mut self, request: HelperRequest) -> bool {
        answer(&mut self.state, &self.server, request)
    }

    /// Has the program that is installed now serve the mount. If it does not get so far, the server
    /// that is there goes on. If that died meanwhile, the next one is upgraded.
    fn upgrade(&mut self, signals: &Signals) {
        self.state.upgrade_begins();
        let handed_over = self
            .start_until_it_asks(&How::Installed, UPGRADE, true, signals)
            .and_then(|server| self.hand_over(server));
        if handed_over.is_err() && self.server.has_ended() {
            self.upgrade_wanted = true;
            return;
        }
        if let Err(error) = &handed_over {
            self.servers.report(&format!("the upgrade failed: {error}"));
        }
        self.state.upgrade_ends(&handed_over);
    }

    /// A server that asks for the mount within this time. A program that cannot do so ends, crashes
    /// or says nothing. `serving`: the server that is there is answered meanwhile; its end ends the
    /// waiting, as a signal does that asks for the end of the mount.
    fn start_until_it_asks(
        &mut self,
        how: &How,
        limit: Duration,
        serving: bool,
        signals: &Signals,
    ) -> Result<Server, Error> {
        let server = self.servers.start(how)?;
        let deadline = Instant::now() + limit;
        let count = if serving { 3 } else { 2 };
        while self.state.is_replaceable() {
            let sockets = [&server.socket, &signals.ending, &self.server.socket];
            let watched = sockets.map(|fd| (fd.as_fd(), PollFlags::IN));
            let left = deadline.saturating_duration_since(Instant::now());
            match first_ready(&watched[..count], Some(left)) {
                Ok(Some(0)) => match protocol::receive(&server.socket) {
                    Ok(HelperRequest::Resume) => return Ok(server),
                    Ok(request) if answer(&mut self.state, &server, request) => {}
                    _ => break,
                },
                Ok(Some(2)) if self.answer_next() => {}
                _ => break,
            }
        }
        let why = server.why_silent();
        self.discard(server);
        Err(Error::Server(format!(
            "the new server did not start: {why}"
        )))
    }

    /// Kills the old server. The kernel sends its unanswered requests to the new one.
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
        // If it is dead by now, it is replaced.
        self.answer(HelperRequest::Resume);
        Ok(())
    }
}

/// Carries out a request; false if the server is gone.
fn answer(state: &mut MountState, server: &Server, request: HelperRequest) -> bool {
    let mut outcome = state.handle(request);
    if request == HelperRequest::Served && outcome.is_ok() {
        // Only now: at an automount, only the process group of the service manager passes the
        // mount point; every other process waits for the mount.
        let _ = rustix::process::setsid();
        outcome = report_ready().map(|()| None);
    }
    if request == HelperRequest::HandshakeDone {
        inherited::close_named_but(state.profile());
    }
    if matches!(request, HelperRequest::Mount { .. }) {
        // The mount point was resolved to an absolute path; do not pin the working directory.
        let _ = rustix::process::chdir("/");
    }
    let response = outcome.map(|descriptor| Answer {
        descriptor,
        version: state.version(request),
    });
    let response = response.map_err(|error| (&error).into());
    protocol::respond(&server.socket, &response).is_ok()
}

enum Event {
    /// Or the end of the server.
    Request,
    /// A signal asks for the end of the mount; it is taken.
    End,
    /// The mount is, or its connection was aborted, while the server has stopped.
    Gone,
    /// Something happened to a child.
    Child,
    /// The signal that asks for an upgrade; it is taken.
    Upgrade,
    /// For one of those that are asleep.
    Packet(usize),
    /// From the process that fetches, or its end.
    Fetcher,
    Time,
}

fn taken(signal: &OwnedFd, event: Event) -> Event {
    // As long as a struct signalfd_siginfo.
    match rustix::io::read(signal, &mut [0; 128]) {
        Ok(_) => event,
        Err(_) => Event::Time,
    }
}
