//! The pinned workers, following the CPUs as they come and go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::helpers;
use super::slot::Slot;
use crate::faults::FailPoint;
use crate::priority::Wanted;
use crate::stats::counters::Counters;
use crate::stats::notices::Notices;
use crate::worker::queue::JobQueue;
use crate::worker::spawn::{Running, Spawner};
use crate::worker::thread::{Attach, Worker};
use crate::{Error, EventSourceFactory};

/// Field tags: I = set when made; S = the slot's own lock; T = under `plan`, which is never held
/// while a thread is joined or a job runs.
pub(crate) struct Topology {
    /// I.
    name: String,
    /// I: one for each possible CPU. Each S.
    slots: Vec<CpuSlot>,
    /// I.
    spawner: Spawner,
    /// I.
    notices: Arc<Notices>,
    /// A: workers there are; written under `plan`.
    count: AtomicUsize,
    /// T.
    plan: Mutex<Plan>,
}

struct CpuSlot {
    worker: Slot<Running>,
    /// The worker of a CPU that went, until it returns. It serves its source meanwhile: what other
    /// threads, or the kernel, still send there is answered. Changed under `plan`.
    resting: Mutex<Option<Arc<Running>>>,
    /// Created with the CPU's first worker and kept: the counters go on when it returns.
    counters: OnceLock<Arc<Counters>>,
    /// All other CPUs, in the order in which they help; read from sysfs at the first use.
    helpers: OnceLock<Box<[usize]>>,
}

/// What workers that come later get.
struct Plan {
    ended: bool,
    source: Option<Arc<EventSourceFactory>>,
    wanted: Wanted,
    /// Priorities set for one CPU.
    wanted_for: BTreeMap<usize, Wanted>,
}

impl Topology {
    /// All slots, all empty.
    pub(crate) fn new(
        name: String,
        possible: usize,
        wanted: Wanted,
        spawner: Spawner,
        notices: Arc<Notices>,
    ) -> Result<Self, Error> {
        let mut slots = Vec::new();
        let room = spawner.faults.check(FailPoint::SlotTable).is_ok()
            && slots.try_reserve_exact(possible).is_ok();
        if !room {
            return Err(Error::SlotTable { cpus: possible });
        }
        slots.resize_with(possible, CpuSlot::empty);
        let wanted_for = BTreeMap::new();
        let plan = Mutex::new(Plan {
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
        })
    }

    /// Makes, rests and re-pins workers until they are those of the usable CPUs.
    pub(crate) fn reconcile(&self) -> Result<(), Error> {
        self.spawner
            .faults
            .check(FailPoint::Cpus)
            .map_err(Error::Cpus)?;
        let usable = self.spawner.cpus.usable().map_err(Error::Cpus)?;
        self.follow(&usable);
        Ok(())
    }

    fn follow(&self, usable: &BTreeSet<usize>) {
        let plan = self.plan();
        if plan.ended {
            return;
        }
        for (cpu, slot) in self.slots.iter().enumerate() {
            let worker = slot.worker.get();
            match (worker, usable.contains(&cpu)) {
                (None, true) => match slot.resting().take() {
                    Some(worker) => self.wake(cpu, worker),
                    None => self.create(cpu, &plan),
                },
                (Some(worker), true) => self.keep_pinned(cpu, &worker),
                (Some(_), false) => *slot.resting() = slot.worker.unpublish(),
                (None, false) => {}
            }
        }
        self.count.store(self.workers().len(), Ordering::Relaxed);
    }

    /// Its CPU is back.
    fn wake(&self, cpu: usize, worker: Arc<Running>) {
        self.keep_pinned(cpu, &worker);
        if let Err(extra) = self.slots[cpu].worker.publish(worker) {
            *self.slots[cpu].resting() = Some(extra);
        }
    }

    /// Makes a worker, then publishes it. Where that fails the slot stays empty, the unbound pool
    /// serves the CPU, and the next check of the CPUs tries again.
    fn create(&self, cpu: usize, plan: &Plan) {
        let slot = &self.slots[cpu];
        let counters = slot.counters.get_or_init(|| Arc::new(Counters::new()));
        let name = format!("{}/{cpu}", self.name);
        let (queue, counters) = (Arc::new(JobQueue::new()), Arc::clone(counters));
        let worker = Worker::new(name, Some(cpu), queue, counters, Arc::clone(&self.notices));
        let wanted = plan.wanted_for.get(&cpu).copied().unwrap_or(plan.wanted);
        match self.spawner.spawn(worker, wanted) {
            Ok(running) => {
                if let Some(make) = &plan.source {
                    running.worker.post(Attach {
                        make: Arc::clone(make),
                        reply: None,
                    });
                }
                // The plan's lock makes us the only publisher; should that ever change, the
                // second worker ends again.
                if let Err(second) = slot.worker.publish(Arc::new(running)) {
                    second.end();
                }
            }
            Err(error) => self.notices.add(format!(
                "{}/{cpu}: no worker for CPU {cpu} ({error}); the unbound pool serves it",
                self.name
            )),
        }
    }

