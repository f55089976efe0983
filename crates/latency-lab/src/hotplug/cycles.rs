//! Runs the cycles: in each, the CPU goes offline and comes back, and its worker must be pinned to
//! it again.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::HotplugOptions;
use super::cpu::{Cpu, is_pinned};
use super::readers::{Counts, HotplugCounts, Readers, Reference};
use crate::engine::{Mounted, Site, mount_point};
use crate::error::Doing;
use crate::launch::command_at;
use crate::load::Load;
use crate::process::{Child, DaemonMemory};
use crate::{Interrupt, Progress, Result};

/// How long pinning may take: an event tells the daemon that the CPU is back, and under load the
/// daemon reacts late.
const PIN: Duration = Duration::from_secs(5);
/// A request that takes longer than this counts as lost.
const PATIENCE: Duration = Duration::from_secs(10);
/// Seed of the places that are read and of the lengths of the pauses.
const SEED: u64 = 1;
/// Maximum time for which the CPU stays offline or online, in milliseconds.
const STAY_MS: usize = 80;

#[derive(Debug, Default)]
pub(super) struct Cycled {
    pub(super) counts: HotplugCounts,
    pub(super) offline_us: Vec<f64>,
    pub(super) online_us: Vec<f64>,
    pub(super) pin_us: Vec<f64>,
    /// Number of cycles after which the worker was not pinned again; none if the engine has no such
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
        mut load: Option<&mut Load>,
        progress: &mut dyn Progress,
    ) -> Result<Cycled> {
        let point = mount_point(self.points, "mount")?;
        let mut mounted = self
            .options
            .engine
            .mount(self.site, &point, self.interrupt)?;
        let readers = Readers::start(self.options.readers, &point, reference, SEED)
            .doing("opening files of", &point)?;
        let window = load.as_ref().and_then(|load| load.window());
        let mut cycled = Cycled::default();
        let counts = readers.counts.clone();
        let ended = self.cycles(cpu, &mut mounted, &counts, &mut cycled, progress);
        if let Some(load) = &mut load {
            load.count(window);
        }
        let memory = DaemonMemory::of(&self.site.erofast, mounted.daemon(), &point);
        let hanging = readers.stop(PATIENCE);
        ended?;
        mounted.check()?;
        cycled.counts = counts.lock().clone();
        cycled.counts.memory = memory;
        // A reader that hangs keeps the mount busy, so the mount is detached. The hang has already
        // been reported.
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
        counts: &Counts,
        cycled: &mut Cycled,
        progress: &mut dyn Progress,
    ) -> Result<()> {
        let mut random = Rng::with_seed(SEED);
        let mut stay = || std::thread::sleep(Duration::from_millis(random.usize(..STAY_MS) as u64));
        progress.begin("taking a CPU offline and back", self.options.cycles as u64);
        for cycle in 0..self.options.cycles {
            if self.interrupt.asked() {
                counts.lock().interrupted = true;
                break;
            }
            let start = Instant::now();
            cpu.set(false)?;
            cycled.offline_us.push(us(start.elapsed()));
            stay();
            self.launch(mounted, counts)?;
            let start = Instant::now();
            cpu.set(true)?;
            cycled.online_us.push(us(start.elapsed()));
            self.wait_for_pin(cpu, mounted, cycled);
            mounted.check()?;
            stay();
            counts.lock().cycles = cycle + 1;
            progress.step(cycle as u64 + 1, "");
        }
        Ok(())
    }

    /// Runs the program from the mount while the CPU is offline.
    fn launch(&self, mounted: &Mounted, counts: &Counts) -> Result<()> {
        if self.options.command.is_empty() {
            return Ok(());
        }
        let words = command_at(&self.options.command, false, mounted.point());
        let mut child = Child::spawn(Command::new(&words[0]).args(&words[1..]).current_dir("/"))?;
        counts.lock().launches += 1;
        let end = child.wait(PATIENCE, self.interrupt)?;
        let program = words[0].to_string_lossy().into_owned();
        if let Err(fault) = child.judge(end, &self.options.engine, program) {
            let mut counts = counts.lock();
            counts.lost += 1;
            counts.fault(fault.to_string());
        }
        Ok(())
    }

    fn wait_for_pin(&self, cpu: &Cpu, mounted: &Mounted, cycled: &mut Cycled) {
        let Some(daemon) = mounted.daemon() else {
            return;
        };
        let start = Instant::now();
        let mut seen = is_pinned(daemon, cpu.number);
        while seen != Some(true) && start.elapsed() < PIN {
            // The engine may have no such thread, or may end it while the CPU is offline. A missing
            // thread therefore counts as a failure only if it was seen in an earlier cycle.
            if seen.is_none() && cycled.not_pinned.is_none() && start.elapsed() > PIN / 5 {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
            seen = is_pinned(daemon, cpu.number);
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
