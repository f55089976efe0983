//! The pinned workers, which follow the CPUs as they are added and removed.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use sys::pi_mutex::{PiMutex, PiMutexGuard};

use super::helpers;
use super::slot::Slot;
use crate::faults::{self, FailPoint};
use crate::priority::Wanted;
use crate::stats::counters::Counters;
use crate::stats::notices::Notices;
use crate::worker::queue::JobQueue;
use crate::worker::spawn::{Running, Spawner};
use crate::worker::thread::{Attach, Worker};
use crate::{Error, EventSourceFactory};

/// The pinned workers. `plan` is never held while a thread starts or is joined, or while a job
/// runs.
pub(crate) struct Topology {
    /// Fixed at creation.
    name: String,
    /// Fixed at creation: one for each possible CPU, each guarded by its own lock.
    slots: Vec<CpuSlot>,
    /// Fixed at creation.
    spawner: Spawner,
    /// Fixed at creation.
    notices: Arc<Notices>,
    /// Atomic: number of workers; written under `plan`.
    count: AtomicUsize,
    /// Guarded by its own lock.
    plan: PiMutex<Plan>,
    /// Held while workers are created, set aside or pinned; no request waits for this lock.
    following: PiMutex<()>,
}

#[derive(Default)]
struct CpuSlot {
    worker: Slot<Running>,
    /// The worker of a CPU that went offline, until that CPU returns. Meanwhile the worker serves
    /// its source, so that requests which other threads or the kernel still send to that source are
    /// answered. Changed under `plan`.
    resting: PiMutex<Option<Arc<Running>>>,
    /// The worker, and whether it is published, for threads that search for an idle worker without
    /// a lock. The worker is created once; if it has ended, it never counts as idle.
    made: OnceLock<Arc<Worker>>,
    is_published: AtomicBool,
    /// Created with the CPU's first worker and kept, so that the counters continue when the CPU
    /// returns.
    counters: OnceLock<Arc<Counters>>,
    /// All other CPUs in the order in which they are asked to help; read from sysfs at first use.
    helpers: OnceLock<Box<[usize]>>,
}

/// Settings of future workers.
#[derive(Default)]
struct Plan {
    ended: bool,
    source: Option<Arc<EventSourceFactory>>,
    wanted: Wanted,
    /// Priorities by CPU; empty until they are set.
    wanted_for: Vec<Wanted>,
}

impl Plan {
    fn wanted_of(&self, cpu: usize) -> Wanted {
        self.wanted_for.get(cpu).copied().unwrap_or(self.wanted)
    }
}

impl Topology {
    /// Creates the slots, all empty.
    pub(crate) fn new(
        name: String,
        possible: usize,
        wanted: Wanted,
        spawner: Spawner,
        notices: Arc<Notices>,
    ) -> Result<Self, Error> {
        let mut slots = Vec::new();
        let is_injected = faults::check(FailPoint::SlotTable).is_err();
        if is_injected || slots.try_reserve_exact(possible).is_err() {
            return Err(Error::SlotTable(possible));
        }
        slots.resize_with(possible, CpuSlot::default);
        let plan = Plan {
            wanted,
            ..Plan::default()
        };
        Ok(Topology {
            name,
            slots,
            spawner,
            notices,
            count: AtomicUsize::new(0),
            plan: PiMutex::new(plan),
            following: PiMutex::default(),
        })
    }

    /// Creates workers, sets them aside or pins them again until they match the usable CPUs.
    pub(crate) fn reconcile(&self) -> Result<(), Error> {
        faults::check(FailPoint::Cpus).map_err(Error::Cpus)?;
        let usable = self.spawner.cpus.usable().map_err(Error::Cpus)?;
        self.follow(&usable);
        Ok(())
    }

