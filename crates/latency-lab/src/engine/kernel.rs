//! The kernel's own EROFS: file-backed, and over a loop device.

use std::ffi::CString;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::loop_device::LoopDevice;
use super::module::LoadedModule;
use super::{Engine, Module, Mounted, Site};
use crate::{LabError, Result};

/// mount(8) of older util-linux makes a loop device silently; mount(2) does not.
pub(super) fn file_backed(engine: &Engine, site: &Site, point: &Path) -> Result<Mounted> {
    mount_erofs(&site.image, point).map_err(|reason| LabError::Mount {
        engine: engine.to_string(),
        image: site.image.clone(),
        reason: match reason {
            Errno::NOTBLK => {
                "this kernel mounts EROFS from block devices only (needs Linux 6.12 and \
                              CONFIG_EROFS_FS_BACKED_BY_FILE); use kernel-loop"
                    .into()
            }
            other => describe_errno(other),
        },
    })?;
    Ok(Mounted::new(engine.to_string(), point, None, None))
}

pub(super) fn over_loop(engine: &Engine, site: &Site, point: &Path) -> Result<Mounted> {
    let fault = |reason| LabError::Mount {
        engine: engine.to_string(),
        image: site.image.clone(),
        reason,
    };
    let device = LoopDevice::attach(&site.image).map_err(fault)?;
    mount_erofs(&device.path, point).map_err(|reason| fault(describe_errno(reason)))?;
    Ok(Mounted::new(engine.to_string(), point, None, Some(device)))
}

/// With a module of its own, loaded before and unloaded after.
pub(super) fn by_module(
    engine: &Engine,
    module: &Module,
    site: &Site,
    point: &Path,
) -> Result<Mounted> {
    let loaded = LoadedModule::load(module).map_err(|reason| LabError::Mount {
        engine: engine.to_string(),
        image: site.image.clone(),
        reason,
    })?;
    Ok(over_loop(engine, site, point)?.with_module(loaded))
}

fn mount_erofs(source: &Path, point: &Path) -> rustix::io::Result<()> {
    let data: Option<CString> = None;
    mount(
        source,
        point,
        "erofs",
        MountFlags::RDONLY | MountFlags::NODEV,
        data.as_deref(),
    )
}

fn describe_errno(reason: Errno) -> String {
    match reason {
        Errno::INVAL => "the kernel refuses it as no EROFS it can read (see dmesg)".into(),
        Errno::OPNOTSUPP => "the kernel lacks a feature of this image (see dmesg)".into(),
        Errno::NODEV => "this kernel has no EROFS".into(),
        Errno::PERM => "mounting needs root".into(),
        other => std::io::Error::from(other).to_string(),
    }
}
