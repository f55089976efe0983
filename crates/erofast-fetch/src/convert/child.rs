//! The two processes that convert a layer: one unpacks it and computes its diff ID, the other
//! becomes mkfs.erofs. They are this program started again, with a pipe between them.
//!
//! Both receive bytes that a registry chose, so each first gives up what it can: it has no network
//! and creates no processes; the first can open no files at all, the second only programs and
//! libraries of the system, and the contents of its working directory. As root, they become
//! processes of nobody.

use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use confinement::files::{AccessFs, BitFlags};
use confinement::{calls, capabilities, files, user};
use flate2::bufread::MultiGzDecoder;
use remote_image::registry::Packing;
use rustix::process::{Signal, set_parent_process_death_signal};
use rustix::thread::CapabilitySet;
use sha2::{Digest, Sha256};

use super::zstandard;

/// The first argument of both processes.
pub const CONVERT: &str = "convert";
pub const UNPACK: &str = "unpack";
pub const MAKE: &str = "make";

/// Marks a line that is not a failure.
pub const NOTE: &str = "note: ";

/// Bytes that are unpacked at once.
const STEP: usize = 256 << 10;

/// Programs, and the libraries that they are linked with.
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

/// Read by the C library: where libraries are, how many CPUs.
const READ: [&str; 3] = [
    "/etc/ld.so.cache",
    "/sys/devices/system/cpu",
    "/dev/urandom",
];

/// Runs this process's task, if it is one of the two.
pub fn run() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next()? != CONVERT {
        return None;
    }
    let what = arguments.next()?;
    let arguments: Vec<_> = arguments.collect();
    let outcome = match (what.to_str()?, &arguments[..]) {
        (UNPACK, [packing, most]) => unpack(packing.to_str()?, most.to_str()?.parse().ok()?),
        (MAKE, [program, options @ ..]) => {
            let program = Path::new(program);
            make(program).map(|()| {
                let error = Command::new(program).args(options).exec();
                format!("{}: {error}", program.display())
            })
        }
        _ => return None,
    };
    Some(match outcome {
        Ok(said) if what == UNPACK => {
            eprintln!("{said}");
            ExitCode::SUCCESS
        }
        Ok(line) | Err(line) => {
            eprintln!("{line}");
            ExitCode::FAILURE
        }
    })
}

/// Unpacks standard input to standard output. Returns the digest of the output.
fn unpack(packing: &str, most: u64) -> Result<String, String> {
    let files = [rustix::stdio::stdin(), rustix::stdio::stdout()];
    let files = files.map(|file| file.try_clone_to_owned().map(File::from));
    let [Ok(input), Ok(mut output)] = files else {
        return Err("no standard input or output".into());
    };
    confine(&[])?;
    let packings = Packing::ALL.into_iter();
    let mut packings = packings.filter(|known| known.media_type() == packing);
    let mut input: Box<dyn Read> = match packings.next() {
        Some(Packing::Plain) => Box::new(input),
        Some(Packing::Gzip) => Box::new(MultiGzDecoder::new(BufReader::with_capacity(STEP, input))),
        Some(Packing::Zstd) => Box::new(zstandard::Reader::new(input)),
        None => return Err(format!("{packing}: not a packing")),
    };
    let (mut hash, mut buffer, mut length) = (Sha256::new(), vec![0; STEP], 0);
    let mut wanted = true;
    loop {
        let read = match input.read(&mut buffer) {
            Ok(0) => return Ok(format!("sha256:{:x}", hash.finalize())),
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(format!("cannot be unpacked as {packing}: {error}")),
        };
        length += read as u64;
        if length > most {
            return Err(format!(
                "unpacks to more than {most} bytes, the size of the cache (cache_size=)"
            ));
        }
        hash.update(&buffer[..read]);
        if wanted {
            // The reader of an archive may stop at its end, before the end of its padding.
            wanted = output.write_all(&buffer[..read]).is_ok();
        }
    }
}

/// Gives up everything that mkfs.erofs does not need.
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

/// The directory of a program that is not part of the system, and its libraries.
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

/// `rules` apply to files. The error is one line: untrusted bytes must not be touched then.
fn confine(rules: &[(&Path, BitFlags<AccessFs>)]) -> Result<(), String> {
    let described = |what: &str, error: &dyn std::fmt::Display| format!("{what} ({error})");
    let mut missing = Vec::new();
    let first = user::in_first_namespace();
    // If memory runs out, this process goes first.
    let _ = std::fs::write("/proc/self/oom_score_adj", "1000");
    let no_new_privs = rustix::thread::set_no_new_privs(true);
    no_new_privs.map_err(|error| described("no sandbox: no_new_privs", &error))?;
    if let Err(error) = user::leave_root(first) {
        missing.push(described("a user of its own", &error));
    }
    if let Err(error) = capabilities::keep(CapabilitySet::empty()) {
        missing.push(described("capabilities are kept", &error));
    }
    // The change of user has cleared it.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    if let Err(error) = files::restrict_to(files::beneath(rules)) {
        missing.push(described("Landlock", &error));
    }
    // Without it there would be a network.
    calls::restrict(calls::Process::Converter)
        .map_err(|error| described("no sandbox: seccomp", &error))?;
    if !missing.is_empty() {
        eprintln!("{NOTE}the sandbox does without {}", missing.join(", "));
    }
    Ok(())
}
