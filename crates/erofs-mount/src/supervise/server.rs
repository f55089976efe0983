//! A server process, as its mount helper sees it.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::SendFlags;
use rustix::process::Signal;

use crate::child::ChildProcess;
use crate::outside::Family;
use crate::respawn::{self, OTHER_VERSION, Role};
use erofs_fuse::error::Error;
use erofs_fuse::log::Log;
use erofs_fuse::packets;
use erofs_fuse::poll::{has_ended, is_readable_before};
use erofs_fuse::protocol::{Order, ignores_signals, send_order};
use erofs_fuse::request::{MountRequest, Start};

/// A function that runs in a fork of this process, with the server's socket as its standard input.
/// The function mounts the image or takes over another server's mount, serves it, and returns the
/// exit status.
pub(crate) type Serve = fn(&MountRequest, Log, Start) -> u8;

/// How a server is started.
#[derive(Clone)]
pub(super) enum How {
    /// As a fork of this process. The fork mounts.
    First,
    /// As a fork, for an existing mount. This works even while no server runs, unlike starting a
    /// program, whose files may be in the mount or in an overlayfs on top of it.
    Fork,
    /// As the program that is now installed.
    Installed,
    /// As a program that served before, even if another one is installed by now.
    Program(Arc<OwnedFd>),
}

/// Starts the servers of one mount.
pub(super) struct Servers {
    pub(super) request: MountRequest,
    pub(super) log: Log,
    serve: Serve,
    /// The directory that relative paths in the options start from.
    started_at: PathBuf,
    /// `/dev/null`, opened before anything was mounted.
    pub(super) null: OwnedFd,
}

impl Servers {
    pub(super) fn new(request: MountRequest, log: Log, serve: Serve, null: OwnedFd) -> Self {
        let started_at = std::env::current_dir().unwrap_or_else(|_| "/".into());
        Self {
            request,
            log,
            serve,
            started_at,
            null,
        }
    }

    /// Starts a server with the standard error of this process; the first server also gets the
    /// standard output.
    pub(super) fn start(&self, how: &How) -> Result<Server, Error> {
        let (socket, theirs) = packets::socket_pair()?;
        let (program, sender) = packets::socket_pair()?;
        let mut kept = vec![self.null.as_raw_fd()];
        kept.extend(self.log.descriptor().map(|log| log.as_raw_fd()));
        match how {
            How::First | How::Fork => {}
            How::Installed => kept.push(sender.as_raw_fd()),
            How::Program(program) => kept.push(program.as_raw_fd()),
        }
        let child = ChildProcess::fork(theirs, &kept, || {
            if let How::First = how {
                return self.serve(Start::First);
            }
            let _ = rustix::stdio::dup2_stdout(&self.null);
            match how {
                How::First | How::Fork => self.serve(Start::Successor),
                How::Installed => {
                    let path = respawn::installed();
                    send_program(&path, &sender);
                    self.become_program(&path)
                }
                How::Program(program) => {
                    let path = format!("/proc/self/fd/{}", program.as_raw_fd());
                    self.become_program(Path::new(&path))
                }
            }
        });
        Ok(Server {
            socket,
            child: Some(child.map_err(Error::std_io("cannot start the server"))?),
            program: Some(program),
        })
    }

    /// Serves the mount; called in a child, which exits with the returned status.
    fn serve(&self, start: Start) -> i32 {
        (self.serve)(&self.request, self.log.clone(), start).into()
    }

    /// Executes a program in place of this one; called in a child.
    fn become_program(&self, path: &Path) -> i32 {
        if !is_program(path) {
            self.report(&format!(
                "cannot start the server: {} is not a program",
                path.display()
            ));
            return CANNOT_START.into();
        }
        let _ = rustix::process::chdir(&self.started_at);
        let arguments = respawn::arguments(&self.request);
        let mut command = respawn::command_of(path, Role::Upgrade);
        if self.request.foreground {
            command.env(respawn::FOREGROUND, "1");
        }
        let error = command.args(arguments).exec();
        self.report(&format!("cannot start the server: {error}"));
        CANNOT_START.into()
    }

    /// Logs an event. If logging fails, there is nowhere to report the failure.
    pub(super) fn report(&self, what: &str) {
        let place = self.request.mountpoint.display();
        let _ = self.log.line(&format!("{place}: {what}"));
    }
}

/// Whether a file begins like a program or a script. execvp(3) would run any other file with a
/// shell.
fn is_program(path: &Path) -> bool {
    let mut begin = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read(&mut begin));
    // A file that cannot be read may still be executable.
    read.is_err() || begin == *b"\x7fELF" || begin.starts_with(b"#!")
}

#[derive(Debug)]
pub(super) struct Server {
    /// The socket for its requests. The socket closes when all serving threads have ended.
    pub(super) socket: OwnedFd,
    /// The process; `None` once another owner waits for its end.
    child: Option<ChildProcess>,
    /// Delivers a descriptor of the program, if the server was started as the installed program.
    /// Only a fork of this process has the other end, until it executes that program.
    program: Option<OwnedFd>,
}

