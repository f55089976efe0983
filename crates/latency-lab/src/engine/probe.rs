//! Checks an engine's requirements before anything is started. An error is one line that says what
//! is missing.

use std::fs;
use std::path::Path;

use super::{Engine, Site};
use crate::LabError;
use crate::process::{in_path, output, tool};

/// An error that names what the engine lacks. None if it seems to lack nothing; only a mount proves
/// that.
pub fn missing(engine: &Engine, site: &Site) -> Option<LabError> {
    let reason = match engine {
        Engine::Kernel => root().or_else(kernel_erofs),
        Engine::KernelLoop => root().or_else(kernel_erofs).or_else(loop_devices),
        Engine::Module(module) => root()
            .or_else(|| binary(&module.path))
            .or_else(loop_devices),
        Engine::Erofsfuse => fuse().or_else(|| {
            in_path("erofsfuse")
                .is_none()
                .then(|| "erofsfuse is not installed (Debian package: erofsfuse)".into())
        }),
        Engine::Url { .. } => fuse()
            .or_else(|| binary(&site.erofast))
            .or_else(|| engine.link().err()),
        Engine::Erofast { .. } => fuse().or_else(|| binary(&site.erofast)),
    };
    reason.map(|reason| LabError::EngineMissing {
        engine: engine.to_string(),
        reason,
    })
}

fn root() -> Option<String> {
    (!rustix::process::geteuid().is_root())
        .then(|| "mounting with the kernel's EROFS needs root".into())
}

/// A module that is not loaded yet counts as available: mount(2) loads it.
fn kernel_erofs() -> Option<String> {
    let known = fs::read_to_string("/proc/filesystems").unwrap_or_default();
    let built_in = known
        .lines()
        .any(|line| line.trim_start_matches("nodev").trim() == "erofs");
    (!built_in && !module_exists()).then(|| {
        "this kernel has no EROFS (CONFIG_EROFS_FS is off, or its module erofs is not installed)".into()
    })
}

fn module_exists() -> bool {
    output(tool("modprobe").args(["-n", "-q", "erofs"])).is_ok()
}

fn loop_devices() -> Option<String> {
    if in_path("losetup").is_none() {
        return Some("losetup is not installed (Debian package: mount)".into());
    }
    (!Path::new("/dev/loop-control").exists())
        .then(|| "no loop devices: /dev/loop-control does not exist".into())
}

fn fuse() -> Option<String> {
    (!Path::new("/dev/fuse").exists())
        .then(|| "no FUSE: /dev/fuse does not exist (try: modprobe fuse)".into())
}

fn binary(path: &Path) -> Option<String> {
    (!path.is_file()).then(|| format!("{} does not exist", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_binary_is_named() {
        if !Path::new("/dev/fuse").exists() {
            println!("skipped: no /dev/fuse");
            return;
        }
        let site = Site {
            image: "/image".into(),
            erofast: "/no/such/erofast".into(),
            watch: Default::default(),
        };
        let missing = missing(&"erofast:percpu".parse().unwrap(), &site).unwrap();
        assert_eq!(
            missing.to_string(),
            "engine erofast:percpu: /no/such/erofast does not exist"
        );
    }
}
