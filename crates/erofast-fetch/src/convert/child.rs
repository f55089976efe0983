//! The two processes that convert a layer: one unpacks it and computes its diff ID, the other
//! becomes mkfs.erofs. They are this program started again, with a pipe between them.
//!
//! The first one also rewrites the archive (see [`tar_layer`]), so that the image has the files
//! that containerd would unpack, however mkfs.erofs interprets archives.
//!
//! Both receive bytes that a registry chose, so each first gives up the rights that it does not
//! need. Neither can use the network or create processes. The first one cannot open any file; it
//! stores the contents of the archive in an unnamed file that it opened before. The second one can
//! open only programs and libraries of the system, and the files in its working directory. If they
//! are started by root, they switch to the user nobody.

use std::fs::File;
use std::io::{self, BufReader, Cursor, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use confinement::files::{AccessFs, BitFlags};
use confinement::{calls, capabilities, files, user};
use flate2::bufread::MultiGzDecoder;
use remote_image::registry::Packing;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::CapabilitySet;
use sha2::{Digest, Sha256};
use tar_layer::{Error, Limits};

use crate::layers::{BEGINNING, is_image};

/// The first argument of both processes; the second one is [`UNPACK`] or [`MAKE`].
pub const CONVERT: &str = "convert";
pub const UNPACK: &str = "unpack";
pub const MAKE: &str = "make";

/// Prefix of a line of error output that is for the log and reports no failure.
pub const NOTE: &str = "note: ";

/// Bytes unpacked per step.
const STEP: usize = 256 << 10;

/// Number of bytes at the beginning of a layer that show how it is packed.
const MAGIC: usize = 4;

/// Memory limit for the names of a layer, in bytes: enough for more than a million files.
const NAMES: u64 = 512 << 20;

/// Directories of programs, and of the libraries that they are linked with.
const PROGRAMS: [&str; 8] = [
    "/bin",
    "/gnu/store",
    "/lib",
    "/lib32",
    "/lib64",
    "/nix/store",
    "/sbin",
    "/usr",
];

/// Files that tell the C library where libraries are and how many CPUs there are, and a source of
/// random numbers.
const READ: [&str; 3] = [
    "/etc/ld.so.cache",
    "/sys/devices/system/cpu",
    "/dev/urandom",
];

/// Runs the task that the arguments name, if this process was started to convert.
pub fn run() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != CONVERT {
        return None;
    }
    let what = arguments.next()?;
    let arguments: Vec<_> = arguments.collect();
    let outcome = match (what.to_str()?, &arguments[..]) {
        (UNPACK, [most]) => unpack(most.to_str()?.parse().ok()?),
        (MAKE, [program, options @ ..]) => {
            let program = Path::new(program);
            make(program).map(|()| {
                let error = Command::new(program).args(options).exec();
                format!("{}: {error}", program.display())
            })
        }
        _ => return None,
    };
    let (line, code) = match outcome {
        Ok(digest) if what == UNPACK => (digest, ExitCode::SUCCESS),
        Ok(line) | Err(line) => (line, ExitCode::FAILURE),
    };
    eprintln!("{line}");
    Some(code)
}

/// Unpacks standard input, and writes the rewritten archive to standard output. Returns the digest
/// of the unpacked archive, whose size is limited to `most` bytes.
fn unpack(most: u64) -> Result<String, String> {
    let files = [rustix::stdio::stdin(), rustix::stdio::stdout()];
    let files = files.map(|file| file.try_clone_to_owned().map(File::from));
    let [Ok(input), Ok(output)] = files else {
        return Err("standard input or output is closed".into());
    };
    let contents =
        unnamed_file().map_err(|error| format!("cannot create a temporary file: {error}"))?;
    confine(&[])?;
    let mut begin = Vec::new();
    let read = (&input).take(MAGIC as u64).read_to_end(&mut begin);
    read.map_err(|error| error.to_string())?;
    let packing = packing(&begin);
    let input = Cursor::new(begin).chain(BufReader::with_capacity(STEP, input));
    let mut input: Box<dyn Read> = match packing {
        Packing::Plain => Box::new(input),
        Packing::Gzip => Box::new(MultiGzDecoder::new(input)),
        Packing::Zstd => {
            let decoder = zstd::Decoder::with_buffer(input);
            Box::new(decoder.map_err(|error| error.to_string())?)
        }
    };
    let packing = packing.media_type();
    let damaged = |error: io::Error| format!("cannot be unpacked as {packing}: {error}");
    let mut begin = Vec::new();
    let read = (&mut input).take(BEGINNING as u64).read_to_end(&mut begin);
    read.map_err(damaged)?;
    // A tar reader would take the zeros before the superblock for the end of the archive.
    if is_image(&begin) {
        return Err("an EROFS image, but its media type says that it is an archive".into());
    }
    let mut archive = Unpacked {
        input: Box::new(Cursor::new(begin).chain(input)),
        hash: Sha256::new(),
        length: 0,
        most,
    };
    let limits = Limits {
        content: most,
        names: NAMES,
    };
    let rewritten = tar_layer::rewrite(&mut archive, &contents, output, limits);
    let rest = match rewritten {
        // Writing fails if mkfs.erofs has ended; its own error output then says why.
        Ok(()) | Err(Error::Write(_)) => io::copy(&mut archive, &mut io::sink()).map(drop),
        Err(Error::Read(error)) => Err(error),
        Err(Error::Content(_)) => Err(archive.too_long()),
        Err(error) => return Err(error.to_string()),
    };
    match rest {
        Ok(()) => Ok(format!("sha256:{:x}", archive.hash.finalize())),
        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => Err(error.to_string()),
        Err(error) => Err(damaged(error)),
    }
}

