//! The set of CPUs that this process may use shrinks and grows while workers run, as if a cpuset
//! changed: the test overwrites every thread's affinity, and no event reports it.
//!
//! Runs alone in its process, since it changes all threads of the process.

use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc::channel;
use std::time::Duration;

use cpu_workers::{Cpus, SystemCpus, WorkerOptions, Workers};
use rustix::thread::{CpuSet, Pid, sched_setaffinity};

/// Only a test that hangs takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

fn confine_all_threads(cpus: &BTreeSet<usize>) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let tid = task.unwrap().file_name().to_string_lossy().parse().unwrap();
        // A thread that has just ended needs no affinity.
        let _ = sched_setaffinity(Pid::from_raw(tid), &set);
    }
}

#[test]
fn workers_follow_the_cpus_allowed_to_the_process_and_get_their_pins_back() {
    let cpus = SystemCpus::new().unwrap();
    let all = cpus.usable().unwrap();
    if all.len() < 2 {
        println!("skipped: only one CPU is usable here");
        return;
    }
    let workers = Workers::start(WorkerOptions::default()).unwrap();
    let (first, last) = (*all.first().unwrap(), *all.last().unwrap());
    let ran_on = |cpu| {
        let (sender, receiver) = channel();
        workers.queue(
            Some(cpu),
            Box::new(move |context| sender.send(context.cpu).unwrap()),
        );
        receiver.recv_timeout(PATIENCE).unwrap()
    };
    for _ in 0..3 {
        assert_eq!(ran_on(last), Some(last));
        confine_all_threads(&BTreeSet::from([first]));
        workers.check_cpus();
        assert_eq!(workers.cpus(), [first]);
        assert_eq!((ran_on(first), ran_on(last)), (Some(first), None));
        confine_all_threads(&all);
        workers.check_cpus();
        assert!(workers.cpus().into_iter().eq(all.iter().copied()));
        let stats = workers.stats().into_iter();
        let mut pinned = stats.filter_map(|stats| Some((stats.tid?, stats.cpu?)));
        assert!(pinned.all(|(tid, cpu)| cpus.is_pinned(tid, cpu).unwrap()));
    }
    workers.shutdown();
}
