//! Jobs: where and in which order they run, and that none are lost.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};

use super::fake::{FakeCpus, is_noted, start, until, wait, where_it_runs};
use crate::{Mode, WorkerContext};

#[test]
fn a_job_runs_on_the_worker_of_its_cpu() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(4, 0..3));
    assert_eq!(workers.cpus(), [0, 1, 2]);
    for cpu in 0..3 {
        assert_eq!(where_it_runs(&workers, Some(cpu)), Some(cpu));
    }
}

#[test]
fn an_empty_slot_a_strange_cpu_and_no_cpu_go_to_the_unbound_pool() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(4, [1]));
    for cpu in [Some(0), Some(3), Some(4000), None] {
        assert_eq!(where_it_runs(&workers, cpu), None);
    }
}

#[test]
fn the_unbound_pool_makes_threads_when_jobs_find_none_idle() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    let unbound = || workers.stats().iter().filter(|s| s.cpu.is_none()).count();
    assert_eq!(unbound(), 0);
    // Each of the two jobs waits for the other, so both run at the same time.
    let both = Arc::new(Barrier::new(3));
    for _ in 0..2 {
        let both = Arc::clone(&both);
        workers.queue(
            None,
            Box::new(move |_| {
                both.wait();
            }),
        );
    }
    both.wait();
    assert_eq!(unbound(), 2);
    (0..20).for_each(|_| workers.queue(None, Box::new(|_| ())));
    assert_eq!(unbound(), 2, "the limit");
    workers.shutdown();
}

#[test]
fn unbound_mode_has_no_pinned_worker() {
    let workers = start(Mode::Unbound, &FakeCpus::new(2, 0..2));
    assert_eq!(workers.cpus(), []);
    assert_eq!(where_it_runs(&workers, Some(1)), None);
    assert_eq!(workers.stats().len(), 2);
}

#[test]
fn jobs_of_one_worker_run_in_order() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    let (sender, receiver) = channel();
    for number in 0..100 {
        let sender = sender.clone();
        workers.queue(Some(0), Box::new(move |_| sender.send(number).unwrap()));
    }
    assert!((0..100).eq((0..100).map(|_| wait(&receiver))));
}

#[test]
fn shutdown_runs_all_that_is_queued_and_what_that_queues() {
    let cpus = FakeCpus::new(2, 0..2);
    let workers = start(Mode::PerCpu, &cpus);
    let done = Arc::new(AtomicUsize::new(0));
    for number in 0..100 {
        let (done, inner) = (Arc::clone(&done), Arc::downgrade(&workers));
        let job = move |_: &_| {
            done.fetch_add(1, Ordering::Relaxed);
            let second = move |_: &_| {
                done.fetch_add(1, Ordering::Relaxed);
            };
            inner
                .upgrade()
                .expect("held by the test")
                .queue(Some(1), Box::new(second));
        };
        workers.queue(Some(number % 3), Box::new(job));
    }
    workers.shutdown();
    assert_eq!(done.load(Ordering::Relaxed), 200);
    assert!(workers.cpus().is_empty());
}

#[test]
fn after_shutdown_a_job_runs_on_the_thread_that_queues_it() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    workers.shutdown();
    workers.shutdown();
    let (sender, receiver) = channel();
    let job = move |_: &_| sender.send(std::thread::current().id()).unwrap();
    workers.queue(Some(0), Box::new(job));
    assert_eq!(receiver.try_recv(), Ok(std::thread::current().id()));
    workers.queue(None, Box::new(|_| panic!("late")));
    assert!(is_noted(&workers, "late"));
}

#[test]
fn a_panic_is_counted_told_and_survived() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    workers.queue(Some(0), Box::new(|_| panic!("seven is odd")));
    assert_eq!(where_it_runs(&workers, Some(0)), Some(0));
    let stats = &workers.stats()[0];
    assert_eq!((stats.panics, stats.cpu), (1, Some(0)));
    assert!(stats.done >= 1);
    assert!(is_noted(&workers, "seven is odd"));
}

#[test]
fn the_last_owner_may_be_a_job() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(2, 0..2));
    let (gate, opened) = (Arc::new(Barrier::new(2)), channel());
    let (inner, own, sender) = (Arc::clone(&workers), Arc::clone(&gate), opened.0);
    let job = move |_: &_| {
        own.wait();
        drop(inner);
        sender.send(()).unwrap();
    };
    workers.queue(Some(1), Box::new(job));
    drop(workers);
    gate.wait();
    wait(&opened.1);
}

#[test]
fn a_job_knows_where_and_when_it_runs() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    let (sender, receiver) = channel();
    let job = move |context: &WorkerContext| sender.send(*context).unwrap();
    workers.queue(Some(0), Box::new(job));
    let context = wait(&receiver);
    assert_eq!(context.cpu, Some(0));
    assert!(context.queued_ns > 0 && context.queued_ns <= context.started_ns);
}

#[test]
fn a_worker_with_a_job_is_not_idle() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(2, 0..2));
    let helpers = |cpu, most| Vec::from_iter(workers.idle_helpers(cpu, most));
    until("both idle", || workers.is_idle(0) && workers.is_idle(1));
    let (begun, gate) = (channel(), Arc::new(Barrier::new(2)));
    let inner = Arc::clone(&gate);
    let job = move |_: &_| {
        begun.0.send(()).unwrap();
        inner.wait();
    };
    workers.queue(Some(1), Box::new(job));
    assert!(!workers.is_idle(1), "a job is queued or running");
    assert_eq!(helpers(0, 2), []);
    assert_eq!(helpers(1, 2), [0]);
    wait(&begun.1);
    assert!(!workers.is_idle(1));
    gate.wait();
    until("idle again", || workers.is_idle(1));
    assert_eq!(workers.count(), 2);
    assert_eq!(helpers(0, 2), [1]);
    assert_eq!(helpers(0, 0), []);
}

#[test]
fn delays_and_run_times_are_counted_per_job() {
    let workers = start(Mode::PerCpu, &FakeCpus::new(1, [0]));
    until("it sleeps", || workers.stats()[0].idle);
    let gate = Arc::new(Barrier::new(2));
    let inner = Arc::clone(&gate);
    workers.queue(
        Some(0),
        Box::new(move |_| {
            inner.wait();
        }),
    );
    (0..9).for_each(|_| workers.queue(Some(0), Box::new(|_| ())));
    until("nine wait", || workers.stats()[0].queued == 9);
    gate.wait();
    until("ten done", || workers.stats()[0].done == 10);
    let stats = &workers.stats()[0];
    assert_eq!(
        (stats.queue_delay.count, stats.run.count, stats.queued),
        (10, 10, 0)
    );
    assert!(stats.run.max_ns >= stats.run.p50_ns && stats.run.max_ns > 0);
    assert_eq!(stats.wakeups, 1, "only the first job woke the worker");
}
