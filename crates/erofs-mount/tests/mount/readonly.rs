//! Calls that would change something are refused, and others are allowed, as on any read-only
//! filesystem of Linux. If the kernel can mount the image, the kernel's mount is checked against
//! the same table.

use std::path::Path;
use std::process::Command;

use erofs_mount::mount;
use rustix::fs::{
    Access, AtFlags, CWD, Dir, FallocateFlags, FileType, FlockOperation, Gid, Mode, OFlags,
    RenameFlags, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::built::BuiltImage;
use crate::place::Place;
use crate::{Test, request};

pub const TESTS: &[Test] = tests![calls_end_as_on_any_read_only_filesystem];

type Outcome = Result<(), Errno>;
type Call = fn(&Path) -> Outcome;

fn open(root: &Path, name: &str, flags: OFlags) -> rustix::io::Result<rustix::fd::OwnedFd> {
    rustix::fs::open(root.join(name), flags, Mode::from_raw_mode(0o644))
}

fn opened(root: &Path, name: &str, flags: OFlags) -> Outcome {
    open(root, name, flags).map(drop)
}

fn reading(root: &Path) -> rustix::fd::OwnedFd {
    open(root, "file", OFlags::RDONLY).unwrap()
}

fn mode() -> Mode {
    Mode::from_raw_mode(0o755)
}

fn now() -> Timestamps {
    let omitted = rustix::fs::Timespec {
        tv_sec: 1,
        tv_nsec: 0,
    };
    Timestamps {
        last_access: omitted,
        last_modification: omitted,
    }
}

fn access(root: &Path, name: &str, how: Access) -> Outcome {
    rustix::fs::access(root.join(name), how)
}

fn set_owner(root: &Path, name: &str) -> Outcome {
    let (uid, gid) = (Some(Uid::from_raw(1)), Some(Gid::from_raw(1)));
    rustix::fs::chownat(CWD, root.join(name), uid, gid, AtFlags::SYMLINK_NOFOLLOW)
}

const READ_ONLY: Outcome = Err(Errno::ROFS);

/// The calls, each with a name and its expected outcome.
const CALLS: &[(&str, Call, Outcome)] = &[
    // Opening.
    (
        "open to read",
        |r| opened(r, "file", OFlags::RDONLY),
        Ok(()),
    ),
    (
        "open to write",
        |r| opened(r, "file", OFlags::WRONLY),
        READ_ONLY,
    ),
    (
        "open for both",
        |r| opened(r, "file", OFlags::RDWR),
        READ_ONLY,
    ),
    (
        "open to append",
        |r| opened(r, "file", OFlags::WRONLY | OFlags::APPEND),
        READ_ONLY,
    ),
    (
        "open and cut",
        |r| opened(r, "file", OFlags::RDONLY | OFlags::TRUNC),
        READ_ONLY,
    ),
    (
        "create",
        |r| opened(r, "new", OFlags::WRONLY | OFlags::CREATE),
        READ_ONLY,
    ),
    (
        "create an existing file, to read",
        |r| opened(r, "file", OFlags::RDONLY | OFlags::CREATE),
        Ok(()),
    ),
    (
        "create only new",
        |r| opened(r, "file", OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL),
        Err(Errno::EXIST),
    ),
    (
        "create through a dangling symlink",
        |r| opened(r, "dangling", OFlags::WRONLY | OFlags::CREATE),
        READ_ONLY,
    ),
    (
        "create without a name",
        |r| opened(r, "dir", OFlags::RDWR | OFlags::TMPFILE),
        READ_ONLY,
    ),
    (
        "open with direct I/O",
        |r| opened(r, "file", OFlags::RDONLY | OFlags::DIRECT),
        Ok(()),
    ),
    ("open a place", |r| opened(r, "file", OFlags::PATH), Ok(())),
    (
        "open without updating the access time",
        |r| opened(r, "file", OFlags::RDONLY | OFlags::NOATIME),
        Ok(()),
    ),
    (
        "open a directory",
        |r| opened(r, "dir", OFlags::RDONLY | OFlags::DIRECTORY),
        Ok(()),
    ),
    (
        "open a directory to write",
        |r| opened(r, "dir", OFlags::WRONLY),
        Err(Errno::ISDIR),
    ),
    (
        "open a file as a directory",
        |r| opened(r, "file", OFlags::RDONLY | OFlags::DIRECTORY),
        Err(Errno::NOTDIR),
    ),
    (
        "open a link itself",
        |r| opened(r, "link", OFlags::RDONLY | OFlags::NOFOLLOW),
        Err(Errno::LOOP),
    ),
    (
        "open a symlink to itself",
        |r| opened(r, "loop", OFlags::RDONLY),
        Err(Errno::LOOP),
    ),
    (
        "open a dangling symlink",
        |r| opened(r, "dangling", OFlags::RDONLY),
        Err(Errno::NOENT),
    ),
    (
        "open a missing file",
        |r| opened(r, "none", OFlags::RDONLY),
        Err(Errno::NOENT),
    ),
    (
        "open beneath a file",
        |r| opened(r, "file/x", OFlags::RDONLY),
        Err(Errno::NOTDIR),
    ),
    (
        "open a name that is too long",
        |r| opened(r, &"x".repeat(256), OFlags::RDONLY),
        Err(Errno::NAMETOOLONG),
    ),
    (
        "open a pipe to write",
        |r| opened(r, "fifo", OFlags::RDWR | OFlags::NONBLOCK),
        Ok(()),
    ),
    // Names.
    (
        "mkdir",
        |r| rustix::fs::mkdir(r.join("new"), mode()),
        READ_ONLY,
    ),
    (
        "mkdir over an existing name",
        |r| rustix::fs::mkdir(r.join("dir"), mode()),
        Err(Errno::EXIST),
    ),
    ("rmdir", |r| rustix::fs::rmdir(r.join("empty")), READ_ONLY),
    ("unlink", |r| rustix::fs::unlink(r.join("file")), READ_ONLY),
    (
        "unlink of a link",
        |r| rustix::fs::unlink(r.join("dangling")),
        READ_ONLY,
    ),
    (
        "rename",
        |r| rustix::fs::rename(r.join("file"), r.join("new")),
        READ_ONLY,
    ),
    (
        "rename over another",
        |r| rustix::fs::rename(r.join("file"), r.join("exec")),
        READ_ONLY,
    ),
    (
        "rename of a directory",
        |r| rustix::fs::rename(r.join("dir"), r.join("empty")),
        READ_ONLY,
    ),
    (
        "rename with RENAME_NOREPLACE",
        |r| {
            rustix::fs::renameat_with(
                CWD,
                r.join("file"),
                CWD,
                r.join("new"),
                RenameFlags::NOREPLACE,
            )
        },
        READ_ONLY,
    ),
    (
        "exchange",
        |r| {
            rustix::fs::renameat_with(
                CWD,
                r.join("file"),
                CWD,
                r.join("exec"),
                RenameFlags::EXCHANGE,
            )
        },
        READ_ONLY,
    ),
    (
        "rename to elsewhere",
        |r| rustix::fs::rename(r.join("file"), "/proc/x"),
        Err(Errno::XDEV),
    ),
    (
        "link",
        |r| rustix::fs::link(r.join("file"), r.join("new")),
        READ_ONLY,
    ),
    (
        "symlink",
        |r| rustix::fs::symlink("file", r.join("new")),
        READ_ONLY,
    ),
    (
        "symlink over an existing name",
        |r| rustix::fs::symlink("file", r.join("link")),
        Err(Errno::EXIST),
    ),
    (
        "mkfifo",
        |r| rustix::fs::mknodat(CWD, r.join("new"), FileType::Fifo, mode(), 0),
        READ_ONLY,
    ),
    // Attributes.
    (
        "chmod",
        |r| rustix::fs::chmod(r.join("file"), mode()),
        READ_ONLY,
    ),
    (
        "chmod of a directory",
        |r| rustix::fs::chmod(r.join("dir"), mode()),
        READ_ONLY,
    ),
    (
        "chmod of an open file",
        |r| rustix::fs::fchmod(reading(r), mode()),
        READ_ONLY,
    ),
    ("chown", |r| set_owner(r, "file"), READ_ONLY),
    ("chown of a link", |r| set_owner(r, "link"), READ_ONLY),
    (
        "chown of an open file",
        |r| rustix::fs::fchown(reading(r), Some(Uid::from_raw(1)), None),
        READ_ONLY,
    ),
    (
        "utimens",
        |r| rustix::fs::utimensat(CWD, r.join("file"), &now(), AtFlags::empty()),
        READ_ONLY,
    ),
    (
        "utimens of a link",
        |r| rustix::fs::utimensat(CWD, r.join("link"), &now(), AtFlags::SYMLINK_NOFOLLOW),
        READ_ONLY,
    ),
    (
        "utimens of an open file",
        |r| rustix::fs::futimens(reading(r), &now()),
        READ_ONLY,
    ),
    (
        "setxattr",
        |r| rustix::fs::setxattr(r.join("file"), "user.a", b"1", XattrFlags::empty()),
        READ_ONLY,
    ),
    (
        "setxattr of root's",
        |r| rustix::fs::setxattr(r.join("file"), "trusted.a", b"1", XattrFlags::empty()),
        READ_ONLY,
    ),
    (
        "setxattr of an open file",
        |r| rustix::fs::fsetxattr(reading(r), "user.a", b"1", XattrFlags::empty()),
        READ_ONLY,
    ),
    (
        "removexattr",
        |r| rustix::fs::removexattr(r.join("file"), "user.a"),
        READ_ONLY,
    ),
    (
        "getxattr of none",
        |r| rustix::fs::getxattr(r.join("file"), "user.a", &mut [0u8; 8][..]).map(drop),
        Err(Errno::NODATA),
    ),
    // Open files.
    (
        "write",
        |r| rustix::io::write(reading(r), b"x").map(drop),
        Err(Errno::BADF),
    ),
    (
        "ftruncate",
        |r| rustix::fs::ftruncate(reading(r), 0),
        Err(Errno::INVAL),
    ),
    (
        "fallocate",
        |r| rustix::fs::fallocate(reading(r), FallocateFlags::empty(), 0, 1),
        Err(Errno::BADF),
    ),
    (
        "flock",
        |r| rustix::fs::flock(reading(r), FlockOperation::NonBlockingLockExclusive),
        Ok(()),
    ),
    (
        "lock for reading",
        |r| rustix::fs::fcntl_lock(reading(r), FlockOperation::NonBlockingLockShared),
        Ok(()),
    ),
    (
        "lock for writing",
        |r| rustix::fs::fcntl_lock(reading(r), FlockOperation::NonBlockingLockExclusive),
        Err(Errno::BADF),
    ),
    // Permissions, as root.
    (
        "access: there",
        |r| access(r, "file", Access::EXISTS),
        Ok(()),
    ),
    (
        "access: read",
        |r| access(r, "file", Access::READ_OK),
        Ok(()),
    ),
    (
        "access: write",
        |r| access(r, "file", Access::WRITE_OK),
        READ_ONLY,
    ),
    (
        "access: write a directory",
        |r| access(r, "dir", Access::WRITE_OK),
        READ_ONLY,
    ),
    (
        "access: write a pipe",
        |r| access(r, "fifo", Access::WRITE_OK),
        Ok(()),
    ),
    (
        "access: run",
        |r| access(r, "exec", Access::EXEC_OK),
        Ok(()),
    ),
    (
        "access: run a file that is not executable",
        |r| access(r, "file", Access::EXEC_OK),
        Err(Errno::ACCESS),
    ),
    (
        "access: not there",
        |r| access(r, "none", Access::EXISTS),
        Err(Errno::NOENT),
    ),
    // The rest.
    (
        "readlink",
        |r| rustix::fs::readlink(r.join("link"), Vec::new()).map(drop),
        Ok(()),
    ),
    (
        "readlink of a file",
        |r| rustix::fs::readlink(r.join("file"), Vec::new()).map(drop),
        Err(Errno::INVAL),
    ),
    (
        "list a directory",
        |r| Dir::new(open(r, "dir", OFlags::RDONLY)?).map(drop),
        Ok(()),
    ),
    (
        "list a file",
        |r| {
            let mut space = Vec::with_capacity(4096);
            let mut list = rustix::fs::RawDir::new(reading(r), space.spare_capacity_mut());
            list.next().map_or(Ok(()), |entry| entry.map(drop))
        },
        Err(Errno::NOTDIR),
    ),
    (
        "read a directory",
        |r| rustix::io::read(open(r, "dir", OFlags::RDONLY)?, &mut [0u8; 8]).map(drop),
        Err(Errno::ISDIR),
    ),
    (
        "synchronise all",
        |r| rustix::fs::syncfs(reading(r)),
        Ok(()),
    ),
];

fn failures(root: &Path) -> Vec<String> {
    let report = |&(name, call, wanted): &(&str, Call, Outcome)| {
        let got = call(root);
        (got != wanted).then(|| format!("{name}: {got:?}, not {wanted:?}"))
    };
    CALLS.iter().filter_map(report).collect()
}

fn calls_end_as_on_any_read_only_filesystem() {
    let Some(built) = BuiltImage::new("readonly", &[], 0) else {
        return;
    };
    let kernel = Place::new();
    let mut command = Command::new("mount");
    command.args(["-t", "erofs", "-o", "ro,loop"]);
    let output = command
        .arg(built.image())
        .arg(&kernel.path)
        .output()
        .unwrap();
    if output.status.success() {
        let failures = failures(&kernel.path);
        assert!(failures.is_empty(), "the kernel's own mount: {failures:#?}");
    } else {
        let why = String::from_utf8_lossy(&output.stderr);
        println!("skipped: the table against the kernel's own mount: {why}");
    }
    for options in ["", "workers=inline"] {
        let place = Place::new();
        mount(&request(&built.image(), &place, options)).unwrap();
        let failures = failures(&place.path);
        assert!(failures.is_empty(), "{options}: {failures:#?}");
        // The kernel's EROFS returns EINVAL here, which helps no program.
        assert_eq!(rustix::fs::fsync(reading(&place.path)), Ok(()));
    }
    println!("{} calls", CALLS.len());
}
