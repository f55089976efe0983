//! Models under loom: every interleaving of two or three threads over the real queue, parking and
//! slots, with one or two jobs each.
//!
//! `cargo test -p cpu-workers --features loom --lib loom_`
//!
//! A lost wake-up shows up as a deadlock, which loom reports; a job that is lost or runs twice, as
//! a wrong count.

use std::sync::Arc;

use loom::sync::Mutex;
use loom::thread;

use crate::Waker;
use crate::topology::slot::Slot;
use crate::worker::parker::Parker;
use crate::worker::queue::{JobQueue, Taken};

type Queue = Arc<JobQueue<usize>>;

/// Runs a worker's loop without an event source: takes items until the queue is closed and empty.
fn work(queue: &Queue, me: &Arc<Parker>) -> usize {
    let mut sum = 0;
    loop {
        match queue.take(me) {
            Taken::Item(item) => sum += item,
            Taken::Idle => {
                me.park();
                queue.leave_idle(me);
            }
            Taken::Closed => return sum,
        }
    }
}

fn start(queue: &Queue) -> thread::JoinHandle<usize> {
    let queue = Arc::clone(queue);
    let me = Parker::new();
    thread::spawn(move || work(&queue, &me))
}

#[test]
fn loom_two_that_queue_and_one_that_sleeps_lose_nothing() {
    loom::model(|| {
        let queue = Queue::new(JobQueue::new());
        let worker = start(&queue);
        let other = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.push(1).map(drop))
        };
        assert!(queue.push(10).is_ok());
        assert_eq!(other.join().unwrap(), Ok(()));
        queue.close();
        assert_eq!(worker.join().unwrap(), 11);
    });
}

#[test]
fn loom_shutdown_of_a_shared_queue_runs_what_is_queued_and_ends_both() {
    // Preemptions are bounded, as in tokio's own models: three threads that sleep twice each have
    // too many interleavings.
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let queue = Queue::new(JobQueue::new());
        let workers = [start(&queue), start(&queue)];
        assert!(queue.push(1).is_ok());
        assert!(queue.push(10).is_ok());
        queue.close();
        let sum: usize = workers
            .into_iter()
            .map(|worker| worker.join().unwrap())
            .sum();
        assert_eq!(sum, 11);
    });
}

#[test]
fn loom_a_push_against_the_close_is_run_or_handed_back() {
    loom::model(|| {
        let queue = Queue::new(JobQueue::new());
        let worker = start(&queue);
        let late = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || queue.push(1).err().unwrap_or(0))
        };
        queue.close();
        assert_eq!(late.join().unwrap() + worker.join().unwrap(), 1);
    });
}

#[test]
fn loom_offline_against_queueing_loses_no_job() {
    loom::model(|| {
        let slot = Arc::new(Slot::default());
        let queue = Queue::new(JobQueue::new());
        let worker = start(&queue);
        assert!(slot.publish(Arc::new(queue)).is_ok());
        let queueing = {
            let slot = Arc::clone(&slot);
            // If the slot is empty, the job goes to the fallback.
            thread::spawn(move || {
                slot.read(|queue: Option<&Arc<Queue>>| match queue {
                    // Inside the read section the queue cannot be closed yet.
                    Some(queue) => queue.push(1).map(|_| 0).expect("closed while published"),
                    None => 1,
                })
            })
        };
        let queue = slot.unpublish().expect("published above");
        queue.close();
        assert_eq!(worker.join().unwrap() + queueing.join().unwrap(), 1);
    });
}

#[test]
fn loom_of_two_that_publish_one_wins_and_the_other_gets_its_worker_back() {
    loom::model(|| {
        let slot = Arc::new(Slot::default());
        let other = {
            let slot = Arc::clone(&slot);
            thread::spawn(move || slot.publish(Arc::new(1)).is_ok())
        };
        let mine = slot.publish(Arc::new(2)).is_ok();
        assert!(mine != other.join().unwrap());
        assert!(slot.unpublish().is_some());
    });
}

/// Models a source that sleeps on an eventfd: the kernel keeps the count under a lock, and a sleep
/// ends immediately if the count is not zero.
struct Bell {
    rung: Mutex<bool>,
    sleeper: Arc<Parker>,
}

impl Bell {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            rung: Mutex::new(false),
            sleeper: Parker::new(),
        })
    }

    fn wait(&self) {
        while !std::mem::take(&mut *self.rung.lock().unwrap()) {
            self.sleeper.park();
        }
    }
}

impl Waker for Bell {
    fn wake(&self) {
        *self.rung.lock().unwrap() = true;
        self.sleeper.unpark();
    }
}

#[test]
fn loom_a_door_put_in_place_of_the_sleep_and_taken_away_misses_no_job() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let queue = Queue::new(JobQueue::new());
        let worker = {
            let queue = Arc::clone(&queue);
            thread::spawn(move || behind_a_source_that_closes(&queue, &Bell::new()))
        };
        assert!(queue.push(1).is_ok());
        assert!(queue.push(10).is_ok());
        queue.close();
        assert_eq!(worker.join().unwrap(), 11);
    });
}

#[test]
fn loom_a_request_of_the_source_while_a_job_is_queued_hides_no_job() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let queue = Queue::new(JobQueue::new());
        let bell = Bell::new();
        let worker = {
            let (queue, bell) = (Arc::clone(&queue), Arc::clone(&bell));
            thread::spawn(move || serving_a_source(&queue, &bell))
        };
        let request = thread::spawn(move || bell.wake());
        assert!(queue.push(1).is_ok());
        queue.close();
        request.join().unwrap();
        assert_eq!(worker.join().unwrap(), 1);
    });
}

/// A worker that stays registered as idle when requests at its source end its sleep.
fn serving_a_source(queue: &Queue, bell: &Arc<Bell>) -> usize {
    let me = Parker::new();
    let mut sum = 0;
    me.set_waker(Some(bell.clone()));
    loop {
        match queue.take(&me) {
            Taken::Item(item) => sum += item,
            Taken::Idle => {
                bell.wait();
                while me.is_registered() {
                    bell.wait();
                }
                queue.leave_idle(&me);
            }
            Taken::Closed => return sum,
        }
    }
}

#[test]
fn loom_sources_that_close_before_a_shared_queue_leave_no_thread_asleep() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let queue = Queue::new(JobQueue::new());
        let bells = [(); 2].map(|()| Bell::new());
        let workers = bells.clone().map(|bell| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || behind_a_source_that_closes(&queue, &bell))
        });
        assert!(queue.push(1).is_ok());
        bells.iter().for_each(|bell| bell.wake());
        queue.close();
        let sums = workers.map(|worker| worker.join().unwrap());
        assert_eq!(sums[0] + sums[1], 1);
    });
}

/// Sleeps as a worker does: first on the source, which any wake-up closes, then on the token,
/// unless that wake-up was meant for this thread.
fn behind_a_source_that_closes(queue: &Queue, bell: &Arc<Bell>) -> usize {
    let me = Parker::new();
    let (mut sum, mut source) = (0, Some(bell));
    me.set_waker(Some(bell.clone()));
    let mut sleep = || {
        if let Some(source) = source.take() {
            source.wait();
            me.set_waker(None);
            if !me.is_registered() {
                return;
            }
        }
        me.park();
    };
    loop {
        match queue.take(&me) {
            Taken::Item(item) => sum += item,
            Taken::Idle => {
                sleep();
                queue.leave_idle(&me);
            }
            Taken::Closed => return sum,
        }
    }
}
