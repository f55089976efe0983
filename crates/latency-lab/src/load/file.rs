//! The file that the load's random reader reads. It is on a real disk, and all its blocks are
//! written.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use fastrand::Rng;

use crate::error::Doing;
use crate::scratch::Scratch;
use crate::{Interrupt, LabError, Progress, Result};

/// Size of the file: 500 MiB.
pub(super) const BYTES: u64 = 500 << 20;
const PIECE: usize = 1 << 20;
/// Space that must be left beside the file, so that the disk does not run full.
const SPARE: u64 = 64 << 20;
/// f_type of tmpfs and ramfs, from linux/magic.h. Their files are not on a disk, so a direct reader
/// would never wait.
const MEMORY_FILESYSTEMS: [u64; 2] = [0x0102_1994, 0x8584_58f6];

/// The file and its directory. The directory is removed at the end, unless the user keeps the file.
#[derive(Debug)]
pub(super) struct LoadFile {
    pub(super) path: PathBuf,
    _scratch: Option<Scratch>,
}

/// Creates the file below `parent`, or uses the one that an earlier run kept there.
pub(super) fn make(
    parent: &Path,
    keep: bool,
    interrupt: &Interrupt,
    progress: &mut dyn Progress,
) -> Result<LoadFile> {
    refuse_memory(parent)?;
    let scratch = if keep {
        None
    } else {
        Some(Scratch::new(parent)?)
    };
    let directory = scratch.as_ref().map_or(parent, Scratch::path);
    let path = directory.join("erofast-lab-random-reads");
    let file = LoadFile {
        path,
        _scratch: scratch,
    };
    if fs::metadata(&file.path).is_ok_and(|metadata| metadata.len() == BYTES) {
        return Ok(file);
    }
    refuse_full(parent)?;
    if let Err(reason) = write(&file.path, interrupt, progress) {
        let _ = fs::remove_file(&file.path);
        return Err(reason).doing("writing the 500 MiB file of the load,", &file.path);
    }
    Ok(file)
}

/// Uses a disk of at least [`BYTES`] bytes, which is read instead of a file.
pub(super) fn disk(path: &Path) -> LoadFile {
    LoadFile {
        path: path.to_owned(),
        _scratch: None,
    }
}

fn refuse_memory(parent: &Path) -> Result<()> {
    let kind = rustix::fs::statfs(parent)
        .doing("looking at", parent)?
        .f_type as u64;
    if MEMORY_FILESYSTEMS.contains(&kind) {
        return Err(LabError::Load(format!(
            "{} is in memory, but the random reader needs a disk; choose another scratch directory",
            parent.display()
        )));
    }
    Ok(())
}

fn refuse_full(parent: &Path) -> Result<()> {
    let room = rustix::fs::statvfs(parent).doing("looking at", parent)?;
    let free = room.f_bavail * room.f_frsize;
    if free < BYTES + SPARE {
        return Err(LabError::Load(format!(
            "{} has {} MiB free, but the file of the random reader needs {} MiB; choose another \
             scratch directory",
            parent.display(),
            free >> 20,
            (BYTES + SPARE) >> 20
        )));
    }
    Ok(())
}

/// Writes random bytes, so that no layer below can make reading them cheaper than a disk read.
fn write(path: &Path, interrupt: &Interrupt, progress: &mut dyn Progress) -> io::Result<()> {
    let blocks = BYTES / PIECE as u64;
    progress.begin("writing the file of the load", blocks);
    let mut file = File::create(path)?;
    let mut random = Rng::with_seed(1);
    let mut block = vec![0u8; PIECE];
    for done in 0..blocks {
        if interrupt.asked() {
            return Err(io::Error::new(io::ErrorKind::Interrupted, "interrupted"));
        }
        random.fill(&mut block);
        file.write_all(&block)?;
        progress.step(done + 1, "");
    }
    settle(&file)
}

/// Writes the file to the disk and drops it from the page cache.
fn settle(file: &File) -> io::Result<()> {
    file.sync_all()?;
    rustix::fs::fadvise(file, 0, None, rustix::fs::Advice::DontNeed)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Silent;

    #[test]
    fn a_full_disk_is_one_line() {
        let reason = write(Path::new("/dev/full"), &Interrupt::never(), &mut Silent).unwrap_err();
        assert_eq!(reason.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn memory_is_no_disk() {
        let Err(error) = make(
            Path::new("/dev/shm"),
            false,
            &Interrupt::never(),
            &mut Silent,
        ) else {
            println!("skipped: /dev/shm is on a disk here");
            return;
        };
        assert!(
            error.to_string().starts_with("load: /dev/shm is in memory"),
            "{error}"
        );
    }
}
