//! Runs the rounds. Each way to get buffers has one turn per round: mount, fill the group, measure
//! the last program, unmount.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use fastrand::Rng;

use super::assign::assign;
use super::counters::Counters;
use super::group::Group;
use super::options::PressureOptions;
use crate::engine::{Mounted, Site, mount_point, warm};
use crate::launch::command_at;
use crate::process::{Child, DaemonMemory, End, Others};
use crate::{Interrupt, Progress, Result};

/// A shell command that joins the group before it executes the program, so that all memory of the
/// program is charged to the group.
const JOIN: &str = r#"echo $$ > "$0" && exec "$@""#;

#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// Size of the pool, in pages.
    pub(super) pages: usize,
    pub(super) counters: Counters,
    pub(super) launch_us: f64,
    pub(super) memory: Option<DaemonMemory>,
    pub(super) group_peak: Option<u64>,
    /// Fraction of CPU time that other programs used during the launch.
    pub(super) foreign_share: f64,
}

pub(super) struct Rounds<'a> {
    options: &'a PressureOptions,
    site: &'a Site,
    point: PathBuf,
    interrupt: &'a Interrupt,
    /// Files of each program.
    assigned: Vec<Vec<PathBuf>>,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(
        options: &'a PressureOptions,
        site: &'a Site,
        points: &Path,
        interrupt: &'a Interrupt,
    ) -> Result<Self> {
        let point = mount_point(points, "mount")?;
        let engine = options.engine(0);
        let mounted = engine.mount(site, &point, interrupt)?;
        let assigned = assign(&point, options.programs, options.limit, options.seed)?;
        mounted.unmount()?;
        Ok(Rounds {
            options,
            site,
            point,
            interrupt,
            assigned,
        })
    }

    /// Takes all samples; stops early if the user asks to.
    pub(super) fn run(&self, progress: &mut dyn Progress) -> Result<Vec<Measured>> {
        let mut random = Rng::with_seed(self.options.seed);
        let mut ways = self.options.pools.clone();
        let mut samples = Vec::new();
        let total = (ways.len() * self.options.iterations) as u64;
        progress.begin("launching under memory pressure", total);
        for _ in 0..self.options.iterations {
            random.shuffle(&mut ways);
            for &pages in &ways {
                match self.sample(pages)? {
                    Some(sample) => samples.push(sample),
                    None => return Ok(samples),
                }
                progress.step(samples.len() as u64, "");
            }
        }
        Ok(samples)
    }

    /// Takes a sample; none if the user asks to stop.
    fn sample(&self, pages: usize) -> Result<Option<Measured>> {
        if self.interrupt.asked() {
            return Ok(None);
        }
        warm(&self.site.image)?;
        let group = Group::make(self.options.limit)?;
        let engine = self.options.engine(pages);
        let mut mounted = engine.mount(self.site, &self.point, self.interrupt)?;
        group.add(mounted.daemon().unwrap_or_default())?;
        let (others, begin) = (Others::now(mounted.daemon()), Instant::now());
        let (last, before) = match self.assigned.split_last() {
            Some(split) => split,
            None => return Ok(None),
        };
        for files in before {
            if self.program(&reads(files), &group, &mut mounted)?.is_none() {
                return Ok(None);
            }
        }
        let command = match &self.options.command[..] {
            [] => reads(last),
            command => command_at(command, false, &self.point),
        };
        let start = Counters::read(&self.site.erofast, &self.point)?;
        let Some(launch_us) = self.program(&command, &group, &mut mounted)? else {
            return Ok(None);
        };
        let sample = Measured {
            pages,
            counters: Counters::read(&self.site.erofast, &self.point)?.since(&start),
            launch_us,
            memory: DaemonMemory::of(&self.site.erofast, mounted.daemon(), &self.point),
            group_peak: group.peak(),
            foreign_share: others.share(begin.elapsed()),
        };
        mounted.unmount()?;
        Ok(Some(sample))
    }

    /// Runs a program inside the group and waits for its end; returns how long it took.
    fn program(
        &self,
        words: &[OsString],
        group: &Group,
        mounted: &mut Mounted,
    ) -> Result<Option<f64>> {
        let mut command = Command::new("sh");
        command.args(["-c", JOIN]).arg(group.processes());
        command.args(words).current_dir(&self.point);
        let start = Instant::now();
        let mut child = Child::spawn(&mut command)?;
        let end = child.wait(self.options.timeout, self.interrupt)?;
        let took = start.elapsed();
        if end == End::Interrupted {
            return Ok(None);
        }
        let (program, limit) = (words[0].to_string_lossy(), self.options.limit >> 20);
        let program = format!("{program} in a cgroup of {limit} MiB (--limit)");
        let judged = child.judge(end, "erofast", program);
        if judged.is_err() {
            mounted.check()?;
        }
        judged.map(|()| Some(took.as_secs_f64() * 1e6))
    }
}

/// A program that reads files from beginning to end.
fn reads(files: &[PathBuf]) -> Vec<OsString> {
    let words = ["cat", "--"].map(OsString::from).into_iter();
    words
        .chain(files.iter().map(|file| file.clone().into_os_string()))
        .collect()
}
