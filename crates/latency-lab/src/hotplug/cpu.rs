//! The CPU that goes offline and online. It comes back online when [`Cpu`] is dropped, and even if
//! the lab is killed.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::error::{Doing, need_root};
use crate::process::value_in;
use crate::{LabError, Result};

const CPUS: &str = "/sys/devices/system/cpu";

#[derive(Debug)]
pub(super) struct Cpu {
    pub(super) number: u32,
    switch: PathBuf,
    /// A process that brings the CPU back online when its standard input is closed, which happens
    /// at the latest when the lab ends.
    keeper: Child,
}

impl Cpu {
    /// Finds the requested CPU or, if none is requested, the last online CPU that can go offline.
    pub(super) fn find(asked: Option<u32>) -> Result<Cpu> {
        need_root("lab hotplug: taking a CPU offline needs root")?;
        let can_go =
            |number: &u32| fs::read_to_string(switch(*number)).is_ok_and(|text| text.trim() == "1");
        let number = match asked {
            Some(number) => Some(number).filter(can_go),
            None => (0..4096).rev().find(can_go),
        };
        let Some(number) = number else {
            let what = asked.map_or("no online CPU can go offline".into(), |number| {
                format!("CPU {number} is not online, or cannot go offline")
            });
            return Err(LabError::Usage(format!(
                "lab hotplug: {what} here ({CPUS}/cpu*/online)"
            )));
        };
        let switch = switch(number);
        Ok(Cpu {
            number,
            keeper: keeper(&switch)?,
            switch,
        })
    }

    pub(super) fn set(&mut self, online: bool) -> Result<()> {
        let (value, what) = match online {
            true => ("1", "taking online with"),
            false => ("0", "taking offline with"),
        };
        fs::write(&self.switch, value).doing(what, &self.switch)
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        drop(self.keeper.stdin.take());
        let _ = self.keeper.wait();
    }
}

fn keeper(switch: &Path) -> Result<Child> {
    let mut keeper = Command::new("sh");
    keeper
        .args(["-c", "read -r line; echo 1 > \"$0\""])
        .arg(switch);
    let keeper = keeper.stdin(Stdio::piped()).process_group(0).spawn();
    keeper.doing("starting sh for", switch)
}

fn switch(number: u32) -> PathBuf {
    PathBuf::from(format!("{CPUS}/cpu{number}/online"))
}

/// Whether the daemon's worker for `cpu` may run only on that CPU. None if the daemon has no such
/// thread.
pub(super) fn is_pinned(daemon: u32, cpu: u32) -> Option<bool> {
    let tasks = fs::read_dir(format!("/proc/{daemon}/task")).ok()?;
    let name = format!("erofs_worker/{cpu}");
    let worker = tasks.flatten().map(|task| task.path()).find(|task| {
        fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
    })?;
    let status = worker.join("status");
    let allowed = value_in(&status.to_string_lossy(), "Cpus_allowed_list")?;
    Some(allowed == cpu.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cpu_is_online_again_when_the_lab_is_gone() {
        let name = format!("erofast-lab-online-{}", std::process::id());
        let switch = std::env::temp_dir().join(name);
        fs::write(&switch, "0").unwrap();
        let mut keeper = keeper(&switch).unwrap();
        assert!(keeper.try_wait().unwrap().is_none());
        assert_eq!(fs::read(&switch).unwrap(), b"0");
        // Closes the pipe, as the kernel would if the lab were killed.
        drop(keeper.stdin.take());
        assert!(keeper.wait().unwrap().success());
        assert_eq!(fs::read(&switch).unwrap(), b"1\n");
        fs::remove_file(switch).unwrap();
    }
}
