//! Follows the state of every thread, event by event.
//!
//! Time stamps from different CPUs are compared, so a wake-up written on one CPU may come slightly
//! before or after the switch on another CPU that it races with. Rules for these races:
//! * A wake-up of a running or runnable thread starts no wait.
//! * A wake-up of a thread that is about to sleep takes effect once the thread has left its CPU;
//!   `sched_wakeup` (or the thread running again) shows that the wake-up took effect. A second
//!   `sched_waking` shows that the first one kept the thread from sleeping: the wait begins with
//!   the second.

use super::report::{Concerned, Report, Wait, WaitKind, WorkRun};
use super::works::{Runner, Works, worker_name};
use crate::completeness::{self, Completeness, Edge, Waited};
use crate::{Comm, Event, Kind, Name, Notice, SchedulerSettings, Task, TaskState};
use crate::{Trace, UNKNOWN_PID, Wake};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Analyses the whole trace.
pub(super) fn run(trace: &Trace) -> Report {
    let completeness = completeness::of(trace);
    let mut machine = Machine {
        works: Works::new(&trace.events, &trace.names),
        ..Machine::default()
    };
    machine.report.names = trace.names.clone();
    let mut edges = completeness.edges().into_iter().peekable();
    for event in &trace.events {
        while let Some(edge) = edges.next_if(|edge| edge.at_ns <= event.time_ns) {
            machine.forget(edge);
        }
        machine.event(event);
    }
    machine.finish(trace, completeness)
}

/// State of a thread.
#[derive(Clone, Copy, Default)]
enum State {
    /// A thread not seen before.
    #[default]
    Unknown,
    Running,
    Sleeping,
    /// Left its CPU to sleep during a wake-up: runnable if that wake-up completes.
    SleepingWoken(Since),
    Runnable(Since),
}

/// The beginning of a wait.
#[derive(Clone, Copy)]
struct Since {
    time_ns: u64,
    kind: WaitKind,
    by: i32,
    /// The CPU of the wake-up or preemption.
    by_cpu: u32,
    /// The CPU on which the thread is queued.
    cpu: u32,
}

#[derive(Default)]
struct Thread {
    state: State,
    comm: Comm,
    prio: i32,
    /// Number of threads that had this pid before.
    life: u32,
    /// The CPU on which the thread last ran.
    last_cpu: Option<u32>,
    /// The thread that is waking this running thread, and that thread's CPU, as long as the wake-up
    /// has not completed.
    waker: Option<(i32, u32)>,
    /// Indices of this worker's waits that are not attributed to a work item yet.
    open_waits: Vec<usize>,
}

#[derive(Default)]
struct Machine {
    tasks: HashMap<i32, Thread>,
    /// The thread on each CPU. A map, because the CPU numbers of a damaged trace are arbitrary.
    current: BTreeMap<u32, i32>,
    works: Works,
    /// The report so far.
    report: Report,
    /// Number of waits that were cut off because the states of threads became unknown.
    cut: u64,
    /// Number of recordings that ended within the trace.
    part: usize,
    /// Whether the trace has `sched_wakeup`, and whether it has `sched_waking`.
    wakes: bool,
    wakings: bool,
}

impl Machine {
    /// Forgets the states of threads: events before this time are missing or belong to another
    /// recording. What runs on a CPU stays known if the same recording continues.
    fn forget(&mut self, edge: Edge) {
        if edge.seam {
            self.current.clear();
            self.works.forget();
            self.part += 1;
        }
        let current: BTreeSet<i32> = self.current.values().copied().collect();
        for (pid, task) in &mut self.tasks {
            if edge.seam || !current.contains(pid) {
                self.cut += u64::from(matches!(task.state, State::Runnable(_)));
                task.state = State::Unknown;
                task.waker = None;
                task.open_waits.clear();
            }
        }
    }

    fn event(&mut self, event: &Event) {
        match event.kind {
            Kind::Switch {
                prev,
                prev_state,
                next,
            } => self.switch(event, prev, prev_state, next),
            Kind::Wake {
                wake,
                task,
                target_cpu,
            } => {
                self.name(task);
                self.wakes |= wake == Wake::Done;
                self.wakings |= wake == Wake::Begins;
                match wake {
                    Wake::Begins => self.waking(task.pid, event, target_cpu),
                    Wake::Done => self.wakeup(task.pid, event, target_cpu),
                    Wake::New => {
                        let since = Since::wakeup(event, target_cpu);
                        self.tasks.entry(task.pid).or_default().state = State::Runnable(since);
                    }
                }
            }
            Kind::Rename { pid, comm } => self.tasks.entry(pid).or_default().comm = comm,
            Kind::NewTask { pid, .. } | Kind::Fork { child_pid: pid, .. } => self.begin(pid),
            Kind::WorkQueued {
                work,
                function,
                queue,
                ..
            } => {
                let by = self.runner(event);
                self.works.queue(event.time_ns, by, work, function, queue);
            }
            Kind::WorkStart {
                work,
                function,
                kthread,
            } => self.work_start(event, work, function, kthread),
            Kind::WorkEnd { .. } => {
                let pid = self.runner(event);
                self.works.end(event.time_ns, pid, event.cpu);
            }
            Kind::Migrate { .. }
            | Kind::FuseSent { .. }
            | Kind::FuseDone { .. }
            | Kind::BlockDone { .. }
            | Kind::Interrupt { .. }
            | Kind::SleptIn { .. }
            | Kind::Exec { .. }
            | Kind::Exit { .. } => {}
        }
    }

