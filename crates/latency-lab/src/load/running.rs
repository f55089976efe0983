//! A running load, and the CPU time it used.

use std::process::Command;

use sys::parent::end_with_parent;

use super::burn::{LoadReport, Moment, Spent};
use super::file::LoadFile;
use crate::error::dash;
use crate::process::{Child, descendants};
use crate::{LabError, Result};

/// A running load, which ends when dropped.
#[derive(Debug)]
pub struct Load {
    child: Child,
    work: Work,
    spent: Spent,
}

#[derive(Debug)]
enum Work {
    /// fio, whose jobs stay the same processes.
    Fio {
        jobs: Vec<u32>,
        burners: usize,
        _file: LoadFile,
    },
    /// A shell command line, including all processes that it starts.
    Line(String),
}

impl Load {
    pub(super) fn of_fio(child: Child, burners: usize, file: LoadFile) -> Load {
        let jobs = Vec::new();
        let work = Work::Fio {
            jobs,
            burners,
            _file: file,
        };
        Load::new(child, work)
    }

    pub(super) fn of_line(line: &str) -> Result<Load> {
        let mut shell = Command::new("sh");
        end_with_parent(&mut shell);
        let child = Child::spawn(shell.args(["-c", line]))?;
        Ok(Load::new(child, Work::Line(line.into())))
    }

    fn new(child: Child, work: Work) -> Load {
        let spent = Spent::default();
        Load { child, work, spent }
    }

    /// Finds the processes that fio has started, and returns their number.
    pub(super) fn find_jobs(&mut self) -> usize {
        let found = descendants(self.child.id());
        let count = found.len();
        if let Work::Fio { jobs, .. } = &mut self.work {
            *jobs = found;
        }
        count
    }

    /// Returns an error if the load has ended.
    pub fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.ended()? else {
            return Ok(());
        };
        let name = match &self.work {
            Work::Fio { .. } => "fio",
            Work::Line(line) => line,
        };
        let why = dash(&self.child.last_line());
        Err(LabError::Load(format!("{name} ended: {status}{why}")))
    }

    /// All processes of the load.
    pub fn processes(&self) -> Vec<u32> {
        let below = match &self.work {
            Work::Fio { jobs, .. } => jobs.clone(),
            Work::Line(_) => descendants(self.child.id()),
        };
        below.into_iter().chain([self.child.id()]).collect()
    }

    /// The current counters, which mark the beginning of a window.
    pub fn window(&self) -> Option<Moment> {
        Moment::now(&self.processes())
    }

    /// Counts the window that began when `window` was taken and ends now.
    pub fn count(&mut self, window: Option<Moment>) {
        if let Some(spent) = self.since(window) {
            self.add(spent);
        }
    }

    /// The time spent since `window` was taken.
    pub(crate) fn since(&self, window: Option<Moment>) -> Option<Spent> {
        self.window()?.since(window?)
    }

    /// Adds to the CPU time that the load has spent in the counted windows.
    pub(crate) fn add(&mut self, spent: Spent) {
        self.spent.add(spent);
    }

    /// The report of the load's CPU time in all counted windows.
    pub fn report(&self) -> LoadReport {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        match &self.work {
            Work::Fio { burners, .. } => self.spent.report(*burners, cpus),
            Work::Line(line) => self.spent.of_line(line, cpus),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_ends_is_no_load_any_more() {
        let mut load = Load::of_line("echo no such load >&2; exit 3").unwrap();
        let error = loop {
            if let Err(error) = load.check() {
                break error.to_string();
            }
            std::thread::sleep(std::time::Duration::from_millis(5));
        };
        assert!(
            error.ends_with("ended: exit status: 3: no such load"),
            "{error}"
        );
        let report = load.report();
        assert!(!report.burned, "nothing was counted");
    }

    #[test]
    fn a_load_that_is_a_line_counts_what_it_starts() {
        let mut load = Load::of_line("while :; do :; done & wait").unwrap();
        while load.find_jobs() == 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let spent = loop {
            let before = load.window();
            std::thread::sleep(std::time::Duration::from_millis(50));
            let spent = load.since(before).unwrap_or_default();
            if spent.load > 0.0 {
                break spent;
            }
        };
        load.add(spent);
        assert!(load.report().burned && load.report().load_cpu_share > 0.0);
    }
}
