//! The default image of the experiment: the fetched compiler proper, its libraries and a small
//! program for it to check.

use std::fs;
use std::path::{Path, PathBuf};

use super::arch::Arch;
use super::options::KernelOptions;
use super::prepared::Prepared;
use super::sandbox::TAKE;
use crate::error::Doing;
use crate::{LabError, Result, compile};

/// An image file in the work directory, and the command line to run with the image as the root
/// directory.
pub(super) struct Image {
    pub(super) bytes: u64,
    /// The command line; none if the image is the user's own.
    pub(super) command: Option<Vec<String>>,
}

pub(super) fn take_or_make(options: &KernelOptions, prepared: &Prepared) -> Result<Image> {
    let (image, command) = match &options.image {
        Some(image) => (image.clone(), None),
        None => {
            let (image, command) = of_compiler(prepared)?;
            (image, Some(command))
        }
    };
    let copied = fs::copy(&image, prepared.work.inside("image.erofs"));
    let bytes = copied.doing("copying", &image)?;
    Ok(Image { bytes, command })
}

/// Makes the image of the compiler unless an earlier run has made it; returns its path and the
/// command to launch.
fn of_compiler(prepared: &Prepared) -> Result<(PathBuf, Vec<String>)> {
    let Prepared { packages, work, .. } = prepared;
    let compiler = compiler(packages.arch, &work.inside("machine"))?;
    let made = work.inside("compiler.erofs");
    let mark = format!("{} {}", packages.version, compile::SOURCE);
    if !(made.is_file() && work.is_done("image", &mark)) {
        make(&compiler, prepared)?;
        work.done("image", &mark)?;
    }
    Ok((made, compile::command(&compiler)))
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

fn make(compiler: &str, prepared: &Prepared) -> Result<()> {
    let triplet = prepared.packages.arch.triplet();
    let program = prepared.work.inside(compile::SOURCE_NAME);
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
    prepared.shell("creating an image of the compiler", &script)
}
