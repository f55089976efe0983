//! Builds traces in microseconds.

use crate::latency::{Report, WaitKind, analyse};
use crate::{Comm, Event, Kind, TaskState, Trace};

pub const SLEEPS: TaskState = TaskState::SLEEPING;
pub const PREEMPTED: TaskState = TaskState::PREEMPTED;

/// Builds traces in microseconds.
pub struct Script(pub Trace);

impl Script {
    pub fn new() -> Self {
        Self(Trace::new("mono"))
    }

    pub fn add(&mut self, us: u64, cpu: u32, pid: i32, kind: Kind) -> &mut Self {
        self.0.events.push(Event {
            time_ns: us * 1000,
            cpu,
            pid,
            kind,
        });
        self
    }

    pub fn switch(
        &mut self,
        us: u64,
        cpu: u32,
        prev: i32,
        state: TaskState,
        next: i32,
    ) -> &mut Self {
        let kind = Kind::Switch {
            prev_pid: prev,
            prev_comm: comm(prev),
            prev_prio: 120,
            prev_state: state,
            next_pid: next,
            next_comm: comm(next),
            next_prio: 120,
        };
        self.add(us, cpu, prev, kind)
    }

    pub fn waking(&mut self, us: u64, cpu: u32, by: i32, pid: i32) -> &mut Self {
        self.add(
            us,
            cpu,
            by,
            Kind::Waking {
                pid,
                comm: comm(pid),
                prio: 120,
                target_cpu: cpu,
            },
        )
    }

    pub fn wakeup(&mut self, us: u64, cpu: u32, by: i32, pid: i32) -> &mut Self {
        self.add(
            us,
            cpu,
            by,
            Kind::Wakeup {
                pid,
                comm: comm(pid),
                prio: 120,
                target_cpu: cpu,
            },
        )
    }

    /// Gives a thread its name in every switch.
    pub fn rename(&mut self, pid: i32, name: Comm) {
        for event in &mut self.0.events {
            if let Kind::Switch {
                prev_pid,
                prev_comm,
                next_pid,
                next_comm,
                ..
            } = &mut event.kind
            {
                for (at, comm) in [(prev_pid, prev_comm), (next_pid, next_comm)] {
                    if *at == pid {
                        *comm = name;
                    }
                }
            }
        }
    }

    pub fn analyse(&mut self) -> Report {
        self.0.sort();
        analyse(&self.0)
    }
}

pub fn comm(pid: i32) -> Comm {
    if pid == 0 {
        "swapper/0".into()
    } else {
        Comm::new(format!("task{pid}").as_bytes())
    }
}

pub fn lengths(report: &Report, kind: WaitKind) -> Vec<(i32, u64)> {
    let waits = report.waits.iter().filter(|wait| wait.kind == kind);
    waits
        .map(|wait| (wait.pid, wait.length_ns() / 1000))
        .collect()
}

/// pid 9 is a kworker: woken, runs two items, sleeps in the second one for a disk.
pub fn kworker_script() -> Script {
    let mut script = Script::new();
    let f = script.0.intern("z_erofs_decompressqueue_work");
    let g = script.0.intern("vmstat_update");
    let queue = script.0.intern("erofs_worker");
    let other = script.0.intern("mm_percpu_wq");
    let queued = |work, function, queue| Kind::WorkQueued {
        work,
        function,
        queue,
        cpu: 0,
    };
    script
        .add(10, 0, 1, queued(0xa, f, Some(queue)))
        .waking(11, 0, 1, 9)
        .switch(31, 0, 1, SLEEPS, 9)
        .add(
            32,
            0,
            9,
            Kind::WorkStart {
                work: 0xa,
                function: f,
            },
        )
        .switch(40, 0, 9, PREEMPTED, 2)
        .switch(60, 0, 2, SLEEPS, 9)
        .add(
            70,
            0,
            9,
            Kind::WorkEnd {
                work: 0xa,
                function: Some(f),
            },
        )
        .add(
            71,
            0,
            9,
            Kind::WorkStart {
                work: 0xb,
                function: g,
            },
        )
        .switch(72, 0, 9, TaskState::UNINTERRUPTIBLE, 0)
        .waking(80, 0, 0, 9)
        .switch(87, 0, 0, TaskState::RUNNABLE, 9)
        .add(
            88,
            0,
            9,
            Kind::WorkEnd {
                work: 0xb,
                function: Some(g),
            },
        )
        .add(89, 0, 9, queued(0xb, g, Some(other)))
        .switch(90, 0, 9, SLEEPS, 0);
    script
}
