//! The number of runnable threads of other programs, from `/proc/loadavg`.
//!
//! The engine's own threads do not count, nor do clients that are runnable only because they just
//! received a reply. A client that waits for a reply, or sleeps, is not runnable, so the number of
//! clients that is subtracted is at most the number that the replies can have woken.
//!
//! `/proc/loadavg` (proc_loadavg(5)) counts runnable threads without delay, and any user may read
//! it. Pressure stall information is no alternative: its totals are up to two seconds old, triggers
//! need CAP_SYS_RESOURCE, and threads that wait for each other's replies through this engine count
//! as pressure.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::Duration;

const LOADAVG: &str = "/proc/loadavg";

/// Interval between two samples, each of which takes 2 us.
pub(crate) const PERIOD: Duration = Duration::from_millis(4);
/// Weight of one sample in the moving averages: a load is recognized about 20 ms after it begins
/// or ends.
const WEIGHT: f64 = 1.0 / 4.0;
/// If the last sample is older than this, the averages are stale, and the next sample starts new
/// ones.
const STALE: Duration = Duration::from_millis(100);
/// How long a client runs after a reply before it sends another request or sleeps: a `stat` takes
/// 20 us of CPU time, a program that starts takes more.
const AFTER_REPLY: Duration = Duration::from_micros(100);
/// This multiple of the time that the reply took is added to [`AFTER_REPLY`]: a program that reads
/// a lot also has a lot to process.
const PER_WORK: f64 = 8.0;

/// One observation of the load.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    pub(crate) at_ns: u64,
    /// Runnable threads of the whole system, including the sampling thread.
    pub(crate) runnable: usize,
    /// Number of the engine's threads that served something since the previous sample.
    pub(crate) own: usize,
    /// Number of threads that sent requests recently.
    pub(crate) clients: usize,
    /// Number of requests so far.
    pub(crate) requests: u64,
    /// CPU time of this process so far.
    pub(crate) own_ns: u64,
}

/// `/proc/loadavg`, opened before the sandbox is entered.
#[derive(Debug)]
pub(crate) struct Runnable(File);

impl Runnable {
    /// # Errors
    /// The file cannot be read or has an unknown format.
    pub(crate) fn open() -> io::Result<Self> {
        let this = Self(File::open(LOADAVG)?);
        let unknown = || io::Error::other("the number of runnable threads is unknown");
        this.read().ok_or_else(unknown)?;
        Ok(this)
    }

    /// Runnable threads of the whole system, including running ones.
    pub(crate) fn read(&self) -> Option<usize> {
        let mut text = [0; 128];
        let length = self.0.read_at(&mut text, 0).ok()?;
        runnable_in(std::str::from_utf8(&text[..length]).ok()?)
    }
}

/// Parses the number before the slash: `0.20 0.18 0.12 1/80 11206`.
fn runnable_in(loadavg: &str) -> Option<usize> {
    loadavg.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

/// Moving average of the runnable threads of other programs.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// With this many runnable threads, too few CPUs are left for a program and the worker that
    /// serves it.
    limit: f64,
    pub(crate) average: f64,
    /// Number of CPUs that this process keeps busy.
    pub(crate) own_cpus: f64,
    /// Number of replies per second.
    rate: f64,
    /// Whether other programs have so many runnable threads that too few CPUs are free.
    pub(crate) are_many: bool,
    last: Sample,
}

impl Others {
    /// Lowest limit: a lower average may be due to a single short burst.
    pub(crate) const LEAST: f64 = 0.5;
    /// Number of CPUs to keep free. On two CPUs a single busy program exceeds the limit, even if it
    /// sometimes sleeps.
    const FREE: f64 = 1.25;

    pub(crate) fn new(cpus: usize) -> Self {
        let mut this = Others::default();
        this.set_cpus(cpus);
        this
    }

    /// Sets the number of CPUs.
    pub(crate) fn set_cpus(&mut self, cpus: usize) {
        self.limit = (cpus as f64 - Self::FREE).max(Self::LEAST);
    }

    pub(crate) fn add(&mut self, sample: Sample) {
        let elapsed = sample.at_ns.saturating_sub(self.last.at_ns).max(1);
        let stale = elapsed > STALE.as_nanos() as u64;
        let weight = if stale { 1.0 } else { WEIGHT };
        let passed = |now: u64, before: u64| now.saturating_sub(before) as f64 / elapsed as f64;
        let cpus = passed(sample.own_ns, self.last.own_ns);
        let rate = passed(sample.requests, self.last.requests) * 1e9;
        self.own_cpus += (cpus - self.own_cpus) * weight;
        self.rate += (rate - self.rate) * weight;
        let others = self.others(&sample);
        // The first sample of an average may coincide with a short burst, so it counts half.
        let others = if stale { others / 2.0 } else { others };
        self.average += (others - self.average) * weight;
        self.last = sample;
        // Hysteresis keeps the state from fluttering.
        let bound = match self.are_many {
            true => self.limit / 2.0,
            false => self.limit,
        };
        self.are_many = self.average >= bound;
    }

