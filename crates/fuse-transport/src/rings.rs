//! The rings of one mount, made before the handshake, and before a sandbox that forbids to make
//! any.

use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};

use sys::fuse_ring::DisabledRing;
use sys::pi_mutex::PiMutex;

use crate::fail_points;

/// Entries of a CPU's own thread. It serves one request at a time; what comes meanwhile goes to the
/// overflow queue, which runs on an idle CPU if there is one. With 8 entries the others would wait
/// in the ring of the busy thread: one program that streams got 560 to 730 MB/s of lz4hc then, and
/// 730 to 900 with one (two CPUs, three rounds, 1 MiB of read-ahead).
pub(crate) const ENTRIES: usize = 1;

/// A queue of the kernel and how many entries it gets.
pub(crate) type Entries = (u16, usize);

/// Rings that no thread uses yet: each is taken once.
#[derive(Debug)]
pub struct Rings {
    /// By CPU, each with [`ENTRIES`]. Empty where no thread serves one CPU.
    cpus: Vec<PiMutex<Option<DisabledRing>>>,
    /// The entries of an overflow ring.
    entries: Vec<Entries>,
    overflow: PiMutex<Vec<DisabledRing>>,
}

impl Rings {
    /// `overflow` rings for threads that serve all queues, one at least; and with `per_cpu` one
    /// ring for each CPU that is there, online or not. One that is plugged in later is left to the
    /// overflow rings.
    ///
    /// # Errors
    /// The kernel's refusal: io_uring is too old (EINVAL), switched off or forbidden (EPERM), not
    /// there (ENOSYS), or there is no memory or descriptor left.
    pub fn new(per_cpu: bool, overflow: usize) -> io::Result<Self> {
        fail_points::check("setup")?;
        sys::fuse_ring::probe()?;
        let possible = possible_cpus()?;
        let present = sys::cpu_list::present();
        let is_present = |cpu: &u16| present.as_ref().is_none_or(|p| p.contains(&(*cpu).into()));
        let entries = overflow_entries(possible, is_present);
        let count = entries.iter().map(|(_, count)| count).sum();
        let ring = |cpu: u16| {
            is_present(&cpu)
                .then(|| DisabledRing::new(ENTRIES))
                .transpose()
        };
        let cpus = (0..if per_cpu { possible } else { 0 }).map(|cpu| ring(cpu).map(PiMutex::new));
        let overflow = (0..overflow.max(1)).map(|_| DisabledRing::new(count));
        Ok(Self {
            cpus: cpus.collect::<io::Result<_>>()?,
            entries,
            overflow: PiMutex::new(overflow.collect::<io::Result<_>>()?),
        })
    }

    /// Entries of an overflow ring: in one queue for each possible CPU.
    pub(crate) fn entries(&self) -> &[Entries] {
        &self.entries
    }

    pub(crate) fn take_cpu(&self, cpu: usize) -> io::Result<DisabledRing> {
        let ring = self.cpus.get(cpu).and_then(|ring| ring.lock().take());
        ring.ok_or_else(used_up)
    }

    pub(crate) fn take_overflow(&self) -> io::Result<(DisabledRing, Vec<Entries>)> {
        let ring = self.overflow.lock().pop().ok_or_else(used_up)?;
        Ok((ring, self.entries.clone()))
    }

    /// Descriptors of the rings that no thread has taken.
    pub(crate) fn descriptors(&self) -> Vec<RawFd> {
        let number = |ring: &DisabledRing| ring.as_fd().as_raw_fd();
        let cpus = self.cpus.iter();
        let cpus = cpus.filter_map(|ring| ring.lock().as_ref().map(number));
        let overflow: Vec<RawFd> = self.overflow.lock().iter().map(number).collect();
        cpus.chain(overflow).collect()
    }
}

fn used_up() -> io::Error {
    io::Error::other("no ring is left: each is used once")
}

/// Entries of an overflow channel in each queue. Where there are CPUs to help, a burst of one CPU's
/// requests is spread over them; where there are not, its own worker and one more thread do.
///
/// The kernel does not use a ring before there is an entry in the queue of every possible CPU, of
/// which a virtual machine may have hundreds that are never plugged in: those get one.
fn overflow_entries(possible: u16, is_present: impl Fn(&u16) -> bool) -> Vec<Entries> {
    let present = (0..possible).filter(&is_present).count();
    let entries = |cpu: u16| match present >= 4 && is_present(&cpu) {
        true => (cpu, 2),
        false => (cpu, 1),
    };
    (0..possible).map(entries).collect()
}

fn possible_cpus() -> io::Result<u16> {
    let count = sys::cpu_list::possible().and_then(|cpus| u16::try_from(cpus.len()).ok());
    count.ok_or_else(|| io::Error::other("the number of possible CPUs is unknown"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_is_taken_once_and_named_until_then() {
        let Ok(rings) = Rings::new(true, 2) else {
            println!("skipped: no io_uring here");
            return;
        };
        let possible = usize::from(possible_cpus().unwrap());
        let present = sys::cpu_list::present().map_or(possible, |cpus| cpus.len());
        assert_eq!(rings.descriptors().len(), present + 2);
        let first = rings.take_cpu(0).unwrap();
        assert!(rings.take_cpu(0).is_err() && rings.take_cpu(possible).is_err());
        rings.take_overflow().unwrap();
        rings.take_overflow().unwrap();
        assert!(rings.take_overflow().is_err());
        let left = rings.descriptors();
        assert_eq!(left.len(), present - 1);
        assert!(!left.contains(&first.as_fd().as_raw_fd()));
    }

    #[test]
    fn every_possible_cpu_has_an_entry_and_only_those_that_are_there_have_more() {
        let counts = |possible, present| -> Vec<usize> {
            let entries = overflow_entries(possible, |&cpu| cpu < present);
            assert!(entries.iter().map(|(cpu, _)| *cpu).eq(0..possible));
            entries.iter().map(|(_, count)| *count).collect()
        };
        assert_eq!(counts(2, 2), [1, 1]);
        assert_eq!(counts(4, 4), [2; 4]);
        assert_eq!(counts(240, 2), [1; 240]);
        assert_eq!(counts(6, 4), [2, 2, 2, 2, 1, 1]);
    }
}
