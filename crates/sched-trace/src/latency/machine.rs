//! The state of every thread, event by event.

use super::report::Report;
use crate::Trace;

pub(super) fn run(trace: &Trace) -> Report {
    Report {
        lost_events: trace.lost_events,
        names: trace.names.clone(),
        ..Report::default()
    }
}
