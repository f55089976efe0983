//! Mounting in the foreground or in the background.
//!
//! In the background the daemon serves: this program started again, since threads do not survive a
//! fork, and since its command line then says what it serves. It consists of two processes: the
//! mount helper, and the server, a fork of the helper, which replaces one that dies. The standard
//! output of both is a pipe for the outcome of the mount.
//!
//! 1. The parent starts `mount -f -o ... -- IMAGE MOUNTPOINT` with a mark in its environment, and
//!    reads the pipe to its end, or until the daemon has stopped or does nothing.
//! 2. [`run_if_daemon`] finds the mark. The process becomes the mount helper and forks the server,
//!    which mounts; notices go to standard error as usual.
//! 3. When the server serves, it begins a new session, has `/dev/null` as standard error, and
//!    informs the helper, which writes [`READY`] into the pipe and closes it; then the server
//!    closes the pipe, too. If the helper was killed before it answered, the server writes: the
//!    helper may have reported the mount, so it must stay.
//! 4. On failure: the error's line into the pipe, exit status 1.
//!
//! In the foreground the process is the server, and the mount helper its child: whoever kills the
//! process ends the mount, and the helper cleans up.

use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ExitCode, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};

use crate::await_daemon::{Awaited, read_from};
use crate::error::Error;
use crate::helper::{self, EnableUringRestorer, MountHelper, READY};
use crate::inherited;
use crate::log::Log;
use crate::note::note;
use crate::outside::Family;
use crate::request::MountRequest;
use crate::respawn::{self, OTHER_VERSION, Role};
use crate::serve;
use crate::start::Start;

/// Mounts an image.
///
/// In the foreground this returns when the mount is gone; otherwise when the daemon serves it.
///
/// # Errors
/// One line with the fault. Nothing stays mounted and no process is left.
pub fn mount(request: &MountRequest) -> Result<(), Error> {
    helper::check_passed(request)?;
    if request.foreground || request.options.debug {
        let log = Log::open(&request.options, false)?;
        let helper = MountHelper::start(request)?;
        let (notice, ready) = (&mut |line: &str| show(request, line), &mut |_: &_| Ok(()));
        return serve::serve(request, Start::Foreground, helper, log, notice, ready);
    }
    start(request)
}

/// Shows a notice, unless with `silent`.
fn show(request: &MountRequest, notice: &str) {
    if !request.options.silent {
        note(notice);
    }
}

/// Starts the daemon and waits until it serves, or reports why it does not.
fn start(request: &MountRequest) -> Result<(), Error> {
    let mut request = request.clone();
    // The standard input of the daemon is /dev/null. Not closed on exec: the daemon inherits it.
    let image = request
        .is_standard_input()
        .then(|| rustix::io::dup(rustix::stdio::stdin()).map_err(Error::io("dup")))
        .transpose()?;
    if let Some(image) = &image {
        request.image = format!("/proc/self/fd/{}", image.as_raw_fd()).into();
    }
    let before = helper::mounts_at(&request.mountpoint);
    let uring = EnableUringRestorer::new(&request.options);
    // Before there is a daemon, which blocks them as well.
    let signals = sys::fuse_signals::ending_signals().map_err(Error::std_io("signalfd"))?;
    let mut daemon = respawn::command(Role::Daemon)
        .args(respawn::arguments(&request))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::std_io(
            "cannot start the daemon, which takes /proc and /dev/null",
        ))?;
    let mut outcome = Vec::new();
    let family = Family::of(daemon.id());
    let awaited = match (daemon.stdout.take(), &family) {
        (Some(pipe), Some(family)) => {
            let longest = request.options.engine.remote.timeout;
            read_from(pipe, family, &signals, longest, &mut outcome)
        }
        _ => Awaited::Closed,
    };
    if outcome.starts_with(READY) {
        return Ok(());
    }
    let added = || helper::mounts_at(&request.mountpoint).into_iter();
    let held = added().filter(|entry| family.as_ref().is_some_and(|it| it.holds(&entry.device)));
    let held: Vec<_> = held.map(|entry| entry.device).collect();
    let status = match awaited {
        Awaited::Closed => Some(daemon.wait()).transpose(),
        Awaited::Signal | Awaited::Silent(_) => {
            family.iter().for_each(Family::kill);
            ended_within(&mut daemon, DEATH)
        }
    };
    let status = status.map_err(Error::std_io("cannot wait for the daemon"))?;
    // The helper restores it itself, unless it was killed.
    uring.restore();
    helper::unmount_dead(&request.mountpoint, &before, &held);
    match (awaited, status) {
        (Awaited::Silent(why), _) => {
            let why = format!("was not mounted: {why}");
            return Err(Error::mountpoint(&request.mountpoint, why));
        }
        (Awaited::Signal, _) => sys::fuse_signals::end_by(&signals),
        _ => {}
    }
    let line = String::from_utf8_lossy(&outcome).trim().to_owned();
    Err(Error::Daemon(if line.is_empty() {
        let status = status.map_or_else(String::new, |status| status.to_string());
        format!("the daemon died: {status}")
    } else {
        explained(line)
    }))
}

