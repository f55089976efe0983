//! The main loop of the mount helper process.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use fuse_transport::TakenRequest;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;

use super::deaths::Deaths;
use super::launch::HelperSide;
use super::protocol::{Request, Response};
use super::server::{Server, Start, Successor, timespec};
use super::state::MountState;
use crate::error::Error;
use crate::inherited;
use crate::log::Log;
use crate::request::MountRequest;

/// Within this time a new server of an upgrade must have opened its image and ask for the mount.
const UPGRADE: Duration = Duration::from_secs(60);

/// What the process that waits for the mount reads when programs can use it, once or twice.
pub(crate) const READY: &[u8] = b"ready\n";

/// Within this time a program must ask for the mount when it shall replace a server that died. It
/// cannot where its files lie in the mount.
const REPLACEMENT: Duration = Duration::from_secs(5);

/// Interval between checks of processes that are dying.
const REAP: Duration = Duration::from_millis(100);

/// Within this time a server must end whose mount is gone. Programs that use the mount have two
/// seconds of it.
const END: Duration = Duration::from_secs(5);

/// Runs the mount helper of a server in the foreground, until that is gone.
pub(crate) fn run(request: MountRequest) -> Result<(), Error> {
    let signals = Signals::block()?;
    let _ = rustix::process::setsid();
    // The server is not replaced, and logs by itself.
    Helper::new(request, Server::parent()?, Log::None, None).run(&signals)
}

/// Starts the server of a mount in the background, and is its mount helper until the mount ends.
/// The server reports on the standard output. `successor` is how a fork of this process serves.
pub(crate) fn run_daemon(request: MountRequest, successor: Successor) -> Result<(), Error> {
    let signals = Signals::block()?;
    let log = Log::open(&request.options, true)?;
    let server = Server::start(&request)?;
    let null = null()?;
    rustix::stdio::dup2_stdin(&null).map_err(Error::io("/dev/null"))?;
    rustix::stdio::dup2_stderr(&null).map_err(Error::io("/dev/null"))?;
    Helper::new(request, server, log, Some(Start::Fork(successor))).run(&signals)
}

/// Programs can use the mount: the process that waits for that goes on, when the last process has
/// closed its standard output.
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

fn null() -> Result<OwnedFd, Error> {
    rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(Error::io("/dev/null"))
}

/// Signals do not end the helper, which outlives the server to clean up.
struct Signals {
    /// Asks for the end of the mount.
    ending: OwnedFd,
    /// Asks for an upgrade.
    upgrade: OwnedFd,
}

impl Signals {
    fn block() -> Result<Self, Error> {
        let ending = sys::fuse_signals::ending_signals().map_err(Error::std_io("signalfd"))?;
        let upgrade = sys::fuse_signals::upgrade_signal().map_err(Error::std_io("signalfd"))?;
        Ok(Self { ending, upgrade })
    }
}

struct Helper {
    request: MountRequest,
    /// Where relative paths of the options begin.
    started_at: PathBuf,
    state: MountState,
    server: Server,
    /// How the next server is started: as a fork of this process or, after an upgrade, as the
    /// program that took over. `None`: there is none.
    next: Option<Start>,
    /// Where that program does not start again, or dies twice: a fork.
    fork: Option<Start>,
    /// When the last upgrade was complete.
    upgraded: Instant,
    deaths: Deaths,
    log: Log,
    /// An upgrade was asked for; the server may not have the mount yet.
    upgrade_wanted: bool,
    /// When the server is killed: it was asked to end, or its mount is gone.
    kill_at: Option<Instant>,
}

impl Helper {
    fn new(request: MountRequest, server: Server, log: Log, fork: Option<Start>) -> Self {
        Self {
            started_at: std::env::current_dir().unwrap_or_else(|_| "/".into()),
            state: MountState::new(request.clone()),
            request,
            server,
            next: fork.clone(),
            fork,
            upgraded: Instant::now(),
            deaths: Deaths::default(),
            log,
            upgrade_wanted: false,
            kill_at: None,
        }
    }

    fn run(mut self, signals: &Signals) -> Result<(), Error> {
        loop {
            self.serve(signals);
            if !self.replace(signals) {
                // First: threads of a dead server may wait for what this ends.
                self.state.server_exited()?;
                return self.server.outcome(close_stdout);
            }
        }
    }

