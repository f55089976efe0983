//! The CPU that goes offline and online; online again when dropped.

use std::fs;
use std::path::PathBuf;

use crate::error::{Doing, need_root};
use crate::process::value_in;
use crate::{LabError, Result};

const CPUS: &str = "/sys/devices/system/cpu";

#[derive(Debug)]
pub(super) struct Cpu {
    number: u32,
    switch: PathBuf,
}

impl Cpu {
    /// The requested one, or the last that can go offline and is online now.
    pub(super) fn find(asked: Option<u32>) -> Result<Cpu> {
        need_root("lab hotplug: taking a CPU offline needs root")?;
        let can_go =
            |number: &u32| fs::read_to_string(switch(*number)).is_ok_and(|text| text.trim() == "1");
        let number = match asked {
            Some(number) => Some(number).filter(can_go),
            None => (0..4096).rev().find(can_go),
        };
        let Some(number) = number else {
            let what = asked.map_or("no CPU is online and can go offline".into(), |number| {
                format!("CPU {number} is not online, or cannot go offline")
            });
            return Err(LabError::Usage(format!(
                "lab hotplug: {what} here ({CPUS}/cpu*/online)"
            )));
        };
        Ok(Cpu {
            number,
            switch: switch(number),
        })
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    pub(super) fn set(&mut self, online: bool) -> Result<()> {
        let what = if online {
            "taking online with"
        } else {
            "taking offline with"
        };
        fs::write(&self.switch, if online { "1" } else { "0" }).doing(what, &self.switch)
    }
}

impl Drop for Cpu {
    fn drop(&mut self) {
        let _ = self.set(true);
    }
}

fn switch(number: u32) -> PathBuf {
    PathBuf::from(format!("{CPUS}/cpu{number}/online"))
}

/// Whether the worker of `cpu` among the threads of a daemon may run there and nowhere else. None
/// when the daemon has no thread of that name.
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
