//! A server process, as its mount helper sees it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::Shutdown;
use rustix::process::Signal;

use super::child::ChildProcess;
use super::protocol::{self, Order};
use crate::error::Error;
use crate::log::Log;
use crate::request::MountRequest;
use crate::respawn::{self, Role};

/// What a fork of this process does as the server of the mount; its result is the exit status. The
/// socket is its standard input, and its other streams are /dev/null.
pub(crate) type Successor = fn(&MountRequest, Log) -> i32;

/// How a server is started in the place of another one.
#[derive(Clone)]
pub(super) enum Start {
    /// As a fork of this process. While nobody serves, that works where starting a program does
    /// not: the files that it takes may lie in the mount, or in an overlayfs of it.
    Fork(Successor),
    /// As the program that is installed now.
    Installed,
    /// As a program that served before, whatever is installed by now.
    Program(Arc<OwnedFd>),
}

/// A server process.
#[derive(Debug)]
pub(super) struct Server {
    /// Its requests. Its end is that of the server: of all threads that serve.
    pub(super) socket: OwnedFd,
    /// `None` for a server that started this process.
    child: Option<ChildProcess>,
    /// Brings the program of one that was started as the installed one. Only a fork of this process
    /// has the other end, before it becomes that program.
    program: Option<OwnedFd>,
}

/// How long a process whose socket has ended may take to end.
const EXIT: Duration = Duration::from_secs(1);

/// How long a server may take to follow an order, and how often that is repeated meanwhile.
const ORDER: [Duration; 2] = [Duration::from_secs(10), Duration::from_millis(500)];

impl Server {
    /// The server that started this process, with a socket as its standard input.
    pub(super) fn parent() -> Result<Self, Error> {
        let stdin = rustix::stdio::stdin();
        let socket = rustix::io::fcntl_dupfd_cloexec(stdin, 3).map_err(Error::io("stdin"))?;
        Ok(Self {
            socket,
            child: None,
            program: None,
        })
    }

    /// Starts the first server. It has the standard streams of this process, and reports on them.
    pub(super) fn start(request: &MountRequest) -> Result<Self, Error> {
        let (ours, theirs) = protocol::socket_pair().map_err(Error::std_io("socketpair"))?;
        let child = respawn::command(Role::Server)
            .args(respawn::arguments(request))
            .stdin(theirs)
            .stdout(Stdio::inherit())
            .stderr(Stdio::inherit())
            .spawn()
            .map_err(Error::std_io("cannot start the server"))?;
        Ok(Self {
            socket: ours,
            child: Some(ChildProcess::from(child)),
            program: None,
        })
    }

    /// Starts a server for a mount that is there. The streams of this process are /dev/null by now.
    /// `at`: where relative paths of the options begin.
    pub(super) fn start_next(
        start: &Start,
        request: &MountRequest,
        at: &Path,
        log: &Log,
    ) -> Result<Self, Error> {
        let pair = || protocol::socket_pair().map_err(Error::std_io("socketpair"));
        let ((ours, theirs), (program, sender)) = (pair()?, pair()?);
        let kept = match start {
            Start::Program(program) => program.as_fd(),
            _ => sender.as_fd(),
        };
        let kept: Vec<_> = log.descriptor().into_iter().chain([kept]).collect();
        let child = ChildProcess::fork(theirs, &kept, || match start {
            Start::Fork(successor) => {
                sys::inherited::close(sender.as_raw_fd());
                successor(request, log.duplicate().unwrap_or(Log::None))
            }
            Start::Installed => {
                let path = respawn::installed();
                send_program(&path, &sender);
                become_program(respawn::command_of(&path, Role::Upgrade), request, at, log)
            }
            Start::Program(program) => {
                let path = format!("/proc/self/fd/{}", program.as_raw_fd());
                let command = respawn::command_of(Path::new(&path), Role::Upgrade);
                become_program(command, request, at, log)
            }
        });
        let child = child.map_err(Error::std_io("cannot start the server"))?;
        Ok(Self {
            socket: ours,
            child: Some(child),
            program: Some(program),
        })
    }

    /// The program of one that was started as the installed one, when it asks for something: it is
    /// that program by now. Kept, since another one may be installed when this one has to be
    /// started again.
    pub(super) fn program(&self) -> Option<Start> {
        let (_, program) = protocol::receive_bytes(self.program.as_ref()?).ok()?;
        program.map(|program| Start::Program(Arc::new(program)))
    }

    /// Has it unmount and end. One that started this process gets the signals of its caller.
    pub(super) fn end(&self) {
        if let Some(child) = &self.child
            && child.signal(Signal::TERM) == Err(Errno::PERM)
        {
            let _ = Order::End.send(&self.socket);
        }
    }

