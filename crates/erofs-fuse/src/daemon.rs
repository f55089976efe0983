//! Mounting in the foreground or in the background.
//!
//! The daemon is this program started again, not a fork: threads do not survive a fork, and the
//! daemon gets a command line that says what it serves. It consists of two processes: the mount
//! helper and the server, which the helper starts, and replaces when it dies. The standard
//! output of both is a pipe on which the outcome of the mount is reported; the parent waits for
//! that, and exits with the same outcome.
//!
//! 1. The parent starts `mount -f -o ... -- IMAGE MOUNTPOINT` with a mark in its environment.
//! 2. [`run_if_daemon`] finds the mark, becomes the mount helper and starts the server, which
//!    mounts; notices go to standard error as usual.
//! 3. When the mount is served, the server goes on in a new session, in `/`, with its standard
//!    descriptors at `/dev/null`, and informs the helper. From that moment on the helper replaces a
//!    server that dies; it writes [`READY`] into the pipe, closes it and answers the server, which
//!    closes it, too. The end of the pipe shows the parent that nothing follows. If the helper is
//!    killed meanwhile, it may have written or not: the server writes, and the mount stays.
//! 4. On failure: the error's line into the pipe, exit status 1.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{ExitCode, Stdio};

use rustix::fs::{Mode, OFlags};

use crate::error::Error;
use crate::helper::{self, EnableUringRestorer, MountHelper, READY};
use crate::inherited;
use crate::log::Log;
use crate::note::note;
use crate::request::MountRequest;
use crate::respawn::{self, Role};
use crate::serve::{self, Start};

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
        let (notice, ready) = (&mut |line: &str| show(request, line), &mut |_: &_| Ok(()));
        return serve::serve(request, Start::Foreground, log, notice, ready);
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
    let mut daemon = respawn::command(Role::Daemon)
        .args(respawn::arguments(&request))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::std_io(
            "cannot start the daemon, which takes /proc and /dev/null",
        ))?;
    let mut outcome = Vec::new();
    if let Some(mut pipe) = daemon.stdout.take() {
        // Ends when the daemon closes its end, or exits.
        let _ = pipe.read_to_end(&mut outcome);
    }
    if outcome.starts_with(READY) {
        return Ok(());
    }
    let status = daemon
        .wait()
        .map_err(Error::std_io("cannot wait for the daemon"))?;
    // It did so itself, unless it was killed.
    uring.restore();
    helper::unmount_dead(&request.mountpoint, &before);
    let line = String::from_utf8_lossy(&outcome).trim().to_owned();
    Err(Error::Daemon(if line.is_empty() {
        format!("the daemon died: {status}")
    } else {
        explained(line)
    }))
}

/// EAGAIN of fork(2) and clone(2) does not say what there is too little of.
fn explained(line: String) -> String {
    let number = format!("(os error {})", rustix::io::Errno::AGAIN.raw_os_error());
    match line.ends_with(&number) {
        true => format!("{line}; a limit of processes is reached (ulimit -u, pids.max)"),
        false => line,
    }
}

/// Runs a daemon or a mount helper; `None` in a process that is neither. Call it first in `main`,
/// and exit with its result.
pub fn run_if_daemon() -> Option<ExitCode> {
    sys::fuse_signals::undo_the_callers();
    let role = Role::of_this_process()?;
    let outcome = role.and_then(|role| {
        let request = respawn::own_request(role)?;
        inherited::close_inherited(&request);
        match role {
            Role::Daemon => helper::run_daemon(request, serve_as_fork),
            Role::MountHelper => helper::run(request),
            Role::Server => serve_first(&request),
            // Programs use the mount: one that is not logged is better than none.
            Role::Upgrade => {
                respawn::name_process();
                let log = Log::open(&request.options, true).unwrap_or(Log::None);
                serve_next(&request, log)
            }
        }
    });
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent prints it; after READY nothing reads the pipe any more.
            let _ = writeln!(std::io::stdout(), "{error}");
            ExitCode::FAILURE
        }
    })
}

/// The first server of a mount.
fn serve_first(request: &MountRequest) -> Result<(), Error> {
    // Opened before the sandbox, which forbids it.
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(Error::io("/dev/null"))?;
    let log = Log::open(&request.options, true)?;
    let (notice, ready) = (
        &mut |line: &str| show(request, line),
        &mut |helper: &MountHelper| {
            detach(&null)?;
            match helper.served()? {
                true => helper::close_stdout(),
                false => helper::report_ready(),
            }
        },
    );
    serve::serve(request, Start::Background, log, notice, ready)
}

/// A server of a mount that is there. Its standard streams are its socket and /dev/null.
fn serve_next(request: &MountRequest, log: Log) -> Result<(), Error> {
    let (notice, ready) = (&mut |_: &str| {}, &mut |helper: &MountHelper| {
        start_session();
        helper.served().map(drop)
    });
    serve::serve(request, Start::Successor, log, notice, ready)
}

/// The same in a fork of the mount helper.
fn serve_as_fork(request: &MountRequest, log: Log) -> i32 {
    serve_next(request, log).map_or(1, |()| 0)
}

/// Detaches from the terminal. The parent waits for the standard output.
fn detach(null: &OwnedFd) -> Result<(), Error> {
    start_session();
    rustix::stdio::dup2_stdin(null).map_err(Error::io("/dev/null"))?;
    rustix::stdio::dup2_stderr(null).map_err(Error::io("/dev/null"))
}

fn start_session() {
    // Fails only for the leader of a process group, which needs no new session.
    let _ = rustix::process::setsid();
}
