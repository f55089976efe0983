//! The main loop of the mount helper process.

use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use fuse_transport::TakenRequest;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

use super::deaths::Deaths;
use super::launch::HelperSide;
use super::protocol::{Request, Response};
use super::server::Server;
use super::state::MountState;
use crate::error::Error;
use crate::log::Log;
use crate::request::MountRequest;
use crate::respawn::Role;

/// Within this time a new server of an upgrade must ask for something.
const UPGRADE: Timespec = Timespec {
    tv_sec: 60,
    tv_nsec: 0,
};

/// What the process that waits for the mount reads when programs can use it.
pub(crate) const READY: &[u8] = b"ready\n";

/// Interval between checks of processes that are dying.
const REAP: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Runs the mount helper of a server in the foreground, until that is gone.
pub(crate) fn run(request: MountRequest) -> Result<(), Error> {
    let signals = Signals::block()?;
    let _ = rustix::process::setsid();
    // The server is not replaced, and logs by itself.
    Helper::new(request, Server::parent()?, Log::None).run(&signals)
}

/// Starts the server of a mount in the background, and is its mount helper until the mount ends.
/// The server reports on the standard output.
pub(crate) fn run_daemon(request: MountRequest) -> Result<(), Error> {
    let signals = Signals::block()?;
    let log = Log::open(&request.options, true)?;
    let here = std::env::current_dir().unwrap_or_else(|_| "/".into());
    let server = Server::start(&request, Role::Server, &here)?;
    let null = null()?;
    rustix::stdio::dup2_stdin(&null).map_err(Error::io("/dev/null"))?;
    rustix::stdio::dup2_stderr(&null).map_err(Error::io("/dev/null"))?;
    Helper::new(request, server, log).run(&signals)
}

/// Programs can use the mount: the process that waits for that goes on.
fn report_ready() -> Result<(), Error> {
    let mut pipe = std::io::stdout();
    pipe.write_all(READY)
        .and_then(|()| pipe.flush())
        .map_err(Error::std_io("reply to the parent"))?;
    close_stdout()
}

fn close_stdout() -> Result<(), Error> {
    rustix::stdio::dup2_stdout(null()?).map_err(Error::io("/dev/null"))
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
    /// What the next server is: of this program or, after an upgrade, of the installed one.
    successor: Role,
    deaths: Deaths,
    log: Log,
    /// An upgrade was asked for; the server may not have the mount yet.
    upgrade_wanted: bool,
}

impl Helper {
    fn new(request: MountRequest, server: Server, log: Log) -> Self {
        Self {
            started_at: std::env::current_dir().unwrap_or_else(|_| "/".into()),
            state: MountState::new(request.clone()),
            request,
            server,
            successor: Role::Successor,
            deaths: Deaths::default(),
            log,
            upgrade_wanted: false,
        }
    }

    fn run(mut self, signals: &Signals) -> Result<(), Error> {
        loop {
            self.serve(signals);
            if !self.replace() {
                // First: threads of a dead server may wait for what this ends.
                self.state.server_exited()?;
                return self.server.outcome(close_stdout);
            }
        }
    }

    /// Handles requests until the server is gone.
    fn serve(&mut self, signals: &Signals) {
        loop {
            let limit = self.deaths.are_pending().then_some(&REAP);
            match wait(&self.server.socket, signals, self.state.asleep(), limit) {
                Event::Time => {}
                Event::Packet(index) => self.state.start(index),
                Event::End => self.server.end(),
                Event::Upgrade => self.upgrade_wanted = true,
                Event::Request => {
                    let request = Request::receive(&self.server.socket);
                    if !request.is_some_and(|request| self.answer(request)) {
                        return;
                    }
                }
            }
            let twice = self.deaths.judge();
            self.refuse(&twice);
            if self.upgrade_wanted && self.state.is_replaceable() {
                self.upgrade_wanted = false;
                self.upgrade();
            }
        }
    }

    /// Starts another server in the place of one that died; false if the mount shall end.
    fn replace(&mut self) -> bool {
        if !self.state.is_replaceable() {
            return false;
        }
        let Some(in_flight) = self.state.in_flight() else {
            return false;
        };
        let (taken, last) = (in_flight.requests(), in_flight.last());
        in_flight.count_restart();
        let server = match Server::start(&self.request, self.successor, &self.started_at) {
            Ok(server) => server,
            Err(error) => return self.give_up(&error.to_string()),
        };
        let dead = std::mem::replace(&mut self.server, server);
        let twice = self.deaths.add(dead.into_child(), taken);
        self.refuse(&twice);
        if self.deaths.are_too_many() {
            self.server.kill();
            return self.give_up(&self.deaths.describe(last));
        }
        // Before the new server has the mount, since it must ask this thread for it.
        self.state.begin_again(self.deaths.may_be_crash());
        true
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
    fn upgrade(&mut self) {
        match self.start_upgrade() {
            Ok(server) => self.hand_over(server),
            Err(error) => self.report(&format!("the upgrade failed: {error}")),
        }
    }

    /// A server that asks for the mount.
    fn start_upgrade(&mut self) -> Result<Server, Error> {
        let mut server = Server::start(&self.request, Role::Upgrade, &self.started_at)?;
        loop {
            let heard = server.is_heard_within(&UPGRADE);
            match heard.then(|| Request::receive(&server.socket)).flatten() {
                Some(Request::Resume) => return Ok(server),
                Some(request) if answer(&mut self.state, &server, request) => {}
                _ => break,
            }
        }
        server.kill();
        self.deaths.expect(server.into_child());
        Err(Error::Daemon("the new server did not start".into()))
    }

    /// What the old server had taken is sent to the new one again.
    fn hand_over(&mut self, server: Server) {
        self.server.kill();
        self.state.begin_again(false);
        let old = std::mem::replace(&mut self.server, server);
        self.deaths.expect(old.into_child());
        self.successor = Role::Upgrade;
        // If it is dead by now, it is replaced.
        self.answer(Request::Resume);
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
    /// The signal that asks for an upgrade; it is taken.
    Upgrade,
    /// For one of those that are asleep.
    Packet(usize),
    Time,
}

fn wait(
    socket: &OwnedFd,
    signals: &Signals,
    asleep: &[HelperSide],
    limit: Option<&Timespec>,
) -> Event {
    let mut watched = vec![
        PollFd::new(socket, PollFlags::IN),
        PollFd::new(&signals.ending, PollFlags::IN),
        PollFd::new(&signals.upgrade, PollFlags::IN),
    ];
    watched.extend(asleep.iter().map(|side| PollFd::new(side, PollFlags::IN)));
    let outcome = rustix::io::retry_on_intr(|| poll(&mut watched, limit));
    let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    match outcome {
        Ok(0) => Event::Time,
        Ok(_) if is_ready(&watched[1]) => taken(&signals.ending, Event::End),
        Ok(_) if is_ready(&watched[2]) => taken(&signals.upgrade, Event::Upgrade),
        Ok(_) if !is_ready(&watched[0]) => {
            let packet = watched[3..].iter().position(is_ready);
            packet.map_or(Event::Time, Event::Packet)
        }
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
