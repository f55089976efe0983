//! `erofast mount`, `erofast umount`, and what mount(8) calls.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use anyhow::Context;
use erofs_fuse::{MountOptions, MountRequest};

use crate::cli::{HelperArgs, MountArgs, UmountArgs};
use crate::outcome::Outcome;

/// `erofast mount`
pub fn run(args: &MountArgs) -> anyhow::Result<Outcome> {
    let request = MountRequest {
        image: absolute(&args.image)?,
        mountpoint: absolute(&args.mountpoint)?,
        options: MountOptions::parse(&lists(args))?,
        foreground: args.foreground,
    };
    erofs_fuse::mount(&request)?;
    Ok(Outcome::Fine)
}

/// `stat` is asked from other directories than `mount` was.
fn absolute(path: &Path) -> anyhow::Result<PathBuf> {
    std::path::absolute(path).with_context(|| path.display().to_string())
}

/// What other subcommands take as arguments is an option of the mount.
fn lists(args: &MountArgs) -> Vec<OsString> {
    let option = |name: &str, value: &OsStr| {
        let mut option = OsString::from(name);
        option.push(erofs_fuse::escape(value));
        option
    };
    let offset = args.offset.iter().map(|value| option("offset=", value));
    let devices = args.devices.iter();
    let devices = devices.map(|path| option("device=", path.as_os_str()));
    let debug = args.debug.then(|| OsString::from("debug"));
    let given = args.options.iter().cloned();
    given.chain(offset).chain(devices).chain(debug).collect()
}

/// `mount.erofast` and `mount.fuse.erofast`
pub fn helper(args: &HelperArgs) -> anyhow::Result<Outcome> {
    let request = MountRequest {
        image: absolute(&args.image)?,
        mountpoint: absolute(&args.mountpoint)?,
        options: MountOptions::parse(&args.options)?,
        foreground: false,
    };
    if !args.fake {
        erofs_fuse::mount(&request)?;
    }
    Ok(Outcome::Fine)
}

/// `erofast umount`
pub fn umount(args: &UmountArgs) -> anyhow::Result<Outcome> {
    erofs_fuse::umount(&args.mountpoint)?;
    Ok(Outcome::Fine)
}
