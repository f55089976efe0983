//! A mount point at which an automount waits, as systemd makes it: the command mounts there without
//! asking for the mount that it is about to make.

use std::path::Path;
use std::process::Command;

/// Makes an automount of `place`, mounts there, and prints what is mounted; nothing where the
/// system has no automounts. Whatever asked for the mount would wait, so there is a limit.
const SCRIPT: &str = r#"
import ctypes, os, subprocess, sys
erofast, image, place = sys.argv[1:]
libc = ctypes.CDLL(None, use_errno=True)
requests, kernel = os.pipe()
os.setpgid(0, 0)
options = f"fd={kernel},pgrp={os.getpgrp()},minproto=5,maxproto=5,direct"
if libc.mount(b"test", place.encode(), b"autofs", 0, options.encode()):
    sys.exit()
group = lambda: os.setpgid(0, 0)
mount = subprocess.Popen([erofast, "mount", image, place], preexec_fn=group)
os.set_blocking(requests, False)
try:
    mount.wait(60)
    print("ended", mount.returncode)
except subprocess.TimeoutExpired:
    print("waits for itself")
try:
    print("requests:", len(os.read(requests, 1000)))
except BlockingIOError:
    print("no request")
print([line.split()[2] for line in open("/proc/mounts") if line.split()[1] == place])
os.close(requests)
os.close(kernel)
mount.kill()
libc.umount2(place.encode(), 0)
libc.umount2(place.encode(), 2)
"#;

#[test]
fn a_mount_below_an_automount_does_not_ask_for_it() {
    if !Path::new("/dev/fuse").exists() {
        println!("skipped: no /dev/fuse");
        return;
    }
    let place = tempfile::tempdir().expect("a directory");
    let image = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/lz4-4k.erofs");
    let output = Command::new("python3")
        .args(["-c", SCRIPT, env!("CARGO_BIN_EXE_erofast")])
        .args([&image, place.path()])
        .output();
    let Ok(output) = output else {
        println!("skipped: python3 is not installed");
        return;
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    if output.status.success() && stdout.is_empty() {
        println!("skipped: no automounts here, or not root");
        return;
    }
    let expected = "ended 0\nno request\n['autofs', 'fuse.erofast']\n";
    assert_eq!(
        stdout,
        expected,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
