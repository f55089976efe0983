//! A private directory for mount points and load files, removed when dropped.
//!
//! A killed run leaves its directory behind; the next run removes it. Each run locks its directory,
//! which works across PID namespaces and needs no process table.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::process::geteuid;

use crate::error::Doing;
use crate::{Result, mounts};

/// Prefix of the directories' names; the PID and a number follow it.
const PREFIX: &str = "erofast-lab-";

/// The directory in which the load writes its file, unless the user names another.
pub(crate) const ON_DISK: &str = "/var/tmp";

/// A directory that is removed when dropped.
#[derive(Debug)]
pub(crate) struct Scratch {
    path: PathBuf,
    /// The open directory, which holds the lock.
    _directory: File,
}

impl Scratch {
    /// Creates a directory below `parent` that only this user may write to. Also removes
    /// directories of dead runs, both below `parent` and where the load writes.
    pub(crate) fn new(parent: &Path) -> Result<Self> {
        // The path must be canonical, because the kernel lists mount points by their canonical
        // paths.
        let parent = &parent.canonicalize().doing("opening", parent)?;
        remove_orphans(parent);
        remove_orphans(Path::new(ON_DISK));
        let mut taken = None;
        for _ in 0..NAMES {
            match make(parent) {
                Err(reason) if is_taken(&reason) => taken = Some(reason),
                made => return made.doing("creating a directory in", parent),
            }
        }
        let reason = taken.unwrap_or(io::ErrorKind::AlreadyExists.into());
        Err(reason).doing("creating a directory in", parent)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Number of names to try, since another user may already have created directories with some of the
/// names.
const NAMES: u32 = 1000;

fn is_taken(reason: &io::Error) -> bool {
    use io::ErrorKind::{AlreadyExists, DirectoryNotEmpty, NotADirectory, PermissionDenied};
    let kinds = [
        AlreadyExists,
        DirectoryNotEmpty,
        NotADirectory,
        PermissionDenied,
    ];
    kinds.contains(&reason.kind())
}

/// Creates a directory with the next free name.
fn make(parent: &Path) -> io::Result<Scratch> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{PREFIX}{}-{count}", std::process::id());
    let (path, unlocked) = (parent.join(&name), parent.join(format!(".{name}")));
    fs::DirBuilder::new().mode(0o755).create(&unlocked)?;
    let directory = File::open(&unlocked)?;
    // If the filesystem does not support locks, directories of dead runs are not removed.
    let _ = flock(&directory, FlockOperation::NonBlockingLockExclusive);
    // The directory gets its name only once it is locked, so no other run takes it for an orphan.
    if let Err(reason) = fs::rename(&unlocked, &path) {
        let _ = fs::remove_dir(&unlocked);
        return Err(reason);
    }
    Ok(Scratch {
        path,
        _directory: directory,
    })
}

impl Drop for Scratch {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Removes the directories that the lab left behind when a run was killed, after unmounting
/// whatever is mounted in them.
fn remove_orphans(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let path = entry.path();
        if is_name(&entry.file_name()) && is_orphan(&path) && remove(&path) {
            let path = path.display();
            let _ = writeln!(
                io::stderr(),
                "erofast lab: removed {path}, left by a dead run"
            );
        }
    }
}

/// Whether [`Scratch::new`] could have made this name. Users may keep files with other names in the
/// same place.
fn is_name(name: &OsStr) -> bool {
    let numbers = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
    let numbers = numbers.and_then(|numbers| numbers.split_once('-'));
    numbers.is_some_and(|(pid, count)| pid.parse::<u32>().and(count.parse::<u32>()).is_ok())
}

/// Removes a directory after unmounting everything in it; false if the directory stays.
fn remove(path: &Path) -> bool {
    let points = mounts::below(path);
    let unmounted = points
        .iter()
        .rev()
        .map(|point| mounts::unmount_within_timeout(point));
    unmounted.for_each(drop);
    mounts::below(path).is_empty() && fs::remove_dir_all(path).is_ok()
}

/// Whether a directory belongs to this user and its run is dead. Whatever another user has put in
/// its place is neither followed nor waited for, and is left alone.
fn is_orphan(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let Ok(directory) = open(path, flags, Mode::empty()) else {
        return false;
    };
    let ours = fstat(&directory).is_ok_and(|stat| stat.st_uid == geteuid().as_raw());
    ours && flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_goes_with_what_is_in_it() {
        let scratch = Scratch::new(&std::env::temp_dir()).unwrap();
        fs::write(scratch.path().join("file"), "x").unwrap();
        fs::create_dir(scratch.path().join("mount")).unwrap();
        let path = scratch.path().to_owned();
        assert!(path.exists());
        fs::create_dir(path.join("mount/cache")).unwrap();
        drop(scratch);
        assert!(!path.exists());
    }

    #[test]
    fn what_another_user_put_there_stays_and_hangs_nothing() {
        let parent = Scratch::new(&std::env::temp_dir()).unwrap();
        let at = |number: u32| parent.path().join(format!("{PREFIX}1-{number}"));
        let treasure = parent.path().join("treasure");
        fs::create_dir(&treasure).unwrap();
        std::os::unix::fs::symlink(&treasure, at(0)).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at(1), Mode::RWXU).unwrap();
        fs::create_dir(at(2)).unwrap();
        let foreign = std::os::unix::fs::chown(at(2), Some(65534), None).is_ok();
        if !foreign {
            println!("skipped: only root can give a directory to another user");
        }
        remove_orphans(parent.path());
        assert!(at(0).exists() && at(1).exists() && treasure.exists());
        assert_eq!(at(2).exists(), foreign, "ours is removed");
    }

    #[test]
    fn a_name_that_is_taken_is_passed_over() {
        let parent = Scratch::new(&std::env::temp_dir()).unwrap();
        let me = std::process::id();
        let path = parent.path().to_owned();
        let first = Scratch::new(&path).unwrap();
        let (_, count) = first.path().to_str().unwrap().rsplit_once('-').unwrap();
        let next = count.parse::<u32>().unwrap() + 1;
        for number in next..next + 5 {
            fs::write(path.join(format!("{PREFIX}{me}-{number}")), "x").unwrap();
            fs::create_dir(path.join(format!(".{PREFIX}{me}-{number}"))).unwrap();
        }
        assert!(Scratch::new(&path).unwrap().path().is_dir());
    }

    #[test]
    fn what_a_killed_run_left_is_removed_by_the_next_and_a_living_ones_stays() {
        let parent = Scratch::new(&std::env::temp_dir()).unwrap();
        let orphan = parent.path().join(format!("{PREFIX}1-0"));
        fs::create_dir(&orphan).unwrap();
        fs::write(orphan.join("file"), "x").unwrap();
        let point = orphan.join("mount");
        fs::create_dir(&point).unwrap();
        let flags = rustix::mount::MountFlags::empty();
        match rustix::mount::mount("none", &point, "tmpfs", flags, None) {
            Ok(()) => fs::write(point.join("file"), "x").unwrap(),
            Err(errno) => println!("skipped: mounting needs root: {errno}"),
        }
        let users = parent.path().join(format!("{PREFIX}kernel"));
        fs::create_dir(&users).unwrap();
        let living = Scratch::new(parent.path()).unwrap();
        let next = Scratch::new(parent.path()).unwrap();
        assert!(!orphan.exists());
        assert!(users.exists() && living.path().exists() && next.path().exists());
    }
}
