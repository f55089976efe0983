//! A live mount. Dropping it unmounts, ends its daemon and detaches its loop device, in this order.

use std::path::{Path, PathBuf};

use super::kernel::LoopDevice;
use crate::mounts;
use crate::process::{Child, End, process_threads};
use crate::{Interrupt, LabError, Result};

/// A mounted image.
#[derive(Debug)]
pub struct Mounted {
    engine: String,
    point: PathBuf,
    daemon: Option<Child>,
    device: Option<LoopDevice>,
    up: bool,
}

impl Mounted {
    pub(super) fn new(
        engine: String,
        point: &Path,
        daemon: Option<Child>,
        device: Option<LoopDevice>,
    ) -> Self {
        Mounted {
            engine,
            point: point.to_owned(),
            daemon,
            device,
            up: true,
        }
    }

    /// Where it is mounted.
    pub fn point(&self) -> &Path {
        &self.point
    }

    /// The process that serves it, where one does.
    pub fn daemon(&self) -> Option<u32> {
        self.daemon.as_ref().map(Child::id)
    }

    /// The threads that serve it, as they are now.
    pub fn threads(&self) -> Vec<u32> {
        self.daemon().map(process_threads).unwrap_or_default()
    }

    /// An error if the process that serves it has ended.
    pub fn check(&mut self) -> Result<()> {
        let Some(daemon) = &mut self.daemon else {
            return Ok(());
        };
        match daemon.ended()? {
            None => Ok(()),
            Some(status) => Err(LabError::EngineDied {
                engine: self.engine.clone(),
                pid: daemon.id(),
                how: End::Exited(status).describe(),
                last_line: daemon.last_line(),
            }),
        }
    }

    /// Takes it down and says what went wrong with that.
    pub fn unmount(mut self) -> Result<()> {
        self.take_down()
    }

    fn take_down(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.up) {
            return Ok(());
        }
        let unmounted = mounts::take_down(&self.point);
        if let Some(mut daemon) = self.daemon.take() {
            // It ends by itself when its mount is gone; if not, it is told to.
            let _ = daemon.wait(std::time::Duration::from_secs(5), &Interrupt::never());
            daemon.end();
        }
        let detached = self.device.take().map_or(Ok(()), LoopDevice::detach);
        unmounted.and(detached)
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = self.take_down();
    }
}
