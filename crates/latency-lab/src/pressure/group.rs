//! A memory-limited cgroup; when it is dropped, its processes are moved out and it is removed.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::place::Place;
use crate::{LabError, Result};

/// How long the kernel may take to release a group whose processes have ended.
const TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Group {
    path: PathBuf,
    place: Place,
    /// Whether the lab enabled the memory controller for the children of `place`.
    switched: bool,
}

impl Group {
    /// A new group that may use `limit` bytes and no swap.
    pub(super) fn make(limit: u64) -> Result<Group> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = Place::find()?;
        let path = place
            .parent
            .join(format!("erofast-lab-{}-{number}", std::process::id()));
        let mut group = Group {
            path,
            place,
            switched: false,
        };
        if let Some(switch) = &group.place.switch {
            fs::write(switch, "+memory").map_err(|source| refused(switch, source))?;
            group.switched = true;
        }
        fs::create_dir(&group.path).map_err(|source| refused(&group.path, source))?;
        group.limit(limit)?;
        Ok(group)
    }

    fn limit(&self, limit: u64) -> Result<()> {
        let file = self.path.join(self.place.interface.limit);
        fs::write(&file, limit.to_string()).map_err(|source| refused(&file, source))?;
        // A kernel without swap has no such file and needs no limit.
        let _ = fs::write(self.path.join(self.place.interface.swap), "0");
        Ok(())
    }

    /// Moves a process with all its threads into the group. Memory that the process has already
    /// touched stays charged to its old group.
    pub(super) fn add(&self, pid: u32) -> Result<()> {
        let file = self.processes();
        fs::write(&file, pid.to_string()).map_err(|source| refused(&file, source))
    }

    /// The file that lists the group's processes; writing a PID to it moves that process into the
    /// group.
    pub(super) fn processes(&self) -> PathBuf {
        self.path.join("cgroup.procs")
    }

    /// The group's peak memory, in bytes.
    pub(super) fn peak(&self) -> Option<u64> {
        let file = self.path.join(self.place.interface.peak);
        let text = fs::read_to_string(file).ok()?;
        text.trim().parse().ok()
    }

    fn remove(&self) -> io::Result<()> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            self.empty();
            match fs::remove_dir(&self.path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error)
                    if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline =>
                {
                    std::thread::sleep(Duration::from_millis(10));
                }
                other => return other,
            }
        }
    }

    /// Moves the remaining processes to the parent group.
    fn empty(&self) {
        let parent = self.place.parent.join("cgroup.procs");
        let text = fs::read_to_string(self.processes()).unwrap_or_default();
        for pid in text.lines() {
            let _ = fs::write(&parent, pid);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Err(error) = self.remove() {
            let _ = writeln!(
                io::stderr(),
                "erofast: lab pressure: cannot remove {}: {error}",
                self.path.display()
            );
        }
        if let Some(switch) = self.place.switch.as_ref().filter(|_| self.switched) {
            let _ = fs::write(switch, "-memory");
        }
    }
}

fn refused(path: &Path, source: io::Error) -> LabError {
    match source.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            LabError::Privilege(format!(
                "lab pressure: creating a memory-limited cgroup needs root or a cgroup of your \
                 own: {}: {source}",
                path.display()
            ))
        }
        _ => LabError::Io {
            what: format!("creating the cgroup {}", path.display()),
            source,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interrupt;
    use crate::process::Child;
    use std::process::Command;

    fn group(limit: u64) -> Option<Group> {
        match Group::make(limit) {
            Ok(group) => Some(group),
            Err(LabError::Privilege(reason)) => {
                println!("skipped: {reason}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn it_goes_even_with_a_process_in_it_and_lets_that_one_live() {
        let Some(group) = group(64 << 20) else { return };
        let mut child = Child::spawn(Command::new("sleep").arg("100")).unwrap();
        group.add(child.id()).unwrap();
        let path = group.path.clone();
        assert!(path.exists());
        drop(group);
        assert!(!path.exists());
        assert_eq!(child.ended().unwrap(), None);
    }

    #[test]
    fn who_needs_more_than_the_limit_is_killed() {
        let Some(group) = group(16 << 20) else { return };
        let script = format!(
            "echo $$ > {}; head -c 200000000 /dev/zero | tail -c 190000000",
            group.processes().display()
        );
        let mut child = Child::spawn(Command::new("sh").args(["-c", &script])).unwrap();
        let end = child
            .wait(Duration::from_secs(60), &Interrupt::never())
            .unwrap();
        // The shell's status reports tail's SIGKILL.
        assert_eq!(end.describe(), "exit status 137");
        assert!(group.peak().is_none_or(|bytes| bytes <= 17 << 20));
    }
}
