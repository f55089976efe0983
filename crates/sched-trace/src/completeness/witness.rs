//! Contradictions in the events of a trace, each of which proves that events are missing.
//!
//! Every event of a thread implies something about what the thread did before. If no event shows
//! that, one is missing, and the CPU that the thread ran on should have written it. Omissions by
//! the kernel prove no loss: some kernels write no switch from the idle task, or from threads that
//! they hide. A thread that leaves a CPU although another one entered it last is therefore only
//! counted ([`crate::latency::Report::missing_switches`]).

use crate::{Comm, Event, Kind, Task, TaskState, Trace, Wake};
use std::collections::{BTreeMap, HashMap};

/// A thread that is queued on an idle CPU runs immediately, unless the CPU is virtual and its host
/// pauses it, which takes less than this.
const QUEUED_ON_IDLE_NS: u64 = 200_000_000;

/// Starting a recording may take up to its length divided by this number, and so may stopping it.
const EDGE: u64 = 20;

/// Events of a CPU that must be missing, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Proof {
    pub cpu: Option<u32>,
    /// The thread that contradicts itself; 0 if something else is the proof.
    pub pid: i32,
    pub from_ns: u64,
    pub until_ns: u64,
    /// Whether one missing event would explain the contradiction: a wake-up or a migration of this
    /// thread.
    pub single: bool,
    pub reason: String,
}

/// The contradictions in a trace.
pub(super) fn proofs(trace: &Trace) -> Vec<Proof> {
    let is_migration = |event: &Event| matches!(event.kind, Kind::Migrate { .. });
    let recorded = wakes(&trace.events);
    let mut witness = Witness {
        migrates: !trace.claims.skips_some && trace.events.iter().any(is_migration),
        recorded,
        wakes: recorded.filter(|_| !trace.claims.skips_some),
        ..Witness::default()
    };
    let mut seams = trace.claims.seams.iter().peekable();
    for event in &trace.events {
        if seams.next_if(|seam| **seam <= event.time_ns).is_some() {
            witness.end();
        }
        witness.event(event);
    }
    witness.end();
    let mut proofs = witness.proofs;
    if trace.claims.skips_some {
        let edges = edges(trace).unwrap_or((0, u64::MAX));
        proofs.retain(|proof| edges.0 <= proof.from_ns && proof.until_ns <= edges.1);
    }
    proofs
}

/// The period in which all CPUs are recorded by a recorder that starts and stops recording them one
/// after another (perf). Contradictions outside this period are due to the staggered start or stop,
/// unless it took more than a small part of the recording.
fn edges(trace: &Trace) -> Option<(u64, u64)> {
    let (first, last) = trace.span()?;
    let (begun, ended) = wakes(&trace.events)?;
    let small = (last - first) / EDGE;
    let begun = if begun - first <= small { begun } else { 0 };
    Some((
        begun,
        if last - ended <= small {
            ended
        } else {
            u64::MAX
        },
    ))
}

/// The period in which the wake-ups that all CPUs cause are recorded. A recorder may start and stop
/// recording the CPUs one after another, and on each CPU the kinds of events one after another
/// (perf).
fn wakes(events: &[Event]) -> Option<(u64, u64)> {
    let mut cpus: BTreeMap<u32, Option<(u64, u64)>> = BTreeMap::new();
    for event in events {
        let cpu = cpus.entry(event.cpu).or_default();
        let begins = Wake::Begins;
        if matches!(event.kind, Kind::Wake { wake, .. } if wake == begins) {
            cpu.get_or_insert((event.time_ns, 0)).1 = event.time_ns;
        }
    }
    let times: Option<Vec<(u64, u64)>> = cpus.into_values().collect();
    let times = times?;
    let begun = times.iter().map(|(first, _)| *first).max()?;
    Some((begun, times.iter().map(|(_, last)| *last).min()?))
}

/// The known state of a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    #[default]
    Unknown,
    Running,
    Asleep,
    /// Created, and waiting for its first wake-up.
    Born,
    /// Woken after a sleep that the trace shows.
    Woken,
    /// Preempted.
    Ready,
    /// Woken after a preemption: the thread had been about to sleep.
    ReadyWoken,
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    doing: Doing,
    comm: Comm,
    /// The CPU that the thread runs on, is queued on, or slept on.
    cpu: Option<u32>,
    /// The time since which the state is known.
    at_ns: u64,
    /// Whether a wake-up of the running thread has begun. If the thread sleeps now, the wake-up may
    /// or may not wake it.
    waker: bool,
}

#[derive(Clone, Copy, Debug)]
struct Cpu {
    /// The last thread that entered the CPU.
    current: i32,
    /// Time of the CPU's last event.
    at_ns: u64,
    /// Whether the thread `current` has since entered another CPU. If so, its switch away from this
    /// CPU is missing, unless the next switch shows that the kernel omitted it.
    left_unseen: bool,
}

