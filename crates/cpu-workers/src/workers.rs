//! The set of workers: start-up, shut-down (in reverse order), and the public interface.
//!
//! Start-up: 1. empty slots for all possible CPUs. 2. the unbound pool, which creates its threads
//! when jobs arrive, unless it is the only pool. 3. pinned workers for the usable CPUs. If a step
//! fails, the previous ones are undone.
//!
//! Shut-down, so that no job is lost:
//! 1. Only the first caller proceeds; any other caller waits for the first or, on a worker, returns
//!    immediately.
//! 2. The slots are emptied for good, and the pinned workers' queues are closed; the workers run
//!    the queued jobs, drop their sources and are joined. Jobs queued in the meantime go to the
//!    unbound pool.
//! 3. The unbound pool's queue is closed; its threads run the queued jobs and are joined. Jobs
//!    queued from now on run on the thread that queues them.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use sys::pi_mutex::PiMutex;

use crate::priority::{self, ThreadPriority, Wanted};
use crate::report;
use crate::stats::notices::Notices;
use crate::topology::pinned::Topology;
use crate::worker::attached_source::message;
use crate::worker::lowered;
use crate::worker::spawn::Spawner;
use crate::worker::thread::{Attach, Job, Queued, Worker, current_worker};
use crate::worker::unbound::UnboundPool;
use crate::{
    Cpus, Error, EventSourceFactory, Mode, Policy, Priority, SystemCpus, WorkerContext,
    WorkerOptions, WorkerStats,
};
use sys::clock::now_ns;

/// All workers of one pool. Dropping the last `Arc` shuts them down.
pub struct Workers {
    /// Fixed at creation.
    mode: Mode,
    /// Fixed at creation. The requested priority.
    priority: Priority,
    /// Fixed at creation. The nice value of normal priority.
    base_nice: i32,
    /// Fixed at creation.
    cpus: Arc<dyn Cpus>,
    topology: Arc<Topology>,
    unbound: UnboundPool,
    notices: Arc<Notices>,
    /// Guarded by its own lock. Threads outside the pool that have the pinned workers' priority,
    /// with their IDs. The lock is never held together with one of the topology's locks.
    followers: PiMutex<Vec<(i32, Arc<ThreadPriority>)>>,
    /// Guarded by its own lock, which is held from the decision on a priority until all threads
    /// have it, so that the later decision prevails. Serving threads take this lock, so it has
    /// priority inheritance.
    flip: PiMutex<()>,
    /// Atomic. Whether shutdown has begun.
    ending: AtomicBool,
    /// Guarded by its own lock, which is held during shutdown.
    ended: Mutex<()>,
}

impl Workers {
    /// Creates the unbound pool and the pinned workers. Failure to create a worker or to set its
    /// priority causes a notice, not an error.
    pub fn start(options: WorkerOptions) -> Result<Arc<Workers>, Error> {
        let cpus = SystemCpus::new().map_err(Error::Cpus)?;
        Workers::start_on(options, Arc::new(cpus))
    }

    /// Like [`start`](Self::start), but on `cpus` instead of the machine's CPUs, for tests.
    pub fn start_on(options: WorkerOptions, cpus: Arc<dyn Cpus>) -> Result<Arc<Workers>, Error> {
        let notices = Arc::new(Notices::default());
        let base_nice = priority::nice_of(priority::own_tid()).unwrap_or(0);
        let (pinned, unbound) = wanted(options.mode, options.priority);
        let spawner = || Spawner {
            cpus: Arc::clone(&cpus),
            base_nice,
        };
        let possible = cpus.possible().map_err(Error::Cpus)?;
        let name = options.name.clone();
        let topology = Topology::new(name, possible, pinned, spawner(), notices.clone())?;
        let topology = Arc::new(topology);
        let usable = cpus.usable().map_err(Error::Cpus)?.len();
        let most = options.unbound_threads.unwrap_or(usable);
        // If a later step fails, the parts created so far end when they are dropped.
        let workers = Workers {
            mode: options.mode,
            priority: options.priority,
            base_nice,
            unbound: UnboundPool::new(&options.name, most, unbound, spawner(), &notices),
            cpus: Arc::clone(&cpus),
            topology: Arc::clone(&topology),
            notices,
            followers: PiMutex::default(),
            flip: PiMutex::new(()),
            ending: AtomicBool::new(false),
            ended: Mutex::new(()),
        };
        if options.mode == Mode::Unbound {
            workers.unbound.fill()?;
        } else {
            topology.reconcile()?;
            if let Some(line) = cpus.notice() {
                workers.notices.add(line);
            }
        }
        Ok(Arc::new(workers))
    }

