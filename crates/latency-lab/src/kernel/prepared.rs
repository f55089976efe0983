//! Packages, work directory, sandbox and interrupt in one value, for the stages after `packages`.

use super::options::KernelOptions;
use super::packages::Packages;
use super::sandbox::{Sandbox, finish};
use super::work::Work;
use crate::{Interrupt, Progress, Result};

/// What the stages after `packages` need.
pub(super) struct Prepared {
    pub(super) packages: Packages,
    pub(super) sandbox: Sandbox,
    pub(super) work: Work,
    pub(super) interrupt: Interrupt,
}

impl Prepared {
    /// Fetches the packages, either to build modules for `kernel` or for the whole experiment with
    /// the newest kernel.
    pub(super) fn new(
        options: &KernelOptions,
        kernel: Option<Packages>,
        progress: &mut dyn Progress,
    ) -> Result<Prepared> {
        let arch = kernel.as_ref().map_or(options.arch, |kernel| kernel.arch);
        let interrupt = Interrupt::watch()?;
        let work = Work::open(options.work.as_deref(), arch)?;
        let packages = Packages::fetch(options, kernel, &work, &interrupt, progress)?;
        Ok(Prepared {
            packages,
            sandbox: Sandbox::new(work.root()),
            work,
            interrupt,
        })
    }

    /// Runs a shell script in the sandbox and waits for its end.
    pub(super) fn shell(&self, what: &str, script: &str) -> Result<()> {
        let mut shell = self.sandbox.command("/bin/sh");
        finish(what, shell.args(["-ec", script]), &self.interrupt)
    }
}
