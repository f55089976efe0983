//! Mounts with the kernel's own EROFS: file-backed, or over a loop device.

use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};

use super::module::LoadedModule;
use super::{Engine, Module, Mounted, Site, loop_device};
use crate::Result;

/// Mounts the file itself with mount(2), because mount(8) of an older util-linux silently creates a
/// loop device.
pub(super) fn file_backed(engine: &Engine, site: &Site, point: &Path) -> Result<Mounted> {
    mount_erofs(&site.image, point).map_err(|reason| engine.refused(site, reason))?;
    Ok(Mounted::new(engine, point))
}

pub(super) fn over_loop(engine: &Engine, site: &Site, point: &Path) -> Result<Mounted> {
    let fault = |reason| engine.refused(site, reason);
    let device = loop_device::attach(&site.image).map_err(fault)?;
    let mounted = mount_erofs(&device, point).map(|()| Mounted::new(engine, point));
    // If the device is mounted, it is detached as soon as anybody unmounts it, otherwise
    // immediately.
    loop_device::detach(&device)?;
    mounted.map_err(fault)
}

/// Mounts with a separate module, which is loaded before the mount and unloaded after the unmount.
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
        Errno::INVAL => "the kernel does not recognize it as an EROFS image (see dmesg)".into(),
        Errno::OPNOTSUPP => "the kernel lacks a feature of this image (see dmesg)".into(),
        Errno::NODEV => "this kernel has no EROFS".into(),
        Errno::PERM => "mounting needs root".into(),
        other => std::io::Error::from(other).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interrupt;
    use crate::engine::missing;
    use crate::mounts::{Mount, mountinfo};
    use crate::scratch::Scratch;

    #[test]
    fn a_loop_device_goes_with_its_mount_even_when_the_lab_is_gone() {
        let image = "../erofast/tests/fixtures/lz4-full-index-64k.erofs";
        let site = Site::new(Path::new(image), Path::new("/no/such/erofast")).unwrap();
        if let Some(reason) = missing(&Engine::KernelLoop, &site) {
            println!("skipped: {reason}");
            return;
        }
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let point = scratch.path();
        let mounted = Engine::KernelLoop.mount(&site, point, &Interrupt::never());
        let _mounted = mounted.unwrap();
        let table = mountinfo();
        let mut mounts = table.lines().filter_map(Mount::parse);
        let device = mounts.find(|mount| mount.point == point).unwrap().device;
        let autoclear = format!(
            "/sys/dev/block/{}:{}/loop/autoclear",
            device >> 20,
            device & 0xf_ffff
        );
        assert_eq!(std::fs::read_to_string(autoclear).unwrap(), "1\n");
    }
}
