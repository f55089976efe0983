//! The image and the program that every engine mounts with, and the mount points.

use std::path::{Path, PathBuf};

use crate::{LabError, Result};

/// A directory to mount on: `name` below `points`, made if need be.
pub(crate) fn mount_point(points: &Path, name: &str) -> Result<PathBuf> {
    let point = points.join(name);
    std::fs::create_dir_all(&point)
        .map_err(|source| LabError::io("making the directory", &point, source))?;
    Ok(point)
}

/// What all engines need to know to mount.
#[derive(Debug, Clone)]
pub struct Site {
    /// The image, absolute.
    pub image: PathBuf,
    /// The `erofast` binary that `erofast:...` engines run.
    pub erofast: PathBuf,
}

impl Site {
    /// The image by its absolute path, for engines that change their directory.
    pub(crate) fn new(image: &Path, erofast: &Path) -> Result<Site> {
        let absolute = image.canonicalize();
        Ok(Site {
            image: absolute.map_err(|source| LabError::io("opening", image, source))?,
            erofast: erofast.to_path_buf(),
        })
    }
}
