//! A loop device of one image.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::process::in_path;
use crate::{LabError, Result};

/// An attached loop device; detached when dropped.
#[derive(Debug)]
pub(super) struct LoopDevice {
    pub(super) path: PathBuf,
    attached: bool,
}

impl LoopDevice {
    /// Read-only and through the page cache, as the image is to stay warm there.
    pub(super) fn attach(image: &Path) -> Result<Self, String> {
        let losetup = in_path("losetup").ok_or("losetup is not installed")?;
        let output = Command::new(losetup)
            .args(["--find", "--show", "--read-only", "--"])
            .arg(image)
            .stdin(Stdio::null())
            .output()
            .map_err(|reason| format!("losetup: {reason}"))?;
        let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if !output.status.success() {
            return Err(words(&output.stderr));
        }
        Ok(LoopDevice {
            path: words(&output.stdout).into(),
            attached: true,
        })
    }

    pub(super) fn detach(mut self) -> Result<()> {
        self.attached = false;
        self.losetup_detach().map_err(|reason| LabError::Io {
            what: format!("detaching {}", self.path.display()),
            source: std::io::Error::other(reason),
        })
    }

    fn losetup_detach(&self) -> Result<(), String> {
        let losetup = in_path("losetup").ok_or("losetup is not installed")?;
        let output = Command::new(losetup)
            .arg("--detach")
            .arg(&self.path)
            .stdin(Stdio::null())
            .output()
            .map_err(|reason| reason.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        if self.attached {
            let _ = self.losetup_detach();
        }
    }
}
