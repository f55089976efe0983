//! Tells when other programs keep the CPUs busy: for workers that are real-time only while that helps.
//!
//! Who serves looks, every few milliseconds: how many threads could run just now, without our own
//! and those that ask us? The kernel tells in `/proc/loadavg` (proc_loadavg(5)), with no delay and to
//! anybody. Its pressure stall information does neither: totals are up to two seconds old, only who
//! has CAP_SYS_RESOURCE is told sooner, and threads that wait for each other's answers through us
//! count as a load.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::counters::now_ns;
use crate::cpus;

const RUNNABLE: &str = "/proc/loadavg";

/// Between two looks. One takes 2 us.
const PERIOD: Duration = Duration::from_millis(2);
/// A look counts for so much of the average: a load that begins or ends is known after some 20 ms.
const WEIGHT: f64 = 1.0 / 8.0;
/// After such a time without a look the average is old, and the next look begins a new one.
const FORGOTTEN: Duration = Duration::from_millis(100);
/// How long a thread counts as one that asks us, at least; at most twice that.
const CLIENT: Duration = Duration::from_millis(50);

/// What is known of the load. Nothing happens while nobody looks.
#[derive(Debug)]
pub struct Contention {
    /// I.
    runnable: File,
    /// A. A bit for each thread that asked lately, by its number modulo 64.
    clients: AtomicU64,
    /// A. Time of the next look, ns.
    next: AtomicU64,
    /// A. What the last look said.
    contended: AtomicBool,
    /// L. One looks, the others do not wait for it.
    average: Mutex<Average>,
}

impl Contention {
    /// Opens what will be read; a process may give up the right to open it afterwards.
    ///
    /// # Errors
    /// The kernel does not tell, or not in the way that is known here.
    pub fn new() -> io::Result<Self> {
        let unknown = |what| io::Error::other(format!("{what} cannot be told"));
        let online = cpus::online().filter(|cpus| !cpus.is_empty());
        let cpus = online.ok_or_else(|| unknown("the number of CPUs"))?.len();
        let runnable = File::open(RUNNABLE)?;
        read(&runnable).ok_or_else(|| unknown("the number of runnable threads"))?;
        Ok(Contention {
            runnable,
            clients: AtomicU64::new(0),
            next: AtomicU64::new(0),
            contended: AtomicBool::new(false),
            average: Mutex::new(Average::new(cpus)),
        })
    }

