//! The program under its other names, with the command lines that callers use.
//!
//! Needs root or fusermount3, and /dev/fuse.

use std::os::unix::fs::{MetadataExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Longer than any process takes to start.
const PATIENCE: Duration = Duration::from_secs(120);

/// A directory with the program under other names, an image and a mount point.
struct Place {
    directory: tempfile::TempDir,
    image: PathBuf,
}

impl Place {
    /// Creates the directory. If nothing can be mounted, prints the reason and returns `None`.
    fn new() -> Option<Self> {
        if !Path::new("/dev/fuse").exists() {
            println!("skipped: no /dev/fuse");
            return None;
        }
        if crate::common::other::other_program().is_some() {
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
        self.mount_flags().is_some()
    }

    /// The mount's options in `/proc/mounts`.
    fn mount_flags(&self) -> Option<String> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
        let mnt = self.mnt();
        let mnt = mnt.to_str().expect("text");
        let mut lines = mounts.lines().map(|line| line.split(' '));
        lines
            .find_map(|mut fields| fields.nth(1).filter(|at| *at == mnt).and(fields.nth(1)))
            .map(str::to_owned)
    }

    /// A process that another test is starting may hold our open files for a moment.
    fn umount(&self) {
        let begin = Instant::now();
        loop {
            let mut umount = self.command("erofast");
            let output = umount.args(["umount", "mnt"]).output().unwrap();
            if output.status.success() {
                return;
            }
            let printed = String::from_utf8_lossy(&output.stderr);
            let is_busy = printed.contains(": busy with");
            assert!(is_busy && begin.elapsed() < PATIENCE, "{output:?}");
        }
    }

    /// Runs a command line that should return once the mount can be used, then unmounts.
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

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.is_mounted() {
            let ours = self.command("erofast").args(["umount", "mnt"]).status();
            if !ours.is_ok_and(|status| status.success()) {
                let _ = Command::new("umount").arg("-l").arg(self.mnt()).status();
            }
        }
    }
}

