//! Mounting in the background.
//!
//! The daemon is this program started again, not a fork: threads do not survive a fork, and the
//! daemon gets a command line that says what it serves. Its standard output is a pipe on which it
//! says how the mount went; the parent waits for that, and ends with the same outcome.
//!
//! 1. The parent starts `mount -f -o ... -- IMAGE MOUNTPOINT` with [`MARK`] in its environment.
//! 2. [`run_if_daemon`] sees the mark and mounts; notices go to standard error as usual.
//! 3. When the mount is served: new session, `/`, [`READY`] into the pipe, all three standard
//!    descriptors to `/dev/null`. The pipe's end tells the parent that nothing more comes.
//! 4. When it fails: the error's line into the pipe, exit status 1.

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};

use rustix::fs::{Mode, OFlags};

use crate::options::MountOptions;
use crate::{Error, MountRequest, mounter, serve};

/// In the environment of the daemon.
pub(crate) const MARK: &str = "EROFAST_DAEMON";

const READY: &[u8] = b"ready\n";

/// Starts the daemon and waits until it serves, or says why it does not.
pub(crate) fn start(request: &MountRequest) -> Result<(), Error> {
    let mut daemon = this_command()
        .args(arguments(request))
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(Error::std_io("cannot start the daemon"))?;
    let mut outcome = Vec::new();
    if let Some(mut pipe) = daemon.stdout.take() {
        // Ends when the daemon closes its end, whatever happens to it.
        let _ = pipe.read_to_end(&mut outcome);
    }
    if outcome == READY {
        return Ok(());
    }
    let status = daemon
        .wait()
        .map_err(Error::std_io("cannot wait for the daemon"))?;
    let line = String::from_utf8_lossy(&outcome).trim().to_owned();
    Err(Error::Daemon(if line.is_empty() {
        format!("the daemon died: {status}")
    } else {
        line
    }))
}

/// This program again: by its own path, which names the process, or by the kernel's link when that
/// path is gone.
pub(crate) fn this_command() -> Command {
    let here = std::env::current_exe().ok().filter(|path| path.exists());
    let mut command = Command::new(here.unwrap_or_else(|| "/proc/self/exe".into()));
    command.arg0(
        std::env::args_os()
            .next()
            .unwrap_or_else(|| "erofast".into()),
    );
    command
}

/// The command line of a daemon.
pub(crate) fn arguments(request: &MountRequest) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["mount".into(), "-f".into()];
    for list in &request.options.given {
        arguments.extend(["-o".into(), list.clone()]);
    }
    arguments.extend([
        "--".into(),
        request.image.clone().into(),
        request.mountpoint.clone().into(),
    ]);
    arguments
}

/// The life of the daemon; `None` in a process that is not one. Call it first of all in `main`, and
/// end with its result.
pub fn run_if_daemon() -> Option<ExitCode> {
    let mark = std::env::var_os(MARK)?;
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let outcome = match mark == mounter::APART {
        true => mounter::run(&arguments),
        false => parse(&arguments).and_then(|request| run(&request)),
    };
    Some(match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The parent prints it; after it was told of success nobody listens any more.
            let _ = writeln!(std::io::stdout(), "{error}");
            ExitCode::FAILURE
        }
    })
}

/// Reads what [`arguments`] made.
pub(crate) fn parse(arguments: &[OsString]) -> Result<MountRequest, Error> {
    let mut lists = Vec::new();
    let mut rest = arguments
        .strip_prefix(&["mount".into(), "-f".into()])
        .unwrap_or_default();
    while let [flag, list, after @ ..] = rest
        && flag == OsStr::new("-o")
    {
        lists.push(list.clone());
        rest = after;
    }
    match rest {
        [dashes, image, mountpoint] if dashes == OsStr::new("--") => Ok(MountRequest {
            image: image.into(),
            mountpoint: mountpoint.into(),
            options: MountOptions::parse(&lists)?,
            foreground: true,
        }),
        _ => Err(Error::Daemon(format!(
            "{MARK} is set, but this is not the command line of a daemon"
        ))),
    }
}

fn run(request: &MountRequest) -> Result<(), Error> {
    // Before the sandbox, inside of which nothing can be opened.
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(Error::io("/dev/null"))?;
    serve::foreground(
        request,
        &mut |notice| eprintln!("erofast: {notice}"),
        &mut || detach(&null),
    )
}

/// Leaves the terminal, the directory and the parent behind.
fn detach(null: &OwnedFd) -> Result<(), Error> {
    // Fails only for the leader of a process group, who needs no new session to be left alone.
    let _ = rustix::process::setsid();
    rustix::process::chdir("/").map_err(Error::io("chdir /"))?;
    let mut pipe = std::io::stdout();
    pipe.write_all(READY)
        .and_then(|()| pipe.flush())
        .map_err(Error::std_io("answer to the parent"))?;
    rustix::stdio::dup2_stdin(null).map_err(Error::io("/dev/null"))?;
    rustix::stdio::dup2_stderr(null).map_err(Error::io("/dev/null"))?;
    rustix::stdio::dup2_stdout(null).map_err(Error::io("/dev/null"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_daemon_reads_the_command_line_that_its_parent_writes() {
        let request = MountRequest {
            image: "-image, odd".into(),
            mountpoint: "/mnt".into(),
            options: MountOptions::parse(&["cache=1M,device=/a\\,b", "nohipri"]).unwrap(),
            foreground: false,
        };
        let parsed = parse(&arguments(&request)).unwrap();
        assert_eq!(
            (parsed.image, parsed.mountpoint),
            (request.image, request.mountpoint)
        );
        assert_eq!(parsed.options.engine.cache_bytes, 1 << 20);
        assert_eq!(
            parsed.options.engine.devices,
            request.options.engine.devices
        );
        assert!(parsed.foreground);
    }

    #[test]
    fn any_other_command_line_is_refused() {
        for line in [
            &["mount", "-f", "image"][..],
            &[],
            &["mount", "-f", "-o", "ro"],
        ] {
            let line: Vec<OsString> = line.iter().map(OsString::from).collect();
            assert!(parse(&line).is_err());
        }
    }
}