    fn others(&self, sample: &Sample) -> f64 {
        // The sampling thread itself is running.
        let own = 1.0 + (2.0 * self.own_cpus).min(sample.own as f64);
        let woken = self.rate * AFTER_REPLY.as_secs_f64() + PER_WORK * self.own_cpus;
        (sample.runnable as f64 - own - woken.min(sample.clients as f64)).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Simulates one sample every four milliseconds, the first at 1 s, of a process that keeps
    /// `own_cpus` CPUs busy with `rate` replies per second to `clients` threads.
    struct Machine {
        others: Others,
        sample: Sample,
        rate: f64,
        own_cpus: f64,
    }

    impl Machine {
        fn new(cpus: usize, clients: usize, rate: f64, own_cpus: f64) -> Self {
            let sample = Sample {
                at_ns: 1_000_000_000,
                own: 3,
                clients,
                requests: rate as u64,
                own_ns: (own_cpus * 1e9) as u64,
                ..Sample::default()
            };
            let others = Others::new(cpus);
            Machine {
                others,
                sample,
                rate,
                own_cpus,
            }
        }

        fn see(mut self, samples: &[usize]) -> Self {
            for &runnable in samples {
                self.sample.runnable = runnable;
                self.others.add(self.sample);
                self.sample.at_ns += PERIOD.as_nanos() as u64;
                self.sample.requests += (self.rate * PERIOD.as_secs_f64()) as u64;
                self.sample.own_ns += (self.own_cpus * PERIOD.as_nanos() as f64) as u64;
            }
            self
        }

        fn are_many(&self) -> bool {
            self.others.are_many
        }
    }

    fn are_many_beside_it(cpus: usize, samples: &[usize]) -> bool {
        // Adds the sampling thread.
        let samples: Vec<_> = samples.iter().map(|others| others + 1).collect();
        Machine::new(cpus, 1, 0.0, 0.0).see(&samples).are_many()
    }

    #[test]
    fn clients_that_sleep_are_no_reason_to_overlook_a_load() {
        for clients in [1, 64, 256] {
            let rate = clients as f64 * 50.0;
            // Each reply takes 10 us, and clients are counted in 64 bits.
            let machine = Machine::new(2, clients.min(64), rate, rate * 10e-6);
            assert!(machine.see(&[15; 20]).are_many(), "{clients} clients");
        }
    }

    #[test]
    fn clients_that_take_all_that_is_left_are_no_load() {
        // Four programs that read much, read little, or walk a tree. They run only after a reply.
        for (rate, own_cpus) in [(8_000.0, 0.7), (90_000.0, 1.0), (30_000.0, 0.8)] {
            let machine = Machine::new(2, 4, rate, own_cpus);
            assert!(!machine.see(&[7; 50]).are_many(), "{rate} {own_cpus}");
        }
        // Other programs are running as well.
        assert!(Machine::new(2, 4, 8_000.0, 0.7).see(&[14; 50]).are_many());
    }

    #[test]
    fn a_launch_of_many_threads_beside_a_load_is_seen() {
        let machine = Machine::new(2, 16, 4_000.0, 0.4);
        assert!(machine.see(&[22; 20]).are_many());
    }

    #[test]
    fn others_are_many_when_little_of_the_machine_is_left() {
        let ended = [&[8][..], &[0; 30]].concat();
        for (what, cpus, samples, many) in [
            ("a large machine", 64, &[63; 40][..], true),
            ("a third of it is left", 64, &[40; 40], false),
            ("the first sample counts for half", 2, &[8], true),
            ("half of one", 2, &[1], false),
            ("half of eight on sixteen", 16, &[8], false),
            ("a short burst", 2, &[0, 0, 0, 2, 0, 0, 1, 0], false),
            ("a load", 2, &[0, 0, 1, 1, 1, 1, 1, 1, 1], true),
            (
                "half of the machine",
                4,
                &[0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2],
                false,
            ),
            ("a load that has just ended", 2, &[8, 0, 0], true),
            ("one that has ended", 2, &ended, false),
            ("one program on one CPU", 1, &[1], true),
            ("none on one CPU", 1, &[0], false),
        ] {
            assert_eq!(are_many_beside_it(cpus, samples), many, "{what}");
        }
    }

    #[test]
    fn runnable_threads_are_parsed() {
        assert_eq!(runnable_in("0.20 0.18 0.12 1/80 11206\n"), Some(1));
        assert_eq!(runnable_in("0.20 0.18"), None);
        assert_eq!(runnable_in(""), None);
        assert!(Runnable::open().unwrap().read() >= Some(1));
    }
}
