//! The processes that convert a layer, as seen by their parent.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use remote_image::converted::IMAGE;
use remote_image::registry::TarLayer;
use tokio::net::unix::pipe::Sender;
use tokio::task::JoinHandle;

use super::child::{CONVERT, MAKE, NOTE, UNPACK};
use crate::failure::Failure;

const PROGRAM: &str = "mkfs.erofs";
/// The first version of mkfs.erofs that reads an archive from standard input.
const OLDEST: [u32; 2] = [1, 7];
/// The first version of mkfs.erofs that can set an image's time without changing the times of its
/// files.
const HAS_MKFS_TIME: [u32; 2] = [1, 8];
const INSTALL: &str = "converting tar layers needs erofs-utils 1.7 or later \
     (Debian 13, Ubuntu 24.04, Fedora 39)";

/// How many bytes of a process's output are kept.
const SAID: usize = 4096;

/// Interval between checks whether a process that is about to end has ended.
const LOOK: Duration = Duration::from_millis(5);

/// The program that makes images.
#[derive(Debug, Clone)]
pub struct Mkfs {
    path: PathBuf,
    /// The first two numbers of the program's version.
    version: [u32; 2],
    /// The program's name and version.
    pub name: String,
}

impl Mkfs {
    /// Finds mkfs.erofs in `PATH`, and checks that it is recent enough. `empty` is an empty
    /// directory.
    pub async fn find(empty: &Path) -> Result<Mkfs, Failure> {
        let path = in_path()
            .ok_or_else(|| Failure::lasting(format!("{PROGRAM} is not installed: {INSTALL}")))?;
        // An old mkfs.erofs lacks this option, but prints its version before it fails.
        let (mut found, mut last) = (None, String::new());
        for options in [&["--version"][..], &["no", "such"]] {
            let said = ask(&path, options, empty).await?;
            found = version(&said);
            last = said;
            if found.is_some() {
                break;
            }
        }
        let shown = path.display();
        match found {
            Some((numbers, text)) if numbers >= OLDEST => Ok(Mkfs {
                path,
                version: numbers,
                name: format!("{PROGRAM} {text}"),
            }),
            Some((_, text)) => {
                let line = format!("{shown} is {text}, which is too old: {INSTALL}");
                Err(Failure::lasting(line))
            }
            None => {
                let last = last.lines().find(|line| !line.trim().is_empty());
                let last = last.map_or_else(String::new, |line| format!(" ({line})"));
                let line = format!("{shown} does not print its version{last}: {INSTALL}");
                Err(Failure::lasting(line))
            }
        }
    }

    /// The options with which this version makes the same image on every machine.
    fn options(&self, diff_id: &str) -> Vec<String> {
        let digits = diff_id.trim_start_matches("sha256:");
        let uuid = [0..8, 8..12, 12..16, 16..20, 20..32].map(|part| digits.get(part).unwrap_or(""));
        let mut options = ["--quiet", "--tar=f", "-zlz4"].map(str::to_owned).to_vec();
        options.push(format!("-U{}", uuid.join("-")));
        if self.version >= HAS_MKFS_TIME {
            options.extend(["-T0", "--mkfs-time"].map(str::to_owned));
        }
        options.push(IMAGE.to_owned());
        options
    }
}

fn in_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut programs = std::env::split_paths(&path).map(|folder| folder.join(PROGRAM));
    programs.find(|program| {
        let file = program.metadata();
        program.is_absolute()
            && file.is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    })
}

/// The output of the program when it is started with these options.
async fn ask(path: &Path, options: &[&str], empty: &Path) -> Result<String, Failure> {
    let mut command = maker(path, empty);
    command
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::piped());
    let mut process = Process::start(command).map_err(Failure::lasting)?;
    let output = process.child.stdout.take();
    let (said, _) = process.end().await;
    let output = output.map_or_else(String::new, read_most);
    Ok(format!("{output}\n{said}"))
}

/// The first version number in a text, parsed and as text.
fn version(text: &str) -> Option<([u32; 2], String)> {
    text.split_whitespace().find_map(|word| {
        let mut parts = word.split(['.', '-', '~']);
        let mut number = || parts.next()?.parse().ok();
        Some(([number()?, number()?], word.to_owned()))
    })
}

/// The command that starts this program again; the new process confines itself and becomes
/// `program`.
fn maker(program: &Path, directory: &Path) -> Command {
    let mut command = own();
    command.args([OsStr::new(MAKE), program.as_os_str()]);
    command.current_dir(directory).env("TMPDIR", ".");
    command
}

