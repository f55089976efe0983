//! The CPU architectures that the machine can have, and their names in Debian, GNU and QEMU.

use std::fmt;
use std::str::FromStr;

use crate::{LabError, Result};

/// The CPU architecture of the machine, which may differ from the host's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arch {
    /// Debian's name for the architecture.
    debian: &'static str,
    /// The architecture as in the names of programs and compilers: "aarch64".
    pub(super) cpu: &'static str,
    /// The Debian package with the QEMU that emulates this CPU.
    pub(super) qemu_package: &'static str,
    /// QEMU's machine type.
    pub(super) machine: &'static str,
    /// QEMU's model of the CPU if the CPU is emulated.
    pub(super) emulated_cpu: &'static str,
    /// The kernel's name for the machine's serial line.
    pub(super) console: &'static str,
    /// `e_machine` in the headers of the architecture's ELF files.
    pub(super) elf_machine: u16,
}

impl Arch {
    /// x86-64.
    pub const AMD64: Arch = Arch {
        debian: "amd64",
        cpu: "x86_64",
        qemu_package: "qemu-system-x86",
        machine: "q35",
        emulated_cpu: "max",
        console: "ttyS0",
        elf_machine: 62,
    };

    /// 64-bit ARM.
    pub const ARM64: Arch = Arch {
        debian: "arm64",
        cpu: "aarch64",
        qemu_package: "qemu-system-arm",
        machine: "virt,gic-version=max",
        // The architecture's own algorithm for pointer authentication is slow to emulate.
        emulated_cpu: "max,pauth-impdef=on",
        console: "ttyAMA0",
        elf_machine: 183,
    };

    const ALL: [Arch; 2] = [Arch::AMD64, Arch::ARM64];

    /// The architecture of the host; an error if this module does not know its Debian packages.
    pub fn of_this_machine() -> Result<Arch> {
        let own = std::env::consts::ARCH;
        let found = Arch::ALL.into_iter().find(|arch| arch.cpu == own);
        found.ok_or_else(|| {
            LabError::Preparation(format!(
                "packages can be fetched only for x86-64 and arm64, but this machine is {own}"
            ))
        })
    }

    /// The name of the directory with the architecture's libraries: "aarch64-linux-gnu".
    pub(super) fn triplet(self) -> String {
        format!("{}-linux-gnu", self.cpu)
    }

    /// The QEMU program that emulates this CPU.
    pub(super) fn qemu(self) -> String {
        format!("/usr/bin/qemu-system-{}", self.cpu)
    }
}

/// Debian's name for the architecture.
impl fmt::Display for Arch {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.debian)
    }
}

impl FromStr for Arch {
    type Err = LabError;

    fn from_str(name: &str) -> Result<Arch> {
        let mut known = Arch::ALL.into_iter();
        let found = known.find(|arch| arch.debian == name || arch.cpu == name);
        found.ok_or_else(|| LabError::Usage(format!("--arch {name}: must be amd64 or arm64")))
    }
}
