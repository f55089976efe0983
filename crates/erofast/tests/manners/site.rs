//! A directory to mount in, and operations that the tests run in it.

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Far longer than any step of these tests takes.
pub const LONG: Duration = Duration::from_secs(120);

/// A directory with an image and a mount point in it; dropping it removes everything.
pub struct Site {
    pub directory: tempfile::TempDir,
}

impl Site {
    /// Creates the directory. If nothing can be mounted, prints the reason and returns `None`.
    pub fn new() -> Option<Self> {
        let me = fs::metadata("/proc/self").ok()?.uid();
        let fuse = File::options().read(true).write(true).open("/dev/fuse");
        match fuse {
            _ if me != 0 => println!("skipped: not root"),
            Err(error) => println!("skipped: /dev/fuse: {error}"),
            Ok(_) => {
                let directory = tempfile::tempdir().unwrap();
                let open = fs::Permissions::from_mode(0o755);
                fs::set_permissions(directory.path(), open).unwrap();
                let site = Self { directory };
                fs::copy(fixture("meta.erofs"), site.image()).unwrap();
                fs::create_dir(site.point()).unwrap();
                return Some(site);
            }
        }
        None
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn image(&self) -> PathBuf {
        self.path("image.erofs")
    }

    pub fn point(&self) -> PathBuf {
        self.path("mnt")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_erofast"));
        command.args(arguments).current_dir(self.directory.path());
        command
    }

    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Mounts in the foreground, with standard error in the file `log`.
    pub fn start(&self, flags: &[&str]) -> Child {
        let log = File::create(self.path("log")).unwrap();
        let mut command = self.command(&[&["mount"], flags, &["image.erofs", "mnt"]].concat());
        let child = command.stderr(log).stdin(Stdio::null()).spawn().unwrap();
        soon("the mount", || self.is_mounted());
        child
    }

    pub fn is_mounted(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let here = self.point();
        mounts
            .lines()
            .any(|line| line.split(' ').nth(1) == here.to_str())
    }

    /// `MAJOR:MINOR` of the mount, without asking its server.
    pub fn device(&self) -> String {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let here = self.point();
        let mut mounts = mounts.lines().map(|line| line.split(' '));
        let device = mounts.find_map(|mut fields| {
            let device = fields.nth(2)?;
            (fields.nth(1) == here.to_str()).then(|| device.to_owned())
        });
        device.expect("a mount")
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("log")).unwrap()
    }

    pub fn pid(&self) -> u64 {
        let output = self.run(&["stat", "--json", "mnt"]);
        let counters: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        counters["pid"].as_u64().unwrap()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
        for point in points.filter(|point| Path::new(point).starts_with(&self.directory)) {
            let _ = Command::new("umount").arg("-l").arg(point).status();
        }
    }
}

pub fn fixture(name: &str) -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fixtures.join(name)
}

#[track_caller]
pub fn fine(output: &Output) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{:?}: {stderr}", output.status);
}

/// Runs a command that must end on its own.
#[track_caller]
pub fn ends(command: &mut Command) -> Output {
    let piped = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = piped.spawn().unwrap();
    ends_soon(&format!("{command:?}"), child)
}

/// The output of a process that must end on its own; if it does not, it is killed and the test
/// fails.
#[track_caller]
pub fn ends_soon(what: &str, mut child: Child) -> Output {
    let begin = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if begin.elapsed() > LONG {
            let _ = child.kill();
            panic!("it does not end: {what}");
        }
        thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

pub fn soon(what: &str, mut happened: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !happened() {
        assert!(begin.elapsed() < LONG, "{what} did not happen");
        thread::sleep(Duration::from_millis(20));
    }
}

pub fn signal(name: &str, pid: u64) {
    // Uses the shell's builtin, because not every system has the program kill.
    let status = Command::new("sh")
        .args(["-c", "kill \"$@\"", "kill", name, &pid.to_string()])
        .status();
    assert!(status.unwrap().success());
}

/// A non-empty regular file of the mount.
pub fn some_file(directory: &Path) -> PathBuf {
    let entries = fs::read_dir(directory).unwrap();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let is_wanted = |path: &&PathBuf| {
        fs::symlink_metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() > 0)
    };
    if let Some(found) = paths.iter().find(is_wanted) {
        return found.clone();
    }
    let directories = paths
        .iter()
        .filter(|path| path.is_dir() && !path.is_symlink());
    directories.map(|path| some_file(path)).next().unwrap()
}
