//! `profile record`: runs a command from an image, and records what it reads.
//!
//! The image is mounted in a mount namespace that only this process and its children have. No other
//! program sees the mount, and it disappears however this process ends.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use erofast_cli::units::{count, size};
use erofast_cli::{Outcome, Usage};
use erofs_engine::remote;
use erofs_mount::{MountOptions, MountRequest, note};
use launch_profile::Program;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount_bind_recursive, unmount};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};

use sys::fuse_signals::ending_signals_to_catch;

use super::path_of;
use super::travelling::{join, write};
use crate::cli::fuse_style::option;
use crate::cli::tools::profile::ProfileRecordArgs;
use crate::commands::mount;

/// Interval between checks for signals.
const TICK: Duration = Duration::from_millis(50);

/// How long processes left behind by the command may use the mount.
const USED: Duration = Duration::from_secs(2);

/// Directories of this system that a command with `--root` finds in its root directory.
const OF_SYSTEM: [&str; 3] = ["dev", "proc", "sys"];

/// Runs `profile record`.
pub fn record(args: &ProfileRecordArgs) -> anyhow::Result<Outcome> {
    let output = output(args)?;
    let names_mount = |word: &OsString| word.as_bytes().windows(2).any(|pair| pair == b"{}");
    if !args.root && !args.command.iter().any(names_mount) {
        let line =
            "the command does not use the image: write {} for the mount point, or give --root";
        return Err(Usage(line.into()).into());
    }
    let image = mount::image(&args.image)?;
    let files = args.files.options();
    let files = files.map(|(name, path)| option(name, path));
    let options: Vec<OsString> = args.options.iter().cloned().chain(files).collect();
    let options = MountOptions::parse(&options)?;
    sys::namespace::own_mounts_as_root().context(
        "cannot create a mount namespace (user namespaces may be disabled; run as root)",
    )?;
    let ending = Ending::expect().context("signals")?;
    let mut programs = Vec::new();
    for number in 1..=args.runs {
        let run = Run::new(&image, &options, &ending)?;
        let status = run.command(args, &ending);
        let recorded = run.end()?;
        let status = status?;
        let read = recorded.iter().map(described);
        let read = read.collect::<Vec<_>>().join("; ");
        note(match recorded.is_empty() {
            true => format!("run {number} of {}: recorded nothing", args.runs),
            false => format!("run {number} of {}: {read}", args.runs),
        });
        join(&mut programs, recorded);
        ending.obey();
        if let Some(failure) = failure(status) {
            // A launch that failed may have read too little to replace an earlier profile.
            if output.exists() {
                let output = output.display();
                note(format!(
                    "the command failed (status {failure}): {output} is unchanged"
                ));
            } else if !programs.is_empty() {
                finish(programs, &output)?;
            }
            return Ok(Outcome::Ended(failure));
        }
    }
    let shown = remote::shown(&args.image);
    ensure!(
        !programs.is_empty(),
        "{shown}: the command read none of the image's files, or so many that it looks like a copy"
    );
    finish(programs, &output)
}

/// Writes the profile and prints where it is.
fn finish(programs: Vec<Program>, output: &PathBuf) -> anyhow::Result<Outcome> {
    let outcome = write(programs, Some(output))?;
    if output.as_os_str() != "-" {
        note(format!("wrote {}", output.display()));
    }
    Ok(outcome)
}

fn output(args: &ProfileRecordArgs) -> anyhow::Result<PathBuf> {
    match (&args.output, remote::url(&args.image)) {
        (Some(output), _) => Ok(output.clone()),
        (None, Some(_)) => {
            let line = "-o FILE is needed: nothing can be written beside a URL";
            Err(Usage(line.into()).into())
        }
        (None, None) => Ok(erofs_mount::profile_beside(&args.image)),
    }
}

fn described(program: &Program) -> String {
    let (path, bytes) = (path_of(program), size(program.profile.bytes()));
    let files = count(program.profile.files.len() as u64, "file");
    format!("{path}: {bytes} in {files}")
}

