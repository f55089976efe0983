//! The policy for contended CPUs: what the engine does differently while other programs keep the
//! CPUs busy.
//!
//! A real-time worker answers immediately even if its CPU is contended. On an idle machine,
//! however, the scheduler moves the reader that such a worker wakes to another CPU, which costs
//! more than real-time priority gains. Therefore, with `hipri=auto`, a worker is real-time only
//! while its CPU is contended. While the CPUs are idle, a request is split among more of them.
//!
//! A thread that no reader waits for [watches](CpuContention::check) the load while requests
//! arrive, and sleeps otherwise.

mod idle;
mod runnable;
pub(crate) mod watcher;

use std::collections::BTreeSet;
use std::fmt;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cpu_workers::{Cpus, EventFd, Mode, PiMutex, SystemCpus, Workers, now_ns};
use rustix::time::{ClockId, clock_gettime};

use crate::load::idle::CpuIdle;
use crate::load::runnable::{Others, PERIOD, Runnable, Sample};
use crate::options::Hipri;
use crate::per_thread::PerThread;

/// Called when contention begins or ends.
pub type OnContention = Box<dyn Fn() + Send + Sync>;

/// Number of samples without a request after which the watching thread sleeps.
const QUIET_SAMPLES: u32 = 25;

/// The files that show the load, opened before the sandbox.
#[derive(Debug)]
pub(crate) struct LoadFiles {
    runnable: Runnable,
    /// The idle times of the CPUs that the process may use.
    idle: CpuIdle,
}

impl LoadFiles {
    /// # Errors
    /// A file or the process's CPUs cannot be read, or have an unknown format.
    pub(crate) fn open(cpus: &SystemCpus) -> io::Result<Self> {
        Ok(Self {
            runnable: Runnable::open()?,
            idle: CpuIdle::open(cpus.usable()?)?,
        })
    }
}

/// Judges the load and sets the priority of the workers.
pub(crate) struct CpuContention {
    /// Atomic. Each thread's work for the engine.
    own: PerThread<Own>,
    /// Atomic. One bit per recent client: its thread ID modulo 64.
    clients: AtomicU64,
    /// Atomic. Whether the watching thread sleeps.
    sleeps: AtomicBool,
    /// Ends the watching thread's sleep.
    event: EventFd,
    /// Atomic. Whether other programs keep the CPUs busy.
    contended: AtomicBool,
    /// Guarded by its own lock, which the watching thread takes. `None` if there are no workers, or
    /// if the load cannot be read.
    watch: Option<PiMutex<Watch>>,
    /// Never changes. Workers with `hipri=auto` that may be real-time.
    followers: Option<Arc<Workers>>,
    /// Set at most once. Called when contention begins or ends.
    changed: OnceLock<OnContention>,
}

/// A thread's counters. Atomic, and written only by that thread.
#[derive(Debug, Default)]
struct Own {
    /// Number of [`Busy`] guards that have not been dropped.
    busy: AtomicUsize,
    /// Number of requests so far.
    requests: AtomicU64,
}

impl CpuContention {
    /// Creates the policy from the files `opened` before the sandbox. With `hipri=auto`, it sets
    /// the priority of `workers`.
    pub(crate) fn new(
        workers: Option<&Arc<Workers>>,
        hipri: Hipri,
        opened: Option<io::Result<LoadFiles>>,
        notices: &mut Vec<String>,
    ) -> io::Result<Self> {
        let adapts = |workers: &Workers| {
            hipri == Hipri::Auto && workers.mode() == Mode::PerCpu && workers.is_real_time()
        };
        let followers = workers.filter(|workers| adapts(workers)).cloned();
        if let (Some(Err(error)), Some(workers)) = (&opened, &followers) {
            notices.push(format!(
                "hipri=auto: cannot determine how busy the CPUs are ({error}); workers are not \
                 real-time"
            ));
            workers.raise_on(&BTreeSet::new());
        }
        Ok(Self {
            own: PerThread::new(),
            clients: AtomicU64::new(0),
            sleeps: AtomicBool::new(false),
            event: EventFd::new()?,
            contended: AtomicBool::new(false),
            watch: opened
                .and_then(Result::ok)
                .map(|files| PiMutex::new(Watch::new(files))),
            followers,
            changed: OnceLock::new(),
        })
    }

    /// Sets the callback that the watching thread calls when contention begins or ends. Later calls
    /// have no effect.
    pub(crate) fn on_change(&self, changed: OnContention) {
        let _ = self.changed.set(changed);
    }