    fn follow(&self, usable: &BTreeSet<usize>) {
        let _one = self.following.lock();
        for (cpu, slot) in self.slots.iter().enumerate() {
            if self.plan().ended {
                return;
            }
            match (slot.worker.get(), usable.contains(&cpu)) {
                (None, true) => self.fill(cpu),
                (Some(worker), true) => self.keep_pinned(cpu, &worker),
                (Some(_), false) => self.rest(slot),
                (None, false) => {}
            }
        }
        self.count.store(self.workers().len(), Ordering::Relaxed);
    }

    fn rest(&self, slot: &CpuSlot) {
        let _plan = self.plan();
        slot.is_published.store(false, Ordering::Release);
        *slot.resting() = slot.worker.unpublish();
    }

    /// Provides a worker for a CPU that has appeared or returned.
    fn fill(&self, cpu: usize) {
        let slot = &self.slots[cpu];
        let resting = slot.resting().clone();
        let Some(worker) = resting else {
            return self.create(cpu);
        };
        self.keep_pinned(cpu, &worker);
        let _plan = self.plan();
        let mut resting = slot.resting();
        // If the pool has been shut down in the meantime, `resting` is empty: the shutdown has
        // taken the worker.
        if resting.take().is_some() {
            match slot.worker.publish(worker) {
                Ok(()) => slot.is_published.store(true, Ordering::Release),
                Err(extra) => *resting = Some(extra),
            }
        }
    }

    /// Creates a worker, then publishes it. If that fails, the slot stays empty, the unbound pool
    /// serves the CPU, and the next check of the CPUs tries again.
    fn create(&self, cpu: usize) {
        let slot = &self.slots[cpu];
        let counters = slot.counters.get_or_init(|| Arc::new(Counters::new()));
        let name = self.worker_name(cpu);
        let (queue, counters) = (Arc::new(JobQueue::new()), Arc::clone(counters));
        let worker = Worker::new(name, Some(cpu), queue, counters, Arc::clone(&self.notices));
        // Read outside the lock: otherwise, a request that changes priorities would have to wait
        // for the new thread.
        let wanted = self.plan().wanted_of(cpu);
        match self.spawner.spawn(worker, wanted) {
            Ok(running) => self.publish(cpu, Arc::new(running)),
            Err(error) => self.notices.add(format!(
                "{}: cannot start the worker of CPU {cpu} ({error}); the unbound pool serves it",
                self.worker_name(cpu)
            )),
        }
    }

    /// Publishes a worker, after applying settings that changed while it started.
    fn publish(&self, cpu: usize, running: Arc<Running>) {
        let plan = self.plan();
        let wanted = plan.wanted_of(cpu);
        running.worker.priority.change(running.tid, wanted);
        if let Some(make) = &plan.source {
            running.worker.post(Attach {
                make: Arc::clone(make),
                reply: None,
            });
        }
        let refused = match plan.ended {
            true => Some(running),
            false => Self::show(&self.slots[cpu], running).err(),
        };
        drop(plan);
        if let Some(extra) = refused {
            extra.end();
        }
    }

    fn show(slot: &CpuSlot, running: Arc<Running>) -> Result<(), Arc<Running>> {
        let made = Arc::clone(&running.worker);
        slot.worker.publish(running)?;
        let is_first = slot.made.set(made).is_ok();
        slot.is_published.store(is_first, Ordering::Release);
        Ok(())
    }

    /// Pins a worker again: if its CPU went offline and returned between two checks, or the cpuset
    /// changed, the kernel has dropped the pin and does not restore it.
    fn keep_pinned(&self, cpu: usize, worker: &Running) {
        let cpus = &self.spawner.cpus;
        if cpus.is_pinned(worker.tid, cpu).unwrap_or(true) {
            return;
        }
        if let Err(error) = cpus.pin(worker.tid, cpu) {
            self.notices.add(format!(
                "{}: cannot be pinned to its CPU again: {error}",
                worker.worker.name
            ));
        }
    }