    fn switch(&mut self, event: &Event, prev: Task, state: TaskState, next: Task) {
        let pid = self.known_prev(prev.pid, event.cpu);
        self.report.switches += 1;
        if let Some(&entered) = self.current.get(&event.cpu)
            && entered != pid
        {
            self.report.missing_switches += 1;
            // The missing switch ends a wait of one thread and begins a sleep of the other. The
            // idle task does neither.
            for pid in [entered, pid].into_iter().filter(|pid| *pid > 0) {
                *self.report.missing.entry((self.part, pid)).or_default() += 1;
            }
            // The thread has left, and the trace does not show when.
            if let Some(task) = self.tasks.get_mut(&entered)
                && matches!(task.state, State::Running)
                && task.last_cpu == Some(event.cpu)
            {
                task.state = State::Unknown;
            }
        }
        if pid == next.pid && pid > 0 {
            return self.unseen_between(pid, event.cpu);
        }
        self.name(Task { pid, ..prev });
        self.leave(pid, event, state, next.pid);
        self.name(next);
        self.enter(next.pid, event);
    }

    /// Handles a switch from a thread to itself, which occurs only if the format does not name the
    /// previous thread: in between, a thread that was queued here ran, and the switch to it is
    /// missing from the trace.
    fn unseen_between(&mut self, pid: i32, cpu: u32) {
        self.report.missing_switches += 1;
        *self.report.missing.entry((self.part, pid)).or_default() += 1;
        for (pid, task) in &mut self.tasks {
            if matches!(task.state, State::Runnable(since) if since.cpu == cpu) {
                task.state = State::Unknown;
                self.cut += 1;
                *self.report.missing.entry((self.part, *pid)).or_default() += 1;
            }
        }
    }

    /// Notes that a thread with this pid is created; if an earlier thread had this pid, its exit is
    /// not in the trace.
    fn begin(&mut self, pid: i32) {
        if let Some(thread) = self.tasks.get_mut(&pid)
            && !matches!(thread.state, State::Unknown)
        {
            *thread = thread.next();
        }
    }

    /// Returns the previous thread of a switch. Compact formats omit it: it is the thread that was
    /// switched in last.
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

    fn name(&mut self, Task { comm, pid, prio }: Task) {
        if pid > 0 && !comm.is_empty() {
            let task = self.tasks.entry(pid).or_default();
            (task.comm, task.prio) = (comm, prio);
        }
    }

    fn waking(&mut self, pid: i32, event: &Event, target_cpu: u32) {
        let task = self.tasks.entry(pid).or_default();
        match task.state {
            State::Unknown | State::Sleeping | State::SleepingWoken(_) => {
                task.state = State::Runnable(Since::wakeup(event, target_cpu));
            }
            State::Running => task.waker = Some((event.pid, event.cpu)),
            State::Runnable(_) => {}
        }
    }

    /// `sched_waking` names the CPU that the thread slept on, `sched_wakeup` the one it is queued
    /// on.
    fn wakeup(&mut self, pid: i32, event: &Event, target_cpu: u32) {
        let task = self.tasks.entry(pid).or_default();
        let queued = |since| Since {
            cpu: target_cpu,
            ..since
        };
        match task.state {
            // There is no sched_waking in this trace, it came before the trace began, or it is
            // missing.
            State::Unknown | State::Sleeping => {
                if self.wakings && matches!(task.state, State::Sleeping) {
                    *self.report.unexplained.entry((self.part, pid)).or_default() += 1;
                }
                task.state = State::Runnable(Since::wakeup(event, target_cpu));
            }
            State::SleepingWoken(since) => task.state = State::Runnable(queued(since)),
            State::Runnable(since) if since.kind == WaitKind::Wakeup => {
                task.state = State::Runnable(queued(since));
            }
            State::Runnable(_) => {}
            State::Running => task.waker = None,
        }
    }

