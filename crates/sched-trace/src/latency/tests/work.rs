//! Waits of kworkers, attributed to their work items.

use super::script::*;
use crate::latency::Filter;
use crate::{Comm, Kind, Notice, TaskState};

#[test]
fn a_kworkers_waits_belong_to_the_work_it_did() {
    let report = kworker_script().analyse();
    let groups = report.workqueues(&Filter::default());
    assert_eq!(groups.len(), 2);
    let erofs = &groups[0];
    assert_eq!(report.names.get(erofs.workqueue.unwrap()), "erofs_worker");
    assert_eq!((erofs.wakeup.count, erofs.wakeup.total), (1, 20.0));
    assert_eq!((erofs.preempted.count, erofs.preempted.total), (1, 20.0));
    assert_eq!(
        (erofs.queue_delay.count, erofs.queue_delay.total),
        (1, 22.0)
    );
    assert_eq!((erofs.executed, erofs.run.total), (1, 38.0));
    let vmstat = &groups[1];
    assert_eq!(
        vmstat.wakeup.total, 7.0,
        "the wait inside the item is the item's"
    );
    assert_eq!(
        report.names.get(vmstat.workqueue.unwrap()),
        "mm_percpu_wq",
        "named only by a later event"
    );
    assert_eq!(vmstat.queue_delay.count, 0, "queued before the trace");
}

/// pid 9 runs `vmstat_update`, sleeps, and is woken for an item of EROFS that waits 4 ms; later it
/// is preempted within that item. The trace has no `workqueue_execute_end`.
fn kworker_without_ends() -> Script {
    let mut script = Script::new();
    let vmstat = script.0.intern("vmstat_update");
    let erofs = script.0.intern("z_erofs_decompressqueue_work");
    let start = |work, function| Kind::WorkStart { work, function };
    let idle = TaskState::from_text("I");
    script
        .waking(0, 0, 1, 9)
        .switch(5, 0, 1, SLEEPS, 9)
        .add(6, 0, 9, start(1, vmstat))
        .switch(20, 0, 9, idle, 2)
        .waking(1000, 0, 2, 9)
        .switch(5000, 0, 2, PREEMPTED, 9)
        .add(5001, 0, 9, start(2, erofs))
        .switch(5010, 0, 9, PREEMPTED, 2)
        .switch(5050, 0, 2, PREEMPTED, 9)
        .switch(5060, 0, 9, idle, 2);
    script
}

#[test]
fn without_end_events_a_wait_belongs_to_the_item_that_starts_after_it() {
    let report = kworker_without_ends().analyse();
    let groups = report.workqueues(&Filter::default());
    let of = |function: &str| {
        let group = groups
            .iter()
            .find(|g| report.names.get(g.function) == function);
        let group = group.unwrap();
        (group.wakeup.total, group.preempted.total)
    };
    assert_eq!(of("z_erofs_decompressqueue_work"), (4000.0, 40.0));
    assert_eq!(of("vmstat_update"), (5.0, 0.0));
    assert_eq!(report.notices, [Notice::NoEndOfWork]);
    assert!(report.is_valid());
}

#[test]
fn a_worker_that_slept_without_work_explains_nothing() {
    let mut script = Script::new();
    let f = script.0.intern("f");
    script
        .waking(0, 0, 1, 9)
        .switch(5, 0, 1, SLEEPS, 9)
        .switch(6, 0, 9, TaskState::IDLE, 0)
        .waking(20, 0, 0, 9)
        .switch(22, 0, 0, TaskState::RUNNABLE, 9)
        .add(
            23,
            0,
            9,
            Kind::WorkStart {
                work: 1,
                function: f,
            },
        );
    let report = script.analyse();
    let attributed: Vec<_> = report.waits.iter().map(|w| w.function.is_some()).collect();
    assert_eq!(attributed, [false, true]);
}

/// pid 9 waits 20 ms, sleeps while it starts another worker, and then runs its item, in which it
/// sleeps for a disk and waits 3 ms to run on. The trace has no ends of items.
#[test]
fn waits_around_the_sleeps_of_a_kworker_are_its_items() {
    let mut script = Script::new();
    let f = script.0.intern("z_erofs_decompressqueue_work");
    let kworker = Comm::from("kworker/0:1");
    let named = |us, by| {
        (
            us,
            0,
            by,
            Kind::Waking {
                pid: 9,
                comm: kworker,
                prio: 120,
                target_cpu: 0,
            },
        )
    };
    for (us, cpu, by, kind) in [named(0, 1), named(20_100, 2), named(30_000, 2)] {
        script.add(us, cpu, by, kind);
    }
    script
        .switch(20_000, 0, 1, SLEEPS, 9)
        .switch(20_050, 0, 9, TaskState::UNINTERRUPTIBLE, 2)
        .switch(20_200, 0, 2, SLEEPS, 9)
        .add(
            20_201,
            0,
            9,
            Kind::WorkStart {
                work: 1,
                function: f,
            },
        )
        .switch(20_300, 0, 9, TaskState::UNINTERRUPTIBLE, 2)
        .switch(33_000, 0, 2, SLEEPS, 9)
        .switch(33_100, 0, 9, TaskState::IDLE, 2);
    script.rename(9, kworker);
    let report = script.analyse();
    let groups = report.workqueues(&Filter::default());
    assert_eq!(groups.len(), 1);
    assert_eq!(groups[0].wakeup.total, 20_000.0 + 100.0 + 3_000.0);
}

#[test]
fn kthread_workers_are_named_after_their_threads() {
    let mut script = Script::new();
    let f = script.0.intern("z_erofs_decompressqueue_kthread_work");
    let name = Comm::from("erofs_worker/1");
    script
        .add(
            10,
            0,
            1,
            Kind::KthreadWorkQueued {
                work: 5,
                function: f,
                worker: 99,
            },
        )
        .add(
            11,
            0,
            1,
            Kind::Waking {
                pid: 4,
                comm: name,
                prio: 98,
                target_cpu: 0,
            },
        )
        .add(15, 0, 1, switch_to(1, 4, name, 98))
        .add(
            16,
            0,
            4,
            Kind::KthreadWorkStart {
                work: 5,
                function: f,
            },
        );
    let report = script.analyse();
    let group = &report.workqueues(&Filter::default())[0];
    assert_eq!(report.names.get(group.workqueue.unwrap()), "erofs_worker");
    assert_eq!((group.wakeup.total, group.queue_delay.total), (4.0, 6.0));
    assert_eq!(report.waits[0].prio, 98);
}

fn switch_to(prev_pid: i32, next_pid: i32, next_comm: Comm, next_prio: i32) -> Kind {
    Kind::Switch {
        prev_pid,
        prev_comm: comm(prev_pid),
        prev_prio: 120,
        prev_state: SLEEPS,
        next_pid,
        next_comm,
        next_prio,
    }
}
