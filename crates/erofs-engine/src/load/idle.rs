//! Determines which CPUs of a mount have no idle time, from `/proc/stat` (proc_stat(5)).
//!
//! [`runnable`](crate::load::runnable) reads the number of runnable threads of the whole
//! machine, which shows neither which CPUs are busy nor whether they belong to the mount.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const STAT: &str = "/proc/stat";

/// Time between two samples: several of the 10 ms ticks in which idle time is counted.
const PERIOD: Duration = Duration::from_millis(50);
/// After this long without a sample, sampling starts over.
const STALE: Duration = Duration::from_secs(1);

/// Nanoseconds in a tick (USER_HZ is 100 on every architecture that Rust's std supports).
const TICK_NS: u64 = 10_000_000;

/// A program that reads from a mount takes about as much CPU time as the mount's server, so the
/// server's time is doubled.
const WITH_READERS: f64 = 2.0;
/// A CPU is busy if its share of idle time is below `LITTLE` and other programs use more than
/// `MUCH` of the CPU. It stops being busy when its share of idle time reaches twice `LITTLE`, or
/// when other programs use no more than half of `MUCH`.
const LITTLE: f64 = 0.25;
const MUCH: f64 = 0.4;

/// Idle ticks of each CPU.
type Ticks = BTreeMap<usize, u64>;

/// The ticks at one moment.
#[derive(Debug)]
struct Sample {
    at_ns: u64,
    ticks: Ticks,
}

/// The CPUs of a mount.
#[derive(Debug)]
pub(crate) struct CpuIdle {
    stat: File,
    pub(crate) cpus: BTreeSet<usize>,
    /// Whether `cpus` are all CPUs that are online.
    pub(crate) are_all: bool,
    last: Option<Sample>,
    busy: BTreeSet<usize>,
}

impl CpuIdle {
    /// Opens the file; the process may enter a sandbox afterwards.
    ///
    /// # Errors
    /// The file cannot be read or has an unknown format.
    pub(crate) fn open(cpus: BTreeSet<usize>) -> io::Result<Self> {
        let mut this = Self {
            stat: File::open(STAT)?,
            cpus: BTreeSet::new(),
            are_all: false,
            last: None,
            busy: BTreeSet::new(),
        };
        let unknown = || io::Error::other("the idle time of the CPUs is unknown");
        this.follow(cpus).ok_or_else(unknown)?;
        Ok(this)
    }

    /// Sets the CPUs of the mount. `None` if the machine's CPUs are unknown.
    pub(crate) fn follow(&mut self, cpus: BTreeSet<usize>) -> Option<()> {
        self.cpus = cpus;
        (self.last, self.busy, self.are_all) = (None, BTreeSet::new(), false);
        self.are_all = self.read()?.keys().eq(&self.cpus);
        Some(())
    }

    /// The CPUs on which other programs leave almost no time; `own` is the number of CPUs that this
    /// process keeps busy.
    pub(crate) fn busy(&mut self, now_ns: u64, own: f64) -> &BTreeSet<usize> {
        let age = |last: &Sample| now_ns.saturating_sub(last.at_ns);
        let is_due = |last: &Sample| age(last) >= PERIOD.as_nanos() as u64;
        if self.last.as_ref().is_none_or(is_due)
            && let Some(ticks) = self.read()
        {
            let share = WITH_READERS * own / self.cpus.len().max(1) as f64;
            let now = Sample {
                at_ns: now_ns,
                ticks,
            };
            let is_recent = |last: &&Sample| age(last) <= STALE.as_nanos() as u64;
            self.busy = match self.last.as_ref().filter(is_recent) {
                Some(before) => without_time(before, &now, share, &self.busy),
                None => BTreeSet::new(),
            };
            self.last = Some(now);
            self.busy.retain(|cpu| self.cpus.contains(cpu));
        }
        &self.busy
    }

    /// The ticks of all online CPUs, whose lines come first in the file.
    fn read(&self) -> Option<Ticks> {
        let mut text = vec![0; 1 << 13];
        loop {
            let length = self.stat.read_at(&mut text, 0).ok()?;
            let read = std::str::from_utf8(&text[..length]).ok()?;
            if length < text.len() || read.contains("\nintr") {
                return Some(idle_ticks(read)).filter(|ticks| !ticks.is_empty());
            }
            text.resize(2 * text.len(), 0);
        }
    }
}

