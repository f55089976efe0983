//! Two recordings, and what to compare in them.

use sched_trace::Trace;
use sched_trace::latency::GroupBy;

/// A trace and the name of its file.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// The name of the file, for messages.
    pub name: &'a str,
    /// The content of the file.
    pub trace: &'a Trace,
}

/// Selects what to compare in two recordings.
#[derive(Clone, Copy)]
pub struct Selection<'a> {
    /// The kind of thing that a row represents.
    pub by: GroupBy,
    /// If this is set, only threads and work queues whose names it accepts are compared.
    pub name: Option<&'a dyn Fn(&str) -> bool>,
    /// Maximum number of rows to show; those with the most waiting are shown.
    pub most: usize,
}

impl std::fmt::Debug for Selection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = self.name.is_some();
        write!(f, "Selection({:?}, named {named}, {})", self.by, self.most)
    }
}
