//! The cycles: offline, wait, online, worker pinned again.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::HotplugOptions;
use super::cpu::{Cpu, is_pinned};
use super::readers::{Readers, Reference};
use crate::engine::{Mounted, Site, mount_point};
use crate::launch::command_at;
use crate::load::Fio;
use crate::process::{Child, DaemonMemory, End};
use crate::statistics::Random;
use crate::{Interrupt, LabError, Progress, Result};

/// The daemon learns of a CPU by an event; under load it may take long to act on it.
const PIN: Duration = Duration::from_secs(5);
/// Longest time that the CPU stays offline, and online.
const STAY_MS: usize = 80;

/// What happened while a CPU went and came back.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct HotplugCounts {
    /// Completed cycles.
    pub cycles: usize,
    /// Reads issued.
    pub requests: u64,
    /// Reads that failed or never returned, and launches that failed.
    pub lost: u64,
    /// Of all reads together.
    pub wrong_bytes: u64,
    /// The slowest read.
    pub slowest_us: f64,
    /// The user stopped the run.
    pub interrupted: bool,
    /// The first failure.
    pub first_fault: Option<String>,
    /// Launches while the CPU was offline.
    pub launches: u64,
    /// Of the daemon, where it is ours.
    pub memory: Option<DaemonMemory>,
}

/// Result of the cycles.
#[derive(Debug, Default)]
pub(super) struct Cycled {
    pub(super) counts: HotplugCounts,
    pub(super) offline_us: Vec<f64>,
    pub(super) online_us: Vec<f64>,
    pub(super) pin_us: Vec<f64>,
    /// Cycles after which the worker was not pinned again; none where the engine has no such
    /// worker.
    pub(super) not_pinned: Option<usize>,
}

pub(super) struct Experiment<'a> {
    pub(super) options: &'a HotplugOptions,
    pub(super) site: &'a Site,
    pub(super) points: &'a Path,
    pub(super) interrupt: &'a Interrupt,
}

impl Experiment<'_> {
    pub(super) fn run(
        &self,
        cpu: &mut Cpu,
        reference: &Reference,
        mut load: Option<&mut Fio>,
        progress: &mut dyn Progress,
    ) -> Result<Cycled> {
        let point = mount_point(self.points, "mount")?;
        let mut mounted = self
            .options
            .engine
            .mount(self.site, &point, self.interrupt)?;
        let readers = Readers::start(self.options.readers, &point, reference, self.options.seed)
            .map_err(|source| LabError::io("opening files of", &point, source))?;
        let window = load.as_ref().and_then(|load| load.window());
        let counts = readers.counts.clone();
        let mut cycled = Cycled::default();
        let ended = self.cycles(cpu, &mut mounted, &mut cycled, progress);
        if let Some(load) = &mut load {
            load.count(window);
        }
        cycled.counts.memory = DaemonMemory::of(&self.site.erofast, mounted.daemon(), &point);
        let hanging = readers.stop(self.options.patience);
        ended?;
        mounted.check()?;
        cycled.counts.requests = counts.requests.load(Ordering::Relaxed) + hanging;
        cycled.counts.lost += counts.failed.load(Ordering::Relaxed) + hanging;
        cycled.counts.wrong_bytes = counts.wrong_bytes.load(Ordering::Relaxed);
        cycled.counts.slowest_us = counts.slowest_ns.load(Ordering::Relaxed) as f64 / 1000.0;
        let fault = counts
            .first_fault
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .take();
        cycled.counts.first_fault = cycled.counts.first_fault.or(fault);
        // A reader that hangs keeps the mount busy; then it is detached, which was reported before.
        let unmounted = mounted.unmount();
        if hanging == 0 {
            unmounted.map(|()| cycled)
        } else {
            Ok(cycled)
        }
    }

    fn cycles(
        &self,
        cpu: &mut Cpu,
        mounted: &mut Mounted,
        cycled: &mut Cycled,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut random = Random::new(self.options.seed);
        let mut stay = || std::thread::sleep(Duration::from_millis(random.below(STAY_MS) as u64));
        progress.begin("taking a CPU away and back", self.options.cycles as u64);
        for cycle in 0..self.options.cycles {
            if self.interrupt.asked() {
                cycled.counts.interrupted = true;
                break;
            }
            let start = Instant::now();
            cpu.set(false)?;
            cycled.offline_us.push(us(start.elapsed()));
            stay();
            self.launch(mounted, cycled)?;
            let start = Instant::now();
            cpu.set(true)?;
            cycled.online_us.push(us(start.elapsed()));
            self.wait_for_pin(cpu, mounted, cycled);
            mounted.check()?;
            stay();
            cycled.counts.cycles = cycle + 1;
            progress.step(cycle as u64 + 1, "");
        }
        Ok(())
    }

    /// Runs the program from the mount while the CPU is offline.
    fn launch(&self, mounted: &Mounted, cycled: &mut Cycled) -> Result<()> {
        if self.options.command.is_empty() {
            return Ok(());
        }
        let words = command_at(&self.options.command, false, mounted.point());
        let mut child = Child::spawn(Command::new(&words[0]).args(&words[1..]).current_dir("/"))?;
        cycled.counts.launches += 1;
        match child.wait(self.options.patience, self.interrupt)? {
            End::Exited(status) if status.success() => (),
            End::Interrupted => (),
            end => {
                cycled.counts.lost += 1;
                let text = format!(
                    "{}: {} {}",
                    words[0].to_string_lossy(),
                    end.describe(),
                    child.last_line()
                );
                cycled.counts.first_fault.get_or_insert(text);
            }
        }
        Ok(())
    }

    fn wait_for_pin(&self, cpu: &Cpu, mounted: &Mounted, cycled: &mut Cycled) {
        let Some(daemon) = mounted.daemon() else {
            return;
        };
        let start = Instant::now();
        let mut seen = is_pinned(daemon, cpu.number());
        while seen != Some(true) && start.elapsed() < PIN {
            // The thread may not exist while its CPU is offline: it counts from the first time it
            // was seen.
            if seen.is_none() && cycled.not_pinned.is_none() && start.elapsed() > PIN / 5 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
            seen = is_pinned(daemon, cpu.number());
        }
        let failed = usize::from(seen != Some(true));
        *cycled.not_pinned.get_or_insert(0) += failed;
        if failed == 0 {
            cycled.pin_us.push(us(start.elapsed()));
        }
    }
}

fn us(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round()
}
