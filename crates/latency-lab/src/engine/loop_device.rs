//! Attaches images to loop devices, and detaches them.

use std::path::{Path, PathBuf};

use crate::Result;
use crate::error::Doing;
use crate::process::{output, tool};

/// Attaches an image read-only. The device reads through the page cache, where the image should
/// stay warm.
pub(super) fn attach(image: &Path) -> Result<PathBuf, String> {
    let mut losetup = tool("losetup");
    losetup.args(["--find", "--show", "--read-only", "--"]);
    let path = output(losetup.arg(image)).map_err(|reason| format!("losetup: {reason}"))?;
    Ok(path.trim().into())
}

/// Detaches the device, immediately or, if it is in use, when its last user closes it
/// (`LO_FLAGS_AUTOCLEAR`, since Linux 3.7).
pub(super) fn detach(device: &Path) -> Result<()> {
    let detached = output(tool("losetup").arg("--detach").arg(device));
    detached.doing("detaching", device).map(drop)
}
