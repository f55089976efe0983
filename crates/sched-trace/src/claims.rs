//! What the recorder, or the reader of a file, claims about the completeness of the events.

use std::collections::BTreeSet;

/// Knowledge about a recording in addition to its events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    /// Places at which events were lost.
    pub losses: Vec<Loss>,
    /// Times at which another recording begins, in ascending order.
    pub seams: Vec<u64>,
    /// CPUs that were recorded, if the file names them.
    pub cpus: BTreeSet<u32>,
    /// CPUs whose events the recorder counted, with none missing.
    pub counted: BTreeSet<u32>,
    /// Whether the recorder silently omits a wake-up or a migration now and then (perf), for
    /// example one that occurs while it writes another event. If so, a single missing event proves
    /// nothing.
    pub skips_some: bool,
}

/// The beginnings of all recordings except the first, given the first and last time of each; an
/// error if recordings overlap.
pub(crate) fn seams(mut spans: Vec<(u64, u64)>) -> Result<Vec<u64>, String> {
    spans.sort_unstable();
    for pair in spans.windows(2) {
        let ((_, last), (first, _)) = (pair[0], pair[1]);
        if first < last {
            return Err(format!(
                "its clock jumps back at {:.6} s: recordings that overlap in time were joined; \
                 read each of them separately",
                last as f64 / 1e9
            ));
        }
    }
    Ok(spans.into_iter().skip(1).map(|(first, _)| first).collect())
}

/// Events that are missing before a CPU's next event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The CPU; `None` if it is unknown.
    pub cpu: Option<u32>,
    /// Time of the next event of that CPU; `u64::MAX` if there is none.
    pub until_ns: u64,
    /// The evidence of the loss.
    pub reason: &'static str,
}
