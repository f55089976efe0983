//! What can be mounted: the kernel's EROFS in two ways, erofsfuse, and erofast with any options.

mod daemon;
mod image;
mod kernel;
mod module;
mod mounted;
mod name;
mod present;
mod probe;

pub(crate) use image::{drop_from_cache, warm};
pub use mounted::Mounted;
pub use name::{Engine, Module};
pub(crate) use present::present;
pub use probe::missing;

use std::path::{Path, PathBuf};

use crate::{Interrupt, LabError, Result};

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

impl Engine {
    /// Mounts freshly at `point`, an empty directory, and returns when it can be read.
    pub fn mount(&self, site: &Site, point: &Path, interrupt: &Interrupt) -> Result<Mounted> {
        match self {
            Engine::Kernel => kernel::file_backed(self, site, point),
            Engine::KernelLoop => kernel::over_loop(self, site, point),
            Engine::Module(module) => kernel::by_module(self, module, site, point),
            Engine::Erofsfuse | Engine::Erofast { .. } => {
                daemon::mount(self, site, point, interrupt)
            }
        }
    }
}
