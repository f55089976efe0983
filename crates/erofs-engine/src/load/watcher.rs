//! Judges the load and follows the CPUs if the engine's caller has no thread for that.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use cpu_workers::{RESCAN_INTERVAL, Workers};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::load::CpuContention;

const NAME: &str = "erofs_watch";

/// The watching thread, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct WatchThread {
    contention: Arc<CpuContention>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WatchThread {
    pub(crate) fn start(
        contention: &Arc<CpuContention>,
        workers: &Arc<Workers>,
    ) -> io::Result<Self> {
        let stop = Arc::<AtomicBool>::default();
        let body = {
            let (contention, stop) = (Arc::clone(contention), Arc::clone(&stop));
            let workers = Arc::downgrade(workers);
            move || watch(&contention, &workers, &stop)
        };
        Ok(Self {
            contention: Arc::clone(contention),
            stop,
            thread: Some(Builder::new().name(NAME.to_owned()).spawn(body)?),
        })
    }
}

fn watch(contention: &CpuContention, workers: &Weak<Workers>, stop: &AtomicBool) {
    if let Some(workers) = workers.upgrade() {
        workers.lead();
    }
    let mut due = Instant::now() + RESCAN_INTERVAL;
    while let Some(workers) = workers.upgrade()
        && !stop.load(Ordering::Acquire)
    {
        let left = due.saturating_duration_since(Instant::now());
        let limit = contention.check().map_or(left, |limit| limit.min(left));
        if sleep(contention, &workers, limit) || Instant::now() >= due {
            workers.check_cpus();
            due = Instant::now() + RESCAN_INTERVAL;
        }
    }
}

/// Sleeps; returns whether a CPU was added or removed.
fn sleep(contention: &CpuContention, workers: &Workers, limit: Duration) -> bool {
    let load = contention.as_fd();
    let cpus = workers.cpu_events().unwrap_or(load);
    let mut polled = [load, cpus].map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
    // At worst, an error ends the sleep early.
    let _ = poll(&mut polled, Timespec::try_from(limit).ok().as_ref());
    workers.cpu_events().is_some() && !polled[1].revents().is_empty()
}

impl Drop for WatchThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.contention.end_sleep();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
