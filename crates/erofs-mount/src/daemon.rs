//! The processes of a mount: the mount helper, which mounts, and its child, the server, which
//! reads the image. The helper replaces a server that dies.
//!
//! In the foreground, the helper is the process that the caller started. In the background, the
//! helper is this program started again, so that its command line shows what is mounted:
//!
//! 1. The caller's process starts `mount -f -o ... -- IMAGE MOUNTPOINT` with a mark in its
//!    environment and a pipe as its standard output, and reads the pipe to its end, or until the
//!    daemon is stopped or makes no progress.
//! 2. [`run_if_daemon`] finds the mark. The process becomes the helper and forks the server;
//!    notices go to standard error as usual.
//! 3. Once the server serves the mount, it begins a new session, makes `/dev/null` its standard
//!    error, and informs the helper. The helper writes [`READY`] into the pipe and closes it; then
//!    the server closes the pipe too. If the helper was killed before it answered, the server
//!    writes [`READY`] itself, because the helper may already have reported the mount, and so the
//!    mount must stay.
//! 4. On failure, the process writes the error's line into the pipe and exits with status 1.

use std::io::Write;
use std::os::fd::AsRawFd;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use rustix::fs::{Mode, OFlags};

use crate::child::ChildProcess;
use crate::inherited;
use crate::mounting::{self, EnableUringRestorer, passed};
use crate::outside::Family;
use crate::patience::{self, Awaited, not_mounted, read_from};
use crate::respawn::{self, OTHER_VERSION, Role};
use crate::supervise::{self, READY, report_ready};
use erofs_fuse::error::Error;
use erofs_fuse::log::Log;
use erofs_fuse::note;
use erofs_fuse::protocol::MountHelper;
use erofs_fuse::request::{MountRequest, Start};
use erofs_fuse::serve;

/// Mounts an image.
///
/// In the foreground, returns when the mount is gone; in the background, when a daemon serves it.
///
/// # Errors
/// Returns a one-line error that describes the fault. Nothing stays mounted, and no process is
/// left.
pub fn mount(request: &MountRequest) -> Result<(), Error> {
    passed::check(request)?;
    if request.foreground || request.options.debug {
        if request.options.standby {
            return Err(Error::Standby("cannot be used with -f".to_owned()));
        }
        let mut request = request.clone();
        request.foreground = true;
        return supervise::run(request, serve_for_helper);
    }
    start(request)
}

/// Starts the daemon, and waits until it serves or reports why it does not.
fn start(request: &MountRequest) -> Result<(), Error> {
    let mut request = request.clone();
    // The daemon's standard input is /dev/null. It inherits the image as a duplicate, which is not
    // closed on exec.
    let image = request
        .is_standard_input()
        .then(|| rustix::io::dup(rustix::stdio::stdin()).map_err(Error::io("dup")))
        .transpose()?;
    if let Some(image) = &image {
        request.image = format!("/proc/self/fd/{}", image.as_raw_fd()).into();
    }
    let before = mounting::mounts_at(&request.mountpoint);
    let uring = EnableUringRestorer::new(&request.options);
    // Block signals before starting the daemon, which inherits the mask.
    let signals = sys::fuse_signals::ending_signals().map_err(Error::std_io("signalfd"))?;
    let mut command = respawn::command(Role::Daemon);
    command.args(respawn::arguments(&request));
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let started = patience::start(command, &signals, &request).map_err(Error::std_io(
        "cannot start the daemon, which needs /proc and /dev/null",
    ))?;
    let mut daemon = match started {
        Ok(daemon) => daemon,
        Err(Awaited::Silent(why)) => {
            uring.restore();
            return Err(not_mounted(&request, &why));
        }
        Err(Awaited::Signal | Awaited::Closed) => {
            uring.restore();
            sys::fuse_signals::end_by(&signals);
            return Err(Error::Daemon("a signal ended the mount".to_owned()));
        }
    };
    let mut outcome = Vec::new();
    let (pipe, family) = (daemon.stdout.take(), Family::of(daemon.id()));
    let daemon = ChildProcess::from(daemon);
    let awaited = match (pipe, &family) {
        (Some(pipe), Some(family)) => read_from(pipe, family, &signals, &request, &mut outcome),
        _ => Awaited::Closed,
    };
    if outcome.starts_with(READY) {
        return Ok(());
    }
    let added = || mounting::mounts_at(&request.mountpoint).into_iter();
    let held = added().filter(|entry| family.as_ref().is_some_and(|it| it.holds(&entry.device)));
    let held: Vec<_> = held.map(|entry| entry.device).collect();
    let status = match awaited {
        Awaited::Closed => Some(daemon.wait()).transpose(),
        Awaited::Signal | Awaited::Silent(_) => {
            family.iter().for_each(Family::kill);
            daemon.wait_for(DEATH)
        }
    };
    let status = status.map_err(Error::std_io("cannot wait for the daemon"))?;
    // The helper restores the parameter itself, unless it was killed.
    uring.restore();
    mounting::unmount_dead(&request.mountpoint, &before, &held);
    match awaited {
        Awaited::Silent(why) => return Err(not_mounted(&request, &why)),
        Awaited::Signal => sys::fuse_signals::end_by(&signals),
        Awaited::Closed => {}
    }
    let line = String::from_utf8_lossy(&outcome).trim().to_owned();
    Err(Error::Daemon(if line.is_empty() {
        let status = status.map_or_else(String::new, |status| status.to_string());
        format!("the daemon died: {status}")
    } else {
        explained(line)
    }))
}