/// How long a process that was killed may take to end. One in a frozen cgroup ends much later.
const DEATH: Duration = Duration::from_secs(1);

fn ended_within(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let begin = Instant::now();
    loop {
        match child.try_wait()? {
            None if begin.elapsed() < limit => thread::sleep(Duration::from_millis(5)),
            status => return Ok(status),
        }
    }
}

/// EAGAIN of fork(2) and clone(2) does not name the limit.
fn explained(line: String) -> String {
    let number = format!("(os error {})", rustix::io::Errno::AGAIN.raw_os_error());
    match line.ends_with(&number) {
        true => format!(
            "{line}; a limit of processes or memory is reached (ulimit -u, ulimit -v, pids.max)"
        ),
        false => line,
    }
}

/// Runs a daemon or a mount helper; `None` in a process that is neither. Call it first in `main`,
/// and exit with its result.
pub fn run_if_daemon() -> Option<ExitCode> {
    sys::fuse_signals::undo_the_callers();
    let role = match Role::of_this_process()? {
        Ok(role) => role,
        Err(error) => {
            reported(Err(error));
            return Some(ExitCode::from(OTHER_VERSION));
        }
    };
    let serve = || {
        let request = respawn::own_request(role)?;
        inherited::close_inherited(&request);
        match role {
            Role::Daemon => helper::run_daemon(request, serve_in_background),
            Role::MountHelper => helper::run(request, serve_in_background),
            // Programs use the mount: one that is not logged is better than none.
            Role::Upgrade => {
                respawn::name_process();
                let log = Log::open(&request.options, true).unwrap_or(Log::None);
                serve_behind(&request, log, Start::Successor)
            }
        }
    };
    Some(ExitCode::from(reported(serve())))
}

/// The exit status. The process that waits for the mount prints an error; after READY nothing reads
/// the pipe any more.
fn reported(outcome: Result<(), Error>) -> u8 {
    let Err(error) = outcome else { return 0 };
    let _ = writeln!(std::io::stdout(), "{error}");
    1
}

/// In a fork of the mount helper.
fn serve_in_background(request: &MountRequest, log: Log, start: Start) -> i32 {
    reported(serve_behind(request, log, start)).into()
}

/// The server of a helper, which has started it. Its standard input is the socket; the other
/// standard streams are those of the command, or /dev/null when that is gone.
fn serve_behind(request: &MountRequest, log: Log, start: Start) -> Result<(), Error> {
    // Before the sandbox, which forbids it; and by no path that may lead into a mount which nobody
    // serves.
    let null = match start {
        Start::Successor => rustix::io::dup(rustix::stdio::stdout()),
        _ => rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()),
    };
    let null = null.map_err(Error::io("/dev/null"))?;
    let helper = MountHelper::parent(&null)?;
    let notice = &mut |line: &str| show(request, line);
    let ready = &mut |helper: &MountHelper| {
        // Fails only for the leader of a process group, which needs no new session.
        let _ = rustix::process::setsid();
        rustix::stdio::dup2_stderr(&null).map_err(Error::io("/dev/null"))?;
        match helper.served()? {
            true => helper::close_stdout(),
            false => helper::report_ready(),
        }
    };
    let last = log.duplicate().unwrap_or(Log::None);
    let served = serve::serve(request, start, helper, log, notice, ready);
    if let (Start::Successor, Err(error)) = (start, &served) {
        // Nobody waits for its line.
        let place = request.mountpoint.display();
        let _ = last.line(&format!("{place}: a server ended: {error}"));
    }
    served
}
