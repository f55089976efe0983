//! The program under the names that callers know: each command line as its caller sends it.
//!
//! Needs root or fusermount3, and /dev/fuse.

mod common;

use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A directory with the program under other names in it, an image and a mount point.
struct Place {
    directory: tempfile::TempDir,
    image: PathBuf,
}

impl Place {
    /// `None`, with the reason printed, where nothing can be mounted.
    fn new() -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            println!("skipped: no /dev/fuse");
            return None;
        }
        if common::other_program().is_some() {
            println!("skipped: EROFAST_PROGRAM is tested under its own name");
            return None;
        }
        let directory = tempfile::tempdir().expect("a directory");
        for name in ["erofsfuse", "erofast"] {
            symlink(env!("CARGO_BIN_EXE_erofast"), directory.path().join(name)).expect("a link");
        }
        std::fs::create_dir(directory.path().join("mnt")).expect("a mount point");
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
        let image = directory.path().join("app.erofs");
        std::fs::copy(fixtures.join("lz4-full-index-64k.erofs"), &image).expect("an image");
        Some(Self { directory, image })
    }

    fn mnt(&self) -> PathBuf {
        self.directory.path().join("mnt")
    }

    fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.directory.path().join(name));
        command.current_dir(self.directory.path());
        command
    }

    fn is_mounted(&self) -> bool {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        let mnt = self.mnt();
        let mnt = mnt.to_str().expect("text");
        mounts
            .lines()
            .any(|line| line.split(' ').nth(1) == Some(mnt))
    }

    fn umount(&self) {
        let output = self
            .command("erofast")
            .args(["umount", "mnt"])
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
    }

    /// Runs a command line that is to return when the mount can be used, and unmounts.
    fn mounts(&self, command: &mut Command) {
        let output = command.output().expect("it starts");
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{command:?}: {printed}");
        let entries = std::fs::read_dir(self.mnt()).expect("a directory").count();
        let mounted = self.is_mounted();
        self.umount();
        assert!(mounted && entries > 0, "{command:?}: {printed}");
        assert_eq!(printed, "", "{command:?}");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_mounted() {
            let _ = self.command("erofast").args(["umount", "mnt"]).status();
        }
    }
}

#[test]
fn erofsfuse_mounts_with_all_its_options_and_is_ready_when_it_returns() {
    let Some(place) = Place::new() else { return };
    let options: [&[&str]; 6] = [
        &[],
        &["--offset=0", "--dbglevel=0", "-s"],
        &["-o", "ro,nodev,nosuid"],
        &["-oclone_fd,max_threads=4,max_idle_threads=-1"],
        &[
            "-o",
            "fsname=app",
            "-o",
            "subtype=erofs,default_permissions",
        ],
        &["-o", "auto_unmount"],
    ];
    for options in options {
        place.mounts(
            place
                .command("erofsfuse")
                .args(options)
                .args(["app.erofs", "mnt"]),
        );
        place.mounts(
            place
                .command("erofsfuse")
                .args(["app.erofs", "mnt"])
                .args(options),
        );
    }
}

#[test]
fn erofsfuse_ends_with_1_when_nothing_is_mounted() {
    let Some(place) = Place::new() else { return };
    let lines: [&[&str]; 9] = [
        &[],
        &["--help"],
        &["-V"],
        &["app.erofs"],
        &["missing.erofs", "mnt"],
        &["/etc/passwd", "mnt"],
        &["app.erofs", "missing"],
        &["app.erofs", "mnt", "more"],
        // erofsfuse 1.9.4 prints that and exits with 0, although nothing is mounted.
        &["--bogus", "app.erofs", "mnt"],
    ];
    for line in lines {
        let output = place.command("erofsfuse").args(line).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{line:?}: {output:?}");
        assert!(!place.is_mounted(), "{line:?}");
    }
}

#[test]
fn mount_fuse3_runs_the_program_with_image_directory_and_options() {
    let Some(place) = Place::new() else { return };
    let (image, mnt) = (place.image.display(), place.mnt());
    let line = format!("erofast '{image}' '{}' -o rw,nosuid,nodev", mnt.display());
    let path = format!("{}:/usr/bin:/bin", place.directory.path().display());
    place.mounts(Command::new("sh").args(["-c", &line]).env("PATH", &path));
    let helper = Path::new("/sbin/mount.fuse3");
    if !helper.exists() {
        println!("skipped: no /sbin/mount.fuse3");
        return;
    }
    // mount(8) names the type in full; containerd leaves out what is before the dot.
    for fstype in ["fuse.erofast", "erofast"] {
        let mut command = Command::new(helper);
        command.args([&place.image, &mnt]);
        command.args(["-o", "ro", "-t", fstype]);
        place.mounts(command.env("PATH", &path));
    }
}

#[test]
fn an_open_image_is_taken_as_apptainer_passes_it() {
    let Some(place) = Place::new() else { return };
    // -f -o offset=N /proc/self/fd/3 TARGET, with descriptor 3 passed on.
    let line = "exec ./erofsfuse -f -o offset=0,ro /proc/self/fd/3 mnt 3<app.erofs";
    let server = Command::new("bash")
        .args(["-c", line])
        .current_dir(place.directory.path())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !place.is_mounted() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(5));
    }
    let entries = std::fs::read_dir(place.mnt()).unwrap().count();
    assert!(place.is_mounted() && entries > 0);
    place.umount();
    let output = server.wait_with_output();
    let output = output.unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}
