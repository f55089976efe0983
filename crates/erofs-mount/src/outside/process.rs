//! Another process, held by a descriptor of its `/proc` folder: reads and signals through this
//! descriptor concern this process and no later one with the same ID.
//!
//! Files whose reading could wait for the process are not read: its command line, environment and
//! mappings are in its own memory, where a page may come from a server of the process's user.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;
use std::sync::OnceLock;

use rustix::fs::{
    AtFlags, Dir, FileType, MemfdFlags, Mode, OFlags, StatxFlags, memfd_create, openat, readlinkat,
    statx,
};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, pidfd_send_signal};

use crate::mounting::cgroup_folder;

/// Maximum number of bytes read from one of the kernel's files.
const LONGEST: u64 = 1 << 20;

/// The device of the kernel's internal filesystem for files in memory.
fn device_of_memory() -> Option<(u32, u32)> {
    static DEVICE: OnceLock<Option<(u32, u32)>> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        let memory = memfd_create("erofast", MemfdFlags::CLOEXEC).ok()?;
        let status = statx(&memory, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS).ok()?;
        Some((status.stx_dev_major, status.stx_dev_minor))
    })
}

/// A process of any user.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) pid: Pid,
    folder: OwnedFd,
}

/// The IDs of all processes visible to this one.
pub(super) fn numbers() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

impl Process {
    /// Opens a process; `None` if it has ended.
    pub(super) fn open(pid: Pid) -> Option<Self> {
        let path = format!("/proc/{}", pid.as_raw_nonzero());
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = rustix::fs::open(path, flags, Mode::empty()).ok()?;
        Some(Self { pid, folder })
    }

    /// Whether the process has the rights of this user and of no other. A program that changes its
    /// user (sudo(8), fusermount3(1)) has the arguments and descriptors of the user who started it,
    /// and one of its IDs may still be that user's.
    pub(super) fn is_of(&self, user: u32) -> bool {
        let status = self.text("status");
        // Real, effective, saved and filesystem user ID.
        let line = status.lines().find_map(|line| line.strip_prefix("Uid:"));
        let ids = line.unwrap_or_default().split_ascii_whitespace();
        let ids: Vec<_> = ids.map(str::parse).collect();
        ids.len() == 4 && ids.iter().all(|id| *id == Ok(user))
    }

    /// The state letter of the process (see proc_pid_stat(5)).
    pub(super) fn state(&self) -> Option<char> {
        let stat = self.text("stat");
        stat.rsplit_once(") ")?.1.chars().next()
    }

    /// The visible reason why the process does not run. A process that waits for a device looks
    /// like one in a frozen cgroup of version 1.
    pub(super) fn why_idle(&self) -> Option<String> {
        self.why_stopped().or_else(|| {
            let waits = self.state() == Some('D');
            waits.then(|| "is in a frozen cgroup, or is waiting for a device".to_owned())
        })
    }

    /// The reason why the process cannot run.
    pub(super) fn why_stopped(&self) -> Option<String> {
        let pid = self.pid.as_raw_nonzero();
        Some(match self.state()? {
            'T' => format!("is stopped: kill -CONT {pid}"),
            't' => "is stopped by a debugger".to_owned(),
            _ if self.is_frozen() => "is in a frozen cgroup".to_owned(),
            _ => return None,
        })
    }

    /// Whether a cgroup of either version freezes the process.
    fn is_frozen(&self) -> bool {
        let groups = self.text("cgroup");
        let path_of = |hierarchy: &str| {
            groups.lines().find_map(|line| {
                let (_, rest) = line.split_once(':')?;
                let (controllers, path) = rest.split_once(':')?;
                let is_it = controllers.split(',').any(|one| one == hierarchy);
                is_it.then(|| path.trim_start_matches('/').to_owned())
            })
        };
        let says = |hierarchy: &str, file: &str, lines: &[&str]| {
            let folder = path_of(hierarchy).zip(cgroup_folder(hierarchy));
            let file = folder.map(|(path, folder)| folder.join(path).join(file));
            let text = file.and_then(|file| std::fs::read_to_string(file).ok());
            text.is_some_and(|text| text.lines().any(|line| lines.contains(&line)))
        };
        says("", "cgroup.events", &["frozen 1"])
            || says("freezer", "freezer.state", &["FROZEN", "FREEZING"])
    }

    /// The parent: the process that started or adopted this one.
    pub(super) fn parent(&self) -> Option<Pid> {
        let stat = self.text("stat");
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        Pid::from_raw(fields.nth(1)?.parse().ok()?)
    }

    /// The children of the process, if the kernel lists them.
    pub(super) fn children(&self) -> Vec<Self> {
        let lists = self.names("task").into_iter();
        // Each list ends with a space.
        let list: String = lists
            .map(|thread| self.text(&format!("task/{thread}/children")))
            .collect();
        let numbers = list.split_ascii_whitespace();
        let numbers = numbers.filter_map(|number| Pid::from_raw(number.parse().ok()?));
        let open = numbers.filter_map(Self::open);
        // The number of a child that has ended may have been reused.
        open.filter(|child| child.parent() == Some(self.pid))
            .collect()
    }

    /// The descendants of the process.
    pub(super) fn descendants(&self) -> Vec<Self> {
        let mut found = self.children();
        let mut next = 0;
        while let Some(process) = found.get(next) {
            let more = process.children();
            found.extend(more);
            next += 1;
        }
        found
    }

