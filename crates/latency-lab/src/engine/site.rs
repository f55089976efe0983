//! The image, the program and the mount points, which all engines need to mount.

use std::path::{Path, PathBuf};

use super::Watch;
use crate::Result;
use crate::error::Doing;

/// The mount point `name` below `points`, which is created if necessary.
pub(crate) fn mount_point(points: &Path, name: &str) -> Result<PathBuf> {
    let point = points.join(name);
    std::fs::create_dir_all(&point).doing("creating the directory", &point)?;
    Ok(point)
}

/// What all engines need to mount.
#[derive(Debug, Clone)]
pub struct Site {
    /// Absolute path of the image.
    pub image: PathBuf,
    /// The `erofast` binary that `erofast:...` engines run.
    pub erofast: PathBuf,
    /// The watch that checks whether the image stays the same.
    pub(crate) watch: Watch,
}

impl Site {
    /// Creates a site with the absolute path of the image, for engines that change their working
    /// directory.
    pub(crate) fn new(image: &Path, erofast: &Path) -> Result<Site> {
        let absolute = image.canonicalize();
        Ok(Site {
            image: absolute.doing("opening", image)?,
            erofast: erofast.to_path_buf(),
            watch: Watch::default(),
        })
    }
}