/// How long a process may take to end after its socket has closed.
const EXIT: Duration = Duration::from_secs(1);

/// How long the threads of a killed server may take to end.
const DEATH: Duration = Duration::from_secs(5);

/// How long a server may take to follow an order, and the interval at which the order is repeated.
const ORDER: [Duration; 2] = [Duration::from_secs(10), Duration::from_millis(500)];

impl Server {
    /// The process ID of the server.
    pub(super) fn number(&self) -> Option<i32> {
        self.child.as_ref().map(ChildProcess::number)
    }

    /// The program of a server that was started as [`How::Installed`] and has made a request. The
    /// program is kept so that it can be started again even if another one is installed by then.
    pub(super) fn program(&self) -> Option<How> {
        let (_, program) = packets::receive(self.program.as_ref()?).ok()?;
        program.map(|program| How::Program(Arc::new(program)))
    }

    /// The server's process and its descendants.
    pub(super) fn family(&self) -> Option<Family> {
        Family::of(self.number()?.try_into().ok()?)
    }

    /// Makes the server unmount and end.
    pub(super) fn end(&self) {
        if ignores_signals() || self.signal(Signal::TERM) == Err(Errno::PERM) {
            let _ = send_order(&self.socket, Order::End);
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), Errno> {
        let child = self.child.as_ref();
        child.map_or(Ok(()), |child| child.signal(signal))
    }

    /// Kills the server, and waits for its serving threads to end. If this process has no right to
    /// kill the server (as root without CAP_KILL), asks it to exit. A server that is killed in a
    /// frozen cgroup, or while it waits for a device, executes nothing more, so the wait is limited
    /// to [`DEATH`].
    ///
    /// # Errors
    /// Returns an error if the server may not be killed and did not exit when asked.
    pub(super) fn kill(&mut self) -> Result<(), Error> {
        if self.signal(Signal::KILL) == Err(Errno::PERM) {
            return self.ask_to_exit();
        }
        let deadline = Instant::now() + DEATH;
        while is_readable_before(deadline, self.socket.as_fd()) && self.reads_packet() {}
        Ok(())
    }

    fn ask_to_exit(&self) -> Result<(), Error> {
        let begin = Instant::now();
        let [limit, interval] = ORDER;
        while begin.elapsed() < limit {
            // An error means that the server is gone.
            let _ = send_order(&self.socket, Order::Exit);
            let again = Instant::now() + interval;
            while Instant::now() < again {
                if is_readable_before(again, self.socket.as_fd()) && !self.reads_packet() {
                    return Ok(());
                }
            }
        }
        let why = "the server does not exit, and this process lacks the right to kill it";
        Err(Error::Server(why.into()))
    }

    /// Reads and drops a packet; returns false once the socket has closed.
    fn reads_packet(&self) -> bool {
        packets::receive(&self.socket).is_ok_and(|(packet, _)| !packet.is_empty())
    }

    /// Waits for the server to end; returns an error if it died.
    pub(super) fn outcome(&mut self) -> Result<(), Error> {
        let Some(child) = self.child.take() else {
            return Ok(());
        };
        let status = child.wait().map_err(Error::std_io("the server"))?;
        match status.success() {
            true => Ok(()),
            false => Err(Error::Server(format!("the server died: {status}"))),
        }
    }

    /// Takes the process of a server whose socket has closed or will close.
    pub(super) fn take_child(&mut self) -> Option<ChildProcess> {
        self.child.take()
    }

    /// A short reason why the server has made no request.
    pub(super) fn why_silent(&self) -> String {
        let begin = Instant::now();
        // The socket closes a moment before the process ends.
        while self.has_ended() && begin.elapsed() < EXIT {
            match self.child.as_ref().map(ChildProcess::try_wait) {
                Some(Ok(None)) => thread::sleep(Duration::from_millis(1)),
                Some(Ok(Some(status))) => return why_ended(status),
                _ => break,
            }
        }
        "it did not answer".to_owned()
    }

    /// Whether the server is stopped, as by SIGSTOP.
    pub(super) fn has_stopped(&self) -> bool {
        self.child.as_ref().is_some_and(ChildProcess::has_stopped)
    }

    /// Whether the server's socket has closed.
    pub(super) fn has_ended(&self) -> bool {
        has_ended(self.socket.as_fd())
    }
}

/// Why a program that was supposed to take over the mount ended.
fn why_ended(status: ExitStatus) -> String {
    match status.code().map(u8::try_from) {
        Some(Ok(CANNOT_START)) => "the installed program cannot be started".to_owned(),
        Some(Ok(OTHER_VERSION)) => "the installed program has a different version".to_owned(),
        _ => format!("it exited immediately: {status}"),
    }
}

/// Opens the program and sends its descriptor to the parent. Called in a child, because opening a
/// program may have to wait for the mount, which the helper must not do.
fn send_program(path: &Path, sender: &OwnedFd) {
    // If this fails, the next server is a fork.
    if let Ok(program) = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
        let _ = packets::send_with(sender, b"program", Some(&program), SendFlags::NOSIGNAL);
    }
}

/// Exit status if the program cannot be started, as in shells.
const CANNOT_START: u8 = 127;
