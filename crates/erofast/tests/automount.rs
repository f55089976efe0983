//! A mount point with a waiting automount, as systemd sets one up. The command mounts there without
//! triggering the automount.

use std::path::Path;
use std::process::{Command, Stdio};

/// Creates an automount at `place` that only this process group may pass; does nothing if the
/// system has no automounts. Any other process that triggered the mount would wait forever, hence
/// the time limits.
const BEGIN: &str = r#"
import ctypes, fcntl, os, struct, subprocess, sys
erofast, image, place = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
requests, kernel = os.pipe()
os.setpgid(0, 0)
options = f"fd={kernel},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct"
if libc.mount(b"test", place.encode(), b"autofs", 0, options.encode()):
    sys.exit()
group = lambda: os.setpgid(0, 0)
command = [erofast, "mount", image, place]
quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
def wait():
    try:
        mount.wait(30)
        print("ended", mount.returncode)
    except subprocess.TimeoutExpired:
        print("waits for itself")
"#;

/// Prints the type of the mount, and unmounts it.
const END: &str = r#"
print([line.split()[2] for line in open("/proc/mounts") if line.split()[1] == place])
os.close(requests)
os.close(kernel)
mount.kill()
libc.umount2(place.encode(), 0)
libc.umount2(place.encode(), 2)
"#;

/// A command that was started without an autofs request, unlike [`ASKED`].
const UNASKED: &str = r#"
mount = subprocess.Popen(command, preexec_fn=group, **quiet)
os.set_blocking(requests, False)
wait()
try:
    print("requests:", len(os.read(requests, 1000)))
except BlockingIOError:
    print("no request")
"#;

/// The command of a mount unit, which systemd starts in its own process group when a program waits
/// for the mount. Until systemd reports the mount, every process of another group that passes the
/// mount point waits too.
const ASKED: &str = r#"
directory = os.open(place, os.O_RDONLY)
reader = subprocess.Popen(["ls", place], preexec_fn=group, stdout=subprocess.PIPE)
token, = struct.unpack_from("I", os.read(requests, 1000), 8)
mount = subprocess.Popen(command, **quiet)
wait()
AUTOFS_IOC_READY, AUTOFS_IOC_FAIL = 0x9360, 0x9361
fcntl.ioctl(directory, AUTOFS_IOC_FAIL if mount.returncode is None else AUTOFS_IOC_READY, token)
print("seen:", len(reader.communicate()[0]) > 0)
os.close(directory)
"#;

/// Runs a script and returns its output; `None` if it cannot run.
fn run(script: &str) -> Option<String> {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: no /dev/fuse");
        return None;
    }
    let place = tempfile::tempdir().expect("a directory");
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/lz4-4k.erofs");
    let output = Command::new("python3")
        .args(["-c", &[BEGIN, script, END].concat()])
        .arg(env!("CARGO_BIN_EXE_erofast"))
        .args([&image, place.path()])
        // A process that hangs would keep this stream open, and the test would wait for its end.
        .stderr(Stdio::null())
        .output();
    let Ok(output) = output else {
        println!("skipped: python3 is not installed");
        return None;
    };
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() && stdout.is_empty() {
        println!("skipped: no automounts here, or not root");
        return None;
    }
    Some(stdout)
}

#[test]
fn a_mount_below_an_automount_does_not_ask_for_it() {
    let Some(printed) = run(UNASKED) else { return };
    assert_eq!(printed, "ended 0\nno request\n['autofs', 'fuse.erofast']\n");
}

#[test]
fn a_mount_that_was_asked_for_does_not_wait_for_itself() {
    let Some(printed) = run(ASKED) else { return };
    assert_eq!(printed, "ended 0\nseen: True\n['autofs', 'fuse.erofast']\n");
}