    /// Handles requests until the server is gone.
    fn serve(&mut self, signals: &Signals) {
        loop {
            match self.wait(signals) {
                Event::Time => {}
                Event::Packet(index) => self.state.start(index),
                Event::End => self.end(),
                Event::Gone => {
                    self.state.ends();
                    self.kill_at = Some(Instant::now() + END);
                }
                Event::Upgrade => self.upgrade_wanted = true,
                Event::Request => {
                    let request = Request::receive(&self.server.socket);
                    if !request.is_some_and(|request| self.answer(request)) {
                        self.end_of_server();
                        return;
                    }
                }
            }
            let twice = self.deaths.judge();
            self.refuse(&twice);
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
        let limit = reap.into_iter().chain(self.kill_at.map(left)).min();
        // Once known to be gone it would be so at every call.
        let device = self.state.device().filter(|_| self.kill_at.is_none());
        wait(
            &self.server.socket,
            signals,
            device,
            self.state.asleep(),
            limit,
        )
    }

    /// Unmounts, and has the server end. A server that has stopped can do neither.
    fn end(&mut self) {
        if let Err(error) = self.state.detach() {
            self.report(&error.to_string());
        }
        self.server.end();
        self.kill_at.get_or_insert(Instant::now() + END);
    }

    fn kill_late_server(&mut self) {
        let outcome = self.server.kill();
        let seconds = END.as_secs();
        self.report(&match outcome {
            Ok(()) => format!("the server did not end within {seconds} s and was killed"),
            Err(error) => error.to_string(),
        });
    }

    /// One that sent what is no request, or does not take the answers, is there still.
    fn end_of_server(&mut self) {
        if !self.server.has_ended() {
            let _ = self.server.kill();
        }
    }

    /// Starts another server in the place of one that died; false if the mount shall end.
    fn replace(&mut self, signals: &Signals) -> bool {
        if !self.state.is_replaceable() {
            return false;
        }
        let Some(in_flight) = self.state.in_flight() else {
            return false;
        };
        let (taken, last) = (in_flight.requests(), in_flight.last());
        in_flight.count_restart();
        let (server, asks) = match self.start_replacement(signals) {
            Ok(started) => started,
            Err(error) => return self.give_up(&error.to_string()),
        };
        let dead = std::mem::replace(&mut self.server, server);
        let twice = self.deaths.add(dead.into_child(), taken);
        self.refuse(&twice);
        if self.deaths.are_too_many() {
            let _ = self.server.kill();
            return self.give_up(&self.deaths.describe(last));
        }
        // Before the new server has the mount, since it must ask this thread for it.
        self.state.begin_again(self.deaths.may_be_crash());
        if asks {
            // If it is dead by now, it is replaced.
            self.answer(Request::Resume);
        }
        true
    }

    /// While nobody serves the mount. Whether the server has asked for the mount already.
    fn start_replacement(&mut self, signals: &Signals) -> Result<(Server, bool), Error> {
        if matches!(self.next, Some(Start::Program(_))) && self.deaths.came_since(self.upgraded) {
            let died = "the program of the upgrade died twice";
            self.report(&format!("{died}; the program that mounted serves on"));
            self.next = self.fork.clone();
        }
        if let Some(Start::Program(program)) = self.next.clone() {
            match self.start_until_it_asks(&Start::Program(program), REPLACEMENT, false, signals) {
                Ok(server) => return Ok((server, true)),
                Err(error) => {
                    self.report(&format!("{error}; the program that mounted serves on"));
                    self.next = self.fork.clone();
                }
            }
        }
        Ok((self.start_next(self.fork.as_ref())?, false))
    }

    fn start_next(&self, how: Option<&Start>) -> Result<Server, Error> {
        let none = || Error::Daemon("servers of this mount are not replaced".into());
        let how = how.ok_or_else(none)?;
        Server::start_next(how, &self.request, &self.started_at, &self.log)
    }

    /// Ends a server that has not had the mount. It is not waited for: what it has started may have
    /// its socket. One that this process may not kill ends with the socket.
    fn discard(&mut self, server: Server) {
        let child = server.into_child();
        if let Some(child) = &child {
            let _ = child.signal(Signal::KILL);
        }
        self.deaths.expect(child);
    }

    fn give_up(&self, why: &str) -> bool {
        self.report(why);
        false
    }

    /// Without a log there is nowhere to report that either.
    fn report(&self, what: &str) {
        let place = self.request.mountpoint.display();
        let _ = self.log.line(&format!("{place}: {what}"));
    }

    /// Has requests refused, and logs it, once each: while it was not known how the second server
    /// died, a third one may have died of the same request.
    fn refuse(&self, requests: &[TakenRequest]) {
        for request in requests
            .iter()
            .filter(|&&request| self.state.refuse(request))
        {
            self.report(&format!(
                "{request} killed the server twice and is answered with EIO"
            ));
        }
    }

    fn answer(&mut self, request: Request) -> bool {
        answer(&mut self.state, &self.server, request)
    }

    /// Has the program that is installed now serve the mount. If it does not get so far, the server
    /// that is there goes on.
    fn upgrade(&mut self, signals: &Signals) {
        self.state.upgrade_begins();
        let handed_over = self
            .start_until_it_asks(&Start::Installed, UPGRADE, true, signals)
            .and_then(|server| self.hand_over(server));
        if let Err(error) = &handed_over {
            self.report(&format!("the upgrade failed: {error}"));
        }
        self.state.upgrade_ends(&handed_over);
    }

    /// A server that asks for the mount within this time. A program that cannot do so ends, crashes
    /// or says nothing. `serving`: the server that is there must go on meanwhile. A signal that
    /// asks for the end of the mount ends the waiting.
    fn start_until_it_asks(
        &mut self,
        how: &Start,
        limit: Duration,
        serving: bool,
        signals: &Signals,
    ) -> Result<Server, Error> {
        let server = self.start_next(Some(how))?;
        let deadline = Instant::now() + limit;
        let other = serving.then_some(&self.server);
        loop {
            let heard = server.is_heard_before(deadline, other, &signals.ending);
            match heard.then(|| Request::receive(&server.socket)).flatten() {
                Some(Request::Resume) => return Ok(server),
                Some(request) if answer(&mut self.state, &server, request) => {}
                _ => break,
            }
        }
        let why = server.why_silent();
        self.discard(server);
        Err(Error::Daemon(format!(
            "the new server did not start: {why}"
        )))
    }

    /// What the old server had taken is sent to the new one again.
    fn hand_over(&mut self, server: Server) -> Result<(), Error> {
        if let Err(error) = self.server.kill() {
            self.discard(server);
            return Err(error);
        }
        self.state.begin_again(false);
        self.next = server.program().or_else(|| self.fork.clone());
        self.upgraded = Instant::now();
        let old = std::mem::replace(&mut self.server, server);
        self.deaths.expect(old.into_child());
        // If it is dead by now, it is replaced.
        self.answer(Request::Resume);
        Ok(())
    }
}

/// Carries out a request; false if the server is gone.
fn answer(state: &mut MountState, server: &Server, request: Request) -> bool {
    let mut outcome = state.handle(request);
    if request == Request::Served && outcome.is_ok() {
        // Not before: where a program waits for the mount at an automount, only the process group
        // of the service manager comes past the mount point; all others wait too.
        let _ = rustix::process::setsid();
        outcome = report_ready().map(|()| None);
    }
    if request == Request::HandshakeDone {
        inherited::close_named_but(state.profile());
    }
    if matches!(request, Request::Mount { .. }) {
        // The mount point was resolved to an absolute path; do not pin the working directory.
        let _ = rustix::process::chdir("/");
    }
    let response = match outcome {
        Ok(device) => Response::Done(device),
        Err(error) => Response::Failed(error.to_string()),
    };
    response.send(&server.socket).is_ok()
}

enum Event {
    /// Or the end of the server.
    Request,
    /// A signal asks for the end of the mount; it is taken.
    End,
    /// The mount is, or its connection was aborted.
    Gone,
    /// The signal that asks for an upgrade; it is taken.
    Upgrade,
    /// For one of those that are asleep.
    Packet(usize),
    Time,
}

fn wait(
    socket: &OwnedFd,
    signals: &Signals,
    device: Option<&OwnedFd>,
    asleep: &[HelperSide],
    limit: Option<Duration>,
) -> Event {
    let mut watched = vec![
        PollFd::new(socket, PollFlags::IN),
        PollFd::new(&signals.ending, PollFlags::IN),
        PollFd::new(&signals.upgrade, PollFlags::IN),
    ];
    watched.extend(asleep.iter().map(|side| PollFd::new(side, PollFlags::IN)));
    // Last, and without events: only its end is of interest.
    watched.extend(device.map(|device| PollFd::new(device, PollFlags::empty())));
    let limit = limit.map(timespec);
    let outcome = rustix::io::retry_on_intr(|| poll(&mut watched, limit.as_ref()));
    let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    match outcome {
        Ok(0) => Event::Time,
        Ok(_) if is_ready(&watched[1]) => taken(&signals.ending, Event::End),
        Ok(_) if is_ready(&watched[2]) => taken(&signals.upgrade, Event::Upgrade),
        Ok(_) if !is_ready(&watched[0]) => match watched[3..].iter().position(is_ready) {
            Some(index) if index < asleep.len() => Event::Packet(index),
            Some(_) => Event::Gone,
            None => Event::Time,
        },
        // Without poll the end of the server is seen by waiting for a request.
        _ => Event::Request,
    }
}

fn taken(signal: &OwnedFd, event: Event) -> Event {
    // As long as a struct signalfd_siginfo.
    match rustix::io::read(signal, &mut [0; 128]) {
        Ok(_) => event,
        Err(_) => Event::Time,
    }
}
