//! The file of a launch profile: where it is, and how it is replaced.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};
use rustix::io::Errno;

use crate::error::Error;
use crate::options::ProfileLocation;

/// Cache folder of root.
const SYSTEM_CACHE: &str = "/var/cache";

/// The profile of one mount.
#[derive(Debug)]
pub(super) struct ProfileFile {
    location: ProfileLocation,
    /// Written now: the temporary file, and what it will become.
    writing: Option<(PathBuf, PathBuf)>,
}

impl ProfileFile {
    pub(super) fn new(location: ProfileLocation) -> Self {
        Self {
            location,
            writing: None,
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

    /// Opens it for reading; `None` when it is not there.
    pub(super) fn open(&self, name: &[u8]) -> Result<Option<OwnedFd>, Error> {
        let path = self.path(name)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(Error::io(path.display().to_string())(errno)),
        }
    }

    /// A temporary file beside it. The folder is made where it is ours to choose.
    pub(super) fn create(&mut self, name: &[u8]) -> Result<OwnedFd, Error> {
        let path = self.path(name)?;
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
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::from_raw_mode(0o644);
        let file = rustix::fs::open(&temporary, flags, mode)
            .map_err(Error::io(temporary.display().to_string()))?;
        self.writing = Some((temporary, path));
        Ok(file)
    }

    /// Renames the temporary file to the profile.
    pub(super) fn commit(&mut self) -> Result<(), Error> {
        let Some((temporary, path)) = self.writing.take() else {
            return Err(Error::Daemon("no profile is being written".into()));
        };
        let renamed = std::fs::rename(&temporary, &path);
        renamed.map_err(|error| {
            let _ = std::fs::remove_file(&temporary);
            Error::std_io(path.display().to_string())(error)
        })
    }

    fn path(&self, name: &[u8]) -> Result<PathBuf, Error> {
        match &self.location {
            ProfileLocation::File(path) => Ok(path.clone()),
            ProfileLocation::Auto => {
                let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-".contains(byte);
                if name.is_empty() || name.starts_with(b".") || !name.iter().all(plain) {
                    return Err(Error::Daemon("the name of the profile is odd".into()));
                }
                Ok(cache_folder()?.join(String::from_utf8_lossy(name).as_ref()))
            }
        }
    }
}

impl Drop for ProfileFile {
    fn drop(&mut self) {
        if let Some((temporary, _)) = &self.writing {
            let _ = std::fs::remove_file(temporary);
        }
    }
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
    use std::io::Write;

    #[test]
    fn a_profile_is_replaced_at_once_or_not_at_all() {
        let name = format!("erofast-profile-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("launch.profile");
        let new = || ProfileFile::new(ProfileLocation::File(path.clone()));
        let write = |file: &mut ProfileFile, text: &[u8]| {
            let mut created = std::fs::File::from(file.create(b"").unwrap());
            created.write_all(text).unwrap();
        };
        assert!(new().open(b"").unwrap().is_none());
        let mut file = new();
        write(&mut file, b"one");
        file.commit().unwrap();
        assert!(new().open(b"").unwrap().is_some());
        write(&mut file, b"two");
        drop(file);
        assert_eq!(std::fs::read(&path).unwrap(), b"one");
        assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1);
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn names_that_lead_out_of_the_cache_folder_are_refused() {
        let file = ProfileFile::new(ProfileLocation::Auto);
        for name in ["", "..", "../x", ".hidden", "a/b", "a\0b"] {
            assert!(file.path(name.as_bytes()).is_err(), "{name:?}");
        }
    }
}
