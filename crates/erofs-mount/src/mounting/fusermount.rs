//! Mounts through fusermount3, the set-user-ID program that mounts for users. The program opens
//! `/dev/fuse`, mounts, and passes the descriptor back over a socket.

use std::ffi::OsString;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use erofs_engine::escape_option;
use rustix::mount::MountFlags;

use super::plan::MountPlan;
use super::table::covered_notice;
use crate::respawn::MARK;
use erofs_fuse::error::{Error, OPEN_TO_EVERYONE};
use erofs_fuse::packets::receive;
use erofs_fuse::poll::is_readable_before;

const PROGRAM: &str = "fusermount3";

/// How long fusermount3 may take; it normally takes milliseconds.
const LIMIT: Duration = Duration::from_secs(30);

/// Where to search for the program: a service manager may leave these folders out of PATH.
const PLACES: [&str; 3] = [PROGRAM, "/usr/bin/fusermount3", "/bin/fusermount3"];

/// Mounts, and returns the descriptor of `/dev/fuse`.
pub(crate) fn mount(plan: &MountPlan<'_>) -> Result<OwnedFd, Error> {
    let (ours, theirs) = UnixStream::pair().map_err(Error::std_io("socketpair"))?;
    let theirs = OwnedFd::from(theirs);
    let helper = start(|command| {
        command.arg("-o").arg(options(plan)).arg("--");
        // The socket is the program's standard input, so that no descriptor leaks into other
        // programs.
        command.arg(&plan.mountpoint).env("_FUSE_COMMFD", "0");
        command.stdin(theirs.try_clone()?).spawn()
    })?;
    drop(theirs);
    let deadline = Instant::now() + LIMIT;
    if !is_readable_before(deadline, ours.as_fd()) {
        return Err(given_up(helper, &plan.mountpoint));
    }
    let reply = receive(&ours).map_err(Error::std_io("reply of fusermount3"))?;
    let (_, output) = finish(helper, deadline, &plan.mountpoint)?;
    match reply {
        (_, Some(device)) => Ok(device),
        _ => Err(refused(&plan.mountpoint, &output)),
    }
}

pub(crate) fn unmount(mountpoint: &Path, arguments: &[&str]) -> Result<(), Error> {
    let helper = start(|command| {
        let command = command.args(arguments).arg("--").arg(mountpoint);
        command.stdin(Stdio::null()).spawn()
    })?;
    let (status, output) = finish(helper, Instant::now() + LIMIT, mountpoint)?;
    if status.success() {
        return Ok(());
    }
    let message = one_line(&output);
    if message.contains("busy") {
        return Err(Error::Busy);
    }
    Err(Error::mountpoint(
        mountpoint,
        format!("fusermount3: {message}"),
    ))
}

/// Starts the program from the first place where it exists.
fn start<T>(mut started: impl FnMut(&mut Command) -> io::Result<T>) -> Result<T, Error> {
    let mut outcome = Err(io::ErrorKind::NotFound.into());
    for place in PLACES {
        let mut command = Command::new(place);
        command.env_remove(MARK);
        command.stdout(Stdio::null()).stderr(Stdio::piped());
        outcome = started(&mut command);
        let is_absent = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        if !outcome.as_ref().is_err_and(is_absent) {
            break;
        }
    }
    outcome.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Error::NoFusermount,
        _ => Error::std_io(PROGRAM)(error),
    })
}

fn options(plan: &MountPlan<'_>) -> OsString {
    let mut list = OsString::from("ro,subtype=erofast,fsname=");
    list.push(escape_option(&plan.source));
    list.push(format!(",max_read={}", plan.max_read));
    let flags = plan.options.flags();
    let switches = [
        (plan.default_permissions, ",default_permissions"),
        (
            plan.options.allow_other || plan.options.allow_root,
            ",allow_other",
        ),
        (flags.contains(MountFlags::NOEXEC), ",noexec"),
        (flags.contains(MountFlags::NODEV), ",nodev"),
        (flags.contains(MountFlags::NOSUID), ",nosuid"),
        (flags.contains(MountFlags::NOATIME), ",noatime"),
    ];
    for (on, text) in switches {
        if on {
            list.push(text);
        }
    }
    list
}

