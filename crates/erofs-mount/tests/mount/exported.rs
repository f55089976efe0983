//! Files can be found by their handles, as an NFS server does.

use std::path::Path;
use std::process::Command;

use crate::{Test, mounted};

pub const TESTS: &[Test] = tests![files_are_found_by_handles_that_outlive_the_caches];

/// Gets the handle of a file by its name, makes the kernel drop its caches of the mount, and opens
/// the file by the handle. These calls have bindings only in C.
const SCRIPT: &str = r#"
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_uint), ("type", ctypes.c_int), ("handle", ctypes.c_ubyte * 128)]
root, name = sys.argv[1:]
path, handle, mount = os.path.join(root, name), Handle(128), ctypes.c_int()
if libc.name_to_handle_at(-100, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0):
    sys.exit("name_to_handle_at: " + os.strerror(ctypes.get_errno()))
wanted = os.stat(path)
open("/proc/sys/vm/drop_caches", "w").write("2")
place = os.open(root, os.O_RDONLY)
found = libc.open_by_handle_at(place, ctypes.byref(handle), os.O_RDONLY)
if found < 0:
    sys.exit("open_by_handle_at: " + os.strerror(ctypes.get_errno()))
got = os.fstat(found)
if (got.st_ino, got.st_size, got.st_mtime_ns) != (wanted.st_ino, wanted.st_size, wanted.st_mtime_ns):
    sys.exit(f"{got}, not {wanted}")
if os.path.isdir(path):
    # The directories above were found again, by "..".
    if os.readlink(f"/proc/self/fd/{found}") != path:
        sys.exit(os.readlink(f"/proc/self/fd/{found}"))
elif os.read(found, 100) != open(path, "rb").read(100):
    sys.exit("other bytes")
"#;

fn files_are_found_by_handles_that_outlive_the_caches() {
    let place = mounted("kitchen-sink", "");
    for name in ["names/a", "deep/00/01/02"] {
        find(&place.path, name);
    }
}

fn find(root: &Path, name: &str) {
    let output = Command::new("python3")
        .args(["-c", SCRIPT])
        .args([root, Path::new(name)])
        .output();
    match output {
        Err(error) => println!("skipped: python3: {error}"),
        Ok(output) => {
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{name}: {stderr}");
        }
    }
}
