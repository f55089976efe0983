//! The mount table of this process's namespace.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::fs::{AtFlags, Mode, OFlags, Statx, StatxAttributes, StatxFlags, makedev, statx};
use rustix::io::Errno;

use erofs_fuse::error::Error;
use erofs_fuse::request::FSTYPE;

/// How long a daemon may take to show that it is alive. For a dead daemon the kernel answers
/// immediately.
pub(crate) const ANSWER: Duration = Duration::from_secs(1);

/// One line of `/proc/self/mountinfo`: the fields used here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    /// Mount ID. The kernel reuses it after an unmount.
    pub(crate) id: u64,
    /// Mount ID of the mount that this one is mounted on.
    pub(crate) parent: u64,
    /// `MAJOR:MINOR` of the filesystem.
    pub(crate) device: String,
    /// Absolute.
    pub(crate) mountpoint: PathBuf,
    /// Filesystem type.
    pub(crate) fstype: String,
    /// The device, image or name that is mounted.
    source: String,
    /// Options of the filesystem.
    options: String,
    /// For a FUSE mount: the user who mounted it.
    pub(crate) user_id: Option<u32>,
}

/// Reads all mounts.
pub(crate) fn read() -> Result<Vec<Entry>, Error> {
    const TABLE: &str = "/proc/self/mountinfo";
    read_from(&File::open(TABLE).map_err(Error::std_io(TABLE))?)
}

/// Reads all mounts that the open table currently lists.
pub(crate) fn read_from(mut file: &File) -> Result<Vec<Entry>, Error> {
    let mut table = Vec::new();
    let read = file.rewind().and_then(|()| file.read_to_end(&mut table));
    read.map_err(Error::std_io("the mount table"))?;
    let lines = table.split(|byte| *byte == b'\n');
    Ok(lines.filter_map(parse).collect())
}

/// The mounts at `path`. Reading the table takes longer the more mounts there are, so the table is
/// not read if the kernel says that nothing is mounted at `path`.
pub(crate) fn at(path: &Path) -> Result<Vec<Entry>, Error> {
    if has_no_mount(path) {
        return Ok(Vec::new());
    }
    let mut table = read()?;
    table.retain(|entry| entry.mountpoint == path);
    Ok(table)
}

/// Whether it is certain that nothing is mounted at `path`. Always false before Linux 5.8.
pub(crate) fn has_no_mount(path: &Path) -> bool {
    let is_root = |place: OwnedFd| {
        let status = status(place, StatxFlags::empty())?;
        let known = status
            .stx_attributes_mask
            .contains(StatxAttributes::MOUNT_ROOT);
        Ok(!known || status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT))
    };
    handle(path).and_then(is_root) == Ok(false)
}

/// The topmost mount at `path`.
pub(crate) fn top(path: &Path) -> Result<Option<Entry>, Error> {
    Ok(top_of(&at(path)?, path).cloned())
}

/// The mount at `path` on which no other mount at the same path is mounted.
fn top_of<'t>(table: &'t [Entry], path: &Path) -> Option<&'t Entry> {
    let stack: Vec<&Entry> = table
        .iter()
        .filter(|entry| entry.mountpoint == path)
        .collect();
    let is_covered = |entry: &Entry| stack.iter().any(|other| other.parent == entry.id);
    stack.iter().rfind(|entry| !is_covered(entry)).copied()
}

/// The mount points of all erofast mounts that this user may query: for root all, otherwise the
/// user's own. A covered mount cannot be reached and is left out; a mount that is bound to several
/// places counts once.
///
/// # Errors
/// Returns a one-line error if the mount table cannot be read.
pub fn mountpoints() -> Result<Vec<PathBuf>, Error> {
    let own = own()?.into_iter();
    Ok(own.map(|entry| entry.mountpoint).collect())
}

/// The number of other users' erofast mounts that this user can see.
///
/// # Errors
/// Returns a one-line error if the mount table cannot be read.
pub fn mounts_of_others() -> Result<usize, Error> {
    let own = own()?;
    let is_of_others = |entry: &&Entry| {
        entry.fstype == FSTYPE && own.iter().all(|mount| mount.device != entry.device)
    };
    let table = read()?;
    let others = table.iter().filter(is_of_others);
    let devices: std::collections::HashSet<_> = others.map(|entry| &entry.device).collect();
    Ok(devices.len())
}

