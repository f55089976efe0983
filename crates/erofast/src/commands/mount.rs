//! `erofast mount`, `erofast umount`, and what mount(8) calls.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::Context;
use erofast_cli::Outcome;
use erofs_engine::{Engine, EngineOptions, WorkersMode};
use erofs_fuse::{MountOptions, MountRequest};

use crate::cli::{self, FuseStyle, HelperArgs, MountArgs, UmountArgs, UpgradeArgs};

/// `erofast mount`
pub fn run(args: &MountArgs) -> anyhow::Result<Outcome> {
    let request = MountRequest {
        image: image(&args.image)?,
        mountpoint: absolute(&args.mountpoint)?,
        options: MountOptions::parse(&lists(args))?.learning(),
        foreground: args.foreground,
    };
    mount(&request)
}

/// In the foreground this process is the server.
fn mount(request: &MountRequest) -> anyhow::Result<Outcome> {
    if request.foreground || request.options.debug {
        erofs_fuse::close_inherited(request);
    }
    erofs_fuse::mount(request)?;
    Ok(Outcome::Fine)
}

/// A path, or a URL as it is.
fn image(path: &Path) -> anyhow::Result<PathBuf> {
    match erofs_engine::remote::url(path) {
        Some(_) => Ok(path.to_owned()),
        None => absolute(path),
    }
}

/// `stat` is asked from other directories than `mount` was.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| path.display().to_string())
}

/// What other subcommands take as arguments is an option of the mount.
fn lists(args: &MountArgs) -> Vec<OsString> {
    let option = |name: &str, value: &OsStr| {
        let mut option = OsString::from(format!("{name}="));
        option.push(erofs_engine::escape_option(value));
        option
    };
    let offset = args.offset.iter().map(|value| option("offset", value));
    let devices = args.devices.iter();
    let devices = devices.map(|path| option("device", path.as_os_str()));
    let debug = args.debug.then(|| OsString::from("debug"));
    let verity = args.verity.options();
    let verity = verity.map(|(name, value)| option(&name, value));
    let given = args.options.iter().cloned();
    let flags = offset.chain(devices).chain(verity).chain(debug);
    given.chain(flags).collect()
}

/// `mount.erofast` and `mount.fuse.erofast`
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
    if args.fake {
        check(&request)?;
    } else {
        erofs_fuse::mount(&request)?;
    }
    Ok(Outcome::Fine)
}

/// `erofsfuse`, and what mount.fuse3 runs.
pub fn fuse_style() -> anyhow::Result<Outcome> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let args = match cli::parse_fuse_style(&arguments).map_err(anyhow::Error::msg)? {
        FuseStyle::Mount(args) => args,
        FuseStyle::Usage => {
            outln!("{FUSE_STYLE_USAGE}");
            return Ok(Outcome::Faulty);
        }
        FuseStyle::Version => {
            outln!("erofsfuse (erofast) {}", env!("EROFAST_VERSION"));
            return Ok(Outcome::Faulty);
        }
    };
    let request = MountRequest {
        image: args.image,
        mountpoint: args.mountpoint,
        options: MountOptions::parse(&args.options)?,
        foreground: args.foreground,
    };
    mount(&request)
}

/// What erofsfuse prints for `-h`, and without an image and a directory.
const FUSE_STYLE_USAGE: &str = "\
usage: erofsfuse [OPTIONS] IMAGE MOUNTPOINT
    --offset=#     skip # bytes at the beginning of IMAGE
    --device=PATH  an extra device of the image (repeatable)
    --dbglevel=#   3 or more: show notices
    -f             stay in the foreground
    -d             stay in the foreground and print every request
    -r, -n, -s     accepted, without effect
    -o OPT,...     mount options: see erofast mount --help";

/// What can be known without mounting: that there is an image, and a directory.
fn check(request: &MountRequest) -> anyhow::Result<()> {
    let options = EngineOptions {
        workers: WorkersMode::Inline,
        reserved_pages: 0,
        ..request.options.engine.clone()
    };
    Engine::open(&request.image, &options)?;
    let point = request.mountpoint.display().to_string();
    let metadata = std::fs::metadata(&request.mountpoint).with_context(|| point.clone())?;
    anyhow::ensure!(metadata.is_dir(), "{point}: is not a directory");
    Ok(())
}

/// `erofast upgrade`
pub fn upgrade(args: &UpgradeArgs) -> anyhow::Result<Outcome> {
    erofs_fuse::upgrade(&args.mountpoint)?;
    Ok(Outcome::Fine)
}

/// `erofast umount`
pub fn umount(args: &UmountArgs) -> anyhow::Result<Outcome> {
    erofs_fuse::umount(&args.mountpoint, args.lazy)?;
    Ok(Outcome::Fine)
}
