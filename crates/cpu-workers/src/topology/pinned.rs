//! The pinned workers, which follow the CPUs as they are added and removed.

use std::collections::{BTreeMap, BTreeSet};
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
    /// Set at start.
    name: String,
    /// Set at start: one for each possible CPU, each guarded by its own lock.
    slots: Vec<CpuSlot>,
    /// Set at start.
    spawner: Spawner,
    /// Set at start.
    notices: Arc<Notices>,
    /// Atomic: number of workers; written under `plan`.
    count: AtomicUsize,
    /// Guarded by its own lock.
    plan: PiMutex<Plan>,
    /// Held while workers are made to follow the CPUs; no request waits for this lock.
    following: PiMutex<()>,
}

struct CpuSlot {
    worker: Slot<Running>,
    /// The worker of a CPU that went offline, until that CPU returns. Meanwhile it serves its
    /// source, so that requests which other threads or the kernel still send there are answered.
    /// Changed under `plan`.
    resting: PiMutex<Option<Arc<Running>>>,
    /// The worker, and whether it is published, for threads that search for an idle worker without
    /// a lock. The worker is created once; if it has ended, it never counts as idle.
    made: OnceLock<Arc<Worker>>,
    is_published: AtomicBool,
    /// Created with the CPU's first worker and kept, so that the counters continue when the CPU
    /// returns.
    counters: OnceLock<Arc<Counters>>,
    /// All other CPUs in the order in which they help; read from sysfs at first use.
    helpers: OnceLock<Box<[usize]>>,
}

/// Settings of future workers.
struct Plan {
    ended: bool,
    source: Option<Arc<EventSourceFactory>>,
    wanted: Wanted,
    /// Priorities set for individual CPUs.
    wanted_for: BTreeMap<usize, Wanted>,
}

impl Plan {
    fn wanted_of(&self, cpu: usize) -> Wanted {
        self.wanted_for.get(&cpu).copied().unwrap_or(self.wanted)
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
        let room = faults::check(FailPoint::SlotTable).is_ok()
            && slots.try_reserve_exact(possible).is_ok();
        if !room {
            return Err(Error::SlotTable { cpus: possible });
        }
        slots.resize_with(possible, CpuSlot::empty);
        let wanted_for = BTreeMap::new();
        let plan = PiMutex::new(Plan {
            ended: false,
            source: None,
            wanted,
            wanted_for,
        });
        Ok(Topology {
            name,
            slots,
            spawner,
            notices,
            count: AtomicUsize::new(0),
            plan,
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

    /// Provides the worker of a CPU that has appeared or returned.
    fn fill(&self, cpu: usize) {
        let resting = self.slots[cpu].resting().clone();
        match resting {
            Some(worker) => {
                self.keep_pinned(cpu, &worker);
                let _plan = self.plan();
                let mut resting = self.slots[cpu].resting();
                // If the pool has been shut down in the meantime, the shutdown has taken the
                // worker.
                if resting.take().is_some() {
                    match self.slots[cpu].worker.publish(worker) {
                        Ok(()) => self.slots[cpu].is_published.store(true, Ordering::Release),
                        Err(extra) => *resting = Some(extra),
                    }
                }
            }
            None => self.create(cpu),
        }
    }

    /// Creates a worker, then publishes it. If that fails, the slot stays empty, the unbound pool
    /// serves the CPU, and the next check of the CPUs tries again.
    fn create(&self, cpu: usize) {
        let slot = &self.slots[cpu];
        let counters = slot.counters.get_or_init(|| Arc::new(Counters::new()));
        let name = format!("{}/{cpu}", self.name);
        let (queue, counters) = (Arc::new(JobQueue::new()), Arc::clone(counters));
        let worker = Worker::new(name, Some(cpu), queue, counters, Arc::clone(&self.notices));
        // Read outside the lock: otherwise, a request that changes priorities would have to wait
        // for the new thread.
        let wanted = self.plan().wanted_of(cpu);
        match self.spawner.spawn(worker, wanted) {
            Ok(running) => self.publish(cpu, Arc::new(running)),
            Err(error) => self.notices.add(format!(
                "{}/{cpu}: cannot start the worker of CPU {cpu} ({error}); the unbound pool \
                 serves it",
                self.name
            )),
        }
    }

    /// Publishes a worker, after applying settings that changed while it started.
    fn publish(&self, cpu: usize, running: Arc<Running>) {
        let plan = self.plan();
        let wanted = plan.wanted_of(cpu);
        let priority = &running.worker.priority;
        priority.change(running.tid, wanted);
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
        let slots = self.slots.iter();
        slots
            .clone()
            .for_each(|slot| slot.is_published.store(false, Ordering::Release));
        let workers: Vec<_> = slots
            .flat_map(|slot| [slot.worker.unpublish(), slot.resting().take()])
            .flatten()
            .collect();
        // Closes all queues first, so that they drain in parallel.
        workers
            .iter()
            .for_each(|worker| worker.worker.queue.close());
        workers.iter().for_each(|worker| worker.join());
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

    /// All possible CPUs except `cpu`, in the order in which they help. Empty if `cpu` is not a
    /// possible CPU.
    pub(crate) fn helpers(&self, cpu: usize) -> &[usize] {
        self.slots.get(cpu).map_or(&[], |slot| {
            let possible = self.slots.len();
            slot.helpers.get_or_init(|| helpers::of(cpu, possible))
        })
    }

    /// All current workers.
    pub(crate) fn workers(&self) -> Vec<Arc<Running>> {
        let each = |slot: &CpuSlot| slot.worker.get();
        self.slots.iter().filter_map(each).collect()
    }

    /// The workers of CPUs that went offline.
    fn resting(&self) -> impl Iterator<Item = Arc<Running>> {
        self.slots.iter().filter_map(|slot| slot.resting().clone())
    }

    /// Every CPU that has or had a worker, with its counters.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (usize, &Arc<Counters>)> {
        let counted = |(cpu, slot): (usize, &'_ CpuSlot)| slot.counters.get().map(|_| cpu);
        let counted = self.slots.iter().enumerate().filter_map(counted);
        counted.filter_map(|cpu| Some((cpu, self.slots[cpu].counters.get()?)))
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

    /// Remembers priorities for future workers, with `all` for CPUs that have none of their own,
    /// and calls `each` with every current worker and its priority, outside the lock.
    pub(crate) fn want_each(
        &self,
        all: Wanted,
        of: &dyn Fn(usize) -> Wanted,
        each: impl Fn(&Running, Wanted),
    ) {
        let workers: Vec<_> = {
            let mut plan = self.plan();
            plan.wanted = all;
            let slots = self.slots.iter().enumerate();
            plan.wanted_for = slots.map(|(cpu, _)| (cpu, of(cpu))).collect();
            self.workers().into_iter().chain(self.resting()).collect()
        };
        for running in workers {
            each(&running, running.worker.cpu.map_or(all, of));
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

    fn empty() -> Self {
        CpuSlot {
            worker: Slot::empty(),
            resting: PiMutex::default(),
            made: OnceLock::new(),
            is_published: AtomicBool::new(false),
            counters: OnceLock::new(),
            helpers: OnceLock::new(),
        }
    }
}