    /// A CPU that went and returned between two checks, and a change of the cpuset, remove
    /// the pin for good.
    fn keep_pinned(&self, cpu: usize, worker: &Running) {
        let cpus = &self.spawner.cpus;
        if cpus.is_pinned(worker.tid, cpu).unwrap_or(true) {
            return;
        }
        if let Err(error) = cpus.pin(worker.tid, cpu) {
            self.notices.add(format!(
                "{}: cannot be pinned again: {error}",
                worker.worker.name
            ));
        }
    }

    /// Empties all slots for good, waits for all jobs, ends all threads.
    pub(crate) fn end(&self) {
        self.plan().ended = true;
        let slots = self.slots.iter();
        let workers: Vec<_> = slots
            .flat_map(|slot| [slot.worker.unpublish(), slot.resting().take()])
            .flatten()
            .collect();
        // All of them first: they drain side by side.
        workers
            .iter()
            .for_each(|worker| worker.worker.queue.close());
        workers.iter().for_each(|worker| worker.join());
    }

    /// Runs `f` with the worker of a CPU, which stays published meanwhile.
    pub(crate) fn read<R>(&self, cpu: usize, f: impl FnOnce(Option<&Arc<Running>>) -> R) -> R {
        match self.slots.get(cpu) {
            Some(slot) => slot.worker.read(f),
            None => f(None),
        }
    }

    /// How many workers there are now.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// All possible CPUs but `cpu`, in the order in which they help. Empty for a CPU that is not
    /// possible.
    pub(crate) fn helpers(&self, cpu: usize) -> &[usize] {
        self.slots.get(cpu).map_or(&[], |slot| {
            let possible = self.slots.len();
            slot.helpers.get_or_init(|| helpers::of(cpu, possible))
        })
    }

    /// The workers there are now.
    pub(crate) fn workers(&self) -> Vec<Arc<Running>> {
        let each = |slot: &CpuSlot| slot.worker.get();
        self.slots.iter().filter_map(each).collect()
    }

    /// Those of the CPUs that went.
    fn resting(&self) -> impl Iterator<Item = Arc<Running>> {
        self.slots.iter().filter_map(|slot| slot.resting().clone())
    }

    /// Every CPU that has or had a worker.
    pub(crate) fn counted(&self) -> impl Iterator<Item = (usize, &Arc<Counters>)> {
        let counted = |(cpu, slot): (usize, &'_ CpuSlot)| slot.counters.get().map(|_| cpu);
        let counted = self.slots.iter().enumerate().filter_map(counted);
        counted.filter_map(|cpu| Some((cpu, self.slots[cpu].counters.get()?)))
    }

    pub(crate) fn worker_name(&self, cpu: usize) -> String {
        format!("{}/{cpu}", self.name)
    }

    /// Posts the source to all workers, and keeps it for later ones; `post` sends it to one worker.
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

    /// Remembers the priority for workers to come and returns those it is for now.
    pub(crate) fn want(&self, cpu: Option<usize>, wanted: Wanted) -> Vec<Arc<Running>> {
        let mut plan = self.plan();
        match cpu {
            Some(cpu) => {
                plan.wanted_for.insert(cpu, wanted);
                let slot = self.slots.get(cpu);
                let both = slot.map(|slot| [slot.worker.get(), slot.resting().clone()]);
                both.into_iter().flatten().flatten().collect()
            }
            None => {
                plan.wanted_for.clear();
                plan.wanted = wanted;
                self.workers().into_iter().chain(self.resting()).collect()
            }
        }
    }

    /// The priority of workers to come, except for CPUs that have their own.
    pub(crate) fn wanted(&self) -> Wanted {
        self.plan().wanted
    }

    fn plan(&self) -> MutexGuard<'_, Plan> {
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CpuSlot {
    fn resting(&self) -> MutexGuard<'_, Option<Arc<Running>>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn empty() -> Self {
        CpuSlot {
            worker: Slot::empty(),
            resting: Mutex::default(),
            counters: OnceLock::new(),
            helpers: OnceLock::new(),
        }
    }
}
