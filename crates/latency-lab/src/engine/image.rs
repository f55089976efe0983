//! Reads the image file into the page cache, or drops it from there, before a mount.

use std::fs::File;
use std::io;
use std::path::Path;

use rustix::fs::{Advice, fadvise};

use crate::Result;
use crate::error::Doing;

/// Images up to this size are read completely; for larger ones, POSIX_FADV_WILLNEED starts
/// read-ahead.
const READ_WHOLE: u64 = 256 << 20;

/// Reads the image into the page cache.
pub(crate) fn warm(image: &Path) -> Result<()> {
    let read = || -> io::Result<()> {
        let mut file = File::open(image)?;
        if file.metadata()?.len() > READ_WHOLE {
            fadvise(&file, 0, None, Advice::WillNeed)?;
        } else {
            io::copy(&mut file, &mut io::sink())?;
        }
        Ok(())
    };
    read().doing("reading", image)
}

/// Drops the image from the page cache; nothing may be reading it. It is written back first, since
/// dirty pages would stay.
pub(crate) fn drop_from_cache(image: &Path) -> Result<()> {
    let drop = || -> io::Result<()> {
        let file = File::open(image)?;
        file.sync_all()?;
        Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
    };
    drop().doing("dropping from the page cache", image)
}
