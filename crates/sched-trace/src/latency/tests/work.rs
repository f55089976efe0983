//! Waits of workers, attributed to their work items.

use super::*;
use crate::latency::Filter;
use crate::script::rename;
use crate::{Notice, Trace};

/// Function, work queue, total waits after wake-ups and after preemptions, total queue delay and
/// run, in microseconds, and number of executed items.
type Row<'a> = (&'a str, &'a str, [f64; 4], u64);

fn rows(trace: &Trace, expected: &[Row<'_>]) {
    let report = analyse(trace);
    let groups = report.workqueues(&Filter::default());
    let name = |name: Option<_>| name.map_or("", |name| report.names.get(name));
    let found = groups.iter().map(|group| {
        let queue = name(group.workqueue);
        let (wakeup, preempted) = (group.wakeup.total, group.preempted.total);
        let totals = [wakeup, preempted, group.queue_delay.total, group.run.total];
        (name(group.function), queue, totals, group.executed)
    });
    assert_eq!(found.collect::<Vec<_>>(), expected);
}

#[test]
fn waits_belong_to_the_item_that_starts_next_or_is_executed() {
    let erofs = "z_erofs_decompressqueue_work";
    rows(
        &trace(TWO_ITEMS),
        &[
            (erofs, "erofs_worker", [20.0, 20.0, 22.0, 38.0], 1),
            // The worker waited inside the item, which was queued before the trace; a later event
            // names its queue.
            ("vmstat_update", "mm_percpu_wq", [7.0, 0.0, 0.0, 17.0], 1),
        ],
    );
}

/// pid 9 runs `vmstat_update`, sleeps, and is woken for an item that waits 4 ms; later it is
/// preempted within that item.
#[test]
fn without_end_events_a_wait_belongs_to_the_item_that_starts_after_it() {
    let trace = trace(
        "0 0 1 waking 9; 5 0 1 S 9; 6 0 9 start 1 vmstat_update; 20 0 9 I 2; 1000 0 2 waking 9;
         5000 0 2 R+ 9; 5001 0 9 start 2 decompress; 5010 0 9 R+ 2; 5050 0 2 R+ 9; 5060 0 9 I 2",
    );
    let (decompress, vmstat) = ([4000.0, 40.0, 0.0, 0.0], [5.0, 0.0, 0.0, 0.0]);
    rows(
        &trace,
        &[
            ("decompress", "", decompress, 1),
            ("vmstat_update", "", vmstat, 1),
        ],
    );
    let report = analyse(&trace);
    assert_eq!(report.notices, [Notice::NoEndOfWork]);
    assert!(report.is_valid());
}

#[test]
fn a_worker_that_slept_without_work_explains_nothing() {
    let report = report(
        "0 0 1 waking 9; 5 0 1 S 9; 6 0 9 I 0; 20 0 0 waking 9; 22 0 0 R 9; 23 0 9 start 1 f",
    );
    let attributed: Vec<_> = report.waits.iter().map(|w| w.function.is_some()).collect();
    assert_eq!(attributed, [false, true]);
}

/// pid 9 waits 20 ms, sleeps while it starts another worker, and then runs its item, in which it
/// sleeps while it waits for a disk, and then waits 3 ms for a CPU to continue. The trace has no
/// ends of items.
#[test]
fn waits_around_the_sleeps_of_a_kworker_are_its_items() {
    let mut trace = trace(
        "0 0 1 waking 9; 20000 0 1 S 9; 20050 0 9 D 2; 20100 0 2 waking 9; 20200 0 2 S 9;
         20201 0 9 start 1 f; 20300 0 9 D 2; 30000 0 2 waking 9; 33000 0 2 S 9; 33100 0 9 I 2",
    );
    rename(&mut trace, 9, "kworker/0:1", 120);
    rows(
        &trace,
        &[("f", "", [20_000.0 + 100.0 + 3_000.0, 0.0, 0.0, 0.0], 1)],
    );
}

#[test]
fn kthread_workers_are_named_after_their_threads() {
    let mut trace = trace(
        "10 0 1 kqueue 5 decompress; 11 0 1 waking 4; 15 0 1 S 4; 16 0 4 kstart 5 decompress",
    );
    rename(&mut trace, 4, "erofs_worker/1", 98);
    rows(
        &trace,
        &[("decompress", "erofs_worker", [4.0, 0.0, 6.0, 0.0], 1)],
    );
    assert_eq!(analyse(&trace).waits[0].prio, 98);
}

/// pid 5 is a program, not a worker: the softirq of its CPU executes an item while the program
/// runs, and again while the CPU is idle.
#[test]
fn items_that_a_softirq_executes_leave_the_waits_of_the_interrupted_thread_alone() {
    let trace = trace(
        "0 0 1 waking 5; 100 0 1 R 5; 200 0 5 queue 1 f events_bh; 300 0 5 start 1 f; 400 0 5 end 1 f;
         500 0 5 R 1; 700 0 1 R 5; 800 0 5 S 0; 900 1 0 queue 2 f events_bh; 910 1 0 start 2 f;
         920 0 0 queue 3 f events_bh; 930 0 0 start 3 f; 940 1 0 end 2 f; 970 0 0 end 3 f",
    );
    rows(&trace, &[("f", "events_bh", [0.0, 0.0, 120.0, 170.0], 3)]);
    let report = analyse(&trace);
    let mut of_5 = report.waits.iter().filter(|wait| wait.pid == 5);
    assert!(of_5.all(|wait| wait.function.is_none()));
    assert_eq!(lengths(&report, WaitKind::Preempted)[1], (5, 200));
}

/// The worker 9 is inside `work_a` when a softirq executes `bh_b`, and is preempted for 10 ms
/// afterwards; the softirq's item is on a BH queue, or on an unknown queue.
#[test]
fn an_item_of_a_softirq_does_not_end_the_item_of_the_worker_that_it_interrupted() {
    let own = "0 0 0 queue 1 work_a mywq; 1 0 0 waking 9; 10 0 0 R 9; 11 0 9 start 1 work_a;";
    let rest = "200 0 9 R 2; 10200 0 2 R 9; 10300 0 9 end 1 work_a; 10310 0 9 I 2";
    let bh = "100 0 9 queue 2 bh_b events_bh; 110 0 9 start 2 bh_b; 120 0 9 end 2 bh_b;";
    let work_a = ("work_a", "mywq", [9.0, 10_000.0, 11.0, 10_289.0], 1);
    let bh_b = ("bh_b", "events_bh", [0.0, 0.0, 10.0, 10.0], 1);
    rows(&trace(&format!("{own}{bh}{rest}")), &[work_a, bh_b]);
    let unknown = "110 0 9 start 2 bh_b; 120 0 9 end 2 bh_b;";
    let unnamed = ("bh_b", "", [0.0, 0.0, 0.0, 10.0], 1);
    rows(&trace(&format!("{own}{unknown}{rest}")), &[work_a, unnamed]);
    // The same trace without `execute_end` events.
    let endless = format!("{own}{bh}{rest}").replace(" 120 0 9 end 2 bh_b;", "");
    let endless = endless.replace(" 10300 0 9 end 1 work_a;", "");
    let [work_a, bh_b] = [
        ("work_a", "mywq", [9.0, 10_000.0, 11.0, 0.0], 1),
        ("bh_b", "events_bh", [0.0, 0.0, 10.0, 0.0], 1),
    ];
    rows(&trace(&endless), &[work_a, bh_b]);
}