    /// Counts a thread (its number as the system counts threads) among those that ask us.
    pub fn asked_by(&self, thread: u32) {
        let bit = 1 << (thread % 64);
        if self.clients.load(Ordering::Relaxed) & bit == 0 {
            self.clients.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Looks if it is time to. `own`: threads of ours that run now, the caller included. Says what it
    /// is now, if that has changed.
    pub fn look(&self, own: usize) -> Option<bool> {
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
        let runnable = read(&self.runnable)?;
        let mut average = self.average.lock().unwrap_or_else(PoisonError::into_inner);
        if average.forgets_clients(now) {
            average.clients_before = self.clients.swap(0, Ordering::Relaxed);
        }
        let clients = average.clients_before | self.clients.load(Ordering::Relaxed);
        let others = runnable
            .saturating_sub(own)
            .saturating_sub(clients.count_ones() as usize);
        let was = average.contended;
        let is = average.take(others, now);
        self.contended.store(is, Ordering::Relaxed);
        (is != was).then_some(is)
    }

    /// Whether other programs keep the CPUs busy, as far as was looked.
    pub fn contended(&self) -> bool {
        self.contended.load(Ordering::Relaxed)
    }
}

/// How many threads run or could run, in the whole system.
fn read(loadavg: &File) -> Option<usize> {
    let mut text = [0; 128];
    let length = loadavg.read_at(&mut text, 0).ok()?;
    runnable_in(std::str::from_utf8(&text[..length]).ok()?)
}

/// The number before the slash: `0.20 0.18 0.12 1/80 11206`.
fn runnable_in(loadavg: &str) -> Option<usize> {
    loadavg.split(' ').nth(3)?.split('/').next()?.parse().ok()
}

/// How many threads of others run, on the average of the last looks.
#[derive(Debug)]
struct Average {
    /// From so many on, too few CPUs are left for a program and the worker that answers it.
    enough: f64,
    others: f64,
    contended: bool,
    looked_ns: u64,
    clients_ns: u64,
    clients_before: u64,
}

impl Average {
    /// What is below this is between two looks, or a moment's work of somebody.
    const LEAST: f64 = 0.5;
    /// Of two CPUs one busy program, which need not run all the time, takes the quiet one.
    const LEFT: f64 = 1.25;

    fn new(cpus: usize) -> Self {
        Average {
            enough: (cpus as f64 - Self::LEFT).max(Self::LEAST),
            others: 0.0,
            contended: false,
            looked_ns: 0,
            clients_ns: 0,
            clients_before: 0,
        }
    }

    fn take(&mut self, others: usize, now_ns: u64) -> bool {
        let others = others as f64;
        if now_ns.saturating_sub(self.looked_ns) > FORGOTTEN.as_nanos() as u64 {
            // One look alone may have met a moment's work of somebody.
            self.others = others / 2.0;
        } else {
            self.others += (others - self.others) * WEIGHT;
        }
        self.looked_ns = now_ns;
        // Less ends it than began it, or it flutters.
        let bound = match self.contended {
            true => self.enough / 2.0,
            false => self.enough,
        };
        self.contended = self.others >= bound;
        self.contended
    }

    fn forgets_clients(&mut self, now_ns: u64) -> bool {
        let forgets = now_ns.saturating_sub(self.clients_ns) > CLIENT.as_nanos() as u64;
        if forgets {
            self.clients_ns = now_ns;
        }
        forgets
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Instant;

    #[test]
    fn a_load_is_told() {
        let contention = match Contention::new() {
            Ok(contention) => contention,
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
        let told = thread::scope(|scope| {
            (0..threads).for_each(|_| drop(scope.spawn(spin)));
            let begin = Instant::now();
            while !contention.contended() && begin.elapsed() < Duration::from_secs(30) {
                contention.look(1);
                thread::sleep(PERIOD);
            }
            stop.store(true, Ordering::Relaxed);
            contention.contended()
        });
        assert!(told, "twice as many threads as CPUs");
        // Quiet is told only where the machine is quiet, which a test cannot promise.
    }

    #[test]
    fn who_asks_us_is_no_load() {
        let Ok(contention) = Contention::new() else {
            println!("skipped: nothing tells");
            return;
        };
        (0..64).for_each(|thread| contention.asked_by(thread));
        contention.look(1);
        let average = contention.average.lock().unwrap();
        assert_eq!(average.clients_before, u64::MAX);
    }

    const MS: u64 = 1_000_000;

    /// One look every two milliseconds; the first at 1 s.
    fn after(cpus: usize, looks: &[usize]) -> Average {
        let mut average = Average::new(cpus);
        for (number, &others) in looks.iter().enumerate() {
            average.take(others, 1000 * MS + number as u64 * 2 * MS);
        }
        average
    }

    #[test]
    fn the_first_look_counts_for_half() {
        assert!(after(2, &[8]).contended);
        assert!(!after(2, &[1]).contended);
        assert!(!after(16, &[8]).contended);
    }

    #[test]
    fn moments_do_not_count_and_loads_do() {
        assert!(!after(2, &[0, 0, 0, 3, 0, 0, 1, 0]).contended);
        assert!(after(2, &[0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]).contended);
        assert!(!after(4, &[0, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2]).contended);
    }

    #[test]
    fn the_end_of_a_load_is_told_after_a_while() {
        assert!(after(2, &[8, 0, 0, 0]).contended);
        assert!(!after(2, &[&[8][..], &[0; 30]].concat()).contended);
        let mut average = after(2, &[8]);
        assert!(!average.take(0, 5000 * MS), "nobody had looked for seconds");
    }

    #[test]
    fn one_cpu_is_contended_by_one_program() {
        assert!(after(1, &[1]).contended);
        assert!(!after(1, &[0]).contended);
    }

    #[test]
    fn the_runnable_threads_are_read() {
        assert_eq!(runnable_in("0.20 0.18 0.12 1/80 11206\n"), Some(1));
        assert_eq!(runnable_in("0.20 0.18"), None);
        assert_eq!(runnable_in(""), None);
    }
}