/// The mounts that [`mountpoints`] names.
pub(crate) fn own() -> Result<Vec<Entry>, Error> {
    let table = read()?;
    let user = rustix::process::getuid();
    let mut devices = std::collections::HashSet::new();
    let own = table.iter().filter(|entry| {
        entry.fstype == FSTYPE
            && (user.is_root() || entry.user_id == Some(user.as_raw()))
            && top_of(&table, &entry.mountpoint) == Some(entry)
            && devices.insert(&entry.device)
    });
    Ok(own.cloned().collect())
}

/// The directory where the cgroups of a version 1 controller are mounted or, if the name is empty,
/// those of version 2.
pub(crate) fn cgroup_folder(controller: &str) -> Option<PathBuf> {
    let mut table = read().ok()?.into_iter();
    let entry = table.find(|entry| match controller {
        "" => entry.fstype == "cgroup2",
        _ => {
            let mut controllers = entry.options.split(',');
            entry.fstype == "cgroup" && controllers.any(|one| one == controller)
        }
    })?;
    Some(entry.mountpoint)
}

/// The mount point of the erofast mount that contains a file. May wait for the mount's server.
pub(crate) fn mountpoint_of(path: &Path) -> Option<PathBuf> {
    if !has_no_mount(path) {
        return None;
    }
    let status = handle(path).and_then(|file| status(file, StatxFlags::MNT_ID));
    let id = status.ok()?.stx_mnt_id;
    let mut table = read().ok()?.into_iter();
    let entry = table.find(|entry| entry.id == id && entry.fstype == FSTYPE)?;
    Some(entry.mountpoint)
}

/// A notice if an erofast mount at `path` would cover another one, which is usually a mistake.
pub(crate) fn covered_notice(path: &Path) -> Option<String> {
    let real = std::fs::canonicalize(path).ok()?;
    let covered = top(&real).ok()??;
    (covered.fstype == FSTYPE).then(|| {
        let (path, source) = (path.display(), covered.source);
        format!("{path}: {source} is already mounted there; this mount covers it")
    })
}

/// Whether the daemon of the mount at `path` has died. Uses statfs(2), which always asks the
/// daemon; attributes and directories may still come from the kernel's caches. A daemon that does
/// not answer is not dead.
pub(crate) fn is_dead(path: &Path) -> bool {
    let path = path.to_owned();
    answer_within(ANSWER, move || says_dead(&path)).is_ok_and(|is_dead| is_dead)
}

/// Like [`is_dead`], but may wait forever.
pub(crate) fn says_dead(path: &Path) -> bool {
    handle(path).and_then(rustix::fs::fstatfs).err() == Some(Errno::NOTCONN)
}

/// Why a question has no answer.
#[derive(Debug)]
pub(crate) enum Unanswered {
    /// The time limit has passed.
    Late,
    /// The thread that was to ask could not be created.
    NotAsked(io::Error),
}

impl Unanswered {
    /// The reason in words; `late` describes what does not answer.
    pub(crate) fn reason(self, late: impl FnOnce() -> String) -> String {
        match self {
            Self::Late => late(),
            Self::NotAsked(error) => no_thread(&error),
        }
    }
}

pub(crate) fn no_thread(error: &io::Error) -> String {
    format!("cannot start a thread: {error}")
}

/// Asks a server that may never answer, and waits at most `limit` for the answer.
pub(crate) fn answer_within<T: Send + 'static>(
    limit: Duration,
    ask: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unanswered> {
    let (sender, receiver) = mpsc::channel();
    let answer = move || sender.send(ask());
    let thread = thread::Builder::new().spawn(answer);
    thread.map_err(Unanswered::NotAsked)?;
    receiver.recv_timeout(limit).map_err(|_| Unanswered::Late)
}

/// Opens a handle on the file at `path`. Unlike statfs(2) or statx(2) on the path, this does not
/// trigger an automount, which under systemd would wait for the very mount that is being made at
/// that path.
pub(crate) fn handle(path: &Path) -> Result<OwnedFd, Errno> {
    rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
}

/// The result of statx(2) on a handle. No request is sent to the server behind it.
pub(crate) fn status(handle: impl AsFd, fields: StatxFlags) -> Result<Statx, Errno> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    statx(handle, c"", flags, fields)
}

