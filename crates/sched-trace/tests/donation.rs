//! Tests a recording of a kernel with proxy execution. The text of the same recording gives the
//! same result (see fixtures/README.md).

use super::other_tools::Fixture;
use sched_trace::blame::{Blame, Why, blame};
use sched_trace::latency::{Wait, WaitKind, analyse};
use sched_trace::timeline::Timeline;
use sched_trace::{Kind, SchedulerSettings, Trace};

/// The thread that waits: real-time, and bound to CPU 1.
const WAITER: i32 = 53;

fn blamed(trace: &Trace, waits: &[Wait], pid: i32) -> Blame {
    let waits = waits.iter().filter(|wait| wait.pid == pid);
    blame(&Timeline::new(trace), waits)
}

#[test]
fn threads_that_lend_their_turns_wait_for_no_cpu_meanwhile_and_are_not_moved() {
    let trace = Fixture::new("trace-cmd-proxy.dat", "donation").read();
    let settings = SchedulerSettings::of_version(&trace.kernel_version);
    assert_eq!(settings.proxy_execution, Some(true));
    // Of 693 events and 14 migrations in the text, ten are returns from the owner's CPU.
    let is_move = |kind: &Kind| matches!(kind, Kind::Migrate { .. });
    let moves = trace.events.iter().filter(|event| is_move(&event.kind));
    assert_eq!((trace.events.len(), moves.count()), (683, 4));
    let report = analyse(&trace);
    let wakeups = report.waits.iter();
    let wakeups = wakeups.filter(|wait| wait.kind == WaitKind::Wakeup);
    let lengths: Vec<u64> = wakeups.map(Wait::length_ns).collect();
    assert_eq!((lengths.len(), lengths.iter().sum()), (130, 906_889_646u64));
    assert!(report.is_valid(), "{:?}", report.notices);
    let waiter = blamed(&trace, &report.waits, WAITER);
    assert!(waiter.waits > 10, "{waiter:?}");
    assert!(
        waiter.why.iter().all(|it| it.why != Why::Moved),
        "{waiter:?}"
    );
}
