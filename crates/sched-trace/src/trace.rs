//! A whole trace in memory.

use crate::{Claims, Comm, Event, Loss, Name, Names, Notice, Policy};
use std::collections::{BTreeMap, BTreeSet};

/// Events in the order of time, with what is needed to read them.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// Sorted by time; events of equal time keep the order they were written in.
    pub events: Vec<Event>,
    /// Events that the kernel or the recording tool lost. Anything but 0
    /// makes every figure doubtful.
    pub lost_events: u64,
    /// The strings that events refer to.
    pub names: Names,
    /// Threads by pid, as far as the trace names them.
    pub threads: BTreeMap<i32, Thread>,
    /// Slices that a program adds to the kernel's events: requests, phases, launches.
    pub slices: Vec<Slice>,
    /// The format of the file it was read from; empty for a recording.
    pub format: &'static str,
    /// The clock of the time stamps, as the kernel calls it ("mono").
    pub clock: String,
    /// The kernel's release (`uname -r`), where known.
    pub kernel: String,
    /// The kernel's version (`uname -v`), where known; behind it what `record` knew of its
    /// settings, as [`crate::SchedulerSettings::of_version`] reads them.
    pub kernel_version: String,
    /// How far CLOCK_BOOTTIME, Perfetto's clock, is ahead of `clock` when that is "mono".
    pub boot_offset_ns: u64,
    /// Limits of the figures.
    pub notices: Vec<Notice>,
    /// What is known of the completeness of the events.
    pub claims: Claims,
}

/// What is known about a thread besides its events.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Thread {
    /// The last name it had.
    pub comm: Comm,
    /// The process it belongs to; 0 when unknown.
    pub tgid: i32,
    /// Its scheduling policy, if it had only one as far as `record` saw.
    pub policy: Option<Policy>,
}

/// A named piece of time on a track of its own, shown in the Perfetto UI beside the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// What happened: "decompress", "queue", ...
    pub name: String,
    /// The row it is drawn in; slices of one track should nest or follow one another.
    pub track: String,
    /// Start, in the clock of the trace.
    pub start_ns: u64,
    /// End, not before the start.
    pub end_ns: u64,
    /// The thread it ran on, where it belongs to one.
    pub pid: Option<i32>,
}

impl Trace {
    /// An empty trace of the given clock.
    pub fn new(clock: &str) -> Self {
        Self {
            clock: clock.into(),
            ..Self::default()
        }
    }

    /// The name for `text`, for building events by hand.
    pub fn intern(&mut self, text: &str) -> Name {
        self.names.intern(text)
    }

    /// The text of a name of this trace.
    pub fn name(&self, name: Name) -> &str {
        self.names.get(name)
    }

    /// Counts events that the trace does not hold. The sum saturates.
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

    /// Begins the sorted trace where all CPUs have events, of which those that `wrapped` accepts
    /// have overwritten older ones. What is left is whole.
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

    /// Drops the events of the sorted trace before a time; returns how many these were.
    pub(crate) fn begin_at(&mut self, from_ns: u64) -> usize {
        let before = self.events.partition_point(|event| event.time_ns < from_ns);
        self.events.drain(..before);
        before
    }

    /// Sorts the events by time. Cheap when they are sorted piece by piece.
    pub fn sort(&mut self) {
        self.events.sort_by_key(|event| event.time_ns);
    }

    /// First and last time stamp.
    pub fn span(&self) -> Option<(u64, u64)> {
        Some((self.events.first()?.time_ns, self.events.last()?.time_ns))
    }
}
