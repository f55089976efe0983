//! Counters of served requests: one set for each channel, written by its thread alone and read
//! without locks. The buckets of histograms are powers of two, so that the histograms, one for each
//! channel and kind of request, stay small, and the JSON stays stable.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, Ordering::Relaxed, fence};

use figures::add;
use serde::Serialize;

use crate::wire::Opcode;

const KINDS: usize = Opcode::ALL.len();

/// Number of CPUs that are counted separately; requests served on CPUs with higher numbers are
/// added to those of the last counted CPU.
const CPUS: usize = 256;

/// Number of buckets, one per power of two.
const BUCKETS: usize = 48;

/// Counters of one channel, in separate cache lines.
#[repr(align(128))]
pub(crate) struct Counters {
    ring: bool,
    counts: Counts,
    cpus: [AtomicU64; CPUS],
    /// Times by kind. The last entry is for unknown kinds.
    run_ns: [Distribution; KINDS + 1],
    read_bytes: Distribution,
}

/// A histogram of values, and their sum.
struct Distribution {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Distribution {
    fn new() -> Self {
        Self {
            buckets: [const { AtomicU64::new(0) }; BUCKETS],
            sum: AtomicU64::new(0),
        }
    }

    fn add(&self, value: u64) {
        add(&self.buckets[bucket(value)], 1);
        add(&self.sum, value);
    }
}

/// One request served.
pub(crate) struct Record {
    pub(crate) opcode: Option<Opcode>,
    pub(crate) failed: bool,
    pub(crate) reply_bytes: usize,
    /// The CPU of the requesting thread, if known.
    pub(crate) reader_cpu: Option<usize>,
    /// The CPU on which the request was served.
    pub(crate) cpu: usize,
    pub(crate) run_ns: u64,
}

fn bucket(value: u64) -> usize {
    (value.checked_ilog2().unwrap_or(0) as usize).min(BUCKETS - 1)
}

impl Counters {
    pub(crate) fn new(ring: bool) -> Self {
        Self {
            ring,
            counts: Counts::default(),
            cpus: [const { AtomicU64::new(0) }; CPUS],
            run_ns: std::array::from_fn(|_| Distribution::new()),
            read_bytes: Distribution::new(),
        }
    }

    /// Adds a request. An ioctl is not counted: it queries these counters, and reading them must
    /// not change them.
    pub(crate) fn add(&self, record: &Record) {
        if record.opcode == Some(Opcode::Ioctl) {
            return;
        }
        let kind = record.opcode.map_or(KINDS, Opcode::index);
        self.run_ns[kind].add(record.run_ns);
        add(&self.counts.errors, u64::from(record.failed));
        let place = match record.reader_cpu {
            None => &self.counts.cpu_unknown,
            Some(cpu) if cpu == record.cpu => &self.counts.same_cpu,
            Some(_) => &self.counts.other_cpu,
        };
        add(place, 1);
        add(&self.cpus[record.cpu.min(CPUS - 1)], 1);
        if record.opcode == Some(Opcode::Read) {
            self.read_bytes.add(record.reply_bytes as u64);
        }
    }
}

figures::figures! {
    /// The number of values in the range of each power of two.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
    pub struct Histogram {
        /// Number of values.
        pub count: u64,
        /// Sum of the values, in the unit of the histogram's name.
        pub sum: u64,
        /// `[n, count]`: number of values from 2^n to below 2^(n+1). A value of 0 counts as 1.
        pub buckets: Vec<(u32, u64)>,
    }
}

impl Histogram {
    fn gather<'c>(all: impl IntoIterator<Item = &'c Distribution>) -> Self {
        let (mut sums, mut sum) = ([0; BUCKETS], 0);
        for one in all {
            sum += one.sum.load(Relaxed);
            for (sum, counter) in sums.iter_mut().zip(&one.buckets) {
                *sum += counter.load(Relaxed);
            }
        }
        let present = sums.iter().enumerate().filter(|(_, times)| **times > 0);
        Self {
            count: sums.iter().sum(),
            sum,
            buckets: present.map(|(n, times)| (n as u32, *times)).collect(),
        }
    }
}

figures::figures! {
    /// Requests by transport.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
    pub struct ByTransport {
        /// Read from the device.
        pub dev_fuse: u64,
        /// Taken from a ring.
        pub io_uring: u64,
    }
}

figures::figures! {
    /// The sums over all channels of a session.
    #[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
    #[non_exhaustive]
    pub struct Statistics counted by struct Counts {
        /// Requests answered with an error, except routine ones such as ENOENT, ENODATA and ENOSYS.
        pub errors => counter "request_errors_total",
        /// Requests served on the reader's CPU, as far as it is known.
        pub same_cpu => counter "requests_by_place_total{cpu=same}",
        /// Requests served on another CPU.
        pub other_cpu => counter "requests_by_place_total{cpu=other}",
        /// Requests from an unknown CPU: `/dev/fuse` does not report the reader's CPU, and samples
        /// are rare.
        pub cpu_unknown => counter "requests_by_place_total{cpu=unknown}",
    } and {
        /// All requests, including those without a reply, except INIT.
        pub requests: u64,
        /// Requests served, by kind.
        pub by_kind: BTreeMap<&'static str, u64> => counter "requests_total{kind}",
        /// Bytes of file content sent to the kernel.
        pub bytes_read: u64 => counter "read_bytes_total",
        /// Requests by transport.
        pub by_transport: ByTransport,
        /// Requests by the serving CPU, up to the last CPU that served any.
        pub by_cpu: Vec<u64>,
        /// Time from taking a request to its reply.
        pub run_ns: Histogram => histogram "request_run_seconds",
        /// Time from taking a request to its reply, by kind.
        pub run_ns_by_kind: BTreeMap<&'static str, Histogram>,
        /// Sizes of the replies to reads, in bytes.
        pub read_bytes: Histogram,
    }
}

