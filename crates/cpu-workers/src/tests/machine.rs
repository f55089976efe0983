//! Tests on the machine's own CPUs, one of which is really taken offline.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rustix::event::{PollFd, PollFlags, poll};

use super::fake::{options, where_it_runs};
use crate::{Cpus, Mode, SystemCpus, Workers};

#[test]
fn every_usable_cpu_of_this_machine_has_a_worker_pinned_to_it() {
    let cpus = SystemCpus::new().unwrap();
    let workers = Workers::start(options(Mode::PerCpu)).unwrap();
    assert!(workers.cpus().into_iter().eq(cpus.usable().unwrap()));
    for stats in workers.stats().iter().filter(|stats| stats.cpu.is_some()) {
        let (tid, cpu) = (stats.tid.unwrap(), stats.cpu.unwrap());
        assert!(cpus.is_pinned(tid, cpu).unwrap());
        let comm = fs::read_to_string(format!("/proc/self/task/{tid}/comm")).unwrap();
        assert_eq!(comm.trim(), format!("erofs_worker/{cpu}"));
    }
}

/// Puts the CPU back online however the test ends.
struct Offline(&'static str);

impl Drop for Offline {
    fn drop(&mut self) {
        let _ = fs::write(self.0, "1");
    }
}

/// Waits for an event, then has the workers follow the CPUs.
fn announced(workers: &Workers) {
    let events = workers.cpu_events().expect("the kernel announces CPUs");
    poll(&mut [PollFd::from_borrowed_fd(events, PollFlags::IN)], None).unwrap();
    workers.check_cpus();
}

/// The CPU is offline for tens of milliseconds, which other tests notice; therefore only this test
/// takes a CPU offline.
#[test]
fn a_real_cpu_goes_and_returns() {
    const ONLINE: &str = "/sys/devices/system/cpu/cpu1/online";
    if std::env::var_os("EROFAST_TEST_HOTPLUG").is_none() {
        println!("skipped: set EROFAST_TEST_HOTPLUG=1 to take CPU 1 of this machine offline");
        return;
    }
    let cpus = SystemCpus::new().unwrap();
    let writable = fs::OpenOptions::new().write(true).open(ONLINE);
    if let Err(error) = writable.and_then(|_| cpus.usable()) {
        println!("skipped: {ONLINE}: {error}");
        return;
    }
    if !cpus.usable().unwrap().contains(&1) || !Path::new(ONLINE).exists() {
        println!("skipped: CPU 1 is not usable here");
        return;
    }
    let workers = Workers::start(options(Mode::PerCpu)).unwrap();
    let before = workers.cpus();
    let done = Arc::new(AtomicUsize::new(0));
    let fire = || {
        for _ in 0..1000 {
            let done = Arc::clone(&done);
            workers.queue(
                Some(1),
                Box::new(move |_| {
                    done.fetch_add(1, Ordering::Relaxed);
                }),
            );
        }
    };
    fire();
    let restore = Offline(ONLINE);
    if let Err(error) = fs::write(ONLINE, "0") {
        println!("skipped: CPU 1 cannot be taken offline: {error}");
        return;
    }
    fire();
    announced(&workers);
    assert!(!workers.cpus().contains(&1));
    assert_eq!(where_it_runs(&workers, Some(1)), None);
    fire();
    drop(restore);
    announced(&workers);
    assert_eq!(workers.cpus(), before);
    fire();
    assert_eq!(where_it_runs(&workers, Some(1)), Some(1));
    let stats = workers
        .stats()
        .into_iter()
        .find(|stats| stats.cpu == Some(1))
        .unwrap();
    assert!(cpus.is_pinned(stats.tid.unwrap(), 1).unwrap());
    workers.shutdown();
    assert_eq!(done.load(Ordering::Relaxed), 4000);
}
