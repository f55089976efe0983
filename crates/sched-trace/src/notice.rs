//! Notices: limits of the figures of a trace.

use std::fmt;

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Notice {
    /// Records of known events could not be decoded.
    UndecodedRecords {
        /// How many.
        count: u64,
    },
    /// Pages of the ring buffer could not be read.
    UnreadPages {
        /// How many.
        count: u64,
        /// What is wrong with the first one.
        reason: String,
    },
    /// Work functions appear as addresses.
    UnnamedFunctions {
        /// Functions without a name.
        unnamed: usize,
        /// All functions.
        of: usize,
        /// How a trace of this format gets their names.
        remedy: &'static str,
    },
    /// A ring buffer overwrote its oldest events, and nothing else: the trace begins later.
    Wrapped {
        /// Overwritten events, where the trace has their number.
        overwritten: u64,
        /// Where the trace begins: from here on all CPUs have their events.
        from_ns: u64,
    },
    /// The clock of the trace differs between its CPUs.
    LocalClock,
    /// The trace has no switch, with which waits end.
    NoSwitches,
    /// The trace has the starts of work items, but not their ends.
    NoEndOfWork,
}

impl Notice {
    /// Whether it makes all figures invalid.
    pub fn spoils_figures(&self) -> bool {
        matches!(
            self,
            Self::UndecodedRecords { .. } | Self::UnreadPages { .. } | Self::NoSwitches
        )
    }

    /// Whether it makes figures invalid that are selected by the name of a work function.
    pub fn spoils_names(&self) -> bool {
        matches!(self, Self::UnnamedFunctions { .. })
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UndecodedRecords { count } => {
                write!(f, "{count} records of scheduler events could not be decoded")
            }
            Self::UnreadPages { count, reason } => {
                write!(f, "{count} pages of the ring buffer could not be read: {reason}")
            }
            Self::UnnamedFunctions {
                unnamed,
                of,
                remedy,
            } => write!(
                f,
                "work functions without a name: {unnamed} of {of}; the trace has no symbols for \
                 them: {remedy}"
            ),
            Self::Wrapped {
                overwritten,
                from_ns,
            } => {
                let number = Some(overwritten).filter(|number| **number > 0);
                let number = number.map_or(String::new(), |number| format!("{number} "));
                write!(
                    f,
                    "the ring buffer overwrote {number}older events: figures begin at {:.6} s, from where on \
                     all CPUs have their events",
                    *from_ns as f64 / 1e9
                )
            }
            Self::LocalClock => f.write_str(
                "the clock \"local\" is not the same on all CPUs: waits that begin on one CPU and end on \
                 another may be too short or too long (trace-cmd record -C mono)",
            ),
            Self::NoSwitches => {
                f.write_str("no sched_switch events: the trace does not show when threads ran")
            }
            Self::NoEndOfWork => f.write_str(
                "no workqueue_execute_end events: a work item is taken to end when its worker has \
                 nothing to do, or starts the next one",
            ),
        }
    }
}
