//! The state of every thread, event by event.
//!
//! Time stamps of different CPUs are compared, so a wake-up written on one CPU may stand a little
//! before or after the switch it races with on another. Rules for these races:
//! * A wake-up of a running or runnable thread is not a wait.
//! * A wake-up that came while its target was on the way to sleep takes effect when the target has
//!   left its CPU; `sched_wakeup` (or the target running again) tells that it did.

use super::report::{Report, Wait, WaitKind, WorkRun};
use super::works::{Works, worker_name};
use crate::{Comm, Event, Kind, Name, Names, Trace, UNKNOWN_PID};
use std::collections::{BTreeMap, HashMap};

/// Reads the whole trace.
pub(super) fn run(trace: &Trace) -> Report {
    let mut machine = Machine {
        names: trace.names.clone(),
        ..Machine::default()
    };
    for event in &trace.events {
        machine.event(event);
    }
    machine.finish(trace)
}

/// Where a thread stands.
#[derive(Clone, Copy, Default)]
enum State {
    /// Not seen before.
    #[default]
    Unknown,
    Running,
    Sleeping,
    /// Left its CPU to sleep while a wake-up was under way: runnable if that wake-up completes.
    SleepingWoken(Since),
    Runnable(Since),
}

/// The beginning of a wait.
#[derive(Clone, Copy)]
struct Since {
    time_ns: u64,
    kind: WaitKind,
    by: i32,
    cpu: u32,
    moved_ns: Option<u64>,
}

#[derive(Default)]
struct Task {
    state: State,
    comm: Comm,
    prio: i32,
    /// How many threads had this pid before.
    life: u32,
    /// Who is waking this running thread, if that has not completed.
    waker: Option<i32>,
    /// Waits (by index) of this worker that no work item explains yet.
    open_waits: Vec<usize>,
}

#[derive(Default)]
struct Machine {
    tasks: HashMap<i32, Task>,
    /// The thread on each CPU. A map, because a damaged trace may name any number as a CPU.
    current: BTreeMap<u32, i32>,
    waits: Vec<Wait>,
    works: Works,
    names: Names,
    dropped: u64,
    unexplained: u64,
    switches: u64,
    /// Switches to a thread that left its CPU without having entered it.
    missing: u64,
}

impl Machine {
    fn event(&mut self, event: &Event) {
        let time = event.time_ns;
        match event.kind {
            Kind::Switch {
                prev_pid,
                prev_comm,
                prev_prio,
                prev_state,
                next_pid,
                next_comm,
                next_prio,
            } => {
                let prev = self.known_prev(prev_pid, event.cpu);
                self.switches += 1;
                if self
                    .current
                    .get(&event.cpu)
                    .is_some_and(|&current| current != prev)
                {
                    self.missing += 1;
                }
                self.name(prev, prev_comm, prev_prio);
                self.leave(prev, event, prev_state, next_pid);
                self.name(next_pid, next_comm, next_prio);
                self.enter(next_pid, event);
            }
            Kind::Waking {
                pid,
                comm,
                prio,
                target_cpu,
            } => {
                self.name(pid, comm, prio);
                self.waking(pid, event, target_cpu);
            }
            Kind::Wakeup {
                pid,
                comm,
                prio,
                target_cpu,
            } => {
                self.name(pid, comm, prio);
                self.wakeup(pid, event, target_cpu);
            }
            Kind::WakeupNew {
                pid,
                comm,
                prio,
                target_cpu,
            } => {
                self.name(pid, comm, prio);
                self.tasks.entry(pid).or_default().state = State::Runnable(Since {
                    cpu: target_cpu,
                    ..Since::wakeup(time, event.pid)
                });
            }
            Kind::Migrate { pid, .. } => self.migrate(pid, time),
            Kind::FuseSent { .. } => {}
            Kind::Rename { pid, comm } => self.tasks.entry(pid).or_default().comm = comm,
            Kind::WorkQueued {
                work,
                function,
                queue,
                ..
            } => {
                self.works.queue(time, work, function, queue);
            }
            Kind::KthreadWorkQueued { work, function, .. } => {
                self.works.queue(time, work, function, None);
            }
            Kind::WorkStart { work, function } => self.work_start(event, work, function, false),
            Kind::KthreadWorkStart { work, function } => {
                self.work_start(event, work, function, true);
            }
            Kind::WorkEnd { .. } | Kind::KthreadWorkEnd { .. } => {
                let pid = self.runner(event);
                self.works.end(time, pid);
            }
            Kind::Fork { .. } | Kind::Exec { .. } | Kind::Exit { .. } => {}
        }
    }

    /// Compact formats leave out who was switched out: it is who was switched in before.
    fn known_prev(&self, prev_pid: i32, cpu: u32) -> i32 {
        if prev_pid != UNKNOWN_PID {
            return prev_pid;
        }
        self.current.get(&cpu).copied().unwrap_or(UNKNOWN_PID)
    }

    /// The thread that wrote the event.
    fn runner(&self, event: &Event) -> i32 {
        self.known_prev(event.pid, event.cpu)
    }

    fn name(&mut self, pid: i32, comm: Comm, prio: i32) {
        if pid > 0 && !comm.is_empty() {
            let task = self.tasks.entry(pid).or_default();
            task.comm = comm;
            task.prio = prio;
        }
    }