    /// Notes that `pid` leaves its CPU.
    fn leave(&mut self, pid: i32, event: &Event, state: TaskState, next_pid: i32) {
        if pid <= 0 {
            return;
        }
        let task = self.tasks.entry(pid).or_default();
        let waker = task.waker.take();
        task.last_cpu = Some(event.cpu);
        let since = |kind, by, by_cpu| Since {
            time_ns: event.time_ns,
            kind,
            by,
            by_cpu,
            cpu: event.cpu,
        };
        task.state = match waker {
            _ if state.is_runnable() => {
                State::Runnable(since(WaitKind::Preempted, next_pid, event.cpu))
            }
            Some((by, by_cpu)) => State::SleepingWoken(since(WaitKind::Wakeup, by, by_cpu)),
            None => State::Sleeping,
        };
        // A kworker may sleep inside an item, or before one in order to start another worker; its
        // wait for the CPU before such a sleep belongs to that item. Only its idle sleep is between
        // items.
        let between_items = !task.comm.is_kworker() || state == TaskState::IDLE;
        if !state.is_runnable() && between_items {
            task.open_waits.clear();
            self.works.sleep(pid);
        }
        if state.is_dead() {
            *task = task.next();
        }
    }

    /// Notes that `pid` runs from now on.
    fn enter(&mut self, pid: i32, event: &Event) {
        self.current.insert(event.cpu, pid);
        if pid <= 0 {
            return;
        }
        let task = self.tasks.entry(pid).or_default();
        task.waker = None;
        let last_cpu = task.last_cpu.replace(event.cpu);
        match std::mem::replace(&mut task.state, State::Running) {
            State::Runnable(since) | State::SleepingWoken(since) => {
                self.wait(pid, since, event, last_cpu);
            }
            State::Unknown => self.report.dropped_at_edges += 1,
            State::Sleeping => *self.report.unexplained.entry((self.part, pid)).or_default() += 1,
            // The thread's switch-out was lost with other events.
            State::Running => {}
        }
    }

    /// Notes that a wait is over.
    fn wait(&mut self, pid: i32, since: Since, event: &Event, last_cpu: Option<u32>) {
        let Some(task) = self.tasks.get_mut(&pid) else {
            return;
        };
        let work = self.works.current(pid);
        if work.is_none() {
            task.open_waits.push(self.report.waits.len());
        }
        self.report.waits.push(Wait {
            function: work.map(|(function, _)| function),
            workqueue: work.and_then(|(_, queue)| queue),
            last_cpu,
            ..task.wait(pid, since, event.time_ns, event.cpu)
        });
    }

    /// The waits that outlast the trace, longest first.
    fn unfinished(&self, end_ns: u64) -> Vec<Wait> {
        if self.report.switches == 0 {
            return Vec::new();
        }
        let open = self
            .tasks
            .iter()
            .filter_map(|(&pid, task)| match task.state {
                State::Runnable(since) => Some(task.wait(pid, since, end_ns, since.cpu)),
                _ => None,
            });
        let mut open: Vec<Wait> = open.collect();
        open.sort_by_key(|wait| (wait.start_ns, wait.pid));
        open
    }

    /// Notes that the worker that writes the event starts an item, to which its open waits belong.
    fn work_start(&mut self, event: &Event, work: u64, function: Name, kthread: bool) {
        let pid = self.runner(event);
        let queue = self.works.queue_of(work);
        let queue = queue.map(|queue| self.report.names.get(queue).to_owned());
        let task = self.tasks.entry(pid).or_default();
        let is_worker = kthread
            || is_worker(pid, task.comm, queue.as_deref()) && !self.works.interrupts(pid, function);
        let own = kthread
            .then(|| worker_name(&mut self.report.names, &task.comm.to_string()))
            .flatten();
        let run = WorkRun {
            queued_ns: None,
            queued_by: None,
            start_ns: event.time_ns,
            end_ns: None,
            pid,
            cpu: event.cpu,
            function,
            workqueue: own,
            kthread,
            softirq: !is_worker,
        };
        if !is_worker {
            self.works.start(work, Runner::Softirq(event.cpu), run);
            return;
        }
        self.works.start(work, Runner::Worker(pid), run);
        let queue = self.works.current(pid).and_then(|(_, queue)| queue);
        for index in task.open_waits.drain(..) {
            self.report.waits[index].function = Some(function);
            self.report.waits[index].workqueue = queue;
        }
    }