/// The exit status that a shell would report; `None` on success.
fn failure(status: ExitStatus) -> Option<u8> {
    let signal = || Some(128 + status.signal()?);
    let number = status.code().or_else(signal).unwrap_or(1);
    (number != 0).then(|| u8::try_from(number).unwrap_or(1))
}

/// A mount for one run of the command.
struct Run {
    folder: tempfile::TempDir,
    helper: Pid,
}

impl Run {
    fn new(image: &Path, options: &MountOptions, ending: &Ending) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new()
            .prefix("erofast-record-")
            .tempdir()
            .context("cannot create a temporary directory")?;
        let point = folder.path().join("mount");
        std::fs::create_dir(&point).with_context(|| point.display().to_string())?;
        let (ready, theirs) = io::pipe().context("cannot create a pipe")?;
        let mut options = options.clone().recording(folder.path().join("launches"));
        (options.ready_fd, options.silent) = (u32::try_from(theirs.as_raw_fd()).ok(), true);
        let request = MountRequest {
            image: image.to_owned(),
            mountpoint: point,
            options,
            foreground: true,
        };
        let null = std::fs::File::open("/dev/null").context("/dev/null, which the mount needs")?;
        let parent = rustix::process::getpid();
        let helper = sys::fork::fork(null.into(), &[theirs.as_raw_fd()], || {
            serve(&request, parent)
        });
        let helper = Pid::from_raw(helper.context("cannot start a process")?)
            .context("cannot start a process")?;
        drop(theirs);
        let this = Self { folder, helper };
        let is_ready = ending.wait_for(&ready);
        let mut line = [0; 1];
        match is_ready && rustix::io::read(&ready, &mut line) == Ok(1) {
            true => Ok(this),
            false if !is_ready => {
                let _ = this.end();
                ending.obey();
                anyhow::bail!("interrupted by a signal")
            }
            false => {
                let _ = waitpid(Some(this.helper), WaitOptions::empty());
                let why = std::fs::read_to_string(this.folder.path().join("failure"));
                anyhow::bail!(
                    "{}",
                    why.unwrap_or_else(|_| "the image was not mounted".into())
                )
            }
        }
    }

    fn point(&self) -> PathBuf {
        self.folder.path().join("mount")
    }

    /// Runs the command until it ends; a signal to this process ends it early.
    fn command(&self, args: &ProfileRecordArgs, ending: &Ending) -> anyhow::Result<ExitStatus> {
        let point = self.point();
        let (mut words, shown): (Vec<OsString>, _) = match args.root {
            true => {
                bind_system(&point);
                (vec!["chroot".into(), point.into()], OsStr::new(""))
            }
            false => (Vec::new(), point.as_os_str()),
        };
        words.extend(args.command.iter().map(|word| filled(word, shown)));
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        sys::parent::end_with_parent(&mut command);
        let name = args.command[0].display();
        let mut child = command.spawn().with_context(|| name.to_string())?;
        let pid = Pid::from_child(&child);
        let ended = pidfd_open(pid, PidfdFlags::empty()).context("pidfd_open")?;
        if !ending.wait_for(&ended) {
            // A signal from the terminal has already reached the command.
            let _ = kill_process(pid, Signal::TERM);
        }
        child.wait().with_context(|| name.to_string())
    }

    /// Whether processes still use the mount when [`USED`] has passed since its last path
    /// disappeared.
    fn outlives(&self) -> bool {
        let ended = pidfd_open(self.helper, PidfdFlags::empty());
        ended.is_ok_and(|ended| {
            let limit = Timespec::try_from(USED).ok();
            let mut polled = [PollFd::new(&ended, PollFlags::IN)];
            poll(&mut polled, limit.as_ref()) == Ok(0)
        })
    }

    /// Unmounts, and reads the recorded profile.
    fn end(self) -> anyhow::Result<Vec<Program>> {
        let point = self.point();
        let in_use = || unmount(&point, UnmountFlags::empty()) == Err(Errno::BUSY);
        // The mount is in use by a mount inside it, or by background processes that the command
        // left behind.
        if in_use() && (unmount(&point, UnmountFlags::DETACH).is_err() || self.outlives()) {
            let _ = kill_process(self.helper, Signal::TERM);
        }
        let _ = waitpid(Some(self.helper), WaitOptions::empty());
        let recorded = self.folder.path().join("launches");
        match recorded.exists() {
            true => Ok(super::files::read(&recorded)?.programs),
            false => Ok(Vec::new()),
        }
    }
}