    /// Queues a job for the worker of `cpu`, or for the unbound pool (if `cpu` is `None`, or its
    /// slot is empty). Never waits for a job and never loses one: after shutdown, or if no thread
    /// can be created for it, the job runs on the caller's thread.
    pub fn queue(&self, cpu: Option<usize>, job: Job) {
        let queued = Queued {
            job,
            queued_ns: now_ns(),
        };
        let rejected = match cpu {
            // The worker stays published while it is chosen and the job is queued.
            Some(cpu) => self.topology.read(cpu, |worker| match worker {
                Some(running) => running.worker.queue.push(queued).err(),
                None => Some(queued),
            }),
            None => Some(queued),
        };
        let rejected = rejected.and_then(|queued| self.unbound.push(queued).err());
        if let Some(queued) = rejected {
            self.run_here(queued);
        }
    }

    fn run_here(&self, Queued { job, queued_ns }: Queued) {
        let context = WorkerContext {
            cpu: None,
            queued_ns,
            started_ns: now_ns(),
        };
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| job(&context))) {
            self.notices.add(format!(
                "a job on the thread that queued it panicked: {}",
                message(&*panic)
            ));
        }
    }

    /// Whether the worker of that CPU has nothing to do: it sleeps, or is about to. Only a hint,
    /// which may be outdated when the caller reads it.
    pub fn is_idle(&self, cpu: usize) -> bool {
        self.topology.is_idle(cpu)
    }

    /// Up to `most` CPUs with an idle worker, except `cpu` itself: the largest first, and among
    /// equals those that share its last-level cache. The search ends once enough are found.
    pub fn idle_helpers(&self, cpu: usize, most: usize) -> impl Iterator<Item = usize> {
        let helpers = self.topology.helpers(cpu).iter().copied();
        helpers.filter(|&cpu| self.is_idle(cpu)).take(most)
    }

    /// A descriptor that becomes readable when CPUs are added or removed, and stays readable until
    /// [`check_cpus`](Self::check_cpus) is called. `None` if the workers are not pinned or the
    /// kernel's events cannot be received.
    pub fn cpu_events(&self) -> Option<BorrowedFd<'_>> {
        match self.mode {
            Mode::PerCpu => self.cpus.events(),
            Mode::Unbound => None,
        }
    }

    /// Creates workers, sets them aside or pins them again until they match the usable CPUs. Call
    /// this on a thread that is not pinned: at the start, after [events](Self::cpu_events), and
    /// every [`RESCAN_INTERVAL`](crate::RESCAN_INTERVAL). A check that fails changes nothing.
    pub fn check_cpus(&self) {
        if self.mode == Mode::PerCpu {
            self.cpus.clear_events();
            let _ = self.topology.reconcile();
        }
    }

    /// Current number of pinned workers.
    pub fn count(&self) -> usize {
        self.topology.count()
    }

    /// CPUs that currently have a worker.
    pub fn cpus(&self) -> Vec<usize> {
        self.topology
            .workers()
            .iter()
            .filter_map(|running| running.worker.cpu)
            .collect()
    }

    /// The mode that the pool was started in.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// One entry for each CPU that has or had a worker, then one for each unbound thread.
    pub fn stats(&self) -> Vec<WorkerStats> {
        report::stats(&self.topology, &self.unbound)
    }

    /// Lines for the user: refusals and panics, each once.
    pub fn notices(&self) -> Vec<String> {
        let mut lines = self.notices.lines();
        priority::merge(&mut lines);
        lines
    }

    /// Attaches a source to every pinned worker. Each source is created on its worker's thread;
    /// workers added by hotplug receive theirs when they start. In `Mode::Unbound`, or if no pinned
    /// worker exists, each unbound thread receives one. A second call replaces the sources of the
    /// first.
    ///
    /// Waits for all workers (a busy one answers after its job) and returns how many have a source;
    /// failures are in `notices()`.
    pub fn attach(&self, make: Arc<EventSourceFactory>) -> Result<usize, Error> {
        if current_worker().is_some() {
            return Err(Error::OnWorker);
        }
        let (sender, replies) = channel();
        let mut asked = Vec::new();
        let mut post = |worker: &Worker| {
            let letter = Attach {
                make: Arc::clone(&make),
                reply: Some(sender.clone()),
            };
            if worker.post(letter) {
                asked.push(worker.name.clone());
            }
        };
        self.topology.attach(&make, &mut post)?;
        if self.topology.workers().is_empty() {
            self.unbound
                .all_threads()
                .iter()
                .for_each(|running| post(&running.worker));
        }
        drop(sender);
        let (mut open, mut refused) = (0, None);
        for reply in replies {
            match reply {
                Ok(()) => open += 1,
                Err(error) => {
                    self.notices.add(format!("a worker has no source: {error}"));
                    refused = refused.or(Some(error));
                }
            }
        }
        match refused {
            Some(source) if open == 0 => Err(Error::Attach {
                workers: asked.len(),
                source,
            }),
            None if open == 0 => Err(Error::ShutDown),
            _ => Ok(open),
        }
    }

    /// Makes the pinned workers of `raised` real-time, and the followers too unless `raised` is
    /// empty. All others get normal priority, with a slice of 100 us if the kernel grants it.
    /// Threads that already have the right priority cost no system call.
    pub fn raise_on(&self, raised: &BTreeSet<usize>) {
        let wanted = |raised| match raised {
            true => Wanted::RealTime,
            false => Wanted::Prompt {
                nice: self.base_nice,
            },
        };
        let _flip = self.flip.lock();
        let all = wanted(!raised.is_empty());
        self.topology
            .want_each(all, |cpu| wanted(raised.contains(&cpu)));
        for (tid, priority) in &*self.followers.lock() {
            priority.change(*tid, all);
        }
    }

    /// Whether the kernel reports real-time priority for a pinned worker.
    pub fn is_real_time(&self) -> bool {
        let policies = self.topology.workers();
        let mut policies = policies
            .iter()
            .map(|running| priority::current(running.tid));
        policies.any(|policy| matches!(policy, Some(Policy::Fifo(_))))
    }

    /// Gives the calling thread, which must not be a worker, the best priority allowed, so that it
    /// need not wait for a CPU itself before it raises the workers. Does nothing if the workers are
    /// never raised.
    pub fn lead(&self) {
        if self.priority != Priority::Normal {
            // A refusal has already been reported for the workers.
            let _ = ThreadPriority::default().set(priority::own_tid(), Wanted::Best);
        }
    }

    /// Gives the calling thread, which must not be a worker, the priority of all pinned workers
    /// until it drops the guard. Dropping the guard leaves the priority as it is at that moment.
    pub fn follow(self: &Arc<Self>) -> Following {
        let (tid, priority) = (priority::own_tid(), Arc::<ThreadPriority>::default());
        lowered::set_followers_own(Some(Arc::clone(&priority)));
        let _flip = self.flip.lock();
        // A refusal has already been reported for the workers.
        let _ = priority.set(tid, self.topology.wanted());
        self.followers.lock().push((tid, priority));
        Following {
            workers: Arc::downgrade(self),
            _here: PhantomData,
        }
    }

    fn unfollow(&self) {
        let own = priority::own_tid();
        let _flip = self.flip.lock();
        self.followers.lock().retain(|(tid, _)| *tid != own);
    }

    /// Finishes all queued jobs, then ends all threads and returns. If called on a worker, it ends
    /// all others; that worker ends later, and is not waited for.
    pub fn shutdown(&self) {
        let first = !self.ending.swap(true, Ordering::AcqRel);
        if !first && current_worker().is_some() {
            return;
        }
        let _ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if !first {
            return;
        }
        self.topology.end();
        self.unbound.end();
    }
}