/// `MAJOR:MINOR` as a number.
pub(crate) fn device_number(device: &str) -> Option<u64> {
    let (major, minor) = device.split_once(':')?;
    Some(makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Parses a line. Fields: ID, parent, device, root, mount point, options, optional fields, "-",
/// type, source, more.
fn parse(line: &[u8]) -> Option<Entry> {
    let mut fields = line.split(|byte| *byte == b' ');
    let mut number = || std::str::from_utf8(fields.next()?).ok()?.parse().ok();
    let (id, parent) = (number()?, number()?);
    let device = String::from_utf8_lossy(fields.next()?).into_owned();
    let mountpoint = PathBuf::from(unescape(fields.nth(1)?));
    let mut fields = fields.skip_while(|field| field != b"-").skip(1);
    let fstype = fields.next()?;
    let source = unescape(fields.next().unwrap_or_default());
    let options = fields.next().unwrap_or_default();
    Some(Entry {
        id,
        parent,
        device,
        mountpoint,
        fstype: String::from_utf8_lossy(fstype).into_owned(),
        source: source.to_string_lossy().into_owned(),
        options: String::from_utf8_lossy(options).into_owned(),
        user_id: user_id(options),
    })
}

/// The value of `user_id=N` among the options of a FUSE mount.
fn user_id(options: &[u8]) -> Option<u32> {
    let mut options = options.split(|byte| *byte == b',');
    let number = options.find_map(|option| option.strip_prefix(b"user_id="))?;
    std::str::from_utf8(number).ok()?.parse().ok()
}

/// Decodes whitespace and backslashes, which are written as three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut plain = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, after @ ..] = rest {
        let octal = (*first == b'\\')
            .then(|| after.get(..3))
            .flatten()
            .and_then(octal);
        plain.push(octal.unwrap_or(*first));
        rest = if octal.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(plain)
}

fn octal(digits: &[u8]) -> Option<u8> {
    let text = std::ffi::OsStr::from_bytes(digits).to_str()?;
    u8::from_str_radix(text, 8).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_parsed_with_any_number_of_optional_fields() {
        for optional in ["", "shared:7 ", "shared:7 master:1 "] {
            let line = format!(
                r"36 35 0:45 / /a\040b ro,nodev {optional}- fuse.erofast /i rw,user_id=7,group_id=8"
            );
            let entry = parse(line.as_bytes()).unwrap();
            assert_eq!((entry.id, entry.parent), (36, 35));
            assert_eq!(
                (entry.device.as_str(), entry.fstype.as_str()),
                ("0:45", "fuse.erofast")
            );
            assert_eq!((entry.source.as_str(), entry.user_id), ("/i", Some(7)));
            assert_eq!(entry.mountpoint, Path::new("/a b"));
        }
    }

    #[test]
    fn a_path_without_a_mount_is_known() {
        let has_no_mount = |path: &str| has_no_mount(Path::new(path));
        assert!(!has_no_mount("/proc"));
        assert!(!has_no_mount("/proc/does-not-exist"));
        // Before Linux 5.8, the kernel says nothing about any path.
        let root = std::fs::File::open("/proc").unwrap();
        let status = status(root, StatxFlags::empty()).unwrap();
        let known = status.stx_attributes.contains(StatxAttributes::MOUNT_ROOT);
        assert_eq!(has_no_mount("/proc/self"), known);
    }

    #[test]
    fn truncated_lines_are_skipped() {
        for line in [&b""[..], b"36 35", b"36 35 0:45 / /a ro shared:1"] {
            assert_eq!(parse(line), None);
        }
    }

    #[test]
    fn the_top_of_a_stack_is_found_in_any_order_of_the_table() {
        let entry = |id, parent, mountpoint: &str| Entry {
            id,
            parent,
            device: "0:1".into(),
            mountpoint: mountpoint.into(),
            fstype: "tmpfs".into(),
            source: "tmp".into(),
            options: String::new(),
            user_id: None,
        };
        let mut table = [
            entry(1, 0, "/"),
            entry(9, 1, "/a"),
            entry(5, 9, "/a"),
            entry(7, 5, "/a"),
            entry(8, 7, "/a/b"),
        ];
        for _ in 0..table.len() {
            table.rotate_left(1);
            assert_eq!(top_of(&table, Path::new("/a")).unwrap().id, 7);
            assert_eq!(top_of(&table, Path::new("/c")), None);
        }
    }
}
