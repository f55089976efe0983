//! A server process, as its mount helper sees it.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown};
use rustix::process::Signal;

use super::child::ChildProcess;
use super::protocol::{self, Order};
use crate::error::Error;
use crate::inherited;
use crate::log::Log;
use crate::poll::{first_ready, has_ended};
use crate::request::MountRequest;
use crate::respawn::{self, OTHER_VERSION, Role};
use crate::start::Start;

/// What a fork of this process does as a server, which mounts or gets the mount of another one; its
/// result is the exit status. The socket is its standard input.
pub(crate) type Serve = fn(&MountRequest, Log, Start) -> i32;

/// How a server is started.
#[derive(Clone)]
pub(super) enum How {
    /// As a fork of this process, with the descriptors that the request names; it mounts.
    First,
    /// As a fork, for a mount that is there. While nobody serves, that works where starting a
    /// program does not: its files may lie in the mount, or in an overlayfs of it.
    Fork,
    /// As the program that is installed now.
    Installed,
    /// As a program that served before, whatever is installed by now.
    Program(Arc<OwnedFd>),
}

/// Starts the servers of one mount.
pub(super) struct Servers {
    pub(super) request: MountRequest,
    pub(super) log: Log,
    serve: Serve,
    /// Where relative paths of the options begin.
    started_at: PathBuf,
}

impl Servers {
    pub(super) fn new(request: MountRequest, log: Log, serve: Serve) -> Self {
        let started_at = std::env::current_dir().unwrap_or_else(|_| "/".into());
        Self {
            request,
            log,
            serve,
            started_at,
        }
    }

    /// A server with the standard output and error of this process.
    pub(super) fn start(&self, how: &How) -> Result<Server, Error> {
        let (socket, theirs) = protocol::socket_pair()?;
        let (program, sender) = protocol::socket_pair()?;
        let mut kept: Vec<_> = self
            .log
            .descriptor()
            .iter()
            .map(AsRawFd::as_raw_fd)
            .collect();
        match how {
            How::First => kept.extend(inherited::named_descriptors()),
            How::Fork => {}
            How::Installed => kept.push(sender.as_raw_fd()),
            How::Program(program) => kept.push(program.as_raw_fd()),
        }
        let child = ChildProcess::fork(theirs, &kept, || match how {
            How::First => self.serve(Start::Background),
            How::Fork => self.serve(Start::Successor),
            How::Installed => {
                let path = respawn::installed();
                send_program(&path, &sender);
                self.become_program(&path)
            }
            How::Program(program) => {
                let path = format!("/proc/self/fd/{}", program.as_raw_fd());
                self.become_program(Path::new(&path))
            }
        });
        Ok(Server {
            socket,
            child: Some(child.map_err(Error::std_io("cannot start the server"))?),
            program: Some(program),
        })
    }

    /// In a child: serves.
    fn serve(&self, start: Start) -> i32 {
        let log = self.log.duplicate().unwrap_or(Log::None);
        (self.serve)(&self.request, log, start)
    }

    /// In a child: a program takes the place of this one.
    fn become_program(&self, path: &Path) -> i32 {
        let _ = rustix::process::chdir(&self.started_at);
        let arguments = respawn::arguments(&self.request);
        let error = respawn::command_of(path, Role::Upgrade)
            .args(arguments)
            .exec();
        self.report(&format!("cannot start the server: {error}"));
        CANNOT_START.into()
    }

    /// Without a log there is nowhere to report that either.
    pub(super) fn report(&self, what: &str) {
        let place = self.request.mountpoint.display();
        let _ = self.log.line(&format!("{place}: {what}"));
    }
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

/// How long the threads of a server that was killed may take to end.
const DEATH: Duration = Duration::from_secs(5);

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

    /// Its process number.
    pub(super) fn number(&self) -> Option<i32> {
        let parent = || Some(rustix::process::getppid()?.as_raw_nonzero().get());
        let child = self.child.as_ref().map(ChildProcess::number);
        child.or_else(parent)
    }