/// How the layer that begins with these bytes is packed. Media types may be wrong; like container
/// runtimes, this looks at the bytes.
fn packing(begin: &[u8]) -> Packing {
    match *begin {
        [0x1f, 0x8b, 8, ..] => Packing::Gzip,
        // A frame, or a skippable frame.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Packing::Zstd,
        _ => Packing::Plain,
    }
}

/// A file in the working directory that no other process can open.
fn unnamed_file() -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    let mode = Mode::RUSR | Mode::WUSR;
    match openat(CWD, ".", flags | OFlags::TMPFILE, mode) {
        Ok(file) => Ok(file.into()),
        // Not every filesystem supports unnamed files.
        Err(_) => {
            let name = "contents";
            let created = openat(CWD, name, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
            std::fs::remove_file(name)?;
            Ok(created.into())
        }
    }
}

/// The unpacked layer, whose digest is computed as it is read.
struct Unpacked {
    input: Box<dyn Read>,
    hash: Sha256,
    length: u64,
    most: u64,
}

impl Unpacked {
    fn too_long(&self) -> io::Error {
        let most = self.most;
        let line =
            format!("unpacks to more than {most} bytes, the size of the cache (cache_size=)");
        io::Error::new(io::ErrorKind::FileTooLarge, line)
    }
}

impl Read for Unpacked {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(bytes)?;
        self.length += read as u64;
        if self.length > self.most {
            return Err(self.too_long());
        }
        self.hash.update(&bytes[..read]);
        Ok(read)
    }
}

/// Gives up every right that mkfs.erofs does not need. The caller then executes mkfs.erofs.
fn make(program: &Path) -> Result<(), String> {
    let run = AccessFs::ReadFile | AccessFs::ReadDir | AccessFs::Execute;
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let write = AccessFs::ReadFile
        | AccessFs::WriteFile
        | AccessFs::MakeReg
        | AccessFs::RemoveFile
        | AccessFs::Truncate;
    let programs = PROGRAMS.map(PathBuf::from).into_iter();
    let programs = programs.chain(beside(program)).map(|path| (path, run));
    let others = READ.map(|path| (PathBuf::from(path), read));
    let working = [(PathBuf::from("."), write)];
    let rules: Vec<_> = programs.chain(others).chain(working).collect();
    let rules: Vec<_> = rules
        .iter()
        .map(|(path, access)| (&**path, *access))
        .collect();
    confine(&rules)
}

/// The directories of a program and its libraries, in case it is not installed in the system's
/// directories.
fn beside(program: &Path) -> Vec<PathBuf> {
    let real = program.canonicalize().unwrap_or_default();
    let Some(directory) = real.parent() else {
        return Vec::new();
    };
    let libraries = ["lib", "lib64", "libexec"];
    let libraries = libraries.map(|name| directory.with_file_name(name));
    match directory.file_name().is_some_and(|name| name == "bin") {
        true => [vec![directory.to_owned()], libraries.into()].concat(),
        false => vec![directory.to_owned()],
    }
}

/// Gives up rights; `rules` says which files can still be opened. If this fails, the process must
/// not handle untrusted bytes. The error is one line.
fn confine(rules: &[(&Path, BitFlags<AccessFs>)]) -> Result<(), String> {
    let described = |what: &str, error: &dyn std::fmt::Display| format!("{what} ({error})");
    let mut missing = Vec::new();
    let first = user::in_first_namespace();
    // If memory runs out, this process is killed first.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let no_new_privs = rustix::thread::set_no_new_privs(true);
    no_new_privs.map_err(|error| described("no sandbox: no_new_privs", &error))?;
    if let Err(error) = user::leave_root(first) {
        missing.push(described("an unprivileged user", &error));
    }
    if let Err(error) = capabilities::keep(CapabilitySet::empty()) {
        missing.push(described("dropping capabilities", &error));
    }
    // A change of the user makes the kernel forget this signal, so it is set only after that.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if let Err(error) = files::restrict_to(files::beneath(rules)) {
        missing.push(described("Landlock", &error));
    }
    // Without this filter, the process could use the network.
    calls::restrict(calls::Process::Converter)
        .map_err(|error| described("no sandbox: seccomp", &error))?;
    if !missing.is_empty() {
        eprintln!(
            "{NOTE}the sandbox is incomplete, missing: {}",
            missing.join(", ")
        );
    }
    Ok(())
}