/// The command that starts this program to convert. The new processes inherit nothing from the
/// environment except the search paths for programs and libraries.
fn own() -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg(CONVERT).env_clear();
    for name in ["LD_LIBRARY_PATH", "PATH"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// A child process and its error output. Dropping this kills the process.
#[derive(Debug)]
struct Process {
    child: Child,
    said: JoinHandle<String>,
}

impl Process {
    fn start(mut command: Command) -> io::Result<Process> {
        let mut child = command.stderr(Stdio::piped()).spawn()?;
        let errors = child.stderr.take();
        let said = tokio::task::spawn_blocking(|| errors.map_or_else(String::new, read_most));
        Ok(Process { child, said })
    }

    /// Waits for the process to end; returns its error output and its status.
    async fn end(&mut self) -> (String, Option<ExitStatus>) {
        let status = loop {
            match self.child.try_wait() {
                Ok(None) => tokio::time::sleep(LOOK).await,
                Ok(status) => break status,
                Err(_) => break None,
            }
        };
        ((&mut self.said).await.unwrap_or_default(), status)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads everything, and returns the beginning.
fn read_most(mut from: impl Read) -> String {
    let mut kept = Vec::new();
    let _ = (&mut from).take(SAID as u64).read_to_end(&mut kept);
    // The process must not block on a full pipe.
    let _ = io::copy(&mut from, &mut io::sink());
    String::from_utf8_lossy(&kept).into_owned()
}

/// The two processes that convert a layer.
#[derive(Debug)]
pub struct Pipeline {
    unpacker: Process,
    maker: Process,
}

impl Pipeline {
    /// Starts the processes; the image is made in `directory`. The caller must write the layer to
    /// the sender.
    pub fn start(
        mkfs: &Mkfs,
        layer: &TarLayer,
        most: u64,
        directory: &Path,
    ) -> io::Result<(Pipeline, Sender)> {
        let (archive, unpacked) = io::pipe()?;
        let mut command = maker(&mkfs.path, directory);
        command.args(mkfs.options(&layer.diff_id));
        command.stdin(Stdio::from(archive)).stdout(Stdio::null());
        let maker = Process::start(command)?;
        let (packed, sender) = io::pipe()?;
        let mut command = own();
        command.current_dir(directory);
        command.args([UNPACK, &most.to_string()]);
        command
            .stdin(Stdio::from(packed))
            .stdout(Stdio::from(unpacked));
        let unpacker = Process::start(command)?;
        let sender = Sender::from_owned_fd(OwnedFd::from(sender))?;
        Ok((Pipeline { unpacker, maker }, sender))
    }

    /// Waits until the image exists; returns the diff ID of the layer that was sent. `note` gets
    /// lines for the log.
    pub async fn end(mut self, note: impl Fn(&str)) -> Result<String, Failure> {
        let (unpacked, status) = self.unpacker.end().await;
        let (made, maker_status) = self.maker.end().await;
        let said = [&unpacked, &made].map(|said| {
            said.lines()
                .filter_map(|line| line.strip_prefix(NOTE))
                .for_each(&note);
            let rest = said.lines().filter(|line| !line.starts_with(NOTE));
            rest.collect::<Vec<_>>()
        });
        let [unpacked, made] = &said;
        let is_fine = |status: Option<ExitStatus>| status.is_some_and(|status| status.success());
        if !is_fine(status) {
            return Err(Failure::lasting(reason("unpacking", unpacked, status)));
        }
        if !is_fine(maker_status) {
            return Err(Failure::lasting(reason(PROGRAM, made, maker_status)));
        }
        let diff_id = unpacked.last().copied().unwrap_or_default();
        Ok(diff_id.to_owned())
    }
}

/// The reason why a process failed: its error output or, if it printed none, how it ended.
fn reason(what: &str, said: &[&str], status: Option<ExitStatus>) -> String {
    let error = said.iter().find(|line| line.contains("<E>"));
    let line = error.or_else(|| said.iter().find(|line| !line.trim().is_empty()));
    let why = line.map(|line| line.trim_start_matches("<E>").trim());
    let how = status.map_or_else(|| "no status".to_owned(), |status| status.to_string());
    match why {
        Some(why) if what == PROGRAM => format!("{PROGRAM}: {why}"),
        Some(why) => why.to_owned(),
        None => format!("{what} ended: {how}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_found_in_what_programs_print() {
        for (text, expected) in [
            (
                "mkfs.erofs (erofs-utils) 1.9.4\navailable compressors: lz4",
                Some([1, 9]),
            ),
            ("mkfs.erofs 1.5\n", Some([1, 5])),
            ("mkfs.erofs 1.7-g12ab", Some([1, 7])),
            ("usage: [options] FILE DIRECTORY", None),
        ] {
            assert_eq!(
                version(text).map(|(numbers, _)| numbers),
                expected,
                "{text}"
            );
        }
    }
}