    /// Counts the calling thread as busy.
    pub(crate) fn enter(&self) -> Busy<'_> {
        let own = self.own.own();
        let begun = own.busy.load(Ordering::Relaxed);
        own.busy.store(begun + 1, Ordering::Relaxed);
        if begun == 0 {
            let requests = own.requests.load(Ordering::Relaxed) + 1;
            own.requests.store(requests, Ordering::Relaxed);
            self.wake();
        }
        Busy {
            own,
            of_this_thread: PhantomData,
        }
    }

    /// Counts the calling thread as busy with a request of the client thread with this ID.
    pub(crate) fn asked_by(&self, thread: u32) -> Busy<'_> {
        let bit = 1 << (thread % 64);
        if self.clients.load(Ordering::Relaxed) & bit == 0 {
            self.clients.fetch_or(bit, Ordering::Relaxed);
        }
        self.enter()
    }

    /// Ends the current or next sleep of the watching thread.
    pub(crate) fn end_sleep(&self) {
        self.event.wake();
    }

    fn wake(&self) {
        if self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::Relaxed) {
            self.event.wake();
        }
    }

    /// Number of the engine's threads that are running. Reads a cache line of every thread, so do
    /// not call it for every request.
    pub(crate) fn busy_threads(&self) -> usize {
        let busy = |own: &&Own| own.busy.load(Ordering::Relaxed) > 0;
        self.own.all().filter(busy).count()
    }

    /// Whether other programs keep the CPUs busy now.
    pub(crate) fn contended(&self) -> bool {
        self.contended.load(Ordering::Relaxed)
    }

    /// Judges the load once. Returns how long the watching thread should wait before the next call;
    /// `None` means until the [descriptor](AsFd) is readable.
    pub(crate) fn check(&self) -> Option<Duration> {
        let mut watch = self.watch.as_ref()?.lock();
        if watch.samples.is_multiple_of(CLIENT_SAMPLES)
            && let Some(workers) = &self.followers
        {
            watch.follow(workers.cpus().into_iter().collect());
        }
        self.event.clear();
        let requests = |own: &Own| own.requests.load(Ordering::Relaxed);
        let requests: Vec<_> = self.own.all().map(requests).collect();
        let clients = self.clients.swap(0, Ordering::Relaxed);
        let busy = watch.judge(&requests, clients)?;
        // One free CPU is too few for a program and the worker that serves it.
        let is = busy.len() >= (watch.files.idle.cpus.len() - 1).max(1);
        if let Some(workers) = &self.followers {
            workers.raise_on(&busy);
        }
        if self.contended.swap(is, Ordering::Relaxed) != is
            && let Some(changed) = self.changed.get()
        {
            changed();
        }
        let awake = watch.quiet < QUIET_SAMPLES;
        if !awake {
            self.sleeps.store(true, Ordering::Relaxed);
        }
        awake.then_some(PERIOD)
    }
}

impl AsFd for CpuContention {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// State of the watching thread.
#[derive(Debug)]
struct Watch {
    files: LoadFiles,
    others: Others,
    /// Requests of each thread at the previous sample.
    requests: Vec<u64>,
    /// The clients of the current period of [`CLIENT_SAMPLES`] samples, and those of the period
    /// before.
    clients: [u64; 2],
    samples: u32,
    /// Number of samples since the last request.
    quiet: u32,
}

/// Minimum number of samples for which a client counts; the maximum is twice that.
const CLIENT_SAMPLES: u32 = 12;

impl Watch {
    fn new(files: LoadFiles) -> Self {
        Self {
            others: Others::new(files.idle.cpus.len()),
            files,
            requests: Vec::new(),
            clients: [0; 2],
            samples: 0,
            quiet: 0,
        }
    }

    /// Follows the workers' CPUs, which change with hotplug and the cpuset of the process.
    fn follow(&mut self, cpus: BTreeSet<usize>) {
        if !cpus.is_empty() && cpus != self.files.idle.cpus {
            self.others.set_cpus(cpus.len());
            let _ = self.files.idle.follow(cpus);
        }
    }

    /// The contended CPUs; `None` if they cannot be determined.
    fn judge(&mut self, requests: &[u64], clients: u64) -> Option<BTreeSet<usize>> {
        let own = requests.iter().enumerate();
        let own = own.filter(|(i, now)| self.requests.get(*i) != Some(now));
        let own = own.count();
        self.requests = requests.to_vec();
        self.quiet = if own > 0 { 0 } else { self.quiet + 1 };
        self.samples += 1;
        if self.samples.is_multiple_of(CLIENT_SAMPLES) {
            self.clients = [0, self.clients[0]];
        }
        self.clients[0] |= clients;
        let cpu_time = clock_gettime(ClockId::ProcessCPUTime);
        let sample = Sample {
            at_ns: now_ns(),
            runnable: self.files.runnable.read()?,
            own,
            clients: (self.clients[0] | self.clients[1]).count_ones() as usize,
            requests: requests.iter().sum(),
            own_ns: cpu_time.tv_sec as u64 * 1_000_000_000 + cpu_time.tv_nsec as u64,
        };
        self.others.add(sample);
        Some(self.contended_cpus(sample.at_ns))
    }

    /// All of the mount's CPUs, if the machine has no others and too few of them are free.
    /// Otherwise, the CPUs on which other programs leave no idle time, or none if almost no other
    /// thread is runnable.
    fn contended_cpus(&mut self, now_ns: u64) -> BTreeSet<usize> {
        let idle = &mut self.files.idle;
        match self.others.are_many && idle.are_all {
            true => idle.cpus.clone(),
            false if self.others.average < Others::LEAST => BTreeSet::new(),
            false => idle.busy(now_ns, self.others.own_cpus).clone(),
        }
    }
}

impl fmt::Debug for CpuContention {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CpuContention")
            .field("contended", &self.contended())
            .finish_non_exhaustive()
    }
}

/// Marks a thread as working for the engine until dropped.
#[derive(Debug)]
pub struct Busy<'e> {
    own: &'e Own,
    /// Keeps the guard on its thread, the only one that may write the counters.
    of_this_thread: PhantomData<*const ()>,
}

impl Drop for Busy<'_> {
    fn drop(&mut self) {
        let count = self.own.busy.load(Ordering::Relaxed);
        let left = count.saturating_sub(1);
        self.own.busy.store(left, Ordering::Relaxed);
    }
}
