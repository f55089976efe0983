//! Compares two recordings of the scheduler by the rules of [`statistics`](crate::statistics):
//! which threads, processes or work items wait longer in one recording than in the other. The
//! samples are blocks of each recording.

mod blocks;
mod report;
mod selection;

pub use report::{Differing, Recording, RecordingsReport, Waits};
pub use selection::{Selection, Source};

use std::collections::BTreeMap;

use sched_trace::latency::{Filter, GroupBy, Report, analyse};

use blocks::{Blocks, row_of_group};
use report::Compared;

/// Compares the second recording with the first.
pub fn compare(old: Source<'_>, new: Source<'_>, selection: &Selection<'_>) -> RecordingsReport {
    let [old, new] = [old, new].map(|source| compared(source, selection));
    RecordingsReport::new(selection, &old, &new)
}

fn compared(source: Source<'_>, selection: &Selection<'_>) -> Compared {
    let report = analyse(source.trace);
    let filter = Filter {
        name: selection.name,
        items: selection.by == GroupBy::Workqueue,
        ..Filter::default()
    };
    let blocks = Blocks::of(source.trace, &report, selection.by, &filter);
    let mut valid: BTreeMap<String, bool> = BTreeMap::new();
    for group in report.group(selection.by, &filter) {
        *valid
            .entry(row_of_group(&report, &group, selection.by))
            .or_insert(true) &= group.valid;
    }
    Compared {
        recording: Recording::of(source, &report, blocks.count),
        fault: fault(source.name, &report, &filter),
        blocks,
        valid,
    }
}

/// Why the figures of a recording must not be used.
fn fault(name: &str, report: &Report, filter: &Filter<'_>) -> Option<String> {
    // Rows for which the kernel omitted switches are not compared.
    let valid = report.is_valid_for(filter) || report.has_rows(filter);
    (!valid).then(|| match report.lost_events {
        0 => format!("{name} is not valid: erofast trace latency says why"),
        lost => format!("{name} lost {lost} events"),
    })
}
