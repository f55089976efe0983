//! The rings of one mount, created before the handshake and before the process enters a sandbox
//! that forbids creating any.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use rustix::io::Errno;
use sys::fuse_ring::DisabledRing;
use sys::pi_mutex::PiMutex;

use crate::fail_points;

/// Number of entries that a thread has in a queue. A thread serves one request at a time; the next
/// request of its CPU goes to the overflow thread, which runs on an idle CPU if there is one. If
/// that thread is busy too, requests wait in the kernel for whichever thread is free first. With 8
/// entries they would wait in the ring of one busy thread, which is slower: one streaming program
/// read 560 to 730 MB/s from an lz4hc image with 8 entries, and 730 to 900 with one (two CPUs,
/// three rounds, 1 MiB of read-ahead).
pub(crate) const ENTRIES: usize = 1;

/// A queue of the kernel, and the number of its entries.
pub(crate) type Entries = (u16, usize);

/// Rings that no thread uses yet: each is taken once.
#[derive(Debug)]
pub struct Rings {
    /// One ring per CPU, each with [`ENTRIES`] entries. Empty if there are no threads that each
    /// serve one CPU.
    cpus: PiMutex<Vec<Option<DisabledRing>>>,
    /// Number of queues, one for each possible CPU: the kernel uses no ring until every queue has
    /// an entry.
    queues: u16,
    overflow: PiMutex<Vec<DisabledRing>>,
}

impl Rings {
    /// Creates `overflow` rings, at least one, for threads that serve all queues, and with
    /// `per_cpu` one ring for each CPU that is plugged in, online or not. A CPU that is plugged in
    /// later is left to the overflow rings. `cpus` says for each possible CPU whether it is plugged
    /// in.
    ///
    /// # Errors
    /// The kernel's error: io_uring is too old (EINVAL), disabled or forbidden (EPERM), missing
    /// (ENOSYS), or there is no memory or descriptor left.
    pub fn new(cpus: &[bool], per_cpu: bool, overflow: usize) -> io::Result<Self> {
        fail_points::check("setup")?;
        sys::fuse_ring::probe()?;
        let queues = u16::try_from(cpus.len()).map_err(|_| Errno::RANGE)?;
        let ring = |there: &bool| there.then(|| DisabledRing::new(ENTRIES)).transpose();
        let cpus = if per_cpu { cpus } else { &[] };
        let cpus = cpus.iter().map(ring);
        let overflow =
            (0..overflow.max(1)).map(|_| DisabledRing::new(usize::from(queues) * ENTRIES));
        Ok(Self {
            cpus: PiMutex::new(cpus.collect::<io::Result<_>>()?),
            queues,
            overflow: PiMutex::new(overflow.collect::<io::Result<_>>()?),
        })
    }

    /// The kernel's queues, one for each possible CPU.
    pub(crate) fn queues(&self) -> u16 {
        self.queues
    }

    pub(crate) fn take_cpu(&self, cpu: usize) -> io::Result<DisabledRing> {
        let ring = self.cpus.lock().get_mut(cpu).and_then(Option::take);
        ring.ok_or_else(used_up)
    }

    pub(crate) fn take_overflow(&self) -> io::Result<(DisabledRing, Vec<Entries>)> {
        let ring = self.overflow.lock().pop().ok_or_else(used_up)?;
        Ok((ring, (0..self.queues).map(|cpu| (cpu, ENTRIES)).collect()))
    }

    /// Descriptors of the rings that no thread has taken.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let (cpus, overflow) = (self.cpus.lock(), self.overflow.lock());
        let rings = cpus.iter().flatten().chain(&*overflow);
        rings.map(|ring| ring.as_fd().as_raw_fd()).collect()
    }
}

fn used_up() -> io::Error {
    io::Error::other("no ring is left: each is used once")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_taken_once_and_named_until_then() {
        let Ok(rings) = Rings::new(&[true, true, false], true, 2) else {
            println!("skipped: no io_uring here");
            return;
        };
        assert_eq!(rings.descriptors().len(), 2 + 2);
        let first = rings.take_cpu(0).unwrap();
        assert!([0, 2, 3].iter().all(|cpu| rings.take_cpu(*cpu).is_err()));
        rings.take_overflow().unwrap();
        rings.take_overflow().unwrap();
        assert!(rings.take_overflow().is_err());
        let left = rings.descriptors();
        assert_eq!(left.len(), 1);
        assert!(!left.contains(&first.as_fd().as_raw_fd()));
    }
}
