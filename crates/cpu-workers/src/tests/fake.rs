//! Simulated CPU hotplug, on any machine and without privileges.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::{Cpus, Mode, WorkerOptions, Workers};

/// Longer than any test needs; only a test that hangs takes this long.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug, Default)]
pub(super) struct FakeCpus {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    possible: usize,
    usable: BTreeSet<usize>,
    pins: BTreeMap<i32, usize>,
}

impl FakeCpus {
    pub(super) fn new(possible: usize, usable: impl IntoIterator<Item = usize>) -> Arc<Self> {
        let state = State {
            possible,
            usable: usable.into_iter().collect(),
            ..State::default()
        };
        Arc::new(FakeCpus {
            state: Mutex::new(state),
        })
    }

    /// Makes these CPUs usable, and has the workers follow the change.
    pub(super) fn set(&self, workers: &Workers, usable: impl IntoIterator<Item = usize>) {
        self.state.lock().unwrap().usable = usable.into_iter().collect();
        workers.check_cpus();
    }

    /// Removes all pins, as the kernel does when a CPU goes offline.
    pub(super) fn unpin_all(&self) {
        self.state.lock().unwrap().pins.clear();
    }

    pub(super) fn pins(&self) -> BTreeMap<i32, usize> {
        self.state.lock().unwrap().pins.clone()
    }
}

impl Cpus for FakeCpus {
    fn possible(&self) -> io::Result<usize> {
        Ok(self.state.lock().unwrap().possible)
    }

    fn usable(&self) -> io::Result<BTreeSet<usize>> {
        Ok(self.state.lock().unwrap().usable.clone())
    }

    fn pin(&self, tid: i32, cpu: usize) -> io::Result<()> {
        self.state.lock().unwrap().pins.insert(tid, cpu);
        Ok(())
    }

    fn unpin(&self, tid: i32) -> io::Result<()> {
        self.state.lock().unwrap().pins.remove(&tid);
        Ok(())
    }

    fn is_pinned(&self, tid: i32, cpu: usize) -> io::Result<bool> {
        Ok(self.state.lock().unwrap().pins.get(&tid) == Some(&cpu))
    }

    fn events(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn clear_events(&self) {}
}

pub(super) fn options(mode: Mode) -> WorkerOptions {
    WorkerOptions {
        mode,
        unbound_threads: Some(2),
        ..WorkerOptions::default()
    }
}

pub(super) fn start(mode: Mode, cpus: &Arc<FakeCpus>) -> Arc<Workers> {
    Workers::start_on(options(mode), cpus.clone()).unwrap()
}

/// Queues a job, waits for it to run, and returns the CPU of the worker that ran it.
pub(super) fn where_it_runs(workers: &Workers, cpu: Option<usize>) -> Option<usize> {
    let (sender, receiver) = channel();
    workers.queue(
        cpu,
        Box::new(move |context| sender.send(context.cpu).unwrap()),
    );
    wait(&receiver)
}

pub(super) fn is_noted(workers: &Workers, what: &str) -> bool {
    workers.notices().iter().any(|line| line.contains(what))
}

pub(super) fn wait<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(PATIENCE).expect("nothing came")
}

pub(super) fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
