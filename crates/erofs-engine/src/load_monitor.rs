//! Measures how many threads of other programs are runnable, from `/proc/loadavg`.
//!
//! The serving threads re-check at most every 2 ms and subtract the engine's own busy threads and
//! its clients. Where the process may use some of the CPUs only, nothing is a load while those are
//! free ([`CpuIdle`]).
//!
//! `/proc/loadavg` (proc_loadavg(5)) counts runnable threads without delay and any user may read
//! it. Pressure stall information does neither: its totals are up to two seconds old, triggers need
//! CAP_SYS_RESOURCE, and threads which wait for each other's replies through this engine count as
//! pressure.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use std::time::Duration;

use cpu_workers::{Cpus, PiMutex, SystemCpus, now_ns, online_cpus};

use crate::cpu_idle::CpuIdle;

const LOADAVG: &str = "/proc/loadavg";

/// Interval between two samples. One sample takes 2 us.
const PERIOD: Duration = Duration::from_millis(2);
/// Weight of one sample in the moving average: a load is recognized about 20 ms after it begins or
/// ends.
const WEIGHT: f64 = 1.0 / 8.0;
/// After this time without a sample the average is stale and the next sample starts a new one.
const STALE: Duration = Duration::from_millis(100);
/// A thread counts as a client for at least this long after its last request; at most twice as
/// long.
const CLIENT_PERIOD: Duration = Duration::from_millis(50);

/// The load of other programs, sampled when a serving thread calls [`poll`](Self::poll).
#[derive(Debug)]
pub(crate) struct LoadMonitor {
    /// I.
    loadavg: File,
    /// A. One bit per recent client, by its thread id modulo 64.
    clients: AtomicU64,
    /// A. Time of the next sample, ns.
    next: AtomicU64,
    /// A. Result of the last sample.
    contended: AtomicBool,
    /// L. Taken by the thread which samples; the others do not wait for it.
    average: PiMutex<Average>,
}

impl LoadMonitor {
    /// Opens `/proc/loadavg`, and `/proc/stat` where the process may not use all CPUs. It may enter
    /// a sandbox afterwards.
    ///
    /// # Errors
    /// A file or the list of online CPUs cannot be read or has an unknown form.
    pub(crate) fn new(cpus: &SystemCpus) -> io::Result<Self> {
        let unknown = |what| io::Error::other(format!("{what} is unknown"));
        let online = online_cpus().filter(|cpus| !cpus.is_empty());
        let online = online.ok_or_else(|| unknown("the number of CPUs"))?;
        let usable = cpus.usable()?;
        let loadavg = File::open(LOADAVG)?;
        read(&loadavg).ok_or_else(|| unknown("the number of runnable threads"))?;
        Ok(LoadMonitor {
            loadavg,
            clients: AtomicU64::new(0),
            next: AtomicU64::new(0),
            contended: AtomicBool::new(false),
            average: PiMutex::new(Average {
                idle: match usable == online {
                    true => None,
                    false => Some(CpuIdle::open(usable.clone())?),
                },
                ..Average::new(usable.len())
            }),
        })
    }