    /// The numbers of the process and its descendants.
    pub(super) fn with_descendants(&self) -> Vec<u32> {
        let all = self.descendants();
        let all = [self].into_iter().chain(&all);
        all.map(|process| process.pid.as_raw_nonzero().get().unsigned_abs())
            .collect()
    }

    /// How many times the threads of the process have been scheduled.
    pub(super) fn switches(&self) -> u64 {
        let threads = self.names("task").into_iter();
        let status = threads.map(|thread| self.text(&format!("task/{thread}/status")));
        let counts = status.map(|status| {
            let lines = status.lines();
            let numbers = lines.filter_map(|line| {
                let (_, number) = line.split_once("ctxt_switches:")?;
                number.trim().parse::<u64>().ok()
            });
            numbers.sum::<u64>()
        });
        counts.sum()
    }

    pub(super) fn text(&self, name: &str) -> String {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let mut bytes = Vec::new();
        if let Ok(file) = openat(&self.folder, name, flags, Mode::empty()) {
            // If reading fails, the bytes read so far are returned.
            let _ = File::from(file).take(LONGEST).read_to_end(&mut bytes);
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The target of a symlink in the process's folder.
    pub(super) fn link(&self, name: &str) -> Option<String> {
        let target = readlinkat(&self.folder, name, Vec::new()).ok()?;
        target.into_string().ok()
    }

    /// Paths, within the process's folder, of those descriptors whose links the kernel displays as
    /// `shown`.
    pub(super) fn descriptors(&self, shown: &str) -> Vec<String> {
        let numbers = self.names("fd").into_iter();
        let paths = numbers.map(|number| format!("fd/{number}"));
        let is_shown = |path: &String| self.link(path).as_deref() == Some(shown);
        paths.filter(is_shown).collect()
    }

    /// The names, which are numbers, of the entries of a folder below the process's folder.
    fn names(&self, folder: &str) -> Vec<String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(&self.folder, folder, flags, Mode::empty());
        let entries = folder.and_then(Dir::new).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.filter(|name| !name.starts_with('.')).collect()
    }

    /// The content of a file in memory (memfd_create(2)) that a process of this user created. The
    /// kernel assigns such a file to the user of the process that creates it, so no other user can
    /// create it; its name proves nothing. A server of some other filesystem could report any user
    /// as a file's owner, so only files of the kernel's own in-memory filesystem count.
    pub(super) fn file_in_memory(&self, path: &str, user: u32) -> Option<Vec<u8>> {
        // Does not open the file for reading yet, because it may be a pipe without a writer, or a
        // device.
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let handle = openat(&self.folder, path, flags, Mode::empty()).ok()?;
        let asked = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let status = statx(&handle, c"", asked, StatxFlags::BASIC_STATS).ok()?;
        let kind = FileType::from_raw_mode(status.stx_mode.into());
        let device = (status.stx_dev_major, status.stx_dev_minor);
        if (kind, status.stx_uid, status.stx_nlink) != (FileType::RegularFile, user, 0)
            || device != device_of_memory()?
        {
            return None;
        }
        let same = format!("/proc/self/fd/{}", handle.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = rustix::fs::open(Path::new(&same), flags, Mode::empty()).ok()?;
        let mut bytes = Vec::new();
        File::from(file)
            .take(LONGEST)
            .read_to_end(&mut bytes)
            .ok()?;
        Some(bytes)
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<(), Errno> {
        pidfd_send_signal(&self.folder, signal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    fn this_process() -> Process {
        Process::open(rustix::process::getpid()).unwrap()
    }

    #[test]
    fn a_process_is_of_its_user_and_of_no_other() {
        let user = rustix::process::getuid().as_raw();
        assert!(this_process().is_of(user) && !this_process().is_of(user + 1));
        assert!(numbers().any(|pid| pid == rustix::process::getpid()));
    }

    #[test]
    fn a_process_that_has_ended_takes_no_signal_and_shows_nothing() {
        let child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn();
        let mut child = child.unwrap();
        let process = Process::open(Pid::from_child(&child)).unwrap();
        assert!(process.state().is_some());
        process.signal(Signal::KILL).unwrap();
        child.wait().unwrap();
        assert_eq!(process.signal(Signal::KILL), Err(Errno::SRCH));
        assert_eq!(process.state(), None);
    }

    #[test]
    fn only_a_file_in_memory_of_the_user_is_read() {
        let user = rustix::process::getuid().as_raw();
        let memory = memfd_create("a name", MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&memory, b"text").unwrap();
        let this = this_process();
        let paths = this.descriptors("/memfd:a name (deleted)");
        assert_eq!(paths, [format!("fd/{}", memory.as_raw_fd())]);
        let read = |user| this.file_in_memory(&paths[0], user);
        assert_eq!(read(user).as_deref(), Some(&b"text"[..]));
        assert_eq!(read(user + 1), None);
        let named = tempfile::NamedTempFile::new().unwrap();
        let path = format!("fd/{}", named.as_file().as_raw_fd());
        assert_eq!(this.file_in_memory(&path, user), None);
        // A file without a name on another filesystem, whose server may claim any owner.
        let nameless = tempfile::tempfile().unwrap();
        let path = format!("fd/{}", nameless.as_raw_fd());
        assert_eq!(this.file_in_memory(&path, user), None);
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        let path = format!("fd/{}", pipe.as_raw_fd());
        assert_eq!(this.file_in_memory(&path, user), None);
    }
}
