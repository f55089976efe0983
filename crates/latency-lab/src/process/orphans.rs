//! Processes that outlive the program that started them. A launch lasts until the last of them has
//! ended.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, set_child_subreaper, waitpid,
};

use super::facts::{children, descendants};
use crate::Interrupt;

/// Maximum time until a request to stop is noticed.
const SLICE: Duration = Duration::from_millis(200);

/// How long to wait for killed processes, which may still be waiting for a device.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

/// While this exists, orphaned processes become children of the lab, and the lab must start nothing
/// but the program.
#[derive(Debug)]
pub(crate) struct Orphans {
    /// The children that the lab had before the program was started.
    before: BTreeSet<u32>,
}

impl Orphans {
    /// Begins to adopt orphans. Call it before the program is started.
    pub(crate) fn watch() -> Orphans {
        let me = std::process::id();
        // Any user may do this, and every kernel since Linux 3.4 supports it.
        let _ = set_child_subreaper(Some(Pid::INIT));
        Orphans {
            before: children(me),
        }
    }

    /// Waits until all processes that the program left behind have ended, at most until `deadline`
    /// or a request to stop. Returns true if there were such processes.
    pub(crate) fn wait(&self, deadline: Instant, interrupt: &Interrupt) -> bool {
        let mut found = false;
        while let Some(&one) = self.living().first() {
            found = true;
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() || interrupt.asked() {
                break;
            }
            let time = Timespec::try_from(left.min(SLICE)).ok();
            if let Ok(pidfd) = pidfd_open(one, PidfdFlags::empty()) {
                let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], time.as_ref());
            }
        }
        found
    }

    /// The processes still running: "sleep (4711)".
    pub(crate) fn names(&self) -> Vec<String> {
        let name = |pid: Pid| {
            let pid = pid.as_raw_nonzero();
            let comm = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            format!("{} ({pid})", comm.trim())
        };
        self.living().into_iter().map(name).collect()
    }

    /// Children of the lab that the program left behind. Children that have ended are reaped, so
    /// that their own children become visible.
    fn living(&self) -> Vec<Pid> {
        let new = children(std::process::id());
        let new = new.difference(&self.before);
        let new = new.filter_map(|&pid| Pid::from_raw(pid as i32));
        let lives = |pid: &Pid| matches!(waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None));
        new.filter(lives).collect()
    }
}

impl Drop for Orphans {
    fn drop(&mut self) {
        let deadline = Instant::now() + KILL_TIMEOUT;
        loop {
            let left = self.living();
            if left.is_empty() || Instant::now() > deadline {
                break;
            }
            for pid in left {
                let family = descendants(pid.as_raw_nonzero().get() as u32);
                let family = family
                    .into_iter()
                    .filter_map(|pid| Pid::from_raw(pid as i32));
                for pid in family.chain([pid]) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = set_child_subreaper(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Child, End};
    use std::process::Command;

    /// Runs in a separate process, because other tests in this process have children, too.
    #[test]
    fn a_launch_ends_with_the_last_process_and_what_does_not_end_is_ended() {
        const NAME: &str = "EROFAST_TEST_LEFT";
        if std::env::var_os(NAME).is_none() {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "--nocapture"])
                .arg("process::orphans::tests::a_launch_ends_with_the_last_process_and_what_does_not_end_is_ended")
                .env(NAME, "1")
                .output()
                .unwrap();
            assert!(output.status.success(), "{output:?}");
            return;
        }
        let later = |seconds| Instant::now() + Duration::from_secs(seconds);
        let run = |script: &str| {
            let left = Orphans::watch();
            let mut child = Child::spawn(Command::new("sh").args(["-c", script])).unwrap();
            let end = child
                .wait(Duration::from_secs(60), &Interrupt::never())
                .unwrap();
            assert!(matches!(end, End::Exited(status) if status.success()));
            // The child is kept, because dropping it would kill a process that has not left its
            // group yet.
            (left, child)
        };
        let directory = crate::scratch::Scratch::new(&std::env::temp_dir()).unwrap();
        let file = directory.path().join("done");
        let script = format!("setsid sh -c 'sleep 0.3; : > {}' &", file.display());
        let (left, child) = run(&script);
        assert!(left.wait(later(60), &Interrupt::never()) && file.exists());
        assert!(left.names().is_empty());
        drop((left, child));
        let (left, child) = run("exit 0");
        let found = left.wait(later(60), &Interrupt::never());
        assert!(!found, "nothing was left");
        drop((left, child));
        let (left, _child) = run("(setsid sleep 1000 &)");
        assert!(left.wait(later(0), &Interrupt::never()));
        let names = left.names();
        assert!(names.len() == 1 && names[0].starts_with("s"), "{names:?}");
        drop(left);
        assert!(children(std::process::id()).is_empty());
    }
}
