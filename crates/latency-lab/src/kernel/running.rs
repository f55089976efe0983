//! Builds the module of EROFS for the running kernel. With it, a distribution's kernel gets per-CPU
//! threads, and no whole kernel has to be built.

use std::fs;
use std::path::{Path, PathBuf};

use super::arch::Arch;
use super::module;
use super::options::KernelOptions;
use super::packages::Packages;
use super::prepared::Prepared;
use super::variant::Variant;
use crate::error::Doing;
use crate::{LabError, Progress, Result};

/// Builds all variants of the module for the running kernel and puts them into `to`; returns their
/// paths.
pub fn module_for_running_kernel(
    options: &KernelOptions,
    to: &Path,
    progress: &mut dyn Progress,
) -> Result<Vec<PathBuf>> {
    let read =
        |name: &str| fs::read_to_string(format!("/proc/sys/kernel/{name}")).unwrap_or_default();
    let arch = Arch::of_this_machine()?;
    let kernel = running(arch, read("osrelease").trim(), read("version").trim())?;
    fs::create_dir_all(to).doing("creating the directory", to)?;
    let prepared = Prepared::new(options, Some(kernel), progress)?;
    module::build_all(&prepared, progress)?;
    let variants = Variant::ALL.into_iter();
    variants
        .map(|variant| {
            let path = to.join(variant.file());
            fs::copy(prepared.work.inside(&variant.file()), &path).doing("writing", &path)?;
            Ok(path)
        })
        .collect()
}

/// Debian includes the package version in its kernels' own version: "#1 SMP PREEMPT_DYNAMIC Debian
/// 6.12.95-1~bpo12+1 (2026-07-05)".
fn running(arch: Arch, release: &str, version: &str) -> Result<Packages> {
    let package = version
        .split_once("Debian ")
        .and_then(|(_, rest)| rest.split(' ').next());
    match package {
        Some(package) => Ok(Packages {
            arch,
            release: release.into(),
            version: package.into(),
        }),
        None => Err(LabError::Preparation(format!(
            "the running kernel {release} is not one of Debian's packages: its headers and source cannot be fetched"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_of_debian_names_its_package() {
        let kernel = running(
            Arch::AMD64,
            "6.12.95+deb12-cloud-amd64",
            "#1 SMP PREEMPT_DYNAMIC Debian 6.12.95-1~bpo12+1 (2026-07-05)",
        )
        .unwrap();
        assert_eq!(kernel.version, "6.12.95-1~bpo12+1");
    }

    #[test]
    fn another_kernel_is_one_line() {
        let error = running(Arch::AMD64, "6.18.44", "#1 SMP PREEMPT_DYNAMIC @0")
            .err()
            .unwrap();
        assert!(
            error
                .to_string()
                .starts_with("the running kernel 6.18.44 is not one of Debian's")
        );
    }
}
