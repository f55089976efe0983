//! A child of this process and its descendants: finds out whether they run, and ends them.

use rustix::process::{Pid, Signal};

use super::connection;
use super::process::Process;

/// A child of this process with its descendants.
pub(crate) struct Family(Process);

/// The result of one check of these processes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Look {
    /// Number of context switches of their threads; it grows whenever a thread runs.
    pub(crate) switches: u64,
    /// Description of a process that cannot run, with the remedy.
    pub(crate) stopped: Option<String>,
}

impl Look {
    /// Combines the result with that of more processes.
    pub(crate) fn and(self, other: Self) -> Self {
        Self {
            switches: self.switches + other.switches,
            stopped: self.stopped.or(other.stopped),
        }
    }
}

impl Family {
    /// The child with this ID and its descendants; `None` if the child has ended.
    pub(crate) fn of(child: u32) -> Option<Self> {
        let pid = Pid::from_raw(child.try_into().ok()?)?;
        Process::open(pid).map(Self)
    }

    /// The existing children of this process, except `before`.
    pub(crate) fn started_since(before: &[Self]) -> Vec<Self> {
        let this = Process::open(rustix::process::getpid());
        let children = this.iter().flat_map(Process::children);
        let is_new = |child: &Process| before.iter().all(|known| known.0.pid != child.pid);
        children.filter(is_new).map(Self).collect()
    }

    pub(crate) fn look(&self) -> Look {
        let all = self.0.descendants();
        let processes = || [&self.0].into_iter().chain(&all);
        Look {
            switches: processes().map(Process::switches).sum(),
            stopped: processes().find_map(|process| {
                let pid = process.pid.as_raw_nonzero();
                let why = process.why_stopped()?;
                Some(format!("its process {pid} {why}"))
            }),
        }
    }

    /// Whether the child itself holds the connection of the mount `MAJOR:MINOR`.
    pub(crate) fn holds(&self, device: &str) -> bool {
        connection::holds(&self.0, device)
    }

    /// Kills the child and its descendants. A process in a frozen cgroup of version 1 ends when the
    /// cgroup is thawed, before the process does anything else.
    pub(crate) fn kill(&self) {
        let all = self.0.descendants();
        for process in [&self.0].into_iter().chain(&all) {
            // This fails only for processes that have ended.
            let _ = process.signal(Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::thread;
    use std::time::{Duration, Instant};

    #[track_caller]
    fn soon(what: &str, is_so: impl Fn() -> bool) {
        let begin = Instant::now();
        while !is_so() {
            assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_grandchild_that_has_stopped_is_named_and_ends_with_the_others() {
        let script = "(kill -STOP $(exec sh -c 'echo $PPID'); sleep 60) & wait";
        let child = Command::new("sh").args(["-c", script]).spawn();
        let mut child = child.unwrap();
        let family = Family::of(child.id()).unwrap();
        soon("it stops", || family.look().stopped.is_some());
        let look = family.look();
        let line = look.stopped.unwrap();
        assert!(line.contains("is stopped: kill -CONT "), "{line}");
        assert!(
            !line.contains(&format!("process {} ", child.id())),
            "{line}"
        );
        let below = family.0.descendants();
        assert!(!below.is_empty() && look.switches > 0);
        family.kill();
        child.wait().unwrap();
        let ended = |process: &Process| matches!(process.state(), None | Some('Z' | 'X'));
        soon("all end", || below.iter().all(ended));
    }
}
