//! The default image of the experiment: the fetched compiler proper, with its
//! libraries and a small program to check.

use std::fs;
use std::path::Path;

use super::options::KernelOptions;
use super::packages::Packages;
use super::sandbox::Sandbox;
use super::work::Work;
use crate::compile;
use crate::error::Doing;
use crate::{Interrupt, LabError, Result};

/// The image, which is in the work directory, and the command line of its program, with the image
/// as root.
pub(super) struct Image {
    pub(super) bytes: u64,
    /// None if the image is the user's own.
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
    let compiler = compiler(&work.root())?;
    let command = compile::command(&compiler);
    let made = work.inside("compiler.erofs");
    let mark = format!("{} {}", packages.version, compile::SOURCE);
    if !(made.is_file() && work.is_done("image", &mark)) {
        make(&compiler, sandbox, work, interrupt)?;
        work.done("image", &mark)?;
    }
    let copied = fs::copy(&made, path);
    let bytes = copied.doing("copying", &made)?;
    Ok(Image {
        bytes,
        command: Some(command),
    })
}

/// cc1 of the newest available compiler.
fn compiler(root: &Path) -> Result<String> {
    let directory = "/usr/lib/gcc/x86_64-linux-gnu";
    let versions = fs::read_dir(root.join(&directory[1..]))
        .into_iter()
        .flatten()
        .flatten();
    let mut paths: Vec<String> = versions
        .map(|entry| format!("{directory}/{}/cc1", entry.file_name().to_string_lossy()))
        .filter(|path| root.join(&path[1..]).is_file())
        .collect();
    paths.sort();
    paths.pop().ok_or_else(|| {
        LabError::Preparation(format!("the packages have no compiler in {directory}"))
    })
}

fn make(compiler: &str, sandbox: &Sandbox, work: &Work, interrupt: &Interrupt) -> Result<()> {
    let program = work.inside(compile::SOURCE_NAME);
    fs::write(&program, compile::SOURCE).doing("writing", &program)?;
    let script = format!(
        "
    cd /build
    rm -rf tree
    for file in {compiler} $(/lib64/ld-linux-x86-64.so.2 --list {compiler} | grep -o '/[^ ]*'); do
        mkdir -p \"tree$(dirname $file)\"
        cp -L $file tree$file
    done
    cp program.c tree
    mkfs.erofs -zlz4hc -C65536 -T0 compiler.erofs tree >&2
    rm -r tree"
    );
    sandbox.shell("making an image of the compiler", &script, interrupt)
}
