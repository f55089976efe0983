//! Builds only `fs/erofs` as a module, once for each variant, against the kernel's headers.

use std::fs;

use super::packages::Packages;
use super::prepared::Prepared;
use super::variant::Variant;
use crate::{LabError, Progress, Result};

/// Extracts `fs/erofs` from the packed source.
const TAKE_OUT: &str = "
    cd /build
    rm -rf erofs erofs.part
    mkdir erofs.part
    xz -dc source/usr/src/linux-source-*.tar.xz |
        tar -C erofs.part -x --strip-components=3 --wildcards 'linux-source-*/fs/erofs/*'
    mv erofs.part erofs";

pub(super) fn build_all(prepared: &Prepared, progress: &mut dyn Progress) -> Result<()> {
    let Prepared { packages, work, .. } = prepared;
    progress.begin("building modules", Variant::ALL.len() as u64 + 1);
    for (number, variant) in Variant::ALL.into_iter().enumerate() {
        let path = work.inside(&variant.file());
        let stage = format!("module-{variant}");
        if !(path.is_file() && work.is_done(&stage, &packages.version)) {
            progress.step(number as u64, "fs/erofs of the kernel's source");
            take_out(prepared)?;
            progress.step(number as u64 + 1, &variant.to_string());
            let what = format!("building the variant {variant}");
            prepared.shell(&what, &script(variant, packages))?;
            work.done(&stage, &packages.version)?;
        }
    }
    progress.step(Variant::ALL.len() as u64 + 1, "");
    Ok(())
}

fn take_out(prepared: &Prepared) -> Result<()> {
    let Prepared { packages, work, .. } = prepared;
    let makefile = work.inside("erofs/Makefile");
    if makefile.is_file() && work.is_done("source", &packages.version) {
        return Ok(());
    }
    prepared.shell("unpacking fs/erofs", TAKE_OUT)?;
    if !fs::read_to_string(&makefile)
        .is_ok_and(|text| text.contains("PCPU_KTHREAD") || text.contains("erofs-"))
    {
        return Err(LabError::Preparation(format!(
            "{}: the kernel's source has no EROFS there",
            makefile.display()
        )));
    }
    work.done("source", &packages.version)
}

/// The options are passed twice: to make, which selects files by them, and to the compiler, since
/// the header that contains the configuration is the distribution's own. The kernel's headers
/// determine the CPU and the compiler's prefix.
fn script(variant: Variant, packages: &Packages) -> String {
    let names = || variant.config().iter();
    let to_make: String = names().map(|name| format!(" {name}=y")).collect();
    let to_compiler: Vec<String> = names().map(|name| format!("-D{name}=1")).collect();
    let (file, to_compiler) = (variant.file(), to_compiler.join(" "));
    let (release, triplet) = (&packages.release, packages.arch.triplet());
    format!(
        "
    cd /build
    rm -rf module
    cp -r erofs module
    make -s -j\"$(nproc)\" -C /usr/src/linux-headers-{release} M=/build/module CONFIG_EROFS_FS=m{to_make} \\
        KCFLAGS='{to_compiler}' modules >&2
    {triplet}-strip --strip-debug -o {file}.part module/erofs.ko
    mv {file}.part {file}
    rm -r module"
    )
}

#[cfg(test)]
mod tests {
    use super::super::arch::Arch;
    use super::*;

    #[test]
    fn options_go_to_make_and_to_the_compiler() {
        let packages = Packages {
            arch: Arch::ARM64,
            release: "6.12.95+deb12-cloud-arm64".into(),
            version: "6.12.95-1".into(),
        };
        let text = script(Variant::KthreadHipri, &packages);
        assert!(text.contains("aarch64-linux-gnu-strip "));
        assert!(text.contains("CONFIG_EROFS_FS_PCPU_KTHREAD_HIPRI=y"));
        assert!(
            text.contains(
                "'-DCONFIG_EROFS_FS_PCPU_KTHREAD=1 -DCONFIG_EROFS_FS_PCPU_KTHREAD_HIPRI=1'"
            )
        );
        assert!(!script(Variant::Workqueue, &packages).contains("PCPU"));
    }
}
