//! Loads a kernel module for as long as a mount needs it.

use std::ffi::CString;
use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::system::{delete_module, finit_module};

use super::Module;
use crate::Result;
use crate::error::Doing;

/// The name that every EROFS module has in the kernel.
const NAME: &std::ffi::CStr = c"erofs";
/// How long to wait until the module is unused: its last reference is dropped only shortly after
/// the last unmount.
const TIMEOUT: Duration = Duration::from_secs(5);

/// A loaded module, which is unloaded when dropped.
#[derive(Debug)]
pub(super) struct LoadedModule(bool);

impl LoadedModule {
    pub(super) fn load(module: &Module) -> std::result::Result<Self, String> {
        let fault = |reason: String| format!("loading {}: {reason}", module.path.display());
        if Path::new("/sys/module/erofs").exists() {
            return Err(fault(
                "EROFS is already loaded or built into the kernel; unload the module first (rmmod \
                 erofs)"
                    .into(),
            ));
        }
        let file = File::open(&module.path).map_err(|reason| fault(reason.to_string()))?;
        let parameters = CString::new(module.parameters.as_str())
            .map_err(|_| fault("its parameters contain a NUL byte".into()))?;
        finit_module(&file, &parameters, 0).map_err(|reason| {
            fault(match reason {
                Errno::NOEXEC => "it was built for another kernel, or is compressed".into(),
                Errno::NOENT => "a module it needs is not loaded, or a parameter is unknown".into(),
                Errno::KEYREJECTED => "this kernel loads only signed modules".into(),
                other => other.to_string(),
            })
        })?;
        Ok(LoadedModule(true))
    }

    pub(super) fn unload(mut self) -> Result<()> {
        self.0 = false;
        remove().doing("unloading the module", "erofs")
    }
}

fn remove() -> rustix::io::Result<()> {
    // With O_NONBLOCK, delete_module(2) fails instead of waiting until the module is unused.
    let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let deadline = Instant::now() + TIMEOUT;
    loop {
        match delete_module(NAME, flags) {
            Err(Errno::AGAIN | Errno::BUSY) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

impl Drop for LoadedModule {
    fn drop(&mut self) {
        if self.0 {
            let _ = remove();
        }
    }
}