/// Waits for the program to end, and collects its output.
fn finish(
    mut helper: Child,
    deadline: Instant,
    mountpoint: &Path,
) -> Result<(ExitStatus, Vec<u8>), Error> {
    let mut output = Vec::new();
    if let Some(mut stderr) = helper.stderr.take() {
        while is_readable_before(deadline, stderr.as_fd()) {
            let mut part = [0; 1024];
            match stderr.read(&mut part) {
                Ok(0) | Err(_) => break,
                Ok(length) => output.extend(&part[..length]),
            }
        }
    }
    // The program ends a moment after it closes its end of the pipe.
    while Instant::now() < deadline {
        if let Some(status) = helper.try_wait().map_err(Error::std_io(PROGRAM))? {
            return Ok((status, output));
        }
        thread::sleep(Duration::from_micros(200));
    }
    Err(given_up(helper, mountpoint))
}

/// Kills the program, which is permitted because its real user is that of this process. Returns the
/// error that says that the program did not end in time.
fn given_up(mut helper: Child, mountpoint: &Path) -> Error {
    let _ = helper.kill();
    let pid = helper.id();
    // A process in a frozen cgroup ends later.
    thread::sleep(Duration::from_millis(100));
    let _ = helper.try_wait();
    Error::FusermountSilent {
        mountpoint: mountpoint.to_owned(),
        pid,
        seconds: LIMIT.as_secs(),
    }
}

fn refused(mountpoint: &Path, output: &[u8]) -> Error {
    let message = one_line(output);
    if message.ends_with("Permission denied") && covered_notice(mountpoint).is_some() {
        let point = mountpoint.display();
        return Error::Server(format!(
            "{point}: an image is already mounted there; run erofast umount first"
        ));
    }
    Error::mountpoint(mountpoint, format!("fusermount3: {}", with_remedy(message)))
}

/// Adds a remedy, because the program's message says neither what is wrong with the device nor what
/// the mount table should be.
fn with_remedy(message: String) -> String {
    let remedies = [
        ("/dev/fuse: Permission denied", OPEN_TO_EVERYONE),
        (
            "/etc/mtab: No such file or directory",
            "it should be a link to /proc/self/mounts",
        ),
    ];
    let mut remedies = remedies.into_iter();
    match remedies.find(|(end, _)| message.ends_with(end)) {
        Some((_, remedy)) => format!("{message}; {remedy}"),
        None => message,
    }
}

/// The program's output on one line, without the program's name as a prefix.
fn one_line(output: &[u8]) -> String {
    let text = String::from_utf8_lossy(output);
    let lines = text
        .lines()
        .map(|line| line.trim_start_matches("fusermount3: ").trim());
    let line = lines
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ");
    if line.is_empty() {
        "failed without a message".to_owned()
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_does_not_end_is_named_and_ended() {
        let mut command = Command::new("sleep");
        let child = command.arg("60").stderr(Stdio::piped()).spawn().unwrap();
        let pid = child.id();
        let deadline = Instant::now() + Duration::from_millis(50);
        let error = finish(child, deadline, Path::new("/mnt")).unwrap_err();
        let line = format!("/mnt: fusermount3 (process {pid}) did not end within 30 s");
        assert_eq!(error.to_string(), line);
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
        assert!(
            stat.is_ok_and(|stat| stat.contains(") Z "))
                || !Path::new(&format!("/proc/{pid}")).exists()
        );
    }

    #[test]
    fn its_output_becomes_one_line() {
        assert_eq!(
            one_line(b"fusermount3: mount failed: No\nfusermount3: sorry\n"),
            "mount failed: No; sorry"
        );
        assert_eq!(one_line(b"\n"), "failed without a message");
    }

    #[test]
    fn what_it_cannot_open_comes_with_its_remedy() {
        let line = with_remedy("failed to open /dev/fuse: Permission denied".to_owned());
        assert!(line.ends_with("denied; everyone should be able to read and write it (mode 666)"));
        let table = "failed to open /etc/mtab: No such file or directory";
        let line = with_remedy(table.to_owned());
        assert_eq!(
            line,
            format!("{table}; it should be a link to /proc/self/mounts")
        );
        assert_eq!(with_remedy("sorry".to_owned()), "sorry");
    }
}
