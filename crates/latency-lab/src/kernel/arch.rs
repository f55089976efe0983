//! The CPU architectures that the machine can have, and their names in Debian, GNU and QEMU.

use std::fmt;
use std::str::FromStr;

use crate::{LabError, Result};

/// The CPU architecture of the machine, which may differ from the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arch {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Arch {
    const ALL: [Arch; 2] = [Arch::Amd64, Arch::Arm64];

    /// The architecture of the host; an error if this module does not know its Debian packages.
    pub fn of_this_machine() -> Result<Arch> {
        let known = Arch::ALL.into_iter();
        let mut own = known.filter(|arch| arch.cpu() == std::env::consts::ARCH);
        own.next().ok_or_else(|| {
            LabError::Preparation(format!(
                "packages can be fetched only for x86-64 and arm64, but this machine is {}",
                std::env::consts::ARCH
            ))
        })
    }

    /// The architecture as in the names of programs and compilers: "aarch64".
    pub(super) fn cpu(self) -> &'static str {
        match self {
            Arch::Amd64 => "x86_64",
            Arch::Arm64 => "aarch64",
        }
    }

    /// The name of the directory with the architecture's libraries: "aarch64-linux-gnu".
    pub(super) fn triplet(self) -> String {
        format!("{}-linux-gnu", self.cpu())
    }

    /// The Debian package with the QEMU that emulates this CPU.
    pub(super) fn qemu_package(self) -> &'static str {
        match self {
            Arch::Amd64 => "qemu-system-x86",
            Arch::Arm64 => "qemu-system-arm",
        }
    }

    /// The QEMU program that emulates this CPU.
    pub(super) fn qemu(self) -> String {
        format!("/usr/bin/qemu-system-{}", self.cpu())
    }

    /// QEMU's machine type, and its CPU model if this accelerator is used.
    pub(super) fn machine(self, accelerator: &str) -> [&'static str; 2] {
        match (self, accelerator) {
            (Arch::Amd64, _) => ["q35", "max"],
            (Arch::Arm64, "kvm") => ["virt,gic-version=max", "max"],
            // The architecture's own algorithm for pointer authentication is slow to emulate.
            (Arch::Arm64, _) => ["virt,gic-version=max", "max,pauth-impdef=on"],
        }
    }

    /// The kernel's name for the machine's serial line.
    pub(super) fn console(self) -> &'static str {
        match self {
            Arch::Amd64 => "ttyS0",
            Arch::Arm64 => "ttyAMA0",
        }
    }

    /// `e_machine` in the headers of the architecture's ELF files.
    pub(super) fn elf_machine(self) -> u16 {
        match self {
            Arch::Amd64 => 62,
            Arch::Arm64 => 183,
        }
    }
}

/// Debian's name for the architecture.
impl fmt::Display for Arch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Arch::Amd64 => "amd64",
            Arch::Arm64 => "arm64",
        })
    }
}

impl FromStr for Arch {
    type Err = LabError;

    fn from_str(name: &str) -> Result<Arch> {
        let known = Arch::ALL.into_iter();
        let mut named = known.filter(|arch| arch.to_string() == name || arch.cpu() == name);
        named
            .next()
            .ok_or_else(|| LabError::Usage(format!("--arch {name}: must be amd64 or arm64")))
    }
}
