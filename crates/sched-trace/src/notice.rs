//! Notices: limits of the figures of a trace.

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Notice {
    /// Records of known events could not be decoded.
    #[error("{} of scheduler events could not be decoded", counted(*.count, "record"))]
    UndecodedRecords {
        /// Number of these records.
        count: u64,
    },
    /// Pages of the ring buffer could not be read.
    #[error("{} of the ring buffer could not be read: {reason}", counted(*.count, "page"))]
    UnreadPages {
        /// Number of these pages.
        count: u64,
        /// What is wrong with the first of these pages.
        reason: String,
    },
    /// Work functions appear as addresses.
    #[error(
        "work functions without a name: {unnamed} of {of}; the trace has no symbols for them: \
         {remedy}"
    )]
    UnnamedFunctions {
        /// Number of functions without a name.
        unnamed: usize,
        /// Number of all functions.
        of: usize,
        /// How to record a trace of this format with the names of functions.
        remedy: &'static str,
    },
    /// A ring buffer overwrote only its oldest events: the trace begins later.
    #[error(
        "the ring buffer overwrote {}older events: figures begin at {:.6} s, where the events of \
         all CPUs are complete",
        known_number(*.overwritten),
        seconds(.from_ns)
    )]
    Wrapped {
        /// Number of overwritten events, if the trace says.
        overwritten: u64,
        /// The time at which the trace now begins: from then on, it has the events of all CPUs.
        from_ns: u64,
    },
    /// The events were not counted, and at least one CPU has none at the beginning or at the end.
    #[error(
        "the trace does not record the number of events, and all CPUs have events only from \
         {:.6} s to {:.6} s: {}",
        seconds(.from_ns),
        seconds(.until_ns),
        match .dropped {
            true => "the figures cover that time",
            false => "either one thread had a CPU to itself before or after that, or lines are \
                      missing",
        }
    )]
    Uncounted {
        /// Time from which all CPUs have events.
        from_ns: u64,
        /// Time until which all CPUs have events.
        until_ns: u64,
        /// Whether the figures cover only the period between these times.
        dropped: bool,
    },
    /// Another recording begins within the trace.
    #[error("another recording begins at {:.6} s: no wait extends across it", seconds(.at_ns))]
    Seam {
        /// The time at which the recording begins.
        at_ns: u64,
    },
    /// Events are missing.
    #[error(
        "events of {} are missing between {:.6} s and {:.6} s: {reason}{}",
        .cpu.map_or_else(|| "one of the CPUs".into(), |cpu| format!("CPU {cpu}")),
        seconds(.from_ns),
        seconds(.until_ns),
        others("; and in", *.count, "more interval")
    )]
    Broken {
        /// The CPU that should have written the events, if known.
        cpu: Option<u32>,
        /// Number of intervals.
        count: usize,
        /// Beginning of the first interval.
        from_ns: u64,
        /// End of the first interval.
        until_ns: u64,
        /// The evidence.
        reason: String,
    },
    /// No CPU wrote an event for a while, although threads that usually run soon were runnable.
    #[error(
        "no CPU wrote an event between {:.6} s and {:.6} s, though threads could run: the clock \
         jumped, the machine paused, or lines are missing; waits across that gap are left out{}",
        seconds(.from_ns),
        seconds(.until_ns),
        others("; this happened", *.count, "more time")
    )]
    Paused {
        /// How often this happened.
        count: usize,
        /// Beginning of the first such period.
        from_ns: u64,
        /// End of the first such period.
        until_ns: u64,
    },
    /// The recorder lists CPUs that wrote no event.
    #[error(
        "no events of CPU {}: idle or busy with one thread, or not recorded; the trace does not \
         say which",
        .cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    SilentCpus {
        /// Numbers of these CPUs.
        cpus: Vec<u32>,
    },
    /// Lines of text that are neither events nor comments.
    #[error("{} cannot be parsed; the first one is: {first}", counted(*.count, "line"))]
    UnknownLines {
        /// Number of these lines.
        count: u64,
        /// The first of these lines.
        first: String,
    },
    /// The clock of the trace differs between its CPUs.
    #[error(
        "the clock \"local\" differs between CPUs: waits that begin on one CPU and end on another \
         may be too short or too long (trace-cmd record -C mono)"
    )]
    LocalClock,
    /// The trace has no switches, which end waits.
    #[error("no sched_switch events: the trace does not show when threads ran")]
    NoSwitches,
    /// The trace has `sched_wakeup`, but not the `sched_waking` before it.
    #[error(
        "no sched_waking events: waits begin at sched_wakeup, when the thread is on a run queue, \
         so the time before that is missing"
    )]
    NoWaking,
    /// Too many switches and wake-ups are missing for the figures of all threads together to be
    /// valid.
    #[error(
        "{} and {} are missing in all threads together, which have {}: a recording that lacks \
         more than 1 per 100 waits is not valid",
        counted(*.switches, "switch"),
        counted(*.unexplained, "wake-up"),
        counted(*.waits, "wait")
    )]
    MissingEvents {
        /// Number of missing switches.
        switches: u64,
        /// Runs after a sleep without a wake-up.
        unexplained: u64,
        /// Number of waits of all threads.
        waits: u64,
    },
    /// The kernel lets a blocked thread lend its turn to the owner of the mutex.
    #[error(
        "this kernel has proxy execution: a thread that is blocked on a mutex may lend its turn \
         to the owner, which then runs with the other's priority. Waits from a wake-up to running \
         are right; waits behind such an owner are inferred from the thread that ended an \
         uninterruptible sleep, and whether a preempted thread waited for a CPU or for a mutex is \
         uncertain"
    )]
    ProxyExecution,
    /// The trace has the starts of work items, but not their ends.
    #[error(
        "no workqueue_execute_end events: a work item is taken to end when its worker has nothing \
         to do, or starts the next one"
    )]
    NoEndOfWork,
}

impl Notice {
    /// Whether the notice makes all figures invalid.
    pub fn spoils_figures(&self) -> bool {
        matches!(
            self,
            Self::UndecodedRecords { .. }
                | Self::UnreadPages { .. }
                | Self::NoSwitches
                | Self::Broken { .. }
        )
    }

    /// Whether the notice invalidates figures that are selected by the name of a work function.
    pub fn spoils_names(&self) -> bool {
        matches!(self, Self::UnnamedFunctions { .. })
    }
}

/// A number with its noun: "1 switch", "2 switches".
fn counted(number: u64, noun: &str) -> String {
    match number {
        1 => format!("1 {noun}"),
        _ if noun.ends_with("ch") => format!("{number} {noun}es"),
        _ => format!("{number} {noun}s"),
    }
}

/// Says how many intervals there are besides the first, if there are any.
fn others(lead: &str, count: usize, noun: &str) -> String {
    match count {
        0 | 1 => String::new(),
        _ => format!("{lead} {}", counted(count as u64 - 1, noun)),
    }
}

/// The number and a blank; empty if the number is unknown.
fn known_number(number: u64) -> String {
    match number {
        0 => String::new(),
        number => format!("{number} "),
    }
}

fn seconds(ns: &u64) -> f64 {
    *ns as f64 / 1e9
}
