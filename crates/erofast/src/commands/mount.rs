//! `erofast mount`, `erofast umount`, and the helpers that mount(8) calls.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::CommandFactory;
use erofast_cli::{Outcome, parse};
use erofs_engine::{Engine, EngineOptions, WorkersMode};
use erofs_mount::{MountOptions, MountRequest, Upgraded};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::cli::fuse_style::{FuseStyleArgs, option};
use crate::cli::mount::{HelperArgs, MountArgs, UmountArgs, UpgradeArgs};

/// Runs `erofast mount`.
pub fn run(args: &MountArgs) -> anyhow::Result<Outcome> {
    let request = MountRequest {
        image: image(&args.image)?,
        mountpoint: absolute(&args.mountpoint)?,
        options: MountOptions::parse(&lists(args))?.learning(),
        foreground: args.foreground,
    };
    mount(&request)
}

/// Mounts; in the foreground this process becomes the mount helper.
fn mount(request: &MountRequest) -> anyhow::Result<Outcome> {
    if request.foreground || request.options.debug {
        sys::allocator::exit_without_memory(false);
        erofs_mount::close_inherited(request);
    }
    erofs_mount::mount(request)?;
    Ok(Outcome::Fine)
}

/// Makes a path absolute, and leaves a URL unchanged.
pub fn image(path: &Path) -> anyhow::Result<PathBuf> {
    match erofs_engine::remote::url(path) {
        Some(_) => Ok(path.to_owned()),
        None => absolute(path),
    }
}

/// Makes a path absolute: `stat` may be run in a different directory from `mount`.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| path.display().to_string())
}

/// The mount options, including those given as flags shared with other subcommands.
fn lists(args: &MountArgs) -> Vec<OsString> {
    let offset = args.offset.iter().map(|value| option("offset", value));
    let flags = args.files.options().chain(args.verity.options());
    let flags = flags.map(|(name, value)| option(name, value));
    let debug = args.debug.then(|| OsString::from("debug"));
    let given = args.options.iter().cloned();
    given.chain(offset).chain(flags).chain(debug).collect()
}

/// Runs `mount.erofast` and `mount.fuse.erofast`.
pub fn helper(args: &HelperArgs) -> anyhow::Result<Outcome> {
    let request = MountRequest {
        image: image(&args.image)?,
        mountpoint: absolute(&args.mountpoint)?,
        options: match args.sloppy {
            true => MountOptions::parse_sloppy(&args.options)?,
            false => MountOptions::parse(&args.options)?,
        }
        .learning(),
        foreground: false,
    };
    // Entering the namespace changes the working directory.
    if let Some(namespace) = &args.namespace {
        enter(Path::new(namespace))?;
    }
    if args.fake {
        check(&request)?;
    } else {
        erofs_mount::mount(&request)?;
    }
    Ok(Outcome::Fine)
}

/// Enters a mount namespace, as mount(8) expects of its helpers.
fn enter(namespace: &Path) -> anyhow::Result<()> {
    let what = || format!("mount namespace {}", namespace.display());
    let file = std::fs::File::open(namespace).with_context(what)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Mount)).with_context(what)
}

/// Runs `erofsfuse`, and the command that mount.fuse3 runs.
pub fn fuse_style() -> anyhow::Result<Outcome> {
    let args: FuseStyleArgs = parse()?;
    if args.version {
        outln!("erofsfuse (erofast) {}", env!("EROFAST_VERSION"));
        return Ok(Outcome::Faulty);
    }
    let (lists, foreground) = (args.lists(), args.foreground);
    let (false, Some(image), Some(mountpoint)) = (args.help, args.image, args.mountpoint) else {
        outln!("{}", FuseStyleArgs::command().render_help());
        return Ok(Outcome::Faulty);
    };
    mount(&MountRequest {
        image,
        mountpoint,
        options: MountOptions::parse_fuse_style(&lists)?,
        foreground,
    })
}

/// Checks everything that can be checked without mounting: whether the image and the directory
/// exist.
fn check(request: &MountRequest) -> anyhow::Result<()> {
    let options = EngineOptions {
        workers: WorkersMode::Inline,
        reserved_pages: 0,
        ..request.options.engine.clone()
    };
    Engine::open(&request.image, &options)?;
    let point = request.mountpoint.display().to_string();
    let metadata = std::fs::metadata(&request.mountpoint).with_context(|| point.clone())?;
    anyhow::ensure!(metadata.is_dir(), "{point}: not a directory");
    Ok(())
}

/// Runs `erofast upgrade`.
pub fn upgrade(args: &UpgradeArgs) -> anyhow::Result<Outcome> {
    let upgraded = match args.all {
        true => erofs_mount::upgrade_all()?,
        false => erofs_mount::upgrade_each(&args.mountpoint),
    };
    let has_failed = |one: &Upgraded| one.counts && one.outcome.is_err();
    let outcome = Outcome::of(!upgraded.iter().any(has_failed));
    // Printed only on a terminal; in scripts, success prints nothing, as with umount.
    let shows = std::io::stdout().is_terminal();
    for Upgraded {
        mountpoint,
        outcome,
        counts,
    } in upgraded
    {
        match outcome {
            Err(error) if counts => erofs_mount::note(error),
            Err(error) => erofs_mount::note(format!(
                "{error} (another user's mount; not counted as a failure)"
            )),
            Ok(()) if shows && counts => serves(&mountpoint)?,
            Ok(()) => {}
        }
    }
    Ok(outcome)
}

/// Prints which version of the program now serves a mount; nothing if the mount is gone or has no
/// path.
fn serves(mountpoint: &Path) -> anyhow::Result<()> {
    if let Ok(counters) = erofs_mount::stat(mountpoint) {
        let version = counters["version"].as_str().unwrap_or("?");
        let place = mountpoint.display();
        outln!(
            "{place}: served by erofast {version} (process {})",
            counters["pid"]
        );
    }
    Ok(())
}

/// Runs `erofast umount`.
pub fn umount(args: &UmountArgs) -> anyhow::Result<Outcome> {
    let umount = |place: &PathBuf| erofs_mount::umount(place, args.lazy).err();
    Ok(told(args.mountpoint.iter().filter_map(umount).collect()))
}

/// Prints a line for each failed mount.
fn told(failed: Vec<erofs_mount::Error>) -> Outcome {
    let outcome = Outcome::of(failed.is_empty());
    failed.into_iter().for_each(erofs_mount::note);
    outcome
}
