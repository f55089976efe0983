//! Gathers the result of `stats()`.

use std::sync::Arc;

use crate::stats::counters::Counters;
use crate::topology::pinned::Topology;
use crate::worker::spawn::Running;
use crate::worker::unbound::UnboundPool;
use crate::{Policy, WorkerStats, priority};

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
    let policy = running.and_then(|running| priority::current(running.tid));
    let mut stats = WorkerStats {
        cpu,
        name,
        tid: running.map(|running| running.tid),
        policy,
        nice: policy.and_then(Policy::nice),
        idle: running.is_some_and(|running| running.worker.parker.is_idle()),
        queued: running.map_or(0, |running| running.worker.queue.len()),
        queue_delay: counters.queue_delay.summary(),
        run: counters.run.summary(),
        ..WorkerStats::default()
    };
    counters.add_to(&mut stats);
    stats.done = stats.jobs + stats.served;
    stats
}