    /// The program of a server that was started as the installed one and has made a request. It is
    /// kept to be started again: another program may be installed by then.
    pub(super) fn program(&self) -> Option<How> {
        let (_, program) = protocol::receive_bytes(self.program.as_ref()?).ok()?;
        program.map(|program| How::Program(Arc::new(program)))
    }

    /// Has it unmount and end. A server that started this process gets its caller's signals.
    pub(super) fn end(&self) {
        if let Some(child) = &self.child
            && child.signal(Signal::TERM) == Err(Errno::PERM)
        {
            let _ = protocol::send(&self.socket, &Order::End);
        }
    }

    /// Kills it, and waits for the end of its threads that serve. Without the right to kill it
    /// (root without CAP_KILL), asks it to exit. A server that started this process may have
    /// stopped: it ends when it continues, since nobody answers it any more. So does one that is
    /// killed in a frozen cgroup, or while it waits for a device: it executes nothing more, and is
    /// not waited for longer than [`DEATH`].
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
        let deadline = Instant::now() + DEATH;
        while self.is_heard_before(deadline) && self.reads_packet() {}
        Ok(())
    }

    fn ask_to_exit(&self) -> Result<(), Error> {
        let begin = Instant::now();
        let [limit, interval] = ORDER;
        while begin.elapsed() < limit {
            // An error shows that it is gone.
            let _ = protocol::send(&self.socket, &Order::Exit);
            let again = Instant::now() + interval;
            while Instant::now() < again {
                if self.is_heard_before(again) && !self.reads_packet() {
                    return Ok(());
                }
            }
        }
        let why = "the server does not exit, and this process lacks the right to kill it";
        Err(Error::Server(why.into()))
    }

    /// Reads and drops a packet; false at the end.
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
        Err(Error::Server(format!("the server died: {status}")))
    }

    /// The process, whose socket has ended or will.
    pub(super) fn take_child(&mut self) -> Option<ChildProcess> {
        self.child.take()
    }

    /// Whether a request, or the end, comes before `deadline`.
    fn is_heard_before(&self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let watched = [(self.socket.as_fd(), PollFlags::IN)];
        matches!(first_ready(&watched, Some(left)), Ok(Some(0)))
    }

    /// Why it has made no request, in a few words.
    pub(super) fn why_silent(&self) -> String {
        let begin = Instant::now();
        // Its socket ends a moment before the process does.
        while self.has_ended() && begin.elapsed() < EXIT {
            match self.child.as_ref().map(ChildProcess::try_wait) {
                Some(Ok(None)) => thread::sleep(Duration::from_millis(1)),
                Some(Ok(Some(status))) => return why_ended(status),
                _ => break,
            }
        }
        "it did not answer".to_owned()
    }

    /// Whether it does not run, as after SIGSTOP. Never known of one that started this process.
    pub(super) fn has_stopped(&self) -> bool {
        self.child.as_ref().is_some_and(ChildProcess::has_stopped)
    }

    /// Whether its socket has.
    pub(super) fn has_ended(&self) -> bool {
        has_ended(self.socket.as_fd())
    }
}

/// Of a program that was to take the mount over.
fn why_ended(status: ExitStatus) -> String {
    match status.code().map(u8::try_from) {
        Some(Ok(CANNOT_START)) => "the installed program cannot be started".to_owned(),
        Some(Ok(OTHER_VERSION)) => "the installed program is of another version".to_owned(),
        _ => format!("it ended at once: {status}"),
    }
}

/// In a child, for its parent: opening the program may wait for the mount, which the helper must
/// not.
fn send_program(path: &Path, sender: &OwnedFd) {
    // Without it the next server is a fork.
    if let Ok(program) = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        let _ = protocol::send_message(sender, b"program", Some(&program), SendFlags::NOSIGNAL);
    }
}

/// Exit status where the program cannot be started, as in shells.
const CANNOT_START: u8 = 127;
