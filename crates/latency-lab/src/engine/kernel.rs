//! The kernel's own EROFS: file-backed, and over a loop device.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::loop_device::LoopDevice;
use super::module::LoadedModule;
use super::{Engine, Module, Mounted, Site};
use crate::Result;

/// mount(8) of older util-linux makes a loop device silently; mount(2) does not.
pub(super) fn file_backed(engine: &Engine, site: &Site, point: &Path) -> Result<Mounted> {
    mount_erofs(&site.image, point).map_err(|reason| engine.refused(site, reason))?;
    Ok(Mounted::new(engine, point))
}

pub(super) fn over_loop(engine: &Engine, site: &Site, point: &Path) -> Result<Mounted> {
    let fault = |reason| engine.refused(site, reason);
    let device = LoopDevice::attach(&site.image).map_err(fault)?;
    mount_erofs(&device.path, point).map_err(fault)?;
    let mut mounted = Mounted::new(engine, point);
    mounted.device = Some(device);
    Ok(mounted)
}

/// With a module of its own, loaded before and unloaded after.
pub(super) fn by_module(
    engine: &Engine,
    module: &Module,
    site: &Site,
    point: &Path,
) -> Result<Mounted> {
    let loaded = LoadedModule::load(module).map_err(|reason| engine.refused(site, reason))?;
    let mut mounted = over_loop(engine, site, point)?;
    mounted.module = Some(loaded);
    Ok(mounted)
}

fn mount_erofs(source: &Path, point: &Path) -> Result<(), String> {
    let flags = MountFlags::RDONLY | MountFlags::NODEV;
    mount(source, point, "erofs", flags, None).map_err(describe_errno)
}

fn describe_errno(reason: Errno) -> String {
    match reason {
        Errno::NOTBLK => "this kernel mounts EROFS from block devices only (needs Linux 6.12 and \
             CONFIG_EROFS_FS_BACKED_BY_FILE); use kernel-loop"
            .into(),
        Errno::INVAL => "the kernel refuses it as no EROFS it can read (see dmesg)".into(),
        Errno::OPNOTSUPP => "the kernel lacks a feature of this image (see dmesg)".into(),
        Errno::NODEV => "this kernel has no EROFS".into(),
        Errno::PERM => "mounting needs root".into(),
        other => std::io::Error::from(other).to_string(),
    }
}