/// Finds the CPUs without time to spare; `share` is the fraction of each CPU that the mount and its
/// readers use.
fn without_time(
    before: &Sample,
    now: &Sample,
    share: f64,
    were: &BTreeSet<usize>,
) -> BTreeSet<usize> {
    let elapsed = now.at_ns.saturating_sub(before.at_ns).max(1) as f64;
    let busy = now.ticks.iter().filter_map(|(&cpu, &ticks)| {
        let idle = ticks.saturating_sub(*before.ticks.get(&cpu)?) * TICK_NS;
        let idle = idle as f64 / elapsed;
        let (little, much) = match were.contains(&cpu) {
            true => (2.0 * LITTLE, MUCH / 2.0),
            false => (LITTLE, MUCH),
        };
        (idle < little && 1.0 - idle - share > much).then_some(cpu)
    });
    busy.collect()
}

/// The sums of idle and iowait ticks of all listed CPUs.
fn idle_ticks(stat: &str) -> Ticks {
    let lines = stat.lines().filter_map(|line| {
        let mut fields = line.strip_prefix("cpu")?.split(' ');
        let cpu: usize = fields.next()?.parse().ok()?;
        // Skips user, nice and system.
        let mut times = fields.skip(3).map(str::parse::<u64>);
        let idle = times.next()?.ok()? + times.next()?.ok()?;
        Some((cpu, idle))
    });
    lines.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  9 9 9 900 90 0 0 0 0 0\ncpu0 1 2 3 100 10 0 0 0 0 0\n\
                        cpu1 1 2 3 200 20 0 0 0 0 0\ncpu12 1 2 3 400 40 0 0 0 0 0\nintr 5 0\n";

    #[test]
    fn the_idle_time_of_each_online_cpu_is_read() {
        let ticks = Ticks::from([(0, 110), (1, 220), (12, 440)]);
        assert_eq!(idle_ticks(STAT), ticks);
    }

    #[test]
    fn a_cpu_is_busy_that_has_neither_idle_time_nor_works_for_the_mount() {
        let at = |at_ns, ticks: [(usize, u64); 3]| Sample {
            at_ns,
            ticks: ticks.into(),
        };
        let before = at(0, [(0, 0), (1, 0), (2, 0)]);
        let now = at(10 * TICK_NS, [(0, 1), (1, 4), (2, 9)]);
        let busy = |share, were: &[usize]| {
            let were = were.iter().copied().collect();
            Vec::from_iter(without_time(&before, &now, share, &were))
        };
        assert_eq!(busy(0.0, &[]), [0]);
        assert_eq!(
            busy(0.0, &[0, 1, 2]),
            [0, 1],
            "it takes more to be free again"
        );
        assert_eq!(busy(0.8, &[0]), [0_usize; 0], "the mount and its readers");
        assert_eq!(busy(0.4, &[]), [0], "busy readers beside busy programs");
    }

    #[test]
    fn a_mount_whose_cpus_change_is_judged_by_those_that_it_has() {
        let online = cpu_workers::online_cpus().unwrap();
        let mut idle = CpuIdle::open(online.clone()).unwrap();
        let one = BTreeSet::from([*online.first().unwrap()]);
        assert!(idle.are_all);
        idle.follow(one.clone()).unwrap();
        assert_eq!(idle.are_all, one == online);
        assert!(idle.busy(1, 0.0).is_empty());
        assert!(idle.busy(1 + PERIOD.as_nanos() as u64, 0.0).is_subset(&one));
        idle.follow(online).unwrap();
        assert!(idle.are_all);
    }

    #[test]
    fn this_machine_tells_its_idle_time() {
        let cpus = cpu_workers::online_cpus().unwrap();
        let mut idle = CpuIdle::open(cpus.clone()).unwrap();
        assert!(idle.busy(1, 0.0).is_empty(), "the first sample");
        let later = 1 + PERIOD.as_nanos() as u64;
        assert!(idle.busy(later, 0.0).is_subset(&cpus));
        assert_eq!(idle.last.unwrap().ticks.len(), cpus.len());
    }
}