    /// Records the thread with this id as a client, which does not count as load.
    pub(crate) fn add_client(&self, thread: u32) {
        let bit = 1 << (thread % 64);
        if self.clients.load(Ordering::Relaxed) & bit == 0 {
            self.clients.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Takes a sample if one is due. `own` counts the running threads of the engine, including the
    /// caller. Returns the new state if it changed.
    pub(crate) fn poll(&self, own: impl FnOnce() -> usize) -> Option<bool> {
        let (now, due) = (now_ns(), self.next.load(Ordering::Relaxed));
        let next = now + PERIOD.as_nanos() as u64;
        let mine = now >= due
            && self
                .next
                .compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if !mine {
            return None;
        }
        let runnable = read(&self.loadavg)?;
        let mut average = self.average.lock();
        if average.expire_clients(now) {
            average.clients_before = self.clients.swap(0, Ordering::Relaxed);
        }
        let clients = average.clients_before | self.clients.load(Ordering::Relaxed);
        let others = match average.own_cpus_are_free(now) {
            true => 0,
            false => runnable
                .saturating_sub(own())
                .saturating_sub(clients.count_ones() as usize),
        };
        let was = average.contended;
        let is = average.add(others, now);
        self.contended.store(is, Ordering::Relaxed);
        (is != was).then_some(is)
    }

    /// Whether other programs kept the CPUs busy at the last sample.
    pub(crate) fn contended(&self) -> bool {
        self.contended.load(Ordering::Relaxed)
    }
}

/// Runnable threads of the whole system, running ones included.
fn read(loadavg: &File) -> Option<usize> {
    let mut text = [0; 128];
    let length = loadavg.read_at(&mut text, 0).ok()?;
    runnable_in(std::str::from_utf8(&text[..length]).ok()?)
}

/// The number before the slash: `0.20 0.18 0.12 1/80 11206`.
fn runnable_in(loadavg: &str) -> Option<usize> {
    loadavg.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

/// Moving average of the runnable threads of other programs.
#[derive(Debug)]
struct Average {
    cpus: f64,
    /// With this many, too few CPUs are left for a program and the worker which serves it.
    limit: f64,
    others: f64,
    contended: bool,
    sampled_ns: u64,
    clients_ns: u64,
    clients_before: u64,
    /// `None` where the process may use all CPUs.
    idle: Option<CpuIdle>,
}

impl Average {
    /// Lowest limit: less is a short burst between two samples.
    const LEAST: f64 = 0.5;
    /// CPUs to keep free. On two CPUs one busy program, even one which sleeps at times, takes the
    /// free one.
    const FREE: f64 = 1.25;

    fn new(cpus: usize) -> Self {
        let cpus = cpus as f64;
        Average {
            cpus,
            limit: (cpus - Self::FREE).max(Self::LEAST),
            others: 0.0,
            contended: false,
            sampled_ns: 0,
            clients_ns: 0,
            clients_before: 0,
            idle: None,
        }
    }

    /// What runs, runs on CPUs that the process may not use.
    fn own_cpus_are_free(&mut self, now_ns: u64) -> bool {
        let free = self.idle.as_mut().and_then(|idle| idle.free(now_ns));
        free.is_some_and(|free| free >= self.cpus - self.limit)
    }

    fn add(&mut self, others: usize, now_ns: u64) -> bool {
        let others = others as f64;
        if now_ns.saturating_sub(self.sampled_ns) > STALE.as_nanos() as u64 {
            // A single sample may have met a short burst.
            self.others = others / 2.0;
        } else {
            self.others += (others - self.others) * WEIGHT;
        }
        self.sampled_ns = now_ns;
        // Hysteresis: the state would flutter otherwise.
        let bound = match self.contended {
            true => self.limit / 2.0,
            false => self.limit,
        };
        self.contended = self.others >= bound;
        self.contended
    }

    fn expire_clients(&mut self, now_ns: u64) -> bool {
        let expired = now_ns.saturating_sub(self.clients_ns) > CLIENT_PERIOD.as_nanos() as u64;
        if expired {
            self.clients_ns = now_ns;
        }
        expired
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Instant;

    #[test]
    fn twice_as_many_threads_as_cpus_are_a_load() {
        let monitor = match LoadMonitor::new(&SystemCpus::new().unwrap()) {
            Ok(monitor) => monitor,
            Err(error) => {
                println!("skipped: {error}");
                return;
            }
        };
        let stop = AtomicBool::new(false);
        let spin = || {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        };
        let threads = thread::available_parallelism().map_or(2, usize::from) * 2;
        let contended = thread::scope(|scope| {
            (0..threads).for_each(|_| drop(scope.spawn(spin)));
            let begin = Instant::now();
            while !monitor.contended() && begin.elapsed() < Duration::from_secs(30) {
                monitor.poll(|| 1);
                thread::sleep(PERIOD);
            }
            stop.store(true, Ordering::Relaxed);
            monitor.contended()
        });
        assert!(contended, "twice as many threads as CPUs");
        // The opposite needs a quiet machine, which a test cannot promise.
    }

    #[test]
    fn clients_are_no_load() {
        let Ok(monitor) = LoadMonitor::new(&SystemCpus::new().unwrap()) else {
            println!("skipped: the load cannot be read");
            return;
        };
        (0..64).for_each(|thread| monitor.add_client(thread));
        monitor.poll(|| 1);
        let average = monitor.average.lock();
        assert_eq!(average.clients_before, u64::MAX);
    }

    const MS: u64 = 1_000_000;

    /// One sample every two milliseconds; the first at 1 s.
    fn after(cpus: usize, samples: &[usize]) -> Average {
        let mut average = Average::new(cpus);
        for (number, &others) in samples.iter().enumerate() {
            average.add(others, 1000 * MS + number as u64 * 2 * MS);
        }
        average
    }

    #[test]
    fn the_first_sample_counts_for_half() {
        assert!(after(2, &[8]).contended);
        assert!(!after(2, &[1]).contended);
        assert!(!after(16, &[8]).contended);
    }

    #[test]
    fn a_short_burst_is_no_load() {
        assert!(!after(2, &[0, 0, 0, 3, 0, 0, 1, 0]).contended);
        assert!(after(2, &[0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]).contended);
        assert!(!after(4, &[0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]).contended);
    }

    #[test]
    fn the_end_of_a_load_is_recognized() {
        assert!(after(2, &[8, 0, 0, 0]).contended);
        assert!(!after(2, &[&[8][..], &[0; 30]].concat()).contended);
        let mut average = after(2, &[8]);
        assert!(!average.add(0, 5000 * MS), "the average is stale");
    }

    #[test]
    fn one_program_contends_one_cpu() {
        assert!(after(1, &[1]).contended);
        assert!(!after(1, &[0]).contended);
    }

    #[test]
    fn runnable_threads_are_parsed() {
        assert_eq!(runnable_in("0.20 0.18 0.12 1/80 11206\n"), Some(1));
        assert_eq!(runnable_in("0.20 0.18"), None);
        assert_eq!(runnable_in(""), None);
    }
}
