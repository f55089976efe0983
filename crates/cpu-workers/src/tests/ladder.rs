//! Each step of start-up fails once: nothing is left behind, and the next try works.

use std::sync::Arc;

use super::fake::{FakeCpus, is_noted, options, until, where_it_runs};
use crate::faults::{FailPoint, fail_at};
use crate::{Error, Mode, Priority, WorkerOptions, Workers};

fn start_with(points: &[FailPoint]) -> (Result<Arc<Workers>, Error>, Arc<FakeCpus>) {
    fail_at(points);
    let cpus = FakeCpus::new(2, 0..2);
    let options = WorkerOptions {
        priority: Priority::High,
        ..options(Mode::PerCpu)
    };
    (Workers::start_on(options, cpus.clone()), cpus)
}

/// Number of threads of this process by name, to find what a failed start left behind.
fn threads_called(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let comms =
        tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    comms.filter(|comm| comm.starts_with(name)).count()
}

#[test]
fn without_memory_for_the_slots_there_is_nothing() {
    let (result, ..) = start_with(&[FailPoint::SlotTable]);
    assert!(matches!(result, Err(Error::SlotTable(2))));
}

const NO_UNBOUND_THREAD: [FailPoint; 2] =
    [FailPoint::UnboundThread(0), FailPoint::UnboundThread(1)];

#[test]
fn an_unbound_pool_without_a_single_thread_is_nothing() {
    fail_at(&NO_UNBOUND_THREAD);
    let result = Workers::start_on(options(Mode::Unbound), FakeCpus::new(2, 0..2));
    assert!(matches!(result, Err(Error::UnboundPool { threads: 2, .. })));
}

#[test]
fn behind_pinned_workers_a_job_without_a_thread_runs_where_it_is_queued() {
    let (result, _) = start_with(&NO_UNBOUND_THREAD);
    let workers = result.unwrap();
    assert_eq!(where_it_runs(&workers, Some(0)), Some(0));
    let (sender, receiver) = std::sync::mpsc::channel();
    let unbound = || {
        let sender = sender.clone();
        let job = move |_: &_| sender.send(std::thread::current().id()).unwrap();
        workers.queue(None, Box::new(job));
        receiver.recv().unwrap()
    };
    assert_eq!(unbound(), std::thread::current().id());
    fail_at(&[]);
    assert_ne!(
        unbound(),
        std::thread::current().id(),
        "a thread ran the next job"
    );
}

#[test]
fn one_unbound_thread_is_enough_and_the_refusal_is_a_notice() {
    let (result, ..) = start_with(&[FailPoint::UnboundThread(0)]);
    let workers = result.unwrap();
    assert_eq!(where_it_runs(&workers, None), None);
    assert!(is_noted(&workers, "/u0: cannot start the thread"));
}

#[test]
fn a_worker_that_cannot_be_made_or_pinned_leaves_an_empty_slot_until_it_can() {
    for point in [FailPoint::WorkerThread(1), FailPoint::Pin(1)] {
        let (result, cpus) = start_with(&[point]);
        let workers = result.unwrap();
        assert_eq!(workers.cpus(), [0]);
        assert_eq!(where_it_runs(&workers, Some(1)), None);
        assert!(is_noted(&workers, "cannot start the worker of CPU 1"));
        fail_at(&[]);
        cpus.set(&workers, 0..2);
        assert_eq!(workers.cpus(), [0, 1]);
    }
}

#[test]
fn without_any_pinned_worker_the_unbound_pool_serves_all() {
    let (result, ..) = start_with(&[FailPoint::WorkerThread(0), FailPoint::WorkerThread(1)]);
    let workers = result.unwrap();
    assert_eq!(workers.cpus(), []);
    assert_eq!(where_it_runs(&workers, Some(0)), None);
}

#[test]
fn a_failed_late_rung_takes_down_what_stood_and_the_next_try_works() {
    fail_at(&[FailPoint::Cpus]);
    let mut options = options(Mode::PerCpu);
    options.name = "late_rung".into();
    let cpus = FakeCpus::new(2, 0..2);
    let result = Workers::start_on(options.clone(), cpus.clone());
    assert!(matches!(result, Err(Error::Cpus(_))));
    // A joined thread may stay in /proc for a moment.
    until("no thread is left", || threads_called("late_rung") == 0);
    fail_at(&[]);
    let workers = Workers::start_on(options, cpus).unwrap();
    assert_eq!(workers.cpus(), [0, 1]);
    assert_eq!(
        threads_called("late_rung"),
        2,
        "no unbound thread before a job"
    );
}

#[test]
fn a_refused_real_time_priority_is_one_line_and_not_an_error() {
    let (result, ..) = start_with(&[FailPoint::RealTime, FailPoint::Nice]);
    let workers = result.unwrap();
    assert_eq!(where_it_runs(&workers, Some(0)), Some(0));
    let notices = workers.notices();
    let line = notices
        .iter()
        .find(|line| line.contains("real-time"))
        .unwrap();
    assert!(line.contains("running at normal priority"), "{line}");
}

#[test]
fn below_real_time_a_slice_is_the_best_that_needs_no_right() {
    let outcome = |points: &[FailPoint], priority| {
        fail_at(points);
        let options = WorkerOptions {
            priority,
            ..options(Mode::PerCpu)
        };
        let workers = Workers::start_on(options, FakeCpus::new(2, 0..2)).unwrap();
        let policy = workers.stats()[0].policy.unwrap().to_string();
        (policy, workers.notices().len())
    };
    let refused = [FailPoint::RealTime, FailPoint::Nice];
    let nothing = [&refused[..], &[FailPoint::Slice]].concat();
    assert_eq!(outcome(&nothing, Priority::High), ("other".into(), 1));
    assert_eq!(outcome(&nothing, Priority::Best), ("other".into(), 0));
    if std::thread::spawn(|| sys::sched::set_short_slice(0, 0))
        .join()
        .unwrap()
        .is_err()
    {
        println!("skipped: this kernel has no slices");
        return;
    }
    assert_eq!(outcome(&refused, Priority::High), ("slice".into(), 1));
    assert_eq!(outcome(&refused, Priority::Best), ("slice".into(), 0));
    assert_eq!(outcome(&refused, Priority::Normal), ("other".into(), 0));
}
