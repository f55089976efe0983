//! Judges the load of the CPUs where the engine's caller has no thread for it.

use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use cpu_workers::Workers;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::load::CpuContention;

const NAME: &str = "erofs_load";

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(crate) struct LoadThread {
    contention: Arc<CpuContention>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LoadThread {
    pub(crate) fn start(
        contention: &Arc<CpuContention>,
        workers: &Arc<Workers>,
    ) -> io::Result<Self> {
        let stop = Arc::<AtomicBool>::default();
        let body = {
            let (contention, stop) = (Arc::clone(contention), Arc::clone(&stop));
            let workers = Arc::downgrade(workers);
            move || {
                if let Some(workers) = workers.upgrade() {
                    workers.lead();
                }
                watch(&contention, &stop);
            }
        };
        Ok(Self {
            contention: Arc::clone(contention),
            stop,
            thread: Some(Builder::new().name(NAME.to_owned()).spawn(body)?),
        })
    }
}

fn watch(contention: &CpuContention, stop: &AtomicBool) {
    while !stop.load(Ordering::Acquire) {
        let limit = contention.check().map(|limit| Timespec {
            tv_sec: 0,
            tv_nsec: limit.subsec_nanos().into(),
        });
        let fd = contention.as_fd();
        // An error ends the sleep early, at most.
        let _ = poll(&mut [PollFd::new(&fd, PollFlags::IN)], limit.as_ref());
    }
}

impl Drop for LoadThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.contention.end_sleep();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
