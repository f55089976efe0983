//! The file of a launch profile: where it is, and how it is replaced.

use std::ffi::OsString;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use launch_profile::limits;
use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::options::ProfileLocation;

/// Cache folder of root.
const SYSTEM_CACHE: &str = "/var/cache";

/// Longest name of a file in the cache folder.
const NAME_BYTES: usize = 128;

/// The profile of one mount. The server, which an image may have taken over, chooses one name in
/// the cache folder, once, and has bytes written there, once: no more than a profile may have.
#[derive(Debug)]
pub(super) struct ProfileFile {
    location: ProfileLocation,
    /// Its path, since it was opened for the first time.
    path: Option<PathBuf>,
    /// What it is about to hold; `None` when it was written.
    bytes: Option<Vec<u8>>,
}

impl ProfileFile {
    pub(super) fn new(location: ProfileLocation) -> Self {
        Self {
            location,
            path: None,
            bytes: Some(Vec::new()),
        }
    }

    /// Whether a mount on `mountpoint` leaves the file in reach, and it is there or can be made.
    ///
    /// # Errors
    /// One line. Reading it through the mount would wait for the server, which waits for it.
    pub(super) fn check_place(location: &ProfileLocation, mountpoint: &Path) -> Result<(), Error> {
        let (path, option) = match location {
            ProfileLocation::File(path) => (path.clone(), format!("profile={}", path.display())),
            ProfileLocation::Auto => (cache_folder()?, "profile=auto".to_owned()),
        };
        let existing = path.ancestors().find_map(|path| path.canonicalize().ok());
        if existing.is_some_and(|existing| existing.starts_with(mountpoint)) {
            let why = format!("{option}: {} is below the mount point", path.display());
            return Err(Error::mountpoint(mountpoint, why));
        }
        if *location == ProfileLocation::Auto || path.exists() {
            return Ok(());
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(Error::io(format!("{option}: {}", folder.display())))
    }

    /// Opens it for reading; `None` when it is not there. Later calls must name the same file.
    pub(super) fn open(&mut self, name: &[u8]) -> Result<Option<OwnedFd>, Error> {
        let path = self.path_of(name)?;
        let first = self.path.get_or_insert_with(|| path.clone());
        if *first != path {
            return Err(refused("a mount has one profile"));
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::io(path.display().to_string())(errno)),
        }
    }

    /// Adds to what it will hold.
    pub(super) fn add(&mut self, more: &[u8]) -> Result<(), Error> {
        let bytes = self.bytes.as_mut().ok_or_else(written)?;
        if bytes.len() + more.len() > limits::FILE_BYTES {
            return Err(refused("it is larger than a profile may be"));
        }
        bytes.extend(more);
        Ok(())
    }

    /// Writes it, at once or not at all. The folder is made where it is ours to choose.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        let bytes = self.bytes.take().ok_or_else(written)?;
        let path = self
            .path
            .as_ref()
            .ok_or_else(|| refused("it has no name"))?;
        let folder = path.parent().unwrap_or(Path::new("/"));
        if self.location == ProfileLocation::Auto {
            let mut builder = std::fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(folder);
            made.map_err(Error::std_io(folder.display().to_string()))?;
        }
        let mut temporary = OsString::from(".");
        temporary.push(path.file_name().unwrap_or_default());
        temporary.push(format!(".{}", std::process::id()));
        let temporary = folder.join(temporary);
        let _ = std::fs::remove_file(&temporary);
        let outcome = write_new(&temporary, &bytes).and_then(|()| {
            let renamed = std::fs::rename(&temporary, path);
            renamed.map_err(Error::std_io(path.display().to_string()))
        });
        if outcome.is_err() {
            let _ = std::fs::remove_file(&temporary);
        }
        outcome
    }

    fn path_of(&self, name: &[u8]) -> Result<PathBuf, Error> {
        match &self.location {
            ProfileLocation::File(path) => Ok(path.clone()),
            ProfileLocation::Auto => {
                let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-".contains(byte);
                let is_one = name.ends_with(b".profile") && !name.starts_with(b".");
                if !is_one || name.len() > NAME_BYTES || !name.iter().all(plain) {
                    return Err(refused("its name is odd"));
                }
                Ok(cache_folder()?.join(String::from_utf8_lossy(name).as_ref()))
            }
        }
    }
}

