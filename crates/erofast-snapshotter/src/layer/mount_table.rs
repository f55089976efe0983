//! The mounts below a folder, and whether they answer.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};

/// Mount points directly in `folder`, each listed once for every mount on it.
pub fn mounted(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let lines = table.split(|byte| *byte == b'\n');
    let points = lines.filter_map(|line| line.split(|byte| *byte == b' ').nth(4));
    let paths = points.map(|point| PathBuf::from(OsString::from_vec(unescaped(point))));
    Ok(paths.filter(|path| path.parent() == Some(folder)).collect())
}

/// Decodes a field in which blanks and other special characters are written as a backslash and
/// three octal digits.
fn unescaped(mut field: &[u8]) -> Vec<u8> {
    let mut path = Vec::new();
    while let [first, rest @ ..] = field {
        let octal = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        };
        let code = rest.get(..3).filter(|_| *first == b'\\').and_then(octal);
        path.push(code.unwrap_or(*first));
        field = if code.is_some() { &rest[3..] } else { rest };
    }
    path
}

/// Whether a mount answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Health {
    /// The mount answers.
    Answers,
    /// The mount's server is gone.
    Dead,
    /// The mount did not answer in time.
    Silent,
}

/// Checks a mount by asking for the filesystem's size, which the kernel must request from the
/// server. Fails if no thread can be started.
pub fn health(point: &Path, limit: Duration) -> io::Result<Health> {
    let (answer, answers) = mpsc::channel();
    let asked = point.to_owned();
    // Use a separate thread: a request to a stopped server never returns.
    thread::Builder::new().spawn(move || {
        let _ = answer.send(rustix::fs::statfs(&asked).is_ok());
    })?;
    Ok(match answers.recv_timeout(limit) {
        Ok(true) => Health::Answers,
        Ok(false) => Health::Dead,
        Err(_) => Health::Silent,
    })
}

/// Detaches everything mounted on `point` from the tree. A container keeps using the mount until
/// the container ends.
pub fn detach(point: &Path) -> io::Result<()> {
    let folder = point.parent().unwrap_or(Path::new("/"));
    for _ in mounted(folder)?.iter().filter(|path| *path == point) {
        let flags = UnmountFlags::DETACH | UnmountFlags::NOFOLLOW;
        unmount(point.as_os_str().as_bytes(), flags)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_in_names_are_read() {
        assert_eq!(unescaped(br"/a\040b\134c\"), b"/a b\\c\\");
        assert_eq!(unescaped(br"/a\09"), br"/a\09");
    }

    /// In a process of its own, which can create no more mappings, and so no thread's stack.
    #[test]
    fn a_thread_that_cannot_be_started_is_an_error() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        const CHILD: &str = "EROFAST_TEST_WITHOUT_THREADS";
        let name = "layer::mount_table::tests::a_thread_that_cannot_be_started_is_an_error";
        if std::env::var_os(CHILD).is_none() {
            let mut child = std::process::Command::new(std::env::current_exe().unwrap());
            child.args(["--exact", name]).env(CHILD, "1");
            let ended = child.output().unwrap();
            assert!(ended.status.success(), "{ended:?}");
            return;
        }
        let before = getrlimit(Resource::As);
        let none = Rlimit {
            current: Some(0),
            ..before
        };
        setrlimit(Resource::As, none).unwrap();
        let health = health(Path::new("/"), Duration::from_secs(60));
        setrlimit(Resource::As, before).unwrap();
        health.unwrap_err();
    }

    #[test]
    fn the_table_of_mounts_is_read() {
        let root = mounted(Path::new("/")).unwrap();
        assert!(root.contains(&PathBuf::from("/proc")), "{root:?}");
    }
}
