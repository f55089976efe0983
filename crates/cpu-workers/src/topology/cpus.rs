//! Which CPUs exist and which may be used, on the machine or as a test simulates them.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};

use super::cpu_list;
use super::uevent::CpuEvents;

/// The CPUs that workers are created for. [`SystemCpus`] is the real implementation.
pub trait Cpus: Send + Sync + Debug {
    /// Number of slots needed: the highest possible CPU number plus one.
    fn possible(&self) -> io::Result<usize>;
    /// CPUs that are online and that the calling thread, which must not be pinned, may run on.
    fn usable(&self) -> io::Result<BTreeSet<usize>>;
    /// Pins a thread to one CPU.
    fn pin(&self, tid: i32, cpu: usize) -> io::Result<()>;
    /// Lets a thread that inherited another thread's pin run on all usable CPUs.
    fn unpin(&self, tid: i32) -> io::Result<()>;
    /// Whether the thread is pinned to that CPU and no other.
    fn is_pinned(&self, tid: i32, cpu: usize) -> io::Result<bool>;
    /// A descriptor that becomes readable when the result of `usable` may have changed; `None` if
    /// the kernel's events cannot be received.
    fn events(&self) -> Option<BorrowedFd<'_>>;
    /// Drops the events received so far.
    fn clear_events(&self);
    /// A line for the user if events cannot be received.
    fn notice(&self) -> Option<String> {
        None
    }
}

/// The machine's CPUs: sysfs, the affinity of the process, and the kernel's uevents.
#[derive(Debug)]
pub struct SystemCpus {
    events: io::Result<CpuEvents>,
    /// The affinity of the thread that called [`new`](Self::new).
    allowed: CpuSet,
}

impl SystemCpus {
    /// Starts to listen for the kernel's events. If they cannot be received, only periodic checks
    /// find changes.
    pub fn new() -> io::Result<Self> {
        Ok(SystemCpus {
            events: CpuEvents::listen(),
            allowed: sched_getaffinity(None)?,
        })
    }
}

impl Cpus for SystemCpus {
    fn possible(&self) -> io::Result<usize> {
        let listed = cpu_list::possible();
        let last = listed.as_ref().and_then(BTreeSet::last).copied();
        // Without sysfs only the affinity is known.
        let last = last.or_else(|| affinity(None).ok()?.last().copied());
        let none = || io::Error::other("neither sysfs nor the CPU affinity lists a CPU");
        Ok((last.ok_or_else(none)? + 1).min(CpuSet::MAX_CPU))
    }

    fn usable(&self) -> io::Result<BTreeSet<usize>> {
        let allowed = affinity(None)?;
        Ok(match cpu_list::online() {
            Some(online) => allowed.intersection(&online).copied().collect(),
            None => allowed,
        })
    }

    fn pin(&self, tid: i32, cpu: usize) -> io::Result<()> {
        if cpu >= CpuSet::MAX_CPU {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let mut set = CpuSet::new();
        set.set(cpu);
        Ok(sched_setaffinity(Pid::from_raw(tid), &set)?)
    }

    fn unpin(&self, tid: i32) -> io::Result<()> {
        Ok(sched_setaffinity(Pid::from_raw(tid), &self.allowed)?)
    }

    fn is_pinned(&self, tid: i32, cpu: usize) -> io::Result<bool> {
        Ok(affinity(Pid::from_raw(tid))?.into_iter().eq([cpu]))
    }

    fn events(&self) -> Option<BorrowedFd<'_>> {
        self.events.as_ref().ok().map(CpuEvents::as_fd)
    }

    fn clear_events(&self) {
        let _ = self.events.as_ref().map(CpuEvents::drain);
    }

    fn notice(&self) -> Option<String> {
        let error = self.events.as_ref().err()?;
        Some(format!(
            "CPU hotplug events cannot be received ({error}); the online CPUs are checked at \
             intervals instead"
        ))
    }
}

/// CPUs that a thread may run on; the kernel omits those that are offline.
fn affinity(thread: Option<Pid>) -> io::Result<BTreeSet<usize>> {
    let set = sched_getaffinity(thread)?;
    let cpus = 0..CpuSet::MAX_CPU;
    Ok(cpus.filter(|&cpu| set.is_set(cpu)).collect())
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_usable_cpus_among_the_possible_ones() {
        let cpus = SystemCpus::new().unwrap();
        let usable = cpus.usable().unwrap();
        assert!(!usable.is_empty());
        assert!(usable.iter().all(|&cpu| cpu < cpus.possible().unwrap()));
    }

    #[test]
    fn a_pinned_thread_says_so() {
        std::thread::spawn(|| {
            let cpus = SystemCpus::new().unwrap();
            let before = cpus.usable().unwrap();
            let cpu = *before.last().unwrap();
            let tid = rustix::thread::gettid().as_raw_nonzero().get();
            cpus.pin(tid, cpu).unwrap();
            assert!(cpus.is_pinned(tid, cpu).unwrap());
            assert_eq!(cpus.usable().unwrap(), BTreeSet::from([cpu]));
            cpus.unpin(tid).unwrap();
            assert_eq!(cpus.usable().unwrap(), before);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_cpu_that_no_machine_has_cannot_be_pinned_to() {
        let cpus = SystemCpus::new().unwrap();
        assert!(cpus.pin(0, CpuSet::MAX_CPU).is_err());
        assert!(cpus.pin(0, CpuSet::MAX_CPU - 1).is_err());
    }
}
