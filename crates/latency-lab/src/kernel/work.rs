//! The work directory: kept if the user names it, otherwise removed at the end.

use std::fs;
use std::path::{Path, PathBuf};

use super::arch::Arch;
use crate::Result;
use crate::error::Doing;
use crate::scratch::{ON_DISK, Scratch};

/// The work directory: packages, their unpacked files, modules, and the machine's files.
#[derive(Debug)]
pub(super) struct Work {
    path: PathBuf,
    /// Nothing is ever mounted below this directory, except in the private mount namespaces of
    /// [`super::sandbox`].
    _scratch: Option<Scratch>,
}

impl Work {
    /// Opens the subdirectory of `keep` for one CPU architecture, or a temporary directory.
    pub(super) fn open(keep: Option<&Path>, arch: Arch) -> Result<Work> {
        let (path, scratch) = match keep {
            Some(path) => {
                let path = path.join(arch.to_string());
                fs::create_dir_all(&path).doing("creating the directory", &path)?;
                (path, None)
            }
            None => {
                let scratch = Scratch::new(Path::new(ON_DISK))?;
                (scratch.path().to_owned(), Some(scratch))
            }
        };
        let path = path.canonicalize().doing("opening", &path)?;
        Ok(Work {
            path,
            _scratch: scratch,
        })
    }

    /// The directory of apt's lists and packages.
    pub(super) fn apt(&self) -> Result<PathBuf> {
        let path = self.path.join("apt");
        let made = fs::create_dir_all(&path);
        made.doing("making", &path)?;
        Ok(path)
    }

    /// The root directory of the unpacked packages, which form a small Debian.
    pub(super) fn root(&self) -> PathBuf {
        self.path.join("root")
    }

    /// The host's path of a file that programs in the sandbox find in `/build`.
    pub(super) fn inside(&self, name: &str) -> PathBuf {
        self.root().join("build").join(name)
    }

    /// Whether a stage has already finished with the same `content`, so that this run need not
    /// repeat it.
    pub(super) fn is_done(&self, stage: &str, content: &str) -> bool {
        fs::read_to_string(self.path.join(format!("done-{stage}")))
            .is_ok_and(|mark| mark == content)
    }

    pub(super) fn done(&self, stage: &str, content: &str) -> Result<()> {
        let path = self.path.join(format!("done-{stage}"));
        fs::write(&path, content).doing("writing", &path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_directory_of_our_own_goes_and_one_of_the_users_stays() {
        let own = Work::open(None, Arch::AMD64).unwrap();
        fs::create_dir_all(own.inside("deep")).unwrap();
        let path = own.path.clone();
        drop(own);
        assert!(!path.exists());
        let kept = std::env::temp_dir().join(format!("erofast-kernel-work-{}", std::process::id()));
        let work = Work::open(Some(&kept), Arch::ARM64).unwrap();
        assert!(!work.is_done("stage", "1"));
        work.done("stage", "1").unwrap();
        assert!(work.is_done("stage", "1") && !work.is_done("stage", "2"));
        drop(work);
        assert!(kept.join("arm64/done-stage").exists());
        fs::remove_dir_all(kept).unwrap();
    }
}
