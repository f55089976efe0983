//! Gathers the result of `stats()`.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::stats::counters::Counters;
use crate::topology::pinned::Topology;
use crate::worker::spawn::Running;
use crate::worker::unbound::UnboundPool;
use crate::{WorkerStats, priority};

pub(crate) fn stats(topology: &Topology, unbound: &UnboundPool) -> Vec<WorkerStats> {
    let pinned = topology.counted().map(|(cpu, counters)| {
        let running = topology.read(cpu, |worker| worker.cloned());
        let name = topology.worker_name(cpu);
        one(Some(cpu), name, counters, running.as_deref())
    });
    let unbound = unbound.threads();
    let unbound = unbound.iter().map(|running| {
        let worker = &running.worker;
        one(None, worker.name.clone(), &worker.counters, Some(running))
    });
    pinned.chain(unbound).collect()
}

fn one(
    cpu: Option<usize>,
    name: String,
    counters: &Arc<Counters>,
    running: Option<&Running>,
) -> WorkerStats {
    WorkerStats {
        cpu,
        name,
        tid: running.map(|running| running.tid),
        policy: running.and_then(|running| priority::current(running.tid)),
        idle: running.is_some_and(|running| running.worker.parker.is_idle()),
        queued: running.map_or(0, |running| running.worker.queue.len()),
        done: counters.done.load(Ordering::Relaxed),
        served: counters.served.load(Ordering::Relaxed),
        panics: counters.panics.load(Ordering::Relaxed),
        wakeups: counters.wakeups.load(Ordering::Relaxed),
        queue_delay: counters.queue_delay.summary(),
        run: counters.run.summary(),
    }
}
