//! A whole trace in memory.

use crate::{Claims, Comm, Event, Kind, Loss, Names, Notice, Policy};
use std::collections::{BTreeMap, BTreeSet};

/// Events ordered by time, and everything needed to read them.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Sorted by time; events with equal times keep the order in which they were written.
    pub events: Vec<Event>,
    /// Events that the kernel or the recording tool lost. Any value other than 0 makes every figure
    /// doubtful.
    pub lost_events: u64,
    /// The strings that events refer to.
    pub names: Names,
    /// Threads by pid, as far as the trace names them.
    pub threads: BTreeMap<i32, Thread>,
    /// Slices that a program adds to the kernel's events: requests, phases, launches.
    pub slices: Vec<Slice>,
    /// Format of the file that the trace was read from; empty for a recording.
    pub format: &'static str,
    /// The clock of the time stamps, by the kernel's name ("mono").
    pub clock: String,
    /// The kernel's release (`uname -r`), if known.
    pub kernel: String,
    /// The kernel's version (`uname -v`), if known, followed by what `record` knew about its
    /// settings; [`crate::SchedulerSettings::of_version`] parses it.
    pub kernel_version: String,
    /// How far CLOCK_BOOTTIME, Perfetto's clock, is ahead of `clock` if that is "mono".
    pub boot_offset_ns: u64,
    /// Notices, including the limits of the figures.
    pub notices: Vec<Notice>,
    /// Claims about the completeness of the events.
    pub claims: Claims,
}

/// Knowledge about a thread in addition to its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Thread {
    /// Latest name of the thread.
    pub comm: Comm,
    /// The process that the thread belongs to; 0 if unknown.
    pub tgid: i32,
    /// Scheduling policy of the thread, if `record` saw only one.
    pub policy: Option<Policy>,
}

/// A named period on a separate track, shown in the Perfetto UI along with the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The name of the activity: "decompress", "queue", ...
    pub name: String,
    /// The row in which the slice is drawn; slices of one track should nest or follow one another.
    pub track: String,
    /// Start, in the clock of the trace.
    pub start_ns: u64,
    /// End, not before the start.
    pub end_ns: u64,
    /// The thread that the slice belongs to, if any.
    pub pid: Option<i32>,
}

impl Trace {
    /// Creates an empty trace with this clock.
    pub fn new(clock: &str) -> Self {
        Self {
            clock: clock.into(),
            ..Self::default()
        }
    }

    /// Counts events that the trace lacks. The sum saturates.
    pub(crate) fn lose(&mut self, events: u64) {
        self.lost_events = self.lost_events.saturating_add(events);
    }

    /// Counts events that are missing before an event of a CPU.
    pub(crate) fn lose_before(&mut self, events: u64, cpu: Option<u32>, until_ns: u64) {
        self.lose(events);
        let reason = "the recorder reports lost events";
        self.claims.losses.push(Loss {
            cpu,
            until_ns,
            reason,
        });
    }

    /// Makes the sorted trace begin where all CPUs have events: the CPUs that `wrapped` accepts
    /// have overwritten older ones. What remains is complete.
    pub(crate) fn begin_whole(&mut self, overwritten: u64, wrapped: impl Fn(u32) -> bool) {
        let mut seen = BTreeSet::new();
        let firsts = self.events.iter().filter(|event| seen.insert(event.cpu));
        let firsts = firsts.filter(|event| wrapped(event.cpu));
        let Some(from_ns) = firsts.map(|event| event.time_ns).max() else {
            self.lose(overwritten);
            return;
        };
        self.begin_at(from_ns);
        self.notices.push(Notice::Wrapped {
            overwritten,
            from_ns,
        });
    }

    /// Keeps only the period in which every CPU's events are present, since lines may have been cut
    /// off at either end. A CPU that was idle at an edge may simply have been idle for a long time,
    /// so such a CPU shortens the trace by at most a quarter. If more than half of the events would
    /// be dropped, none are: one thread may have had a CPU to itself.
    pub(crate) fn trim(&mut self) {
        /// If nothing is cut off, the first events of busy CPUs are less than this apart, and so
        /// are their last ones.
        const EDGE_NS: u64 = 10_000_000;
        let Some((first, last)) = self.span() else {
            return;
        };
        // By CPU: the time of the first event and whether a thread ran before it, and the time of
        // the last event and whether a thread ran after it.
        let mut cpus: BTreeMap<u32, [(u64, bool); 2]> = BTreeMap::new();
        for event in &self.events {
            let before = (event.time_ns, event.pid > 0);
            let after = match event.kind {
                Kind::Switch { next, .. } => (event.time_ns, next.pid > 0),
                _ => before,
            };
            cpus.entry(event.cpu).or_insert([before, after])[1] = after;
        }
        let counts =
            |length: u64, busy: bool| length > EDGE_NS && (busy || length <= (last - first) / 4);
        let begins = cpus.values().map(|[begin, _]| *begin);
        let begins = begins.filter(|(at, busy)| counts(at - first, *busy));
        let ends = cpus.values().map(|[_, end]| *end);
        let ends = ends.filter(|(at, busy)| counts(last - at, *busy));
        let begins = begins.map(|(at, _)| at).max().unwrap_or(first);
        let ends = ends.map(|(at, _)| at).min().unwrap_or(last);
        if (begins, ends) == (first, last) || begins >= ends {
            return;
        }
        let is_within = |event: &Event| (begins..=ends).contains(&event.time_ns);
        let kept = self.events.iter().filter(|event| is_within(event)).count();
        let dropped = kept * 2 >= self.events.len();
        if dropped {
            self.events.retain(is_within);
        }
        self.notices.push(Notice::Uncounted {
            from_ns: begins,
            until_ns: ends,
            dropped,
        });
    }

    /// Drops the events of the sorted trace before a time; returns their number.
    pub(crate) fn begin_at(&mut self, from_ns: u64) -> usize {
        let before = self.events.partition_point(|event| event.time_ns < from_ns);
        self.events.drain(..before);
        before
    }

    /// Sorts the events by time. This is cheap if the events consist of a few sorted pieces.
    pub fn sort(&mut self) {
        self.events.sort_by_key(|event| event.time_ns);
    }

    /// First and last time stamp.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((self.events.first()?.time_ns, self.events.last()?.time_ns))
    }
}

#[cfg(test)]
mod tests {
    use crate::script::trace;

    #[test]
    fn what_a_busy_cpu_lacks_at_the_edges_is_cut_from_all() {
        let text =
            "0 0 0 R 1; 20000 1 2 R 3; 30000 0 1 S 0; 40000 1 3 R 2; 60000 0 0 R 1; 61000 0 1 S 0";
        let trimmed = |text: &str| {
            let mut trace = trace(text);
            trace.trim();
            (trace.span().unwrap(), trace.notices.len())
        };
        assert_eq!(trimmed(text), ((20_000_000, 40_000_000), 1));
        // One CPU was idle for a long time before its first event and after its last one.
        let idle = text
            .replace("20000 1 2 R", "20000 1 0 R")
            .replace("3 R 2", "3 R 0");
        assert_eq!(trimmed(&idle), ((0, 61_000_000), 0));
        let short = text
            .replace("20000 1", "2000 1")
            .replace("40000 1", "60500 1");
        assert_eq!(trimmed(&short), ((0, 61_000_000), 0));
    }
}
