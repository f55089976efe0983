//! A directory in which a test mounts; nothing remains afterwards.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::mount::{UnmountFlags, unmount};

/// A directory that only one test uses.
pub struct Place {
    pub path: PathBuf,
}

impl Place {
    pub fn new() -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("erofs-mount-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }

    /// The line of `/proc/mounts` for the mount here.
    pub fn mount_line(&self) -> Option<String> {
        let table = fs::read_to_string("/proc/mounts").unwrap();
        let here = format!(" {} ", self.path.display());
        table
            .lines()
            .find(|line| line.contains(&here))
            .map(str::to_owned)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = unmount(&self.path, UnmountFlags::DETACH);
        let _ = fs::remove_dir(&self.path);
    }
}

/// A test image.
pub fn image(name: &str) -> PathBuf {
    let in_repository = fixtures().join(format!("{name}.erofs"));
    if in_repository.exists() {
        return in_repository;
    }
    images().join(format!("{name}.erofs"))
}

/// The images of the repository.
pub fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures")
}

/// The large set beside the checkout if it exists; otherwise the images of the repository.
pub fn images() -> PathBuf {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/images");
    if shared.is_dir() { shared } else { fixtures() }
}

/// Whether a process has ended (its parent may not have reaped it yet).
pub fn is_gone(pid: rustix::process::Pid) -> bool {
    matches!(state(pid), None | Some('Z'))
}

/// The state letter of proc(5).
pub fn state(pid: rustix::process::Pid) -> Option<char> {
    let status = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    status.rsplit_once(") ")?.1.chars().next()
}