/// How long to wait for a killed process to end. A process in a frozen cgroup ends much later.
const DEATH: Duration = Duration::from_secs(1);

/// Explains the error EAGAIN from fork(2) and clone(2), which does not say which limit was reached.
fn explained(line: String) -> String {
    let number = format!("(os error {})", rustix::io::Errno::AGAIN.raw_os_error());
    match line.ends_with(&number) {
        true => format!(
            "{line}; a limit on processes or memory was reached (ulimit -u, ulimit -v, pids.max)"
        ),
        false => line,
    }
}

/// Runs a daemon, or a server that takes over a mount; `None` in a process that is neither. Call it
/// first in `main`, and exit with its result.
pub fn run_if_daemon() -> Option<ExitCode> {
    sys::fuse_signals::undo_the_callers();
    let status = match Role::of_this_process()? {
        Ok(role) => run(role).unwrap_or_else(|error| reported(&error)),
        Err(error) => {
            reported(&error);
            OTHER_VERSION
        }
    };
    Some(ExitCode::from(status))
}

fn run(role: Role) -> Result<u8, Error> {
    let request = respawn::own_request(role)?;
    match role {
        Role::Daemon => {
            inherited::close_inherited(&request);
            supervise::run(request, serve_for_helper).map(|()| 0)
        }
        Role::Upgrade => {
            sys::inherited::close_all_but(&[]);
            // The kernel named this process after the descriptor through which it was started.
            let _ = rustix::thread::set_name(&respawn::name_of_process());
            // Programs are already using the mount, and a mount without a log is better than none.
            let log = Log::open(&request.options, !request.foreground).unwrap_or(Log::None);
            Ok(serve_for_helper(&request, log, Start::Successor))
        }
    }
}

/// Reports the error to the process that waits for the mount; that process prints it. After
/// [`READY`] nothing reads the pipe.
fn reported(error: &Error) -> u8 {
    let _ = writeln!(std::io::stdout(), "{error}");
    1
}

/// Serves the mount for its mount helper, which started this process and receives its errors.
/// Returns the exit status.
fn serve_for_helper(request: &MountRequest, log: Log, start: Start) -> u8 {
    // `/dev/null` is opened before the process enters the sandbox, which forbids opening it. A
    // successor uses its standard output, which is `/dev/null`, because the path may lead into a
    // mount that is not served.
    let null = match start {
        Start::Successor => rustix::io::dup(rustix::stdio::stdout()),
        Start::First => {
            rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        }
    };
    let null = null.map_err(Error::io("/dev/null, which the daemon needs"));
    let has_companion = respawn::helper_has_companion();
    let helper = null.and_then(|null| Ok((MountHelper::parent(&null, has_companion)?, null)));
    let Ok((helper, null)) = helper else {
        return 1;
    };
    let notice = |line: &str| {
        if !request.options.silent {
            note(line);
        }
    };
    // A successor must not resolve a path that may lead into the mount, which is not served at this
    // moment.
    let covers = match start {
        Start::Successor => None,
        Start::First => mounting::covered_notice(&request.mountpoint),
    };
    let ready = &mut |helper: &MountHelper| {
        covers.iter().for_each(|line| notice(line));
        let reports = start == Start::First && !request.foreground;
        if reports {
            // This fails only for the leader of a process group, which needs no new session.
            let _ = rustix::process::setsid();
            rustix::stdio::dup2_stderr(&null).map_err(Error::io("/dev/null"))?;
        }
        let served = helper.served()?;
        match (reports, served) {
            (true, true) => rustix::stdio::dup2_stdout(&null).map_err(Error::io("/dev/null")),
            (true, false) => report_ready(&null),
            (false, _) => Ok(()),
        }
    };
    // Only the fetcher, which the helper starts, needs these variables.
    let erased = sys::environment::erase(respawn::NETWORK);
    let erased = erased.map_err(Error::std_io("the environment"));
    let served = erased.and_then(|()| {
        serve(
            request,
            start,
            &helper,
            log,
            &mut |line| notice(line),
            ready,
        )
    });
    match served {
        Ok(()) => 0,
        Err(error) => {
            helper.failed(&error);
            1
        }
    }
}
