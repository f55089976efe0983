//! The unbound pool: threads that are not pinned and share one queue. It always exists and takes
//! the jobs of empty slots.
//!
//! A pool that is a fallback for pinned workers is rarely used, so it starts without a thread; a
//! job that finds no idle thread adds one, up to the limit.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::priority::Wanted;
use crate::stats::counters::Counters;
use crate::stats::notices::Notices;
use crate::worker::queue::JobQueue;
use crate::worker::spawn::{Running, Spawner};
use crate::worker::thread::{Queued, Worker};

pub(crate) struct UnboundPool {
    /// Fixed at creation.
    name: String,
    /// Fixed at creation.
    most: usize,
    /// Fixed at creation.
    wanted: Wanted,
    /// Fixed at creation.
    spawner: Spawner,
    /// Fixed at creation.
    notices: Arc<Notices>,
    /// Fixed at creation. Shared by all threads.
    queue: Arc<JobQueue<Queued>>,
    /// Guarded by its own lock.
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    running: Vec<Arc<Running>>,
    /// Number of threads that the pool has tried to create so far.
    tried: usize,
    /// Whether the pool has ended and creates no more threads.
    ended: bool,
}

impl UnboundPool {
    /// Creates a pool that has no threads yet, and will have at most `most`.
    pub(crate) fn new(
        name: &str,
        most: usize,
        wanted: Wanted,
        spawner: Spawner,
        notices: &Arc<Notices>,
    ) -> Self {
        UnboundPool {
            name: name.to_owned(),
            most: most.max(1),
            wanted,
            spawner,
            notices: Arc::clone(notices),
            queue: Arc::new(JobQueue::new()),
            threads: Mutex::default(),
        }
    }

    /// Creates all threads. One thread is enough to continue; a thread that cannot be created
    /// causes a notice.
    pub(crate) fn fill(&self) -> Result<(), Error> {
        match self.grow_to(self.most) {
            Some(source) if self.lock().running.is_empty() => Err(Error::UnboundPool {
                threads: self.most,
                source,
            }),
            _ => Ok(()),
        }
    }

    /// The current threads.
    pub(crate) fn threads(&self) -> Vec<Arc<Running>> {
        self.lock().running.clone()
    }

    /// Creates threads up to the limit, and returns all threads.
    pub(crate) fn all_threads(&self) -> Vec<Arc<Running>> {
        self.grow_to(self.most);
        self.threads()
    }

    /// Queues a job. Returns the job if the pool has ended or cannot create its first thread.
    pub(crate) fn push(&self, queued: Queued) -> Result<(), Queued> {
        let count = self.lock().running.len();
        if count == 0 {
            self.grow_to(1);
            if self.lock().running.is_empty() {
                return Err(queued);
            }
        }
        let found_idle = self.queue.push(queued)?;
        // The first thread may not be idle yet, and will take this job.
        if !found_idle && count > 0 {
            self.grow_to(count + 1);
        }
        Ok(())
    }

    /// Runs all queued jobs, then ends the threads.
    pub(crate) fn end(&self) {
        self.queue.close();
        let threads = {
            let mut threads = self.lock();
            threads.ended = true;
            threads.running.clone()
        };
        // The threads are joined outside the lock, because their jobs may queue further jobs.
        threads.iter().for_each(|running| running.join());
    }

    /// Creates threads until `count` exist, if the limit allows. Returns the first error, if any.
    fn grow_to(&self, count: usize) -> Option<std::io::Error> {
        let mut threads = self.lock();
        let mut refused = None;
        if threads.running.is_empty() {
            threads.tried = 0;
        }
        while !threads.ended && threads.running.len() < count && threads.tried < self.most {
            let number = threads.tried;
            threads.tried += 1;
            match self.spawn(number) {
                Ok(running) => threads.running.push(Arc::new(running)),
                Err(error) => {
                    self.notices.add(format!(
                        "{}/u{number}: cannot start the thread: {error}",
                        self.name
                    ));
                    refused = refused.or(Some(error));
                }
            }
        }
        refused
    }

    fn spawn(&self, number: usize) -> std::io::Result<Running> {
        let name = format!("{}/u{number}", self.name);
        let (queue, counters) = (Arc::clone(&self.queue), Arc::new(Counters::new()));
        let worker = Worker::new(name, None, queue, counters, Arc::clone(&self.notices));
        self.spawner.spawn(worker, self.wanted)
    }

    fn lock(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