/// Returns counters for a new channel: those of a channel of the same transport that has ended, or
/// new ones, which are added to `all`.
pub(crate) fn for_channel(all: &mut Vec<Arc<Counters>>, ring: bool) -> Arc<Counters> {
    let is_free = |set: &&Arc<Counters>| set.ring == ring && Arc::strong_count(set) == 1;
    if let Some(free) = all.iter().find(is_free) {
        // Makes everything that the previous channel's thread wrote visible to this thread.
        fence(Ordering::Acquire);
        return Arc::clone(free);
    }
    all.push(Arc::new(Counters::new(ring)));
    Arc::clone(&all[all.len() - 1])
}

impl Statistics {
    pub(crate) fn gather(sets: &[Arc<Counters>]) -> Self {
        let through = |ring| {
            let own = sets.iter().filter(|set| set.ring == ring);
            Histogram::gather(own.flat_map(|set| &set.run_ns)).count
        };
        let of_kind = |kind: usize| {
            let label = Opcode::ALL.get(kind).map_or("unknown", |kind| kind.label());
            let runs = Histogram::gather(sets.iter().map(|set| &set.run_ns[kind]));
            (label, runs)
        };
        let kinds = (0..=KINDS).map(of_kind).filter(|(_, runs)| runs.count > 0);
        let run_ns_by_kind = BTreeMap::from_iter(kinds);
        let run_ns = Histogram::gather(sets.iter().flat_map(|set| &set.run_ns));
        let read_bytes = Histogram::gather(sets.iter().map(|set| &set.read_bytes));
        let on_cpu = |cpu: usize| sets.iter().map(move |set| set.cpus[cpu].load(Relaxed));
        let cpus: Vec<u64> = (0..CPUS).map(|cpu| on_cpu(cpu).sum()).collect();
        let used = cpus.iter().rposition(|times| *times > 0);
        let mut sums = Self {
            requests: run_ns.count,
            by_kind: run_ns_by_kind
                .iter()
                .map(|(kind, runs)| (*kind, runs.count))
                .collect(),
            bytes_read: read_bytes.sum,
            by_transport: ByTransport {
                dev_fuse: through(false),
                io_uring: through(true),
            },
            by_cpu: cpus[..used.map_or(0, |last| last + 1)].to_vec(),
            run_ns,
            run_ns_by_kind,
            read_bytes,
            ..Self::default()
        };
        sets.iter().for_each(|set| set.counts.add_to(&mut sums));
        sums
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(opcode: Opcode, reader_cpu: Option<usize>) -> Record {
        Record {
            opcode: Some(opcode),
            failed: false,
            reply_bytes: 4096,
            reader_cpu,
            cpu: 1,
            run_ns: 5000,
        }
    }

    #[test]
    fn requests_but_those_for_counters_are_summed_by_channel_kind_way_and_cpu() {
        let [ring, device] = [true, false].map(|ring| Arc::new(Counters::new(ring)));
        ring.add(&record(Opcode::Read, Some(1)));
        ring.add(&record(Opcode::Read, Some(0)));
        device.add(&record(Opcode::Lookup, None));
        device.add(&record(Opcode::Ioctl, None));
        let sums = Statistics::gather(&[ring, device]);
        assert_eq!(sums.requests, 3);
        assert_eq!((sums.same_cpu, sums.other_cpu, sums.cpu_unknown), (1, 1, 1));
        assert_eq!(
            sums.by_transport,
            ByTransport {
                dev_fuse: 1,
                io_uring: 2
            }
        );
        assert_eq!(sums.by_kind, BTreeMap::from([("lookup", 1), ("read", 2)]));
        let reads = &sums.run_ns_by_kind["read"];
        assert_eq!((reads.count, reads.sum), (2, 10_000));
        assert_eq!((sums.by_cpu, sums.bytes_read), (vec![0, 3], 8192));
        assert_eq!(
            (sums.run_ns.sum, sums.run_ns.buckets),
            (15_000, vec![(12, 3)])
        );
        assert_eq!(
            sums.read_bytes,
            Histogram {
                count: 2,
                sum: 8192,
                buckets: vec![(12, 2)]
            }
        );
    }

    #[test]
    fn a_channel_that_ended_leaves_its_counters_to_the_next_one() {
        let mut all = Vec::new();
        let (device, ring) = (for_channel(&mut all, false), for_channel(&mut all, true));
        device.add(&record(Opcode::Read, None));
        drop(device);
        let next = for_channel(&mut all, false);
        next.add(&record(Opcode::Read, None));
        let another = for_channel(&mut all, false);
        assert_eq!(all.len(), 3, "counters in use are not shared");
        let sums = Statistics::gather(&[all[0].clone(), ring, another]);
        assert_eq!((sums.requests, sums.by_transport.dev_fuse), (2, 2));
    }

    #[test]
    fn extremes_have_a_bucket() {
        assert_eq!(
            (bucket(0), bucket(1), bucket(u64::MAX)),
            (0, 0, BUCKETS - 1)
        );
    }
}
