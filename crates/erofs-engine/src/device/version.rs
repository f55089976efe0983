//! Detects whether a file has changed since it was opened.
//!
//! An image that is overwritten under its mount causes errors that look like damage. The file's
//! metadata distinguishes such a change from damage, and is read only after a fault.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;

use serde::{Deserialize, Serialize};

/// The properties that identify a version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    size: u64,
    /// Modification time in seconds and nanoseconds.
    modified: (i64, i64),
    /// Time of the last status change, in the same form as `modified`.
    status_changed: (i64, i64),
}

/// A file of an image that differs from its state when it was opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The file and the evidence, on one line.
    pub line: String,
    /// Whether the file was certainly written to. If false, only its ctime differs, and a new name,
    /// owner or mode may be the cause.
    pub is_certain: bool,
}

impl Version {
    /// The version of a file; `None` if the system does not record changes to its bytes, as for a
    /// block device, whose times are those of its node.
    pub fn of(file: &File) -> Option<Self> {
        let metadata = file.metadata().ok().filter(Metadata::is_file)?;
        Some(Self {
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            status_changed: (metadata.ctime(), metadata.ctime_nsec()),
        })
    }

    /// How the file `name` differs, if `now` is another version of it.
    pub(crate) fn change(self, now: Self, name: &str) -> Option<Change> {
        let is_certain = self.size != now.size || self.modified != now.modified;
        let what = if self.size != now.size {
            format!("its size is {} bytes, previously {}", now.size, self.size)
        } else if is_certain {
            "it was written to (mtime)".to_owned()
        } else if self.status_changed != now.status_changed {
            "only its ctime differs".to_owned()
        } else {
            return None;
        };
        let changed = match is_certain {
            true => "changed",
            false => "may have changed",
        };
        let line = format!("{name}: {changed} since it was mounted: {what}");
        Some(Change { line, is_certain })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THEN: Version = Version {
        size: 4096,
        modified: (7, 1),
        status_changed: (8, 1),
    };

    fn change(now: Version) -> Option<(String, bool)> {
        let change = THEN.change(now, "a.erofs")?;
        Some((change.line, change.is_certain))
    }

    #[test]
    fn what_differs_is_named_and_a_new_name_is_no_certain_change() {
        assert_eq!(change(THEN), None);
        let begin = "a.erofs: changed since it was mounted: ";
        let size = change(Version { size: 0, ..THEN });
        let line = format!("{begin}its size is 0 bytes, previously 4096");
        assert_eq!(size, Some((line, true)));
        let modified = (7, 2);
        let written = change(Version { modified, ..THEN });
        let line = format!("{begin}it was written to (mtime)");
        assert_eq!(written, Some((line, true)));
        let status_changed = (9, 1);
        let renamed = change(Version {
            status_changed,
            ..THEN
        });
        assert!(matches!(renamed, Some((_, false))), "{renamed:?}");
    }

    #[test]
    fn only_regular_files_have_one() {
        assert!(Version::of(&File::open("/proc/self/exe").unwrap()).is_some());
        assert_eq!(Version::of(&File::open("/dev/null").unwrap()), None);
    }
}
