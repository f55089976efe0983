//! The programs that run in the machine: `erofast-lab` and `erofast`, for its CPU.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::arch::Arch;
use super::options::KernelOptions;
use crate::error::Doing;
use crate::{LabError, Result};

#[derive(Debug)]
pub(super) struct Programs {
    pub(super) lab: PathBuf,
    pub(super) erofast: PathBuf,
    /// Whether the programs are for another CPU, and therefore static.
    pub(super) foreign: bool,
}

impl Programs {
    /// Finds the programs. They are this program and `options.erofast` or, with `--programs` or for
    /// another CPU, programs that `make static` has built.
    pub(super) fn find(options: &KernelOptions) -> Result<Programs> {
        let foreign = options.arch != Arch::of_this_machine()?;
        let own = std::env::current_exe().doing("looking for", "this program")?;
        let found = |name: &str, native: &Path| -> Result<PathBuf> {
            let directory = match (&options.programs, foreign) {
                (None, false) => return Ok(native.to_owned()),
                (Some(directory), _) => directory,
                (None, true) => own.parent().unwrap_or(Path::new("/")),
            };
            let path = in_directory(directory, name, options)?;
            check(&path, options.arch, foreign)?;
            Ok(path)
        };
        let programs = Programs {
            lab: found("erofast-lab", &own)?,
            erofast: found("erofast", &options.erofast)?,
            foreign,
        };
        match programs.erofast.is_file() {
            true => Ok(programs),
            false => Err(LabError::Preparation(format!(
                "{} does not exist",
                programs.erofast.display()
            ))),
        }
    }
}

/// Finds a program by the name that `make static` gives it or, if `--programs` names the directory,
/// by its installed name. Without that option, a program with the installed name is ignored, since
/// it is for the host's CPU.
fn in_directory(directory: &Path, name: &str, options: &KernelOptions) -> Result<PathBuf> {
    let cpu = options.arch.cpu;
    let mut names = vec![format!("{name}-{cpu}")];
    if options.programs.is_some() {
        names.push(name.to_owned());
    }
    let mut paths = names.iter().map(|name| directory.join(name));
    paths.find(|path| path.is_file()).ok_or_else(|| {
        LabError::Preparation(format!(
            "{} has no {}: `make static STATIC={cpu}` makes the programs for {}, and --programs \
             names their directory",
            directory.display(),
            names.join(" and no "),
            options.arch
        ))
    })
}

/// Size of a program header of ELF.
const PROGRAM_HEADER: usize = 56;
/// Type of the program header that contains the path of a loader.
const PT_INTERP: u32 = 3;

/// Checks that a program is for the CPU `arch` and, if `foreign`, that it is static: libraries are
/// copied only for programs that run on the host's CPU.
fn check(path: &Path, arch: Arch, foreign: bool) -> Result<()> {
    let wrong = |what: &str| {
        let path = path.display();
        Err(LabError::Preparation(format!("{path} {what}")))
    };
    let mut file = File::open(path).doing("opening", path)?;
    let mut header = [0; 64];
    let is_elf = file.read_exact(&mut header).is_ok() && header.starts_with(b"\x7fELF\x02\x01");
    if !is_elf || number(&header[18..20]) != u64::from(arch.elf_machine) {
        return wrong(&format!("is not a program for {arch}"));
    }
    let [at, count] = [32..40, 56..58].map(|range: Range<usize>| number(&header[range]));
    let mut table = vec![0; count as usize * PROGRAM_HEADER];
    let read = file.seek(SeekFrom::Start(at));
    read.and_then(|_| file.read_exact(&mut table))
        .doing("reading the program headers of", path)?;
    let mut kinds = table.chunks_exact(PROGRAM_HEADER);
    if foreign && kinds.any(|entry| number(&entry[..4]) == u64::from(PT_INTERP)) {
        return wrong(
            "needs libraries, and a program for another CPU must be static (make static)",
        );
    }
    Ok(())
}

fn number(bytes: &[u8]) -> u64 {
    let digits = bytes.iter().rev();
    digits.fold(0, |sum, &byte| sum << 8 | u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    /// An ELF file with one program header.
    fn elf(machine: u16, kind: u32) -> Vec<u8> {
        let mut bytes = vec![0; 64 + 56];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[18..20].copy_from_slice(&machine.to_le_bytes());
        bytes[32] = 64;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&kind.to_le_bytes());
        bytes
    }

    fn other() -> Arch {
        match Arch::of_this_machine().unwrap() {
            Arch::AMD64 => Arch::ARM64,
            _ => Arch::AMD64,
        }
    }

    fn found(files: &[(&str, Vec<u8>)]) -> Result<Programs> {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        for (name, content) in files {
            std::fs::write(scratch.path().join(name), content).unwrap();
        }
        Programs::find(&KernelOptions {
            arch: other(),
            programs: Some(scratch.path().to_owned()),
            ..KernelOptions::default()
        })
    }

    #[test]
    fn programs_for_another_cpu_are_static_and_have_either_name() {
        let machine = other().elf_machine;
        let with_cpu = format!("erofast-lab-{}", other().cpu);
        let fine = elf(machine, 1);
        let programs = found(&[(&with_cpu, fine.clone()), ("erofast", fine.clone())]).unwrap();
        assert!(programs.foreign && programs.lab.ends_with(&with_cpu));
        let refused = |lab: Vec<u8>| {
            let files = [("erofast-lab", lab), ("erofast", fine.clone())];
            found(&files).unwrap_err().to_string()
        };
        for (lab, reason) in [
            (elf(machine, PT_INTERP), "erofast-lab needs libraries"),
            (elf(0, 1), "erofast-lab is not a program for"),
            (fine[..70].to_vec(), "reading the program headers of"),
            (b"#!/bin/sh\n".to_vec(), "erofast-lab is not a program for"),
        ] {
            let error = refused(lab);
            assert!(error.contains(reason), "{error}");
        }
    }

    #[test]
    fn a_program_that_is_missing_is_one_line_that_says_how_it_is_made() {
        let error = found(&[]).unwrap_err().to_string();
        let cpu = other().cpu;
        let names =
            format!("has no erofast-lab-{cpu} and no erofast-lab: `make static STATIC={cpu}`");
        assert!(error.contains(&names) && !error.contains('\n'), "{error}");
    }

    #[test]
    fn without_a_directory_only_names_with_the_cpu_are_another_cpus() {
        let options = KernelOptions {
            arch: other(),
            ..KernelOptions::default()
        };
        let error = Programs::find(&options).unwrap_err().to_string();
        assert!(
            error.contains("--programs names their directory"),
            "{error}"
        );
        assert!(!error.contains("and no "), "{error}");
    }
}