    /// Kills it, and waits for the end of its threads that serve. Without the right to do so (root
    /// lacks CAP_KILL) it is asked to exit. One that started this process has stopped, maybe: it
    /// ends when it continues, since nobody answers it any more.
    ///
    /// # Errors
    /// It may not be killed, and did not exit when asked.
    pub(super) fn kill(&mut self) -> Result<(), Error> {
        let Some(child) = &self.child else {
            let _ = rustix::net::shutdown(&self.socket, Shutdown::Both);
            return Ok(());
        };
        if child.signal(Signal::KILL) == Err(Errno::PERM) {
            return self.ask_to_exit();
        }
        while self.reads_packet() {}
        Ok(())
    }

    fn ask_to_exit(&self) -> Result<(), Error> {
        let begin = Instant::now();
        let [limit, interval] = ORDER;
        while begin.elapsed() < limit {
            // An error shows that it is gone.
            let _ = Order::Exit.send(&self.socket);
            let asked = Instant::now();
            while asked.elapsed() < interval {
                if self.is_heard_within(&timespec(interval)) && !self.reads_packet() {
                    return Ok(());
                }
            }
        }
        let why = "the server does not exit, and this process lacks the right to kill it";
        Err(Error::Daemon(why.into()))
    }

    /// What it sends is dropped; false at the end.
    fn reads_packet(&self) -> bool {
        protocol::receive_bytes(&self.socket).is_ok_and(|(packet, _)| !packet.is_empty())
    }

    /// Waits for its end; an error if it died. One that started this process is not waited for.
    /// `reported` is called when it failed with an error, which it has printed itself.
    pub(super) fn outcome(self, reported: fn() -> Result<(), Error>) -> Result<(), Error> {
        let Some(child) = self.child else {
            return Ok(());
        };
        let status = child.wait().map_err(Error::std_io("the server"))?;
        if status.success() {
            return Ok(());
        }
        if status.code().is_some() {
            reported()?;
        }
        Err(Error::Daemon(format!("the server died: {status}")))
    }

    /// The process, whose socket has ended.
    pub(super) fn into_child(self) -> Option<ChildProcess> {
        self.child
    }

    /// Whether a request, or the end, comes within this time.
    fn is_heard_within(&self, limit: &Timespec) -> bool {
        let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
        rustix::io::retry_on_intr(|| poll(&mut watched, Some(limit))).is_ok_and(|ready| ready > 0)
    }

    /// The same before `deadline`, unless the end of `other` or a signal comes first.
    pub(super) fn is_heard_before(
        &self,
        deadline: Instant,
        other: Option<&Self>,
        signal: &OwnedFd,
    ) -> bool {
        let mut watched = vec![PollFd::new(&self.socket, PollFlags::IN)];
        watched.push(PollFd::new(signal, PollFlags::IN));
        watched.extend(other.map(|other| PollFd::new(&other.socket, PollFlags::empty())));
        let outcome = rustix::io::retry_on_intr(|| {
            let left = deadline.saturating_duration_since(Instant::now());
            poll(&mut watched, Some(&timespec(left)))
        });
        outcome.is_ok_and(|_| !watched[0].revents().is_empty())
    }

    /// Why one that has to ask for something has not done so, in a few words.
    pub(super) fn why_silent(&self) -> String {
        let begin = Instant::now();
        // Its socket ends a moment before the process does.
        while self.has_ended() && begin.elapsed() < EXIT {
            match self.child.as_ref().map(ChildProcess::try_wait) {
                Some(Ok(None)) => thread::sleep(Duration::from_millis(1)),
                Some(Ok(Some(status))) if status.code() == Some(CANNOT_START) => {
                    return "the installed program cannot be started".to_owned();
                }
                Some(Ok(Some(status))) => return format!("it ended at once: {status}"),
                _ => break,
            }
        }
        "it did not answer".to_owned()
    }

    /// Whether its socket has.
    pub(super) fn has_ended(&self) -> bool {
        let mut watched = [PollFd::new(&self.socket, PollFlags::empty())];
        let now = timespec(Duration::ZERO);
        poll(&mut watched, Some(&now)).is_ok_and(|ready| ready > 0)
    }
}

/// In a child, for its parent. Another process than the mount helper opens it, since that may wait
/// for the mount.
fn send_program(path: &Path, sender: &OwnedFd) {
    let program = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    // Without it the next server is a fork.
    let _ = program.map(|program| protocol::send(sender, b"program", Some(program)));
}

/// Exit status where the program cannot be started, as in shells.
const CANNOT_START: i32 = 127;

/// In a child: a program takes the place of this one.
fn become_program(mut command: Command, request: &MountRequest, at: &Path, log: &Log) -> i32 {
    let _ = rustix::process::chdir(at);
    let error = command.args(respawn::arguments(request)).exec();
    let place = request.mountpoint.display();
    log.line(&format!("{place}: cannot start the server: {error}"));
    CANNOT_START
}

pub(super) fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: time.as_secs().cast_signed(),
        tv_nsec: time.subsec_nanos().into(),
    }
}
