//! The file of a launch profile: its location, and how it is replaced.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use erofs_engine::remote_image::cache::make_directory;
use launch_profile::{Learned, limits};
use rustix::fs::{Access, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::cache_folder::{cache_folder, remove_oldest};
use crate::lock::lock_within;
use erofs_fuse::error::Error;
use erofs_fuse::options::ProfileLocation;

/// Maximum length of a file name in the cache folder.
const NAME_BYTES: usize = 128;

/// How many times one mount may write profiles.
const WRITES: usize = 64;

/// How long another mount may hold the lock while it writes.
const LOCKED: Duration = Duration::from_secs(2);

/// Maximum size in bytes of the profiles of all images together.
const TOTAL: u64 = 64 << 20;

/// The profiles of one mount. A server, which a hostile image may have taken over, can choose one
/// name in the cache folder, once. A companion can have text written to that file a few times,
/// within the limits of profiles.
#[derive(Clone, Debug)]
pub(crate) struct ProfileFile {
    location: ProfileLocation,
    /// Path of the file, once it has been chosen.
    path: Option<PathBuf>,
    /// How many more times the file may be written.
    writes: usize,
    /// The reason why nothing is learned; `None` if profiles are learned.
    unreachable: Option<String>,
}

impl ProfileFile {
    /// Prepares for the profiles at `location`. Call this before anything is mounted at
    /// `mountpoint`.
    pub(crate) fn new(mut location: ProfileLocation, mountpoint: &Path) -> Self {
        // If the path is a symlink, its target is read and replaced.
        if let ProfileLocation::File(path) = &mut location
            && let Ok(target) = path.canonicalize()
        {
            *path = target;
        }
        let learns = location == ProfileLocation::Learned;
        let unreachable = learns.then(|| {
            let mountpoint = mountpoint.canonicalize();
            let mountpoint = mountpoint.map_err(Error::std_io("mount point"));
            mountpoint.and_then(|mountpoint| Self::check_place(&location, &mountpoint))
        });
        let unreachable = unreachable.and_then(Result::err);
        Self {
            location,
            path: None,
            writes: WRITES,
            unreachable: unreachable.map(|error| error.to_string()),
        }
    }

    /// Checks that a mount on `mountpoint` leaves the file reachable, and that the file exists or
    /// can be created.
    ///
    /// # Errors
    /// Returns a one-line error. A file below the mount point is refused because reading it through
    /// the mount would wait for the server, which in turn waits for the helper.
    pub(crate) fn check_place(location: &ProfileLocation, mountpoint: &Path) -> Result<(), Error> {
        let (path, option) = match location {
            ProfileLocation::File(path) | ProfileLocation::Recorded(path) => {
                (path.clone(), format!("profile={}", path.display()))
            }
            ProfileLocation::Auto => (cache_folder()?, "profile=auto".to_owned()),
            ProfileLocation::Learned => (cache_folder()?, "profile=learn".to_owned()),
        };
        let existing = path.ancestors().find_map(|path| path.canonicalize().ok());
        if existing.is_some_and(|existing| existing.starts_with(mountpoint)) {
            let why = format!("{option}: {} is below the mount point", path.display());
            return Err(Error::mountpoint(mountpoint, why));
        }
        if let ProfileLocation::File(path) = location
            && path.exists()
        {
            return Self::check_content(path);
        }
        if *location == ProfileLocation::Auto || path.exists() {
            return Ok(());
        }
        if *location == ProfileLocation::Learned {
            return can_be_made(&path);
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        rustix::fs::access(folder, Access::WRITE_OK | Access::EXEC_OK)
            .map_err(Error::io(format!("{option}: {}", folder.display())))
    }

    /// Refuses to overwrite a file that is named in the mount's options but is not a launch
    /// profile.
    fn check_content(path: &Path) -> Result<(), Error> {
        let mut file = Self::new(ProfileLocation::File(path.to_owned()), path);
        file.choose(b"")?;
        let is_other = match file.open()?.map(File::from) {
            Some(mut file) => Learned::is_other(&mut file),
            None => false,
        };
        match is_other {
            true => {
                let (path, line) = (path.display(), launch_profile::Error::Magic);
                let line = format!("{path}: profile: {line}; left unchanged");
                Err(Error::Profile(line))
            }
            false => Ok(()),
        }
    }

    /// Chooses the file without opening it. Later calls must name the same file.
    pub(crate) fn choose(&mut self, name: &[u8]) -> Result<(), Error> {
        if let Some(why) = &self.unreachable {
            return Err(Error::Profile(why.clone()));
        }
        let path = self.path_of(name)?;
        let first = self.path.get_or_insert_with(|| path.clone());
        match *first == path {
            true => Ok(()),
            false => Err(refused("a mount can have only one profile")),
        }
    }

    /// Opens the [chosen](Self::choose) file for reading; returns `None` if it does not exist.
    pub(crate) fn open(&self) -> Result<Option<OwnedFd>, Error> {
        let path = self.chosen()?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = match rustix::fs::open(path, flags | OFlags::NOFOLLOW, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => {
                let path = path.display();
                let why = "a symbolic link; only profile=PATH follows links, to files that \
                           exist: remove it";
                return Err(Error::Profile(format!("profile: {path}: {why}")));
            }
            Err(errno) => return Err(Error::io(path.display().to_string())(errno)),
        };
        let status = rustix::fs::fstat(&file).map_err(Error::io("fstat"))?;
        match FileType::from_raw_mode(status.st_mode) {
            FileType::RegularFile => Ok(Some(file)),
            _ => Err(not_regular(path)),
        }
    }

    /// Whether reading any file begins the first launch of the mount.
    pub(crate) fn begins_with_any_file(&self) -> bool {
        self.location != ProfileLocation::Learned
    }

    /// Whether profiles can be kept in the folder.
    pub(crate) fn is_reachable(&self) -> bool {
        self.unreachable.is_none()
    }

    /// Counts one [write](Self::write); fails if the limit forbids it.
    pub(crate) fn count_write(&mut self) -> Result<(), Error> {
        self.writes = self.writes.checked_sub(1).ok_or_else(written)?;
        Ok(())
    }

    fn chosen(&self) -> Result<&PathBuf, Error> {
        self.path.as_ref().ok_or_else(|| refused("it has no name"))
    }

    /// Locks the folder against writing by other mounts of this user. Waits only for a moment: a
    /// process that holds the lock longer has been stopped. `None` if there is no folder yet.
    pub(crate) fn lock(&self) -> Result<Option<OwnedFd>, Error> {
        let folder = self.chosen()?.parent().unwrap_or(Path::new("/"));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(folder) = rustix::fs::open(folder, flags, Mode::empty()) else {
            return Ok(None);
        };
        lock_within(LOCKED, &folder);
        Ok(Some(folder))
    }

    /// Writes the file atomically. Creates the folder if it is the cache folder.
    pub(crate) fn write(&self, bytes: &[u8]) -> Result<(), Error> {
        if bytes.len() > limits::LEARNED_BYTES {
            return Err(refused("it is too large"));
        }
        let path = self.chosen()?;
        if std::fs::symlink_metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(not_regular(path));
        }
        let folder = path.parent().unwrap_or(Path::new("/"));
        let ours = matches!(
            self.location,
            ProfileLocation::Auto | ProfileLocation::Learned
        );
        if ours {
            let made = make_directory(folder);
            made.map_err(Error::std_io(folder.display().to_string()))?;
        }
        let write = || -> io::Result<()> {
            let mode = Permissions::from_mode(0o644);
            let mut file = tempfile::Builder::new()
                .permissions(mode)
                .tempfile_in(folder)?;
            file.write_all(bytes)?;
            file.persist(path)?;
            Ok(())
        };
        write().map_err(Error::std_io(path.display().to_string()))?;
        if ours {
            remove_oldest(path, END, limits::LEARNED_BYTES as u64, TOTAL);
        }
        Ok(())
    }

    fn path_of(&self, name: &[u8]) -> Result<PathBuf, Error> {
        match &self.location {
            ProfileLocation::File(path) | ProfileLocation::Recorded(path) => Ok(path.clone()),
            ProfileLocation::Auto | ProfileLocation::Learned => {
                let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b".-".contains(byte);
                let is_one = name.ends_with(END.as_bytes()) && !name.starts_with(b".");
                if !is_one || name.len() > NAME_BYTES || !name.iter().all(plain) {
                    return Err(refused("its file name is not valid"));
                }
                Ok(cache_folder()?.join(String::from_utf8_lossy(name).as_ref()))
            }
        }
    }
}

/// Checks whether a missing folder can be created later, when there is something to write.
fn can_be_made(folder: &Path) -> Result<(), Error> {
    let above = folder.ancestors().find(|path| path.exists());
    // Fails if the path is a file instead of a folder.
    let above = above.unwrap_or(Path::new("/")).join(".");
    rustix::fs::access(above, Access::WRITE_OK | Access::EXEC_OK).map_err(|errno| {
        let (folder, why) = (folder.display(), io::Error::from(errno));
        Error::Profile(format!(
            "nothing is learned: cannot create {folder}: {why} (set profile=PATH)"
        ))
    })
}

fn not_regular(path: &Path) -> Error {
    let path = path.display();
    Error::Profile(format!(
        "profile: {path}: not a regular file; left unchanged"
    ))
}

fn refused(why: &str) -> Error {
    Error::Profile(format!("the launch profile was not written: {why}"))
}

fn written() -> Error {
    refused("write limit reached")
}

/// Suffix of the file names in the cache folder.
const END: &str = ".profile";

#[cfg(test)]
mod tests {
    use super::*;

    /// A file in its own folder.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn join(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn path(&self) -> PathBuf {
            self.join("launch.profile")
        }

        fn file(&self) -> ProfileFile {
            ProfileFile::new(ProfileLocation::File(self.path()), Path::new("/proc"))
        }

        fn count(&self) -> usize {
            std::fs::read_dir(&self.0).unwrap().count()
        }
    }

    /// Opens the file for reading, if it exists.
    fn read(file: &mut ProfileFile) -> Result<Option<OwnedFd>, Error> {
        file.choose(b"")?;
        file.open()
    }

    #[test]
    fn a_profile_is_replaced_at_once() {
        let folder = Folder::new();
        let mut file = folder.file();
        assert!(read(&mut file).unwrap().is_none());
        file.write(b"one").unwrap();
        assert!(read(&mut folder.file()).unwrap().is_some());
        assert_eq!(std::fs::read(folder.path()).unwrap(), b"one");
        assert_eq!(folder.count(), 1);
    }

    #[test]
    fn a_profile_is_written_a_few_times_and_no_larger_than_one_may_be() {
        let folder = Folder::new();
        let mut file = folder.file();
        file.choose(b"").unwrap();
        let most = vec![0; limits::LEARNED_BYTES];
        for _ in 0..WRITES {
            file.count_write().unwrap();
        }
        file.write(&most).unwrap();
        assert!(file.write(&[&most[..], b"x"].concat()).is_err());
        let size = std::fs::metadata(folder.path()).unwrap().len();
        assert_eq!(size, limits::LEARNED_BYTES as u64);
        assert!(file.count_write().is_err());
        assert_eq!(folder.count(), 1);
    }

    #[test]
    fn only_regular_files_are_read_and_replaced() {
        let folder = Folder::new();
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mkfifoat(rustix::fs::CWD, folder.path(), mode).unwrap();
        let mut file = folder.file();
        let why = read(&mut file).unwrap_err().to_string();
        assert!(why.contains("not a regular file; left unchanged"), "{why}");
        assert!(file.write(b"x").is_err());
        assert!(!std::fs::metadata(folder.path()).unwrap().is_file());
        // A symlink is kept, and its target is replaced.
        std::fs::remove_file(folder.path()).unwrap();
        let target = folder.join("target");
        std::fs::write(&target, b"before").unwrap();
        std::os::unix::fs::symlink("target", folder.path()).unwrap();
        let mut file = folder.file();
        assert!(read(&mut file).unwrap().is_some());
        file.write(b"after").unwrap();
        assert!(
            std::fs::symlink_metadata(folder.path())
                .unwrap()
                .is_symlink()
        );
        assert_eq!(std::fs::read(&target).unwrap(), b"after");
        std::fs::remove_file(target).unwrap();
        let why = read(&mut folder.file()).unwrap_err().to_string();
        assert!(why.contains("a symbolic link; "), "{why}");
    }

    /// A new user has no ~/.cache.
    #[test]
    fn missing_folders_are_made_for_their_owner_alone() {
        let folder = Folder::new();
        let caches = folder.join(".cache");
        can_be_made(&caches.join("erofast")).unwrap();
        assert!(!caches.exists(), "there is nothing to write yet");
        let mut file = ProfileFile::new(ProfileLocation::Learned, Path::new("/proc"));
        file.path = Some(caches.join("erofast/0123.profile"));
        file.write(b"x").unwrap();
        for made in [caches.clone(), caches.join("erofast")] {
            let mode = made.metadata().unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o700, "{}", made.display());
        }
        std::fs::write(folder.path(), b"").unwrap();
        let why = can_be_made(&folder.path().join("erofast")).unwrap_err();
        assert!(why.to_string().contains("cannot create"), "{why}");
    }

    #[test]
    fn nothing_is_learned_below_the_mount_point() {
        let Ok(folder) = cache_folder() else {
            return println!("skipped: neither root nor a home");
        };
        let above = folder.parent().unwrap().canonicalize().unwrap();
        let mut file = ProfileFile::new(ProfileLocation::Learned, &above);
        let why = file.choose(b"0123.profile").unwrap_err().to_string();
        assert!(why.contains("is below the mount point"), "{why}");
    }

    #[test]
    fn nothing_is_written_without_a_name() {
        let folder = Folder::new();
        assert!(folder.file().write(b"x").is_err());
        assert_eq!(folder.count(), 0);
    }

    #[test]
    fn a_mount_has_one_name_in_the_cache_folder() {
        let mut file = ProfileFile::new(ProfileLocation::Auto, Path::new("/proc"));
        if cache_folder().is_err() {
            return println!("skipped: neither root nor a home");
        }
        file.choose(b"0123.profile").unwrap();
        assert!(file.choose(b"4567.profile").is_err());
        file.choose(b"0123.profile").unwrap();
    }

    #[test]
    fn names_that_lead_out_of_the_cache_folder_or_name_no_profile_are_refused() {
        let file = ProfileFile::new(ProfileLocation::Auto, Path::new("/proc"));
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