#[test]
fn erofsfuse_mounts_with_all_its_options_and_is_ready_when_it_returns() {
    let Some(place) = Place::new() else { return };
    let options: [&[&str]; 7] = [
        &[],
        &["--offset=0", "--dbglevel=0", "-s"],
        &["-r", "-n", "-o", "io_uring,io_uring_q_depth=8"],
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
fn erofsfuse_takes_what_follows_two_dashes_as_paths() {
    let Some(place) = Place::new() else { return };
    for line in [
        ["--", "app.erofs", "mnt"],
        ["app.erofs", "--", "mnt"],
        ["app.erofs", "mnt", "--"],
    ] {
        place.mounts(place.command("erofsfuse").args(line));
    }
}

#[test]
fn erofsfuse_mounts_without_set_user_id_programs_and_devices_as_libfuse_does() {
    let Some(place) = Place::new() else { return };
    let is_root = is_root();
    for (options, restricted) in [(&[][..], true), (&["-o", "suid,dev"], false)] {
        if !restricted && !is_root {
            println!("skipped: not root");
            continue;
        }
        let mut command = place.command("erofsfuse");
        let status = command.args(options).args(["app.erofs", "mnt"]).status();
        assert!(status.expect("it starts").success());
        let flags = place.mount_flags().expect("a mount");
        let shown = ["nosuid", "nodev"].map(|flag| flags.split(',').any(|shown| shown == flag));
        assert_eq!(shown, [restricted; 2], "{flags}");
        place.umount();
    }
}

#[test]
fn an_image_on_standard_input_is_mounted_in_the_background() {
    let Some(place) = Place::new() else { return };
    for name in ["/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"] {
        let image = std::fs::File::open(&place.image).expect("an image");
        let mut command = place.command("erofsfuse");
        place.mounts(command.args([name, "mnt"]).stdin(image));
    }
}

/// Starts the server as sandbox runtimes do: no mount may outlive its caller.
#[test]
fn a_server_in_the_foreground_ends_with_its_parent_where_that_was_asked_for() {
    let Some(place) = Place::new() else { return };
    if !Path::new("/usr/bin/setpriv").exists() {
        println!("skipped: no setpriv");
        return;
    }
    let script = "setpriv --pdeathsig TERM ./erofsfuse -f app.erofs mnt >/dev/null & \
        until grep -q \" $PWD/mnt \" /proc/mounts; do sleep 0.05; done; exit 0";
    let mut shell = Command::new("timeout");
    let output = shell
        .args(["20", "sh", "-c", script])
        .current_dir(place.directory.path())
        .stderr(Stdio::null())
        .output()
        .expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let begin = Instant::now();
    while place.is_mounted() {
        assert!(begin.elapsed() < PATIENCE, "the server goes on");
        std::thread::sleep(Duration::from_millis(20));
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
        // erofsfuse 1.9.4 prints this and exits with 0, although nothing is mounted.
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
    // mount(8) passes the full type; containerd omits the part before the dot.
    for fstype in ["fuse.erofast", "erofast"] {
        let mut command = Command::new(helper);
        command.args([&place.image, &mnt]);
        command.args(["-o", "ro", "-t", fstype]);
        place.mounts(command.env("PATH", &path));
    }
}

#[test]
fn mount_erofs_runs_erofsfuse_through_a_shell() {
    let Some(place) = Place::new() else { return };
    // `mount -t erofs.fuse` runs mount.erofs of erofs-utils, which runs the following line.
    let line = format!(
        "erofsfuse -orw {} {}",
        place.image.display(),
        place.mnt().display()
    );
    let path = format!("{}:/usr/bin:/bin", place.directory.path().display());
    let mut shell = Command::new("/bin/sh");
    place.mounts(shell.args(["-c", &line]).env("PATH", &path));
}

/// Follows libfuse's convention for callers that mount the filesystem themselves and then drop
/// their rights.
#[test]
fn a_mounted_descriptor_in_the_place_of_the_mount_point_is_served() {
    let Some(place) = Place::new() else { return };
    if !is_root() {
        println!("skipped: not root");
        return;
    }
    let mount = "exec 7<>/dev/fuse; \
        mount -i -t fuse -o ro,fd=7,rootmode=40000,user_id=0,group_id=0,allow_other app mnt; ";
    for (serve, background) in [
        ("./erofsfuse app.erofs /dev/fd/7", true),
        ("exec ./erofast mount -f app.erofs /dev/fd/7", false),
        (
            "exec ./erofsfuse -f /proc/self/fd/8 /dev/fd/7 8<app.erofs",
            false,
        ),
    ] {
        let mut server = Command::new("bash")
            .args(["-ec", &format!("{mount}{serve}")])
            .current_dir(place.directory.path())
            .spawn()
            .unwrap();
        if background {
            assert!(server.wait().unwrap().success());
        }
        let deadline = Instant::now() + Duration::from_secs(60);
        while !place.is_mounted() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Waits for the server, which answers the first request.
        assert!(
            std::fs::read_dir(place.mnt()).unwrap().count() > 0,
            "{serve}"
        );
        let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
        let line = format!("app {} fuse ro", place.mnt().display());
        assert!(mounts.contains(&line), "{mounts}");
        let unmounted = Command::new("umount").arg(place.mnt()).status();
        assert!(unmounted.unwrap().success());
        assert!(server.wait().unwrap().success(), "{serve}");
    }
    for (line, why) in [
        (
            "app.erofs /dev/fd/7 7</dev/null",
            ": not a descriptor of /dev/fuse",
        ),
        ("app.erofs /dev/fd/77", "Bad file descriptor"),
        (
            "-o timeout=5 app.erofs /dev/fd/7 7<>/dev/fuse",
            "timeout= cannot unmount",
        ),
        (
            "-o restart=on app.erofs /dev/fd/7 7<>/dev/fuse",
            "restart=on: the caller made the mount",
        ),
        ("app.erofs /dev/fd/7 7<>/dev/fuse", "not permitted"),
    ] {
        let output = Command::new("bash")
            .args(["-c", &format!("exec ./erofsfuse {line}")])
            .current_dir(place.directory.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {stderr}");
        assert!(
            stderr.contains(why) && stderr.lines().count() == 1,
            "{line}: {stderr}"
        );
    }
}

#[test]
fn an_open_image_is_taken_in_the_background_too() {
    let Some(place) = Place::new() else { return };
    let line = "./erofsfuse -o ro /proc/self/fd/3 mnt 3<app.erofs";
    let mut command = Command::new("bash");
    command.args(["-c", line]);
    place.mounts(command.current_dir(place.directory.path()));
}

#[test]
fn an_open_image_is_taken_as_apptainer_passes_it() {
    let Some(place) = Place::new() else { return };
    // Apptainer passes descriptor 3 on, and the words -f -o offset=N /proc/self/fd/3 TARGET.
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