    fn waking(&mut self, pid: i32, event: &Event, target_cpu: u32) {
        let task = self.tasks.entry(pid).or_default();
        match task.state {
            State::Unknown | State::Sleeping => {
                let since = Since::wakeup(event.time_ns, event.pid);
                task.state = State::Runnable(Since {
                    cpu: target_cpu,
                    ..since
                });
            }
            State::Running => task.waker = Some(event.pid),
            State::SleepingWoken(_) | State::Runnable(_) => {}
        }
    }

    fn wakeup(&mut self, pid: i32, event: &Event, target_cpu: u32) {
        let task = self.tasks.entry(pid).or_default();
        match task.state {
            // No sched_waking in this trace, or it came before the trace began.
            State::Unknown | State::Sleeping => {
                let since = Since::wakeup(event.time_ns, event.pid);
                task.state = State::Runnable(Since {
                    cpu: target_cpu,
                    ..since
                });
            }
            State::SleepingWoken(since) => {
                task.state = State::Runnable(Since {
                    cpu: target_cpu,
                    ..since
                });
            }
            State::Runnable(since) if since.kind == WaitKind::Wakeup => {
                // sched_waking names the CPU it slept on, sched_wakeup the one it was put on.
                task.state = State::Runnable(Since {
                    cpu: target_cpu,
                    moved_ns: None,
                    ..since
                });
            }
            State::Runnable(_) => {}
            State::Running => task.waker = None,
        }
    }

    fn migrate(&mut self, pid: i32, time_ns: u64) {
        let Some(task) = self.tasks.get_mut(&pid) else {
            return;
        };
        if let State::Runnable(since) = task.state {
            task.state = State::Runnable(Since {
                moved_ns: Some(time_ns),
                ..since
            });
        }
    }

    /// `pid` leaves its CPU.
    fn leave(&mut self, pid: i32, event: &Event, state: crate::TaskState, next_pid: i32) {
        if pid <= 0 {
            return;
        }
        let task = self.tasks.entry(pid).or_default();
        let waker = task.waker.take();
        let since = |kind, by| Since {
            time_ns: event.time_ns,
            kind,
            by,
            cpu: event.cpu,
            moved_ns: None,
        };
        task.state = match waker {
            _ if state.is_runnable() => State::Runnable(since(WaitKind::Preempted, next_pid)),
            Some(by) => State::SleepingWoken(since(WaitKind::Wakeup, by)),
            None => State::Sleeping,
        };
        if !state.is_runnable() {
            task.open_waits.clear();
        }
        if state.is_dead() {
            *task = Task {
                life: task.life + 1,
                ..Task::default()
            };
        }
    }

    /// `pid` runs from here on.
    fn enter(&mut self, pid: i32, event: &Event) {
        self.current.insert(event.cpu, pid);
        if pid <= 0 {
            return;
        }
        let task = self.tasks.entry(pid).or_default();
        task.waker = None;
        match std::mem::replace(&mut task.state, State::Running) {
            State::Runnable(since) | State::SleepingWoken(since) => self.wait(pid, since, event),
            State::Unknown => self.dropped += 1,
            State::Sleeping => self.unexplained += 1,
            // Its switch-out was lost with other events.
            State::Running => {}
        }
    }

    /// A wait is over.
    fn wait(&mut self, pid: i32, since: Since, event: &Event) {
        let Some(task) = self.tasks.get_mut(&pid) else {
            return;
        };
        let work = self.works.current(pid);
        if work.is_none() {
            task.open_waits.push(self.waits.len());
        }
        self.waits.push(Wait {
            start_ns: since.time_ns,
            end_ns: event.time_ns,
            pid,
            life: task.life,
            comm: task.comm,
            prio: task.prio,
            cpu: event.cpu,
            queued_cpu: since.cpu,
            moved_ns: since.moved_ns,
            kind: since.kind,
            caused_by: since.by,
            function: work.map(|(function, _)| function),
            workqueue: work.and_then(|(_, queue)| queue),
        });
    }

    /// The worker that writes the event begins with an item: the waits before belong to it.
    fn work_start(&mut self, event: &Event, work: u64, function: Name, kthread: bool) {
        let pid = self.runner(event);
        let task = self.tasks.entry(pid).or_default();
        let own = kthread
            .then(|| worker_name(&mut self.names, &task.comm.to_string()))
            .flatten();
        let run = WorkRun {
            queued_ns: None,
            start_ns: event.time_ns,
            end_ns: None,
            pid,
            cpu: event.cpu,
            function,
            workqueue: own,
            kthread,
        };
        self.works.start(work, run);
        let queue = self.works.current(pid).and_then(|(_, queue)| queue);
        for index in task.open_waits.drain(..) {
            self.waits[index].function = Some(function);
            self.waits[index].workqueue = queue;
        }
    }

    fn finish(self, trace: &Trace) -> Report {
        let unfinished = self
            .tasks
            .values()
            .filter(|t| matches!(t.state, State::Runnable(_)));
        let dropped_at_edges = self.dropped + unfinished.count() as u64;
        let (works, home) = self.works.finish();
        let mut waits = self.waits;
        for wait in waits.iter_mut().filter(|wait| wait.workqueue.is_none()) {
            wait.workqueue = wait.function.and_then(&home);
        }
        Report {
            waits,
            works,
            lost_events: trace.lost_events,
            dropped_at_edges,
            unexplained_runs: self.unexplained,
            switches: self.switches,
            missing_switches: self.missing,
            span: trace.span(),
            events: trace.events.len() as u64,
            names: self.names,
        }
    }
}

impl Since {
    fn wakeup(time_ns: u64, by: i32) -> Self {
        Self {
            time_ns,
            kind: WaitKind::Wakeup,
            by,
            cpu: 0,
            moved_ns: None,
        }
    }
}
