//! Mounts an image with any engine.

use std::path::Path;

use super::{Engine, Mounted, Site, daemon, kernel};
use crate::{Interrupt, LabError, Result};

impl Engine {
    /// Mounts at `point`, an empty directory, and returns once the mount can be read.
    pub fn mount(&self, site: &Site, point: &Path, interrupt: &Interrupt) -> Result<Mounted> {
        site.watch.look();
        let mounted = match self {
            Engine::Kernel => kernel::file_backed(self, site, point),
            Engine::KernelLoop => kernel::over_loop(self, site, point),
            Engine::Module(module) => kernel::by_module(self, module, site, point),
            Engine::Erofsfuse | Engine::Erofast { .. } | Engine::Url { .. } => {
                daemon::mount(self, site, point, interrupt)
            }
        };
        // If the right image is present before and after mounting, it is the one that was mounted.
        site.watch.look();
        mounted
    }

    pub(super) fn refused(&self, site: &Site, reason: String) -> LabError {
        LabError::Mount {
            engine: self.to_string(),
            image: site.image.clone(),
            reason,
        }
    }
}