fn refused(why: &str) -> Error {
    Error::Daemon(format!("the launch profile is refused: {why}"))
}

fn written() -> Error {
    refused("it was written before")
}

fn write_new(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let what = || path.display().to_string();
    let file =
        rustix::fs::open(path, flags, Mode::from_raw_mode(0o644)).map_err(Error::io(what()))?;
    let mut file = std::fs::File::from(file);
    file.write_all(bytes).map_err(Error::std_io(what()))
}

/// The system's for root, else the user's.
fn cache_folder() -> Result<PathBuf, Error> {
    if rustix::process::geteuid().is_root() {
        return Ok(Path::new(SYSTEM_CACHE).join("erofast"));
    }
    let absolute = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|p| p.is_absolute())
    };
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    cache
        .map(|cache| cache.join("erofast"))
        .ok_or_else(|| Error::Daemon("profile=auto: neither XDG_CACHE_HOME nor HOME is set".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in a folder of its own, which is removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let name = format!("erofast-profile-{name}-{}", std::process::id());
            let folder = std::env::temp_dir().join(name);
            std::fs::create_dir_all(&folder).unwrap();
            Self(folder)
        }

        fn path(&self) -> PathBuf {
            self.0.join("launch.profile")
        }

        fn file(&self) -> ProfileFile {
            ProfileFile::new(ProfileLocation::File(self.path()))
        }

        fn count(&self) -> usize {
            std::fs::read_dir(&self.0).unwrap().count()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_profile_is_replaced_at_once_or_not_at_all() {
        let folder = Folder::new("once");
        let mut file = folder.file();
        assert!(file.open(b"").unwrap().is_none());
        file.add(b"on").unwrap();
        file.add(b"e").unwrap();
        file.commit().unwrap();
        let mut next = folder.file();
        assert!(next.open(b"").unwrap().is_some());
        next.add(b"two").unwrap();
        drop(next);
        assert_eq!(std::fs::read(folder.path()).unwrap(), b"one");
        assert_eq!(folder.count(), 1);
    }

    #[test]
    fn a_profile_is_written_once_and_no_larger_than_one_may_be() {
        let folder = Folder::new("bounded");
        let mut file = folder.file();
        file.open(b"").unwrap();
        let part = vec![0; limits::FILE_BYTES / 2];
        file.add(&part).unwrap();
        file.add(&part).unwrap();
        assert!(file.add(b"x").is_err());
        file.commit().unwrap();
        let size = std::fs::metadata(folder.path()).unwrap().len();
        assert_eq!(size, limits::FILE_BYTES as u64);
        assert!(file.add(b"x").is_err());
        assert!(file.commit().is_err());
        assert_eq!(folder.count(), 1);
    }

    #[test]
    fn nothing_is_written_without_a_name() {
        let folder = Folder::new("nameless");
        assert!(folder.file().commit().is_err());
        assert_eq!(folder.count(), 0);
    }

    #[test]
    fn a_mount_has_one_name_in_the_cache_folder() {
        let mut file = ProfileFile::new(ProfileLocation::Auto);
        if cache_folder().is_err() {
            return println!("skipped: neither root nor a home");
        }
        // Named only: whether it is there does not matter.
        let _ = file.open(b"0123.profile");
        assert!(file.open(b"4567.profile").is_err());
        let _ = file.open(b"0123.profile").unwrap();
    }

    #[test]
    fn names_that_lead_out_of_the_cache_folder_or_name_no_profile_are_refused() {
        let file = ProfileFile::new(ProfileLocation::Auto);
        let long = format!("{}.profile", "0".repeat(NAME_BYTES));
        for name in [
            "",
            "..",
            "../x.profile",
            ".hidden.profile",
            "a/b.profile",
            "a\0b.profile",
            "passwd",
            &long,
        ] {
            assert!(file.path_of(name.as_bytes()).is_err(), "{name:?}");
        }
    }
}