/// The guard of a thread that has the priority of the workers; see [`Workers::follow`]. It is
/// dropped even if the thread panics, which is necessary because the system may reuse the thread's
/// ID.
#[must_use = "dropping this stops the thread from following the workers' priority"]
#[derive(Debug)]
pub struct Following {
    workers: Weak<Workers>,
    /// Makes the guard `!Send`: it must be dropped by the thread that created it.
    _here: PhantomData<*const ()>,
}

impl Drop for Following {
    fn drop(&mut self) {
        if let Some(workers) = self.workers.upgrade() {
            workers.unfollow();
        }
        lowered::set_followers_own(None);
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl fmt::Debug for Workers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Workers")
            .field("mode", &self.mode)
            .field("cpus", &self.cpus())
            .field("unbound_threads", &self.unbound.threads().len())
            .finish_non_exhaustive()
    }
}

/// The priorities of pinned and of unbound threads. If the pinned workers are real-time, the
/// unbound pool gets nice -20, as the kernel's own unbound workers do (WQ_HIGHPRI).
fn wanted(mode: Mode, priority: Priority) -> (Wanted, Wanted) {
    match (mode, priority) {
        (_, Priority::Normal) => (Wanted::Untouched, Wanted::Untouched),
        (_, Priority::Best) => (Wanted::Best, Wanted::Untouched),
        (Mode::PerCpu, Priority::High) => (Wanted::RealTime, Wanted::First),
        (Mode::Unbound, Priority::High) => (Wanted::RealTime, Wanted::RealTime),
    }
}
