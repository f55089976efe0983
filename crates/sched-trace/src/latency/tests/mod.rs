//! Tests of the analysis on traces with known answers.

mod missing;
mod waits;
mod work;

use super::{Report, WaitKind, analyse};
use crate::script::trace;

fn report(text: &str) -> Report {
    analyse(&trace(text))
}

/// Threads and lengths of waits in microseconds.
fn lengths(report: &Report, kind: WaitKind) -> Vec<(i32, u64)> {
    let waits = report.waits.iter().filter(|wait| wait.kind == kind);
    waits
        .map(|wait| (wait.pid, wait.length_ns() / 1000))
        .collect()
}

/// pid 9 is a worker: it is woken, runs two items, and sleeps while it waits for a disk in the
/// second one.
const TWO_ITEMS: &str = "10 0 1 queue 10 z_erofs_decompressqueue_work erofs_worker;
    11 0 1 waking 9; 31 0 1 S 9; 32 0 9 start 10 z_erofs_decompressqueue_work;
    40 0 9 R+ 2; 60 0 2 S 9; 70 0 9 end 10 z_erofs_decompressqueue_work;
    71 0 9 start 11 vmstat_update; 72 0 9 D 0; 80 0 0 waking 9; 87 0 0 R 9;
    88 0 9 end 11 vmstat_update; 89 0 9 queue 11 vmstat_update mm_percpu_wq; 90 0 9 S 0";