    fn finish(mut self, trace: &Trace, mut completeness: Completeness) -> Report {
        for (pid, at_ns) in completeness.omitted() {
            let part = completeness.part(at_ns);
            *self.report.missing.entry((part, pid)).or_default() += 1;
            self.report.missing_switches += 1;
        }
        let unfinished = self.unfinished(trace.span().map_or(0, |(_, end_ns)| end_ns));
        let all = self.report.waits.iter().chain(&unfinished);
        completeness.add_silences(trace, &all.map(Waited::from).collect::<Vec<_>>());
        let mut notices = trace.notices.clone();
        notices.extend(completeness.notices());
        if trace.clock == "local" && self.current.len() > 1 {
            notices.push(Notice::LocalClock);
        }
        if self.report.switches == 0 {
            notices.push(Notice::NoSwitches);
        }
        if self.wakes && !self.wakings {
            notices.push(Notice::NoWaking);
        }
        if SchedulerSettings::of_version(&trace.kernel_version).proxy_execution == Some(true) {
            notices.push(Notice::ProxyExecution);
        }
        if self.works.lacks_ends() {
            notices.push(Notice::NoEndOfWork);
        }
        let comms = self.tasks.iter().filter(|(_, task)| !task.comm.is_empty());
        let mut comms: BTreeMap<i32, Comm> = comms.map(|(pid, task)| (*pid, task.comm)).collect();
        // A thread that has exited is not among the tasks, but the trace still knows its name.
        for (pid, thread) in &trace.threads {
            comms.entry(*pid).or_insert(thread.comm);
        }
        let processes = trace.threads.iter().filter(|(_, thread)| thread.tgid > 0);
        let processes = processes.map(|(pid, thread)| (*pid, thread.tgid)).collect();
        let cpus: BTreeSet<u32> = trace.events.iter().map(|event| event.cpu).collect();
        let mut waits = std::mem::take(&mut self.report.waits);
        let mut works = self.works.finish(&mut waits);
        let all = waits.len();
        let doubted = |pid, from, until| completeness.doubts(pid, from, until);
        let mut left_out_of: BTreeMap<Concerned, u64> = BTreeMap::new();
        waits.retain(|wait| {
            let doubted = doubted(wait.pid, wait.start_ns, wait.end_ns);
            if doubted {
                let of = (completeness.part(wait.end_ns), wait.pid);
                *left_out_of.entry(of).or_default() += 1;
            }
            !doubted
        });
        let left_out = self.cut + (all - waits.len()) as u64;
        for work in &mut works {
            work.queued_ns = work
                .queued_ns
                .filter(|queued| !doubted(work.pid, *queued, work.start_ns));
            work.end_ns = work
                .end_ns
                .filter(|end| !doubted(work.pid, work.start_ns, *end));
        }
        let silent = trace.claims.cpus.difference(&cpus).copied();
        let silent: Vec<u32> = silent.collect();
        if !silent.is_empty() {
            notices.push(Notice::SilentCpus { cpus: silent });
        }
        let mut report = Report {
            format: trace.format,
            cpus: cpus.into_iter().collect(),
            clock: trace.clock.clone(),
            scheduler: SchedulerSettings::of_version(&trace.kernel_version),
            waits,
            works,
            lost_events: trace.lost_events,
            unfinished,
            left_out,
            left_out_of,
            completeness,
            unexplained_runs: self.report.unexplained.values().sum(),
            notices,
            comms,
            processes,
            span: trace.span(),
            events: trace.events.len() as u64,
            ..self.report
        };
        report.notices.extend(report.missing_notice());
        report
    }
}

/// Whether a thread executes work items of work queues as their worker. A rescuer has the name of
/// its work queue (before Linux 6.9); any other thread was interrupted by the softirq that executes
/// the item. A thread that the trace does not name is assumed to be a worker.
fn is_worker(pid: i32, comm: Comm, queue: Option<&str>) -> bool {
    let rescues = || queue.is_some_and(|queue| Comm::from(queue) == comm);
    pid != 0 && (comm.is_empty() || comm.is_kworker() || rescues())
}

impl Thread {
    /// The state for the next thread with this pid.
    fn next(&self) -> Self {
        Self {
            life: self.life + 1,
            ..Self::default()
        }
    }

    /// The thread's wait from `since` to `end_ns`.
    fn wait(&self, pid: i32, since: Since, end_ns: u64, cpu: u32) -> Wait {
        Wait {
            start_ns: since.time_ns,
            end_ns,
            pid,
            life: self.life,
            comm: self.comm,
            prio: self.prio,
            cpu,
            queued_cpu: since.cpu,
            last_cpu: self.last_cpu,
            kind: since.kind,
            caused_by: since.by,
            caused_on: since.by_cpu,
            function: None,
            workqueue: None,
        }
    }
}

impl From<&Wait> for Waited {
    fn from(wait: &Wait) -> Self {
        Self {
            task: Task {
                comm: wait.comm,
                pid: wait.pid,
                prio: wait.prio,
            },
            cpu: wait.queued_cpu,
            start_ns: wait.start_ns,
            end_ns: wait.end_ns,
        }
    }
}

impl Since {
    /// A wait that begins with the wake-up `event`.
    fn wakeup(event: &Event, cpu: u32) -> Self {
        Self {
            time_ns: event.time_ns,
            kind: WaitKind::Wakeup,
            by: event.pid,
            by_cpu: event.cpu,
            cpu,
        }
    }
}
