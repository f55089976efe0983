//! What the recorder or the reader of a file knows of the completeness of its events.

use std::collections::BTreeSet;

/// What is known besides the events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Places at which events were lost.
    pub losses: Vec<Loss>,
    /// Times at which another recording begins, ascending.
    pub seams: Vec<u64>,
    /// CPUs that were recorded, as far as the file names them.
    pub cpus: BTreeSet<u32>,
    /// CPUs whose events the recorder counted, and which are all there.
    pub counted: BTreeSet<u32>,
    /// The recorder leaves out a wake-up or a migration now and then without a word, for example
    /// one that occurs while it writes another event (perf): a single one that is missing proves
    /// nothing.
    pub skips_some: bool,
}

/// Events that are missing before an event of a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The CPU; `None` where that is not known.
    pub cpu: Option<u32>,
    /// The next event of that CPU; `u64::MAX` if there is none.
    pub until_ns: u64,
    /// How that is known.
    pub reason: &'static str,
}
