//! The default image of the experiment: the fetched compiler proper, its libraries and a small
//! program for it to check.

use std::fs;
use std::path::Path;

use super::arch::Arch;
use super::options::KernelOptions;
use super::packages::Packages;
use super::sandbox::{Sandbox, TAKE};
use super::work::Work;
use crate::compile;
use crate::error::Doing;
use crate::{Interrupt, LabError, Result};

/// An image file in the work directory, and the command line to run with the image as the root
/// directory.
pub(super) struct Image {
    pub(super) bytes: u64,
    /// The command line; none if the image is the user's own.
    pub(super) command: Option<Vec<String>>,
}

pub(super) fn take_or_make(
    options: &KernelOptions,
    packages: &Packages,
    sandbox: &Sandbox,
    work: &Work,
    interrupt: &Interrupt,
) -> Result<Image> {
    let path = work.inside("image.erofs");
    if let Some(image) = &options.image {
        let copied = fs::copy(image, path);
        let bytes = copied.doing("copying", image)?;
        return Ok(Image {
            bytes,
            command: None,
        });
    }
    let compiler = compiler(packages.arch, &work.inside("machine"))?;
    let command = compile::command(&compiler);
    let made = work.inside("compiler.erofs");
    let mark = format!("{} {}", packages.version, compile::SOURCE);
    if !(made.is_file() && work.is_done("image", &mark)) {
        make(&compiler, packages, sandbox, work, interrupt)?;
        work.done("image", &mark)?;
    }
    let copied = fs::copy(&made, path);
    let bytes = copied.doing("copying", &made)?;
    Ok(Image {
        bytes,
        command: Some(command),
    })
}

/// The path of cc1 in the newest compiler that was fetched.
fn compiler(arch: Arch, root: &Path) -> Result<String> {
    // Since GCC 14, Debian installs cc1 in the second directory.
    let triplet = arch.triplet();
    let directories = ["lib", "libexec"].map(|name| format!("/usr/{name}/gcc/{triplet}"));
    let inside = |directory: &String| {
        let versions = fs::read_dir(root.join(&directory[1..]));
        let versions = versions.into_iter().flatten().flatten();
        let compilers = versions
            .map(|entry| format!("{directory}/{}/cc1", entry.file_name().to_string_lossy()))
            .filter(|path| root.join(&path[1..]).is_file());
        compilers.collect::<Vec<_>>()
    };
    let mut paths: Vec<String> = directories.iter().flat_map(inside).collect();
    paths.sort();
    paths.pop().ok_or_else(|| {
        let directories = directories.join(" and ");
        LabError::Preparation(format!("the packages have no compiler in {directories}"))
    })
}

fn make(
    compiler: &str,
    packages: &Packages,
    sandbox: &Sandbox,
    work: &Work,
    interrupt: &Interrupt,
) -> Result<()> {
    let triplet = packages.arch.triplet();
    let program = work.inside(compile::SOURCE_NAME);
    fs::write(&program, compile::SOURCE).doing("writing", &program)?;
    let script = format!(
        "{TAKE}
    TRIPLET={triplet}
    cd /build
    rm -rf tree
    take machine {compiler} tree
    cp program.c tree
    mkfs.erofs -zlz4hc -C65536 -T0 compiler.erofs tree >&2
    rm -r tree"
    );
    sandbox.shell("creating an image of the compiler", &script, interrupt)
}