    /// Empties all slots for good, waits for all jobs, and ends all threads.
    pub(crate) fn end(&self) {
        self.plan().ended = true;
        for slot in &self.slots {
            slot.is_published.store(false, Ordering::Release);
        }
        let slots = self.slots.iter();
        let workers = slots.flat_map(|slot| [slot.worker.unpublish(), slot.resting().take()]);
        let workers: Vec<_> = workers.flatten().collect();
        // Close all queues first, so that they drain in parallel.
        for running in &workers {
            running.worker.queue.close();
        }
        workers.iter().for_each(|running| running.join());
    }

    /// Runs `f` with the worker of a CPU, which stays published until `f` returns.
    pub(crate) fn read<R>(&self, cpu: usize, f: impl FnOnce(Option<&Arc<Running>>) -> R) -> R {
        match self.slots.get(cpu) {
            Some(slot) => slot.worker.read(f),
            None => f(None),
        }
    }

    /// Whether the worker of a CPU has nothing to do. Only a hint: no lock is taken.
    pub(crate) fn is_idle(&self, cpu: usize) -> bool {
        self.slots.get(cpu).is_some_and(CpuSlot::is_idle)
    }

    /// Current number of workers.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// All possible CPUs except `cpu`, in the order in which they are asked to help. Empty if `cpu`
    /// is not a possible CPU.
    pub(crate) fn helpers(&self, cpu: usize) -> &[usize] {
        self.slots.get(cpu).map_or(&[], |slot| {
            let possible = self.slots.len();
            slot.helpers.get_or_init(|| helpers::of(cpu, possible))
        })
    }

    /// All current workers.
    pub(crate) fn workers(&self) -> Vec<Arc<Running>> {
        self.slots.iter().filter_map(|it| it.worker.get()).collect()
    }

    /// The workers of CPUs that went offline.
    fn resting(&self) -> impl Iterator<Item = Arc<Running>> {
        self.slots.iter().filter_map(|slot| slot.resting().clone())
    }

    /// Every CPU that has or had a worker, with its counters.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (usize, &Arc<Counters>)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(cpu, slot)| Some((cpu, slot.counters.get()?)))
    }

    pub(crate) fn worker_name(&self, cpu: usize) -> String {
        format!("{}/{cpu}", self.name)
    }

    /// Posts the source to all workers and keeps it for future ones; `post` sends the source to one
    /// worker.
    pub(crate) fn attach(
        &self,
        make: &Arc<EventSourceFactory>,
        post: &mut dyn FnMut(&Worker),
    ) -> Result<(), Error> {
        let mut plan = self.plan();
        if plan.ended {
            return Err(Error::ShutDown);
        }
        plan.source = Some(Arc::clone(make));
        let workers = self.workers().into_iter().chain(self.resting());
        workers.for_each(|running| post(&running.worker));
        Ok(())
    }

    /// Gives every worker, and those that are created later, the priority that `of` returns for its
    /// CPU. `all` is the [priority](Self::wanted) of the pool.
    pub(crate) fn want_each(&self, all: Wanted, of: impl Fn(usize) -> Wanted) {
        let mut plan = self.plan();
        plan.wanted = all;
        plan.wanted_for = (0..self.slots.len()).map(&of).collect();
        let workers: Vec<_> = self.workers().into_iter().chain(self.resting()).collect();
        // The system calls are made outside the lock.
        drop(plan);
        for running in workers {
            let wanted = running.worker.cpu.map_or(all, &of);
            running.worker.priority.change(running.tid, wanted);
        }
    }

    /// The priority of future workers, except on CPUs that have their own.
    pub(crate) fn wanted(&self) -> Wanted {
        self.plan().wanted
    }

    fn plan(&self) -> PiMutexGuard<'_, Plan> {
        self.plan.lock()
    }
}

impl CpuSlot {
    fn resting(&self) -> PiMutexGuard<'_, Option<Arc<Running>>> {
        self.resting.lock()
    }

    fn is_idle(&self) -> bool {
        let is_free = || self.made.get().is_some_and(|worker| worker.is_free());
        self.is_published.load(Ordering::Acquire) && is_free()
    }
}
