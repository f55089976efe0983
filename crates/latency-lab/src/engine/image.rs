//! The image file in the page cache, or out of it, before a mount.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use crate::{LabError, Result};

/// Images up to this size are read whole; bigger ones are requested by POSIX_FADV_WILLNEED.
const READ_WHOLE: u64 = 256 << 20;

/// Into the page cache.
pub(crate) fn warm(image: &Path) -> Result<()> {
    let fault = |source| LabError::io("reading", image, source);
    let mut file = File::open(image).map_err(fault)?;
    if file.metadata().map_err(fault)?.len() > READ_WHOLE {
        return fadvise(&file, 0, None, Advice::WillNeed).map_err(|reason| fault(reason.into()));
    }
    let mut block = vec![0; 1 << 20];
    while file.read(&mut block).map_err(fault)? > 0 {}
    Ok(())
}

/// Out of the page cache: written back first, as dirty pages stay. Nothing may have it mounted.
pub(crate) fn drop_from_cache(image: &Path) -> Result<()> {
    let fault = |source| LabError::io("dropping from the page cache", image, source);
    let file = File::open(image).map_err(fault)?;
    file.sync_all().map_err(fault)?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|reason| fault(reason.into()))
}
