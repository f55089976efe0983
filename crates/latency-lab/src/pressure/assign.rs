//! Assigns the files that each program reads.

use std::path::{Path, PathBuf};

use fastrand::Rng;

use crate::error::Doing;
use crate::read::Content;
use crate::{LabError, Result};

/// Each program reads the group's limit divided by this, but all programs together read at least
/// twice the limit.
const SHARE_OF_LIMIT: u64 = 8;
/// Number of file names that fit on a command line on any system.
const NAMES: usize = 2000;

/// The files of each program, by their paths below the mount point. The list of the last program,
/// which is measured, begins with the biggest file: a starting program reads its executable and its
/// libraries.
pub(super) fn assign(
    point: &Path,
    programs: usize,
    limit: u64,
    seed: u64,
) -> Result<Vec<Vec<PathBuf>>> {
    let content = Content::find(point, u64::MAX).doing("reading", point)?;
    let mut files: Vec<(PathBuf, u64)> = content
        .parts
        .into_iter()
        .map(|part| (part.path, part.length))
        .collect();
    if files.is_empty() {
        return Err(LabError::Usage(
            "lab pressure: the image has no file with content".into(),
        ));
    }
    let biggest = files.remove(0);
    Rng::with_seed(seed).shuffle(&mut files);
    // No other program reads the biggest file, because it would then already be in memory.
    if files.is_empty() {
        files.push(biggest.clone());
    }
    let mut endless = files.iter().cycle();
    let share = limit / SHARE_OF_LIMIT;
    let assigned = (0..programs).map(|program| {
        let mut own = Vec::new();
        let mut bytes = 0;
        if program + 1 == programs {
            own.push(biggest.0.clone());
            bytes = biggest.1;
        }
        while bytes < share && own.len() < NAMES.min(files.len()) {
            if let Some((path, length)) = endless.next() {
                bytes += length;
                own.push(path.clone());
            }
        }
        own
    });
    Ok(assigned.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn every_program_gets_its_share_and_files_are_assigned_again_when_they_run_out() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        for name in 0..6 {
            std::fs::write(scratch.path().join(name.to_string()), vec![0; 1000]).unwrap();
        }
        std::fs::write(scratch.path().join("big"), vec![0; 2000]).unwrap();
        let assigned = assign(scratch.path(), 5, 8 * 1500, 1).unwrap();
        let (last, others) = assigned.split_last().unwrap();
        assert!(others.iter().all(|files| files.len() == 2), "{assigned:?}");
        let once: std::collections::BTreeSet<_> = others[..3].iter().flatten().collect();
        assert_eq!(once.len(), 6, "each once before any twice");
        let big = PathBuf::from("big");
        assert!(*last == [big.clone()] && !others.iter().flatten().any(|file| *file == big));
        assert_eq!(assigned, assign(scratch.path(), 5, 8 * 1500, 1).unwrap());
    }

    #[test]
    fn an_image_of_one_file_is_read_by_all() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        std::fs::write(scratch.path().join("only"), "content").unwrap();
        let assigned = assign(scratch.path(), 3, 1 << 20, 1).unwrap();
        assert_eq!(assigned, vec![vec![PathBuf::from("only")]; 3]);
    }

    #[test]
    fn nothing_to_read_is_said() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        let error = assign(scratch.path(), 2, 1 << 20, 1).unwrap_err();
        assert!(error.to_string().contains("no file with content"));
    }
}
