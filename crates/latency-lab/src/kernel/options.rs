//! Options of `lab kernel`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use super::arch::Arch;
use crate::launch::names_mount;
use crate::load::LoadChoice;
use crate::{LabError, Result};

/// Maximum number of CPUs of the machine: emulation does not use more.
const CPUS: usize = 16;

/// One experiment with the kernel's variants.
#[derive(Debug, Clone)]
pub struct KernelOptions {
    /// The CPU of the machine.
    pub arch: Arch,
    /// The `erofast` binary, which runs in the machine beside this program.
    pub erofast: PathBuf,
    /// A directory with the programs for the machine; without it, the machine runs `erofast` and
    /// this program.
    pub programs: Option<PathBuf>,
    /// The image to launch from; by default, an image of the fetched compiler.
    pub image: Option<PathBuf>,
    /// The program and its arguments; `{}` stands for the mount point. By default, the compiler.
    pub command: Vec<OsString>,
    /// Whether to make the mount the program's root directory.
    pub root: bool,
    /// Number of launches per variant that count.
    pub iterations: usize,
    /// The load that keeps the machine busy.
    pub load: LoadChoice,
    /// Seed of the order of launches.
    pub seed: u64,
    /// Values of the module's parameter `reserved_pages`; each variant is measured with each value.
    pub reserved_pages: Vec<u32>,
    /// Number of CPUs of the machine.
    pub cpus: usize,
    /// Whether to use KVM if it works.
    pub accelerate: bool,
    /// A directory in which packages and modules are kept, so that a later run can reuse them.
    pub work: Option<PathBuf>,
    /// The mirror of Debian's packages.
    pub mirror: String,
    /// The Debian suite of the kernel and of QEMU, such as "bookworm-backports" or "trixie".
    pub suite: String,
    /// After this time the machine begins no new round of launches, but it completes the current
    /// one.
    pub time: Duration,
}

impl Default for KernelOptions {
    fn default() -> Self {
        KernelOptions {
            arch: Arch::of_this_machine().unwrap_or(Arch::AMD64),
            erofast: PathBuf::new(),
            programs: None,
            image: None,
            command: Vec::new(),
            root: false,
            iterations: 10,
            load: LoadChoice::Fio,
            seed: 1,
            reserved_pages: vec![0, 64],
            cpus: 2,
            accelerate: true,
            work: None,
            mirror: "http://deb.debian.org/debian".into(),
            suite: "bookworm-backports".into(),
            // With fetching, building, booting and the last round, a run takes a quarter of an hour
            // in total.
            time: Duration::from_secs(9 * 60),
        }
    }
}

impl KernelOptions {
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(LabError::Usage(format!("lab kernel: {text}")));
        if self.image.is_some() && self.command.is_empty() {
            return wrong(
                "an image needs a command; write it after --, with {} for the mount point".into(),
            );
        }
        if self.image.is_none() && !self.command.is_empty() {
            return wrong("a command needs the image it is launched from".into());
        }
        if self.image.is_some() && !self.root && !self.command.iter().any(names_mount) {
            return wrong("the command does not contain {} and --root is not given".into());
        }
        if let Some(image) = self.image.as_ref().filter(|image| !image.is_file()) {
            return wrong(format!("{}: not a file", image.display()));
        }
        if !(1..=CPUS).contains(&self.cpus) {
            return wrong(format!("--cpus {}: must be from 1 to {CPUS}", self.cpus));
        }
        if self.time.is_zero() || self.iterations == 0 || self.reserved_pages.is_empty() {
            return wrong("nothing to measure".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_and_its_command_belong_together() {
        for (image, command, cpus, reason) in [
            (Some("/dev/null"), None, 2, "needs a command"),
            (None, Some("{}/bin/true"), 2, "needs the image"),
            (
                Some("/no/such/image"),
                Some("/bin/true"),
                2,
                "does not contain {}",
            ),
            (
                Some("/no/such/image"),
                Some("{}/bin/true"),
                2,
                "/no/such/image: not a file",
            ),
            (None, None, 0, "--cpus 0: must be from 1 to 16"),
        ] {
            let options = KernelOptions {
                image: image.map(Into::into),
                command: command.into_iter().map(Into::into).collect(),
                cpus,
                ..KernelOptions::default()
            };
            let error = options.check().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
