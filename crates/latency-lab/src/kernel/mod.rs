//! The kernel's own variants of EROFS, A against B, in a machine of their own: the patch's
//! experiment without building a kernel.
//!
//! Stages, each kept in the work directory for the next run if the user keeps that: `packages`
//! fetches the distribution's kernel, its headers and source, a compiler and QEMU, and unpacks them
//! below a directory of their own (nothing is installed, and no package's scripts run); `module`
//! builds `fs/erofs` alone, once for each variant; `initramfs` packs what the machine needs;
//! `machine` boots it and listens; `guest` is this very program inside, which runs the launch
//! experiment of [`crate::launch`] with one engine for each variant.

mod guest;
mod image;
mod initramfs;
mod job;
mod machine;
mod message;
mod module;
mod options;
mod packages;
mod result;
mod running;
mod sandbox;
mod variant;
mod work;

pub use guest::run_guest;
pub use options::KernelOptions;
pub use running::module_for_running_kernel;
pub use variant::Variant;

use crate::launch::{LaunchReport, Machine};
use crate::{Interrupt, Progress, Result};
use packages::Packages;
use sandbox::Sandbox;
use work::Work;

/// Runs the experiment.
pub fn run(options: &KernelOptions, progress: &mut dyn Progress) -> Result<LaunchReport> {
    options.check()?;
    let interrupt = Interrupt::watch()?;
    let work = Work::open(options.work.as_deref())?;
    let packages = Packages::fetch(options, &work, &interrupt, progress)?;
    let sandbox = Sandbox::new(work.root());
    module::build_all(&packages, &sandbox, &work, &interrupt, progress)?;
    progress.begin("making the machine", 2);
    let image = image::take_or_make(options, &packages, &sandbox, &work, &interrupt)?;
    progress.step(1, "files");
    let mut job = job::Job::new(options, &packages, image.bytes);
    if let Some(command) = image.command {
        job.launch(command);
    }
    let boot = initramfs::make(
        &job,
        &options.erofast,
        &packages,
        &sandbox,
        &work,
        &interrupt,
    )?;
    progress.step(2, "");
    let machine = machine::Machine {
        sandbox: &sandbox,
        work: &work,
        boot: &boot,
        timeout: options.timeout.max(2 * options.time),
        cpus: options.cpus,
        accelerate: options.accelerate,
    };
    let ran = machine.run(&interrupt, progress)?;
    Ok(LaunchReport {
        machine: Some(Machine {
            qemu: ran.qemu,
            accelerator: ran.accelerator.into(),
            emulated: ran.accelerator != "kvm",
            kernel: packages.release,
            kernel_package: packages.version,
            cpus: options.cpus,
        }),
        ..ran.report
    })
}