/// Runs in the process that mounts and serves.
fn serve(request: &MountRequest, parent: Pid) -> i32 {
    // If the command is killed, it leaves no mount behind.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::TERM));
    if rustix::process::getppid() != Some(parent) {
        return 1;
    }
    // Signals from the terminal are meant for the command.
    let _ = rustix::process::setpgid(None, None);
    erofs_mount::close_inherited(request);
    match erofs_mount::mount(request) {
        Ok(()) => 0,
        Err(error) => {
            let place = request.mountpoint.with_file_name("failure");
            let _ = std::fs::write(place, erofast_cli::one_line(&error.into()));
            1
        }
    }
}

/// Mounts directories of this system, and an empty `/tmp`, where the image has directories for
/// them.
fn bind_system(root: &Path) {
    for name in OF_SYSTEM {
        let _ = mount_bind_recursive(Path::new("/").join(name), root.join(name));
    }
    let _ = rustix::mount::mount("tmpfs", root.join("tmp"), "tmpfs", MountFlags::NODEV, None);
}

/// A word of the command with the mount point in place of `{}`.
fn filled(word: &OsStr, point: &OsStr) -> OsString {
    let (mut filled, mut rest) = (Vec::new(), word.as_bytes());
    while let Some(place) = rest.windows(2).position(|pair| pair == b"{}") {
        filled.extend(&rest[..place]);
        filled.extend(point.as_bytes());
        rest = &rest[place + 2..];
    }
    filled.extend(rest);
    OsString::from_vec(filled)
}

/// The signals that ask this process to end. Before it obeys one, it unmounts.
struct Ending(Arc<AtomicUsize>);

impl Ending {
    fn expect() -> io::Result<Self> {
        let came = Arc::new(AtomicUsize::new(0));
        for signal in ending_signals_to_catch() {
            let number = usize::try_from(signal).unwrap_or(1);
            signal_hook::flag::register_usize(signal, Arc::clone(&came), number)?;
        }
        Ok(Self(came))
    }

    /// If a signal arrived, ends this process as that signal would have.
    fn obey(&self) {
        let came = i32::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0);
        if came != 0 {
            let _ = signal_hook::low_level::emulate_default_handler(came);
        }
    }

    /// Waits until the descriptor is readable or its other end is closed; returns false if a signal
    /// arrived first.
    fn wait_for(&self, descriptor: impl AsFd) -> bool {
        while self.0.load(Ordering::Relaxed) == 0 {
            let mut polled = [PollFd::new(&descriptor, PollFlags::IN)];
            let limit = Timespec::try_from(TICK).ok();
            if poll(&mut polled, limit.as_ref()).is_ok_and(|ready| ready > 0) {
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn braces_stand_for_the_mount_point() {
        let at = |word: &str, point: &str| filled(OsStr::new(word), OsStr::new(point));
        assert_eq!(at("{}/bin/tool", "/m"), "/m/bin/tool");
        assert_eq!(at("--path={}:{}/x{", "/m"), "--path=/m:/m/x{");
        assert_eq!(at("{}/bin/tool", ""), "/bin/tool");
    }

    #[test]
    fn the_exit_status_is_that_of_a_shell() {
        let of = |raw| failure(ExitStatus::from_raw(raw));
        assert_eq!([of(0), of(3 << 8), of(9)], [None, Some(3), Some(137)]);
    }
}
