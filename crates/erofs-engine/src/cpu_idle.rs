//! Whether the CPUs of a mount have idle time, where it may use some of the machine's only: from
//! `/proc/stat` (proc_stat(5)).
//!
//! The number of runnable threads, which [`load_monitor`](crate::load_monitor) reads, is that of
//! the whole machine. What runs on the CPUs of others is no load here.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

const STAT: &str = "/proc/stat";

/// Time between two samples: idle time is counted in ticks of 10 ms.
const PERIOD: Duration = Duration::from_millis(100);
/// After this time without a sample the next one begins anew.
const STALE: Duration = Duration::from_secs(1);

/// Nanoseconds in a tick (USER_HZ is 100 on every architecture that Rust's std has).
const TICK_NS: u64 = 10_000_000;

/// The CPUs of a mount that may not use all.
#[derive(Debug)]
pub(crate) struct CpuIdle {
    stat: File,
    cpus: BTreeSet<usize>,
    last: Option<Sample>,
    /// CPUs that were idle, or worked for the mount and its readers, on average since the sample
    /// before.
    free: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Sample {
    at_ns: u64,
    /// Of all CPUs of the mount.
    idle_ns: u64,
    /// CPU time of this process.
    own_ns: u64,
}

impl CpuIdle {
    /// A process may enter a sandbox afterwards.
    ///
    /// # Errors
    /// The file cannot be opened.
    pub(crate) fn open(cpus: BTreeSet<usize>) -> io::Result<Self> {
        Ok(Self {
            stat: File::open(STAT)?,
            cpus,
            last: None,
            free: None,
        })
    }

    /// How many CPUs of the mount other programs leave free, if that is known.
    pub(crate) fn free(&mut self, now_ns: u64) -> Option<f64> {
        let since = self.last.map(|last| now_ns.saturating_sub(last.at_ns));
        if since.is_some_and(|since| since < PERIOD.as_nanos() as u64) {
            return self.free;
        }
        let sample = self.sample(now_ns)?;
        let before = self.last.replace(sample);
        let recent = before.filter(|before| now_ns - before.at_ns <= STALE.as_nanos() as u64);
        self.free = recent.map(|before| free_between(before, sample));
        self.free
    }

    fn sample(&self, at_ns: u64) -> Option<Sample> {
        let cpu_time = clock_gettime(ClockId::ProcessCPUTime);
        Some(Sample {
            at_ns,
            idle_ns: idle_ticks(&self.read()?, &self.cpus)? * TICK_NS,
            own_ns: cpu_time.tv_sec as u64 * 1_000_000_000 + cpu_time.tv_nsec as u64,
        })
    }

    /// As much as has the lines of CPUs, which come first.
    fn read(&self) -> Option<String> {
        let last = self.cpus.last()?;
        // A line has ten numbers of at most twenty digits; most have a third of that.
        let mut text = vec![0; (last + 2) * 256];
        let length = self.stat.read_at(&mut text, 0).ok()?;
        text.truncate(length);
        String::from_utf8(text).ok()
    }
}

/// A program that reads from a mount takes about as much CPU time as its server.
const WITH_READERS: u64 = 2;

fn free_between(before: Sample, now: Sample) -> f64 {
    let elapsed = now.at_ns.saturating_sub(before.at_ns).max(1);
    let idle = now.idle_ns.saturating_sub(before.idle_ns);
    let own = now.own_ns.saturating_sub(before.own_ns);
    (idle + own * WITH_READERS) as f64 / elapsed as f64
}

/// The sum of idle and iowait of these CPUs; `None` if one has no line.
fn idle_ticks(stat: &str, cpus: &BTreeSet<usize>) -> Option<u64> {
    let lines = stat.lines().filter_map(|line| {
        let mut fields = line.strip_prefix("cpu")?.split(' ');
        let cpu: usize = fields.next()?.parse().ok()?;
        // user, nice and system come before.
        let mut times = fields.skip(3).map(str::parse::<u64>);
        let idle = times.next()?.ok()? + times.next()?.ok()?;
        cpus.contains(&cpu).then_some(idle)
    });
    let (count, sum) = lines.fold((0, 0), |(count, sum), idle| (count + 1, sum + idle));
    (count == cpus.len()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  9 9 9 900 90 0 0 0 0 0\ncpu0 1 2 3 100 10 0 0 0 0 0\n\
                        cpu1 1 2 3 200 20 0 0 0 0 0\ncpu12 1 2 3 400 40 0 0 0 0 0\nintr 5 0\n";

    #[test]
    fn the_idle_time_of_the_mounts_own_cpus_is_summed_up() {
        let of = |cpus: &[usize]| idle_ticks(STAT, &cpus.iter().copied().collect());
        assert_eq!(of(&[0]), Some(110));
        assert_eq!(of(&[1, 12]), Some(660));
        assert_eq!(of(&[1, 2]), None, "it went offline");
    }

    #[test]
    fn what_is_idle_or_works_for_the_mount_is_free() {
        let sample = |at_ns, idle_ns, own_ns| Sample {
            at_ns,
            idle_ns,
            own_ns,
        };
        let free = free_between(sample(0, 0, 0), sample(100, 120, 15));
        assert!((free - 1.5).abs() < 1e-9, "{free}");
    }

    #[test]
    fn this_machine_tells_its_idle_time() {
        let cpus = cpu_workers::online_cpus().unwrap();
        let online = cpus.len() as f64;
        let mut idle = CpuIdle::open(cpus).unwrap();
        assert_eq!(idle.free(1), None, "the first sample");
        let times = [
            1 + PERIOD.as_nanos() as u64 / 2,
            1 + STALE.as_nanos() as u64,
        ];
        assert_eq!(idle.free(times[0]), None, "too early");
        // The clock of the test runs ahead of the machine's.
        assert!(idle.free(times[1]).is_some_and(|free| free <= online + 1.0));
    }
}
