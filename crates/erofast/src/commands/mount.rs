//! `erofast mount`, `erofast umount`, and what mount(8) calls.

use erofs_fuse::{MountOptions, MountRequest};

use crate::Outcome;
use crate::cli::{HelperArgs, MountArgs, UmountArgs};

/// `erofast mount`
pub fn run(args: &MountArgs) -> anyhow::Result<Outcome> {
    let request = MountRequest {
        image: args.image.clone(),
        mountpoint: args.mountpoint.clone(),
        options: MountOptions::parse(&args.options)?,
        foreground: args.foreground,
    };
    erofs_fuse::mount(&request)?;
    Ok(Outcome::Fine)
}

/// `mount.erofast` and `mount.fuse.erofast`
pub fn helper(args: &HelperArgs) -> anyhow::Result<Outcome> {
    let request = MountRequest {
        image: args.image.clone(),
        mountpoint: args.mountpoint.clone(),
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
