//! Simulated CPUs that are added and removed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

use super::fake::{FakeCpus, start, until, wait, where_it_runs};
use crate::Mode;

#[test]
fn a_cpu_that_comes_gets_a_pinned_worker() {
    let cpus = FakeCpus::new(4, [0]);
    let workers = start(Mode::PerCpu, &cpus);
    cpus.set(&workers, [0, 2]);
    assert_eq!(workers.cpus(), [0, 2]);
    assert_eq!(where_it_runs(&workers, Some(2)), Some(2));
    let tid = workers.stats()[1].tid.unwrap();
    assert_eq!(cpus.pins().get(&tid), Some(&2));
}

#[test]
fn a_cpu_that_goes_leaves_its_queue_to_its_worker_and_the_rest_to_the_pool() {
    let cpus = FakeCpus::new(2, 0..2);
    let workers = start(Mode::PerCpu, &cpus);
    let (gate, ran) = (Arc::new(Barrier::new(2)), channel());
    let (inner, first) = (Arc::clone(&gate), ran.0.clone());
    workers.queue(
        Some(1),
        Box::new(move |_| {
            inner.wait();
        }),
    );
    workers.queue(
        Some(1),
        Box::new(move |context| first.send(context.cpu).unwrap()),
    );
    cpus.set(&workers, [0]);
    assert_eq!(workers.cpus(), [0]);
    assert_eq!(
        where_it_runs(&workers, Some(1)),
        None,
        "the unbound pool serves the CPU now"
    );
    assert!(ran.1.try_recv().is_err(), "the old worker is still held up");
    gate.wait();
    assert_eq!(wait(&ran.1), Some(1), "the queued job ran on CPU 1");
}

#[test]
fn a_cpu_that_returns_has_its_pin_and_its_counters_back() {
    let cpus = FakeCpus::new(2, 0..2);
    let workers = start(Mode::PerCpu, &cpus);
    for round in 1..=3 {
        assert_eq!(where_it_runs(&workers, Some(1)), Some(1));
        cpus.set(&workers, [0]);
        assert_eq!(workers.cpus(), [0]);
        assert_eq!(workers.stats()[1].tid, None);
        cpus.set(&workers, [0, 1]);
        assert_eq!(workers.cpus(), [0, 1]);
        until("counted", || workers.stats()[1].done == round);
        let tid = workers.stats()[1].tid.unwrap();
        assert_eq!(cpus.pins().get(&tid), Some(&1));
    }
}

#[test]
fn after_shutdown_no_worker_is_made() {
    let cpus = FakeCpus::new(2, [0]);
    let workers = start(Mode::PerCpu, &cpus);
    workers.shutdown();
    cpus.set(&workers, [0, 1]);
    assert_eq!(workers.cpus(), [0; 0]);
}

#[test]
fn a_pin_lost_unnoticed_is_put_back() {
    let cpus = FakeCpus::new(2, 0..2);
    let workers = start(Mode::PerCpu, &cpus);
    let before = cpus.pins();
    cpus.unpin_all();
    workers.check_cpus();
    assert_eq!(cpus.pins(), before);
    assert_eq!(workers.cpus(), [0, 1]);
}

#[test]
fn cycles_under_fire_lose_no_job() {
    let cpus = FakeCpus::new(3, 0..3);
    let workers = start(Mode::PerCpu, &cpus);
    let (done, stop) = (Arc::new(AtomicUsize::new(0)), AtomicBool::new(false));
    let queued: usize = std::thread::scope(|scope| {
        let fire = |cpu: usize| {
            let (workers, done, stop) = (&workers, &done, &stop);
            move || {
                let mut queued = 0;
                while !stop.load(Ordering::Relaxed) {
                    let done = Arc::clone(done);
                    let job = move |_: &_| {
                        done.fetch_add(1, Ordering::Relaxed);
                    };
                    workers.queue(Some(cpu), Box::new(job));
                    queued += 1;
                    if queued % 64 == 0 {
                        std::thread::yield_now();
                    }
                }
                queued
            }
        };
        let threads = [scope.spawn(fire(1)), scope.spawn(fire(2))];
        for _ in 0..50 {
            cpus.set(&workers, [0]);
            assert_eq!(workers.cpus(), [0]);
            cpus.set(&workers, [0, 1, 2]);
            assert_eq!(workers.cpus(), [0, 1, 2]);
        }
        stop.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    workers.shutdown();
    assert_eq!(done.load(Ordering::Relaxed), queued);
}
