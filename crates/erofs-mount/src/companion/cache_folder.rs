//! The folder for data that mounts have learned.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use erofs_engine::remote_image::last_use;
use rustix::fs::{Mode, OFlags};

use erofs_fuse::error::Error;

/// Cache folder of root.
const SYSTEM_CACHE: &str = "/var/cache";

/// The folder of launch profiles that have no path of their own: the system's cache folder for
/// root, otherwise the user's. The folder need not exist.
///
/// # Errors
/// Returns a one-line error if neither `XDG_CACHE_HOME` nor `HOME` is an absolute path.
pub fn cache_folder() -> Result<PathBuf, Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(Path::new(SYSTEM_CACHE).join("erofast"));
    }
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    cache.map(|cache| cache.join("erofast")).ok_or_else(|| {
        Error::Profile("launch profiles: neither XDG_CACHE_HOME nor HOME is set".into())
    })
}

/// Keeps the file `written` and the most recently written others in its folder, up to `most` bytes
/// in total, and removes the rest. Files without the suffix `end`, or with more than `largest`
/// bytes, are left alone. Other mounts may do the same concurrently.
pub(crate) fn remove_oldest(written: &Path, end: &str, largest: u64, most: u64) {
    let folder = written.parent().unwrap_or(Path::new("/"));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let files: Vec<_> = entries
        .filter(|entry| {
            entry
                .file_name()
                .as_encoded_bytes()
                .ends_with(end.as_bytes())
        })
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            let (length, path) = (metadata.len(), entry.path());
            let is_one = metadata.is_file() && length <= largest && path != written;
            is_one.then_some((metadata.modified().ok()?, (length, path)))
        })
        .collect();
    let files = last_use::sorted(files, SystemTime::now(), |(_, path)| {
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        Ok(rustix::fs::open(path, flags, Mode::empty())?.into())
    });
    let mut total = std::fs::symlink_metadata(written).map_or(0, |file| file.len());
    for (_, (length, path)) in files.into_iter().rev() {
        total += length;
        if total > most {
            let _ = std::fs::remove_file(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LARGEST: u64 = 1 << 20;

    #[test]
    fn what_was_written_last_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        for (age, name) in ["new.profile", "middle.profile", "old.profile"]
            .into_iter()
            .enumerate()
        {
            let path = folder.path().join(name);
            std::fs::write(&path, [0; 100]).unwrap();
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            let then = SystemTime::now() - std::time::Duration::from_secs(age as u64);
            file.set_modified(then).unwrap();
        }
        std::fs::write(folder.path().join("other"), [0; 1000]).unwrap();
        let large = folder.path().join("large.profile");
        let large = std::fs::File::create(large).unwrap();
        large.set_len(LARGEST + 1).unwrap();
        // The file just written stays, whatever its modification time.
        remove_oldest(&folder.path().join("old.profile"), ".profile", LARGEST, 250);
        let names = ["new", "middle", "old", "large"];
        let there = |name| folder.path().join(name).with_extension("profile").exists();
        assert_eq!(names.map(there), [true, false, true, true]);
        assert!(folder.path().join("other").exists());
    }

    #[test]
    fn what_was_written_before_the_clock_was_set_back_is_not_kept_for_ever() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let path = folder.path().join(name).with_extension("profile");
            std::fs::write(&path, [0; 100]).unwrap();
            path
        };
        for (days, name) in [(1, "one"), (2, "two")] {
            let file = std::fs::File::open(write(name)).unwrap();
            let then = SystemTime::now() + std::time::Duration::from_secs(days * 86_400);
            file.set_modified(then).unwrap();
        }
        for name in ["three", "four"] {
            remove_oldest(&write(name), ".profile", LARGEST, 250);
        }
        let there = |name| folder.path().join(name).with_extension("profile").exists();
        let left = ["one", "two", "three", "four"].map(there);
        assert_eq!(left, [false, false, true, true]);
    }
}