#[derive(Debug, Default)]
struct Witness {
    migrates: bool,
    /// All wake-ups between these times are recorded; before and after them, at least one CPU was
    /// not being recorded.
    recorded: Option<(u64, u64)>,
    /// The same times; `None` if the kernel may omit the switch that a wake-up follows.
    wakes: Option<(u64, u64)>,
    threads: HashMap<i32, Thread>,
    cpus: BTreeMap<u32, Cpu>,
    /// Threads that were queued on an idle CPU, and when.
    queued: HashMap<i32, (u32, u64)>,
    last_ns: u64,
    proofs: Vec<Proof>,
}

impl Witness {
    fn event(&mut self, event: &Event) {
        self.last_ns = event.time_ns;
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
            } if task.pid > 0 => match wake {
                Wake::Begins => self.waking(event, task, target_cpu),
                Wake::Done => {
                    let thread = self.thread(task);
                    (thread.cpu, thread.waker) = (Some(target_cpu), false);
                    self.queue(task.pid, target_cpu, event.time_ns);
                }
                Wake::New => {
                    let thread = Thread {
                        cpu: Some(target_cpu),
                        at_ns: event.time_ns,
                        comm: task.comm,
                        ..Thread::default()
                    };
                    self.threads.insert(task.pid, thread);
                    self.queue(task.pid, target_cpu, event.time_ns);
                }
            },
            Kind::Migrate {
                task,
                from_cpu,
                to_cpu,
            } => {
                self.queued.remove(&task.pid);
                let seen = *self.thread(task);
                let elsewhere = seen.cpu.is_some_and(|cpu| cpu != from_cpu);
                if self.migrates && seen.doing != Doing::Unknown && elsewhere {
                    let what = format!(
                        "is moved from CPU {from_cpu}, but nothing had moved it \
                                        there"
                    );
                    self.prove_one(Some(from_cpu), seen, event.time_ns, task.pid, &what);
                }
                let thread = self.thread(task);
                (thread.cpu, thread.at_ns) = (Some(to_cpu), event.time_ns);
            }
            Kind::NewTask { pid, .. } | Kind::Fork { child_pid: pid, .. } => {
                let thread = Thread {
                    doing: Doing::Born,
                    at_ns: event.time_ns,
                    ..Thread::default()
                };
                self.threads.insert(pid, thread);
            }
            _ => {}
        }
        if let Some(cpu) = self.cpus.get_mut(&event.cpu) {
            cpu.at_ns = event.time_ns;
        }
    }

    fn thread(&mut self, Task { pid, comm, .. }: Task) -> &mut Thread {
        let thread = self.threads.entry(pid).or_default();
        if !comm.is_empty() {
            thread.comm = comm;
        }
        thread
    }

    fn waking(&mut self, event: &Event, task: Task, target: u32) {
        let seen = *self.thread(task);
        let elsewhere = seen.cpu.is_some_and(|cpu| cpu != target);
        match seen.doing {
            Doing::Woken | Doing::ReadyWoken => {
                let what = "is woken a second time, but did not run after the first";
                self.prove(Some(target), seen, event.time_ns, task.pid, what);
            }
            Doing::Asleep if elsewhere && self.migrates => {
                let what = format!("slept on CPU {target}, but nothing had moved it there");
                self.prove_one(Some(target), seen, event.time_ns, task.pid, &what);
            }
            _ => {}
        }
        let thread = self.thread(task);
        match seen.doing {
            Doing::Asleep | Doing::Woken => {
                thread.doing = Doing::Woken;
                (thread.cpu, thread.at_ns) = (Some(target), event.time_ns);
            }
            Doing::Ready | Doing::ReadyWoken => {
                (thread.doing, thread.at_ns) = (Doing::ReadyWoken, event.time_ns);
            }
            Doing::Unknown | Doing::Born => {
                (thread.doing, thread.cpu) = (Doing::Unknown, Some(target));
            }
            Doing::Running => thread.waker = true,
        }
    }

    /// Notes that a thread is queued: an idle CPU must run it.
    fn queue(&mut self, pid: i32, cpu: u32, time_ns: u64) {
        if self.cpus.get(&cpu).is_some_and(|cpu| cpu.current == 0) {
            self.queued.insert(pid, (cpu, time_ns));
        }
    }

    fn switch(&mut self, event: &Event, prev: Task, state: TaskState, next: Task) {
        let entered = self.cpus.get(&event.cpu).map(|cpu| cpu.current);
        if prev.pid > 0 && prev.pid != next.pid {
            self.leave(event, prev, state, entered);
        }
        if let Some(entered) = entered.filter(|entered| *entered != prev.pid && *entered > 0)
            && let Some(thread) = self.threads.get_mut(&entered)
            && (thread.doing, thread.cpu) == (Doing::Running, Some(event.cpu))
        {
            thread.doing = Doing::Unknown;
        }
        if prev.pid == next.pid {
            self.unseen_on(event.cpu);
        } else if next.pid > 0 {
            self.enter(event, next);
        }
        let cpu = Cpu {
            current: next.pid,
            at_ns: event.time_ns,
            left_unseen: false,
        };
        self.cpus.insert(event.cpu, cpu);
    }

    /// Handles a switch from a thread to itself, which occurs only if the format does not name the
    /// previous thread (compact Perfetto): in between, a thread that was queued here ran, and the
    /// switch to it is missing from the trace.
    fn unseen_on(&mut self, cpu: u32) {
        for thread in self
            .threads
            .values_mut()
            .filter(|thread| thread.cpu == Some(cpu))
        {
            if thread.doing != Doing::Running {
                thread.doing = Doing::Unknown;
            }
        }
    }

    fn leave(&mut self, event: &Event, task: Task, state: TaskState, entered: Option<i32>) {
        self.queued.remove(&task.pid);
        let seen = *self.thread(task);
        // The first event of a CPU has no earlier switch that the kernel could have omitted.
        let unseen = match seen.doing {
            Doing::Asleep => true,
            Doing::Running => seen.cpu != Some(event.cpu),
            _ => false,
        };
        if entered.is_none() && unseen {
            let what = format!("leaves CPU {}, which it did not enter", event.cpu);
            self.prove(Some(event.cpu), seen, event.time_ns, task.pid, &what);
        }
        if state.is_dead() {
            self.threads.remove(&task.pid);
            return;
        }
        let doing = match seen.waker {
            _ if state.is_runnable() => Doing::Ready,
            true => Doing::Unknown,
            false => Doing::Asleep,
        };
        let thread = self.thread(task);
        (thread.doing, thread.waker) = (doing, false);
        (thread.cpu, thread.at_ns) = (Some(event.cpu), event.time_ns);
    }

    fn enter(&mut self, event: &Event, task: Task) {
        self.queued.remove(&task.pid);
        let seen = *self.thread(task);
        if let Some(before) = seen.cpu.filter(|cpu| *cpu != event.cpu) {
            if seen.doing == Doing::Running
                && let Some(cpu) = self.cpus.get_mut(&before)
                && cpu.current == task.pid
            {
                cpu.left_unseen = true;
            } else if self.migrates && seen.doing != Doing::Unknown {
                let what = format!("runs on CPU {}, but nothing had moved it there", event.cpu);
                self.prove_one(None, seen, event.time_ns, task.pid, &what);
            }
        }
        let within = |(begun, ended)| seen.at_ns >= begun && event.time_ns <= ended;
        let (times, what) = match seen.doing {
            Doing::Asleep => (
                self.wakes,
                "runs after it went to sleep, but nothing woke it",
            ),
            Doing::Born => (
                self.recorded,
                "runs for the first time, but nothing woke it",
            ),
            _ => (None, ""),
        };
        if times.is_some_and(within) {
            self.prove_one(None, seen, event.time_ns, task.pid, what);
        }
        let thread = self.thread(task);
        (thread.doing, thread.waker) = (Doing::Running, false);
        (thread.cpu, thread.at_ns) = (Some(event.cpu), event.time_ns);
    }

    /// Called when the trace ends or another recording begins.
    fn end(&mut self) {
        let until_ns = self.last_ns;
        let silent = std::mem::take(&mut self.cpus);
        // A recorder that stops recording one CPU after another is the last thread on each of them.
        let stops = |pid: i32| silent.values().filter(|cpu| cpu.current == pid).count() > 1;
        let left = silent
            .iter()
            .filter(|(_, cpu)| cpu.left_unseen && !stops(cpu.current));
        for (&number, cpu) in left {
            let seen = self.seen(cpu.current, cpu.at_ns);
            let what = format!("runs elsewhere, but has not left CPU {number}");
            self.prove(Some(number), seen, until_ns, cpu.current, &what);
        }
        for (pid, (number, at_ns)) in std::mem::take(&mut self.queued) {
            let waited = until_ns.saturating_sub(at_ns);
            let idle = silent
                .get(&number)
                .is_some_and(|cpu| cpu.current == 0 && cpu.at_ns <= at_ns);
            if idle && waited > QUEUED_ON_IDLE_NS {
                let seen = self.seen(pid, at_ns);
                let what = format!("was queued on CPU {number}, which is idle and silent");
                self.prove(Some(number), seen, until_ns, pid, &what);
            }
        }
        self.threads.clear();
    }

    /// The state of a thread, known since this time.
    fn seen(&self, pid: i32, at_ns: u64) -> Thread {
        Thread {
            at_ns,
            ..self.threads.get(&pid).copied().unwrap_or_default()
        }
    }

    /// Adds a contradiction that one event of the thread would explain.
    fn prove_one(&mut self, cpu: Option<u32>, seen: Thread, until_ns: u64, pid: i32, what: &str) {
        self.prove(cpu, seen, until_ns, pid, what);
        if let Some(proof) = self.proofs.last_mut() {
            proof.single = true;
        }
    }

    fn prove(&mut self, cpu: Option<u32>, seen: Thread, until_ns: u64, pid: i32, what: &str) {
        self.proofs.push(Proof {
            cpu,
            pid,
            from_ns: seen.at_ns.min(until_ns),
            until_ns,
            single: false,
            reason: format!("{}:{pid} {what}", seen.comm),
        });
    }
}
