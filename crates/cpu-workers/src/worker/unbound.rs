//! The unbound pool: threads without a CPU that share one queue. It always exists and takes what
//! an empty slot would have got.

use std::io;
use std::sync::Arc;

use crate::Error;
use crate::priority::Wanted;
use crate::stats::counters::Counters;
use crate::stats::notices::Notices;
use crate::worker::queue::JobQueue;
use crate::worker::spawn::{Running, Spawner};
use crate::worker::thread::{Queued, Worker};

pub(crate) struct UnboundPool {
    pub(crate) queue: Arc<JobQueue<Queued>>,
    pub(crate) threads: Vec<Running>,
}

impl UnboundPool {
    /// One thread is enough to go on; fewer than wished are a notice.
    pub(crate) fn start(
        name: &str,
        threads: usize,
        wanted: Wanted,
        spawner: &Spawner,
        notices: &Arc<Notices>,
    ) -> Result<Self, Error> {
        let queue = Arc::new(JobQueue::new());
        let make = |index| {
            let name = format!("{name}/u{index}");
            let (queue, counters) = (Arc::clone(&queue), Arc::new(Counters::new()));
            spawner.spawn(
                Worker::new(name, None, queue, counters, notices.clone()),
                wanted,
            )
        };
        let made: Vec<io::Result<Running>> = (0..threads.max(1)).map(make).collect();
        let (mut running, mut refused) = (Vec::new(), None);
        for result in made {
            match result {
                Ok(thread) => running.push(thread),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        match refused {
            Some(source) if running.is_empty() => Err(Error::UnboundPool { threads, source }),
            Some(error) => {
                let made = running.len();
                notices.add(format!(
                    "{name}: {made} of {threads} unbound threads: {error}"
                ));
                Ok(UnboundPool {
                    queue,
                    threads: running,
                })
            }
            None => Ok(UnboundPool {
                queue,
                threads: running,
            }),
        }
    }

    pub(crate) fn push(&self, queued: Queued) -> Result<(), Queued> {
        self.queue.push(queued).map(drop)
    }

    /// Lets everything that is queued finish.
    pub(crate) fn end(&self) {
        self.queue.close();
        self.threads.iter().for_each(Running::join);
    }
}
