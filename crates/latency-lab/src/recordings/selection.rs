//! Two recordings, and what is compared of them.

use sched_trace::Trace;
use sched_trace::latency::GroupBy;

/// A trace and the name of its file.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// For messages.
    pub name: &'a str,
    /// What it holds.
    pub trace: &'a Trace,
}

/// What is compared of two recordings.
#[derive(Clone, Copy)]
pub struct Selection<'a> {
    /// What a row stands for.
    pub by: GroupBy,
    /// Only threads and work queues whose name this accepts.
    pub name: Option<&'a dyn Fn(&str) -> bool>,
    /// Rows, those that wait longest.
    pub most: usize,
}

impl std::fmt::Debug for Selection<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let named = self.name.is_some();
        write!(f, "Selection({:?}, named {named}, {})", self.by, self.most)
    }
}
