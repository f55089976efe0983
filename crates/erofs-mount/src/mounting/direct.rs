//! Mounts as root through fsopen(2) and related calls, which identify the new mount even if several
//! programs mount at one place at the same time. mount(2) is used only where these calls fail.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;

use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountFlags, MoveMountFlags, OpenTreeFlags,
    fsconfig_create, fsconfig_set_flag, fsconfig_set_string, fsmount, fsopen, move_mount,
    open_tree,
};

use super::expected::ExpectedMount;
use super::identity::MountId;
use super::mounted::{Made, Mounted};
use super::plan::MountPlan;
use erofs_fuse::error::Error;
use erofs_fuse::request::FSTYPE;

/// Maximum length of a value of fsconfig(2) in bytes, without the terminating zero.
const LONGEST_VALUE: usize = 255;

/// Mounts; for `expect` see [`mount`](super::mount::mount).
pub(crate) fn mount(
    plan: &MountPlan<'_>,
    expect: &mut impl FnMut(ExpectedMount) -> Result<(), Error>,
) -> Result<Made, Error> {
    let device = open_device()?;
    let nul = |what| move |_| Error::mountpoint(&plan.mountpoint, format!("{what} a NUL byte"));
    let source = CString::new(plan.source.as_bytes()).map_err(nul("the image's path contains"))?;
    let options = options(plan, &device);
    let what = || {
        let (source, mountpoint) = (plan.source.display(), plan.mountpoint.display());
        format!("mount {source} on {mountpoint}")
    };
    let made = match source.as_bytes().len() {
        ..=LONGEST_VALUE => detached(plan, &source, &options),
        _ => Err(Errno::NOSYS),
    };
    match made {
        Ok(root) => {
            let mounted = Mounted::direct(plan.mountpoint.clone(), MountId::of(&root)?);
            expect(ExpectedMount::Known(mounted.clone()))?;
            let flags =
                MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_SYMLINKS;
            let copy = copy(&root);
            move_mount(&root, "", CWD, &plan.mountpoint, flags).map_err(Error::io(what()))?;
            Ok(Made {
                mounted,
                device,
                copy,
            })
        }
        // The calls fail before Linux 5.2, and in a container whose seccomp filter does not know
        // them.
        Err(Errno::NOSYS | Errno::PERM) => {
            let joined = options.iter().map(|(name, value)| match value {
                Some(value) => format!("{name}={value}"),
                None => (*name).to_owned(),
            });
            let joined: Vec<String> = joined.collect();
            let flags = plan.options.flags();
            let data = CString::new(joined.join(",")).map_err(nul("an option contains"))?;
            expect(ExpectedMount::next(plan.mountpoint.clone(), true))?;
            rustix::mount::mount(&*source, &plan.mountpoint, FSTYPE, flags, &*data)
                .map_err(Error::io(what()))?;
            Ok(Made {
                mounted: Mounted::top(plan.mountpoint.clone(), true)?,
                device,
                copy: None,
            })
        }
        Err(errno) => Err(Error::io(what())(errno)),
    }
}

/// Creates a mount that has no path yet, and returns its root.
fn detached(plan: &MountPlan<'_>, source: &CString, options: &Options) -> Result<OwnedFd, Errno> {
    let (kind, subtype) = FSTYPE.split_once('.').unwrap_or((FSTYPE, ""));
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "subtype", subtype)?;
    fsconfig_set_string(&context, "source", &**source)?;
    fsconfig_set_flag(&context, "ro")?;
    for (name, value) in options {
        match value {
            Some(value) => fsconfig_set_string(&context, *name, value)?,
            None => fsconfig_set_flag(&context, *name)?,
        }
    }
    fsconfig_create(&context)?;
    let attributes = attributes(plan.options.flags());
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// Copies a mount; the copy has no path. Works only while the mount has no path either: one with a
/// path may have peers, whose mounts would appear in the copy.
fn copy(root: &OwnedFd) -> Option<OwnedFd> {
    let empty = OpenTreeFlags::from_bits_retain(AtFlags::EMPTY_PATH.bits());
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | empty;
    open_tree(root, "", flags).ok()
}

fn attributes(flags: MountFlags) -> MountAttrFlags {
    let pairs = [
        (MountFlags::NODEV, MountAttrFlags::MOUNT_ATTR_NODEV),
        (MountFlags::NOSUID, MountAttrFlags::MOUNT_ATTR_NOSUID),
        (MountFlags::NOEXEC, MountAttrFlags::MOUNT_ATTR_NOEXEC),
        (MountFlags::NOATIME, MountAttrFlags::MOUNT_ATTR_NOATIME),
        (
            MountFlags::NODIRATIME,
            MountAttrFlags::MOUNT_ATTR_NODIRATIME,
        ),
    ];
    let set = pairs.into_iter().filter(|(flag, _)| flags.contains(*flag));
    let readonly = MountAttrFlags::MOUNT_ATTR_RDONLY;
    set.fold(readonly, |attributes, (_, attribute)| {
        attributes | attribute
    })
}

fn open_device() -> Result<OwnedFd, Error> {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    device.map_err(|errno| Error::NoFuse(errno.into()))
}

/// Options by name, with a value for those that have one.
type Options = Vec<(&'static str, Option<String>)>;

/// The mount options for the kernel: see Documentation/filesystems/fuse.rst.
fn options(plan: &MountPlan<'_>, device: &OwnedFd) -> Options {
    let (uid, gid) = (rustix::process::getuid(), rustix::process::getgid());
    let mut options = vec![
        ("fd", Some(device.as_raw_fd().to_string())),
        ("rootmode", Some("40000".to_owned())),
        ("user_id", Some(uid.as_raw().to_string())),
        ("group_id", Some(gid.as_raw().to_string())),
        ("max_read", Some(plan.max_read.to_string())),
        // Root mounts for everyone; permissions decide who may use the mount, as for any mount by
        // root.
        ("allow_other", None),
    ];
    if plan.default_permissions {
        options.push(("default_permissions", None));
    }
    options
}
