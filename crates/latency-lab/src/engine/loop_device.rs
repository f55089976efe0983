//! A loop device of one image.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::error::Doing;
use crate::process::{output, tool};

/// An attached loop device; detached when dropped.
#[derive(Debug)]
pub(super) struct LoopDevice {
    pub(super) path: PathBuf,
    attached: bool,
}

impl LoopDevice {
    /// Read-only and through the page cache, as the image is to stay warm there.
    pub(super) fn attach(image: &Path) -> Result<Self, String> {
        let mut losetup = tool("losetup");
        losetup.args(["--find", "--show", "--read-only", "--"]);
        let path = output(losetup.arg(image)).map_err(|reason| format!("losetup: {reason}"))?;
        Ok(LoopDevice {
            path: path.trim().into(),
            attached: true,
        })
    }

    pub(super) fn detach(mut self) -> Result<()> {
        self.attached = false;
        self.losetup_detach()
    }

    fn losetup_detach(&self) -> Result<()> {
        let detached = output(tool("losetup").arg("--detach").arg(&self.path));
        detached.doing("detaching", &self.path).map(drop)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if self.attached {
            let _ = self.losetup_detach();
        }
    }
}
