//! Compares the variants of the kernel's own EROFS in a virtual machine. This repeats the
//! experiment of the kernel patch that added per-CPU threads, without building a kernel.
//!
//! Each stage leaves its result in the work directory; if the user keeps this directory, the next
//! run reuses the results:
//!
//! * `packages` fetches the distribution's kernel, its headers and source, a compiler and QEMU, and
//!   unpacks them below a separate directory. Nothing is installed, and no package's scripts run.
//!   Packages whose programs run in the machine are unpacked into another root directory, since the
//!   machine's CPU may differ from the host's ([`Arch`]).
//! * `programs` finds the programs of erofast for the machine's CPU.
//! * `module` builds `fs/erofs` alone, once for each variant.
//! * `initramfs` packs what the machine needs.
//! * `machine` boots the machine and listens to its console.
//! * `guest` is this same program inside the machine. It runs the launch experiment of
//!   [`crate::launch`] with one engine for each variant.

mod arch;
mod guest;
mod image;
mod initramfs;
mod job;
mod machine;
mod message;
mod module;
mod options;
mod packages;
mod prepared;
mod programs;
mod result;
mod running;
mod sandbox;
mod variant;
mod work;

pub use arch::Arch;
pub use guest::run_guest;
pub use options::KernelOptions;
pub use running::module_for_running_kernel;
pub use variant::Variant;

use std::time::Duration;

use crate::launch::LaunchReport;
use crate::{Progress, Result};
use prepared::Prepared;
use programs::Programs;

/// Time limit of the machine.
const LONGEST: Duration = Duration::from_secs(3600);

/// Runs the experiment.
pub fn run(options: &KernelOptions, progress: &mut dyn Progress) -> Result<LaunchReport> {
    options.check()?;
    let programs = Programs::find(options)?;
    let prepared = Prepared::new(options, None, progress)?;
    module::build_all(&prepared, progress)?;
    progress.begin("creating the machine", 2);
    let image = image::take_or_make(options, &prepared)?;
    progress.step(1, "files");
    let job = job::Job::new(options, &prepared.packages, image)?;
    let boot = initramfs::make(&job, &programs, &prepared)?;
    progress.step(2, "");
    let machine = machine::Machine {
        prepared: &prepared,
        boot: &boot,
        timeout: LONGEST.max(2 * options.time),
        cpus: options.cpus,
        accelerate: options.accelerate,
    };
    machine.run(progress)
}
