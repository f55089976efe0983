//! The chain of events that a thread waited for: program -> request -> worker -> reply.
//!
//! A chain is followed backwards from the moment when the thread runs again: through its own wait
//! for a CPU, the thread that woke it, that thread's run and wait, and so on. It ends at the thread
//! itself, at an interrupt, or at a thread that was already running when the chain began.

mod history;

use crate::interrupts::Interrupts;
use crate::latency::{Report, Wait, WaitKind, WorkRun};
use crate::sleeps::{Sleep, sleeps};
use crate::stats::us;
use crate::timeline::{Item, Run, Timeline};
use crate::{Comm, Policy, TaskState, Trace};
use history::History;
use serde::Serialize;
use std::collections::BTreeMap;

/// Maximum number of steps of a chain; the beginning of a longer chain is cut off.
const STEPS: usize = 24;

/// The kind of event with which a thread's chains begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// A request to a FUSE mount (`fuse_request_send`).
    Request,
    /// The queueing of a work item, for a worker that is woken to execute it.
    WorkItem,
    /// An uninterruptible sleep, for example a page fault or a read.
    UninterruptibleSleep,
    /// A wake-up: the chain has no part before it.
    Wakeup,
}

/// Why a thread did not run for a while.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chain {
    /// The kind of event with which the chain begins.
    pub origin: Origin,
    /// Beginning, in the clock of the trace.
    pub start_ns: u64,
    /// When the thread ran again.
    pub end_ns: u64,
    /// The thread.
    pub pid: i32,
    /// Work queue and function of the item that the thread was woken for.
    pub work: Option<String>,
    /// The steps, ordered by time.
    pub steps: Vec<Step>,
}

/// A step of a chain.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// Beginning.
    pub start_ns: u64,
    /// End.
    pub end_ns: u64,
    /// The thread; 0 for an interrupt on an idle CPU.
    pub pid: i32,
    /// Name of the thread.
    pub comm: Comm,
    /// The thread's action.
    pub action: Action,
}

/// An action of a thread in a chain.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    /// The thread sent a request to a FUSE mount.
    Asks {
        /// The operation, by its number in the FUSE protocol.
        opcode: u32,
    },
    /// The thread queued the work item of the chain.
    Queues {
        /// Work queue and function.
        work: String,
    },
    /// The thread slept uninterruptibly, in a function that the trace names.
    Sleeps {
        /// The kernel function.
        function: String,
        /// Whether the thread waited for a device.
        io_wait: bool,
    },
    /// The thread woke the next thread.
    Wakes {
        /// The CPU on which the waking thread ran.
        cpu: u32,
    },
    /// The thread ran.
    Runs {
        /// The CPU.
        cpu: u32,
        /// What the thread worked on, as far as the trace shows (parts of requests, or a work
        /// item), and its interruptions.
        doing: Vec<Doing>,
    },
    /// The thread waited for a CPU after a wake-up or a preemption.
    Waits {
        /// The CPU on which the thread finally ran.
        cpu: u32,
        /// The CPU on which the thread had run before.
        last_cpu: Option<u32>,
        /// True after a preemption.
        preempted: bool,
        /// Name of the thread behind which this thread waited longest.
        behind: Option<Comm>,
        /// That thread's priority as the kernel traces it.
        behind_prio: Option<i32>,
        /// That thread's policy, if `record` noted it.
        behind_policy: Option<Policy>,
        /// Work queue and function of the item on which that thread spent most of this time, since
        /// a kworker's name does not identify its work.
        behind_work: Option<String>,
    },
    /// An interrupt on this CPU woke the next thread.
    Interrupt {
        /// The CPU.
        cpu: u32,
    },
}

/// The longest chains of a set of threads.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Chains {
    /// Number of all chains with the same origin.
    pub of: usize,
    /// Number of waits after a preemption. Such waits begin without a wake-up, so no chain leads to
    /// them.
    pub preemptions: usize,
    /// The longest chains, longest first.
    pub longest: Vec<Chain>,
}

/// Something that a thread worked on, or that interrupted it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Doing {
    /// Name of the slice, work queue and function, or interrupt.
    pub name: String,
    /// Time within the run that was spent on this, in microseconds.
    pub us: f64,
    /// For a work item: the thread that queued it.
    pub queued_by: Option<i32>,
}

/// The longest chains of the threads that `wanted` accepts, longest first.
///
/// All chains have the same origin: requests if these threads sent any, otherwise work items if
/// they are workers, otherwise uninterruptible sleeps, otherwise wake-ups, for which the longest
/// waits for a CPU are taken.
pub fn longest(
    trace: &Trace,
    report: &Report,
    wanted: &dyn Fn(i32) -> bool,
    count: usize,
) -> Chains {
    let finder = Finder::new(trace, report);
    let waits = report.waits.iter().filter(|wait| wanted(wait.pid));
    let (wakeups, preemptions): (Vec<&Wait>, Vec<&Wait>) =
        waits.partition(|wait| wait.kind == WaitKind::Wakeup);
    let mut begins: Vec<(Origin, u64, &Wait)> = wakeups
        .into_iter()
        .map(|wait| {
            let (origin, start_ns) = finder.origin(wait);
            (origin, start_ns, wait)
        })
        .collect();
    let origin = begins.iter().map(|(origin, ..)| *origin).min();
    begins.retain(|(other, ..)| Some(*other) == origin);
    begins.sort_by_key(|(_, start_ns, wait)| {
        (std::cmp::Reverse(wait.end_ns - start_ns), wait.end_ns)
    });
    let all = begins.len();
    begins.truncate(count);
    let chains = begins
        .into_iter()
        .map(|(origin, start_ns, wait)| finder.chain(origin, start_ns, wait));
    Chains {
        of: all,
        preemptions: preemptions.len(),
        longest: chains.collect(),
    }
}

/// The chain that ends with a wait.
pub fn of_wait(trace: &Trace, report: &Report, wait: &Wait) -> Chain {
    let finder = Finder::new(trace, report);
    let (origin, start_ns) = match wait.kind {
        WaitKind::Wakeup => finder.origin(wait),
        WaitKind::Preempted => (Origin::Wakeup, wait.start_ns),
    };
    finder.chain(origin, start_ns, wait)
}

struct Finder<'a> {
    trace: &'a Trace,
    report: &'a Report,
    timeline: Timeline,
    history: History<'a>,
    interrupts: Interrupts,
    sleeps: Vec<Sleep>,
}

impl<'a> Finder<'a> {
    fn new(trace: &'a Trace, report: &'a Report) -> Self {
        Self {
            report,
            timeline: Timeline::new(trace).with_items(report),
            history: History::new(trace, report),
            interrupts: Interrupts::of(trace),
            sleeps: sleeps(trace),
            trace,
        }
    }

    /// The event that began the sleep before this wait, and its time.
    fn origin(&self, wait: &Wait) -> (Origin, u64) {
        let before = wait.start_ns.saturating_sub(1);
        let run = self.timeline.run_before(wait.pid, before);
        let history = &self.history;
        let request =
            run.and_then(|(_, run)| history.last_request(wait.pid, run.start_ns, run.end_ns));
        let queued = || history.work_after(wait)?.queued_ns;
        if let Some(request) = request {
            return (Origin::Request, request.time_ns);
        }
        if let Some(queued) = queued() {
            return (Origin::WorkItem, queued.min(wait.start_ns));
        }
        match run {
            Some((_, run)) if run.left == Some(TaskState::UNINTERRUPTIBLE) => {
                (Origin::UninterruptibleSleep, run.end_ns)
            }
            _ => (Origin::Wakeup, wait.start_ns),
        }
    }

    /// "erofs_worker z_erofs_decompressqueue_work".
    fn title(&self, item: Item) -> String {
        let names = &self.report.names;
        let queue = item.workqueue.map_or("?", |name| names.get(name));
        format!("{queue} {}", names.get(item.function))
    }

    fn chain(&self, origin: Origin, start_ns: u64, last: &Wait) -> Chain {
        let mut steps = vec![self.waits(last)];
        let (mut waker, mut time, mut cpu) = (last.caused_by, last.start_ns, last.caused_on);
        while steps.len() < STEPS && waker != last.pid && time > start_ns {
            if waker <= 0 {
                steps.push(interrupt(time, cpu));
                break;
            }
            let run = self.timeline.run_before(waker, time);
            let Some((on, run)) = run.filter(|(_, run)| run.end_ns >= time) else {
                break;
            };
            let begin = run.start_ns.max(start_ns);
            steps.push(self.runs(on, &run, begin, time));
            if run.start_ns <= start_ns {
                break;
            }
            let Some(wait) = self.history.wait_before(waker, run.start_ns) else {
                break;
            };
            steps.push(self.waits(wait));
            time = wait.start_ns;
            if wait.kind == WaitKind::Wakeup {
                (waker, cpu) = (wait.caused_by, wait.caused_on);
            }
        }
        let work = self.history.work_after(last);
        match origin {
            Origin::Request => steps.extend(self.asks(last.pid, start_ns)),
            Origin::WorkItem => steps.extend(work.and_then(|work| self.queues(work))),
            Origin::Wakeup if last.kind == WaitKind::Preempted => {}
            Origin::Wakeup if waker <= 0 => steps.push(interrupt(time, cpu)),
            Origin::Wakeup => steps.push(self.step(time, waker, Action::Wakes { cpu })),
            Origin::UninterruptibleSleep => steps.extend(self.slept(last.pid, start_ns)),
        }
        steps.reverse();
        Chain {
            origin,
            start_ns,
            end_ns: last.end_ns,
            pid: last.pid,
            work: work.map(|work| self.title(work.item())),
            steps,
        }
    }

    fn step(&self, time: u64, pid: i32, action: Action) -> Step {
        Step {
            start_ns: time,
            end_ns: time,
            pid,
            comm: self.report.comm(pid),
            action,
        }
    }

    fn queues(&self, work: &WorkRun) -> Option<Step> {
        let action = Action::Queues {
            work: self.title(work.item()),
        };
        Some(self.step(work.queued_ns?, work.queued_by?, action))
    }

    fn asks(&self, pid: i32, time: u64) -> Option<Step> {
        let request = self.history.last_request(pid, time, time)?;
        let opcode = request.opcode;
        Some(self.step(time, pid, Action::Asks { opcode }))
    }

    /// The sleep that began at this time.
    fn slept(&self, pid: i32, time: u64) -> Option<Step> {
        let mut all = self.sleeps.iter();
        let sleep = all.find(|sleep| sleep.pid == pid && sleep.start_ns == time)?;
        let action = Action::Sleeps {
            function: self.trace.names.get(sleep.caller).to_owned(),
            io_wait: sleep.io_wait,
        };
        Some(Step {
            end_ns: sleep.end_ns,
            ..self.step(time, pid, action)
        })
    }

    /// The interruptions of a thread's run, by source.
    fn interrupted(&self, cpu: u32, start_ns: u64, end_ns: u64) -> Vec<(String, u64, Option<i32>)> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for span in self.interrupts.on(cpu, start_ns, end_ns) {
            let title = span.source.title(&self.trace.names);
            *sums.entry(title).or_default() += span.length_ns();
        }
        let sums = sums.into_iter();
        sums.map(|(title, ns)| (format!("interrupted: {title}"), ns, None))
            .collect()
    }

    fn waits(&self, wait: &Wait) -> Step {
        let runs = self.timeline.behind(wait).runs;
        let longest = runs.iter().max_by_key(|run| run.length_ns());
        let parts = longest.map(|run| self.timeline.by_item(*run));
        let parts = parts.into_iter().flatten();
        let item = parts.max_by_key(Run::length_ns).and_then(|part| part.item);
        let action = Action::Waits {
            cpu: wait.cpu,
            last_cpu: wait.last_cpu,
            preempted: wait.kind == WaitKind::Preempted,
            behind: longest.map(|run| run.comm),
            behind_prio: longest.map(|run| run.prio),
            behind_policy: longest.and_then(|run| self.timeline.policy(run)),
            behind_work: item.map(|item| self.title(item)),
        };
        Step {
            start_ns: wait.start_ns,
            comm: wait.comm,
            ..self.step(wait.end_ns, wait.pid, action)
        }
    }

    fn runs(&self, cpu: u32, run: &Run, start_ns: u64, end_ns: u64) -> Step {
        let pid = run.pid;
        let part = |start: u64, end: u64| end.min(end_ns).saturating_sub(start.max(start_ns));
        let slices = self.trace.slices.iter().filter(|s| s.pid == Some(pid));
        let slices = slices.map(|s| (s.name.clone(), part(s.start_ns, s.end_ns), None));
        let works = self.report.works.iter().filter(|work| work.pid == pid);
        let works = works.map(|work| {
            let unknown = if work.softirq {
                work.start_ns
            } else {
                run.end_ns
            };
            let end = work.end_ns.unwrap_or(unknown);
            (
                self.title(work.item()),
                part(work.start_ns, end),
                work.queued_by,
            )
        });
        let interrupted = self.interrupted(cpu, start_ns, end_ns);
        let doing = slices.chain(works).chain(interrupted);
        let doing = doing.filter(|(_, ns, _)| *ns > 0);
        let doing = doing.map(|(name, ns, queued_by)| Doing {
            name,
            us: us(ns),
            queued_by,
        });
        let mut doing: Vec<Doing> = doing.collect();
        doing.sort_by(|a, b| b.us.total_cmp(&a.us).then_with(|| a.name.cmp(&b.name)));
        Step {
            start_ns,
            ..self.step(end_ns, pid, Action::Runs { cpu, doing })
        }
    }
}

fn interrupt(time: u64, cpu: u32) -> Step {
    Step {
        start_ns: time,
        end_ns: time,
        pid: 0,
        comm: Comm::default(),
        action: Action::Interrupt { cpu },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Slice;
    use crate::latency::analyse;
    use crate::script::{rename, trace};

    const PROGRAM: i32 = 20;
    const WORKER: i32 = 30;

    /// All chains of a thread.
    fn chains(trace: &Trace, of: i32) -> Vec<Chain> {
        let chains = longest(trace, &analyse(trace), &|pid| pid == of, 3);
        assert_eq!(chains.of, chains.longest.len());
        chains.longest
    }

    /// The program sends a request on CPU 0 at 100 us and wakes the worker. The worker waits behind
    /// fio on CPU 1 until 150 us, serves the request, and wakes the program at 900 us. The program
    /// runs at 920 us.
    fn request() -> Trace {
        let mut trace = trace(
            "10 0 0 R 20; 20 1 30 S 9; 100 0 20 asks 15; 101 0 20 waking 30 1; 110 0 20 D 9;
             150 1 9 R 30; 900 1 30 waking 20; 920 0 9 R 20",
        );
        rename(&mut trace, 9, "fio", 120);
        trace.threads.entry(9).or_default().policy = Some(Policy::Idle);
        for (name, start, end) in [("read 128 KiB", 160, 890), ("decompress 128 KiB", 200, 800)] {
            trace.slices.push(Slice {
                name: name.into(),
                track: "requests".into(),
                start_ns: start * 1000,
                end_ns: end * 1000,
                pid: Some(WORKER),
            });
        }
        trace
    }

    #[test]
    fn a_request_is_followed_through_the_worker_to_the_reply() {
        let [chain] = &chains(&request(), PROGRAM)[..] else {
            panic!("one chain");
        };
        assert_eq!((chain.origin, chain.pid), (Origin::Request, PROGRAM));
        assert_eq!((chain.start_ns, chain.end_ns), (100_000, 920_000));
        let times = |step: &Step| (step.pid, step.start_ns / 1000, step.end_ns / 1000);
        let expected = [
            (PROGRAM, 100, 100),
            (WORKER, 101, 150),
            (WORKER, 150, 900),
            (PROGRAM, 900, 920),
        ];
        assert_eq!(chain.steps.iter().map(times).collect::<Vec<_>>(), expected);
        assert_eq!(chain.steps[0].action, Action::Asks { opcode: 15 });
        let waits = Action::Waits {
            cpu: 1,
            last_cpu: Some(1),
            preempted: false,
            behind: Some("fio".into()),
            behind_prio: Some(120),
            behind_policy: Some(Policy::Idle),
            behind_work: None,
        };
        assert_eq!(chain.steps[1].action, waits);
        let Action::Runs { cpu: 1, doing } = &chain.steps[2].action else {
            panic!("{:?}", chain.steps[2]);
        };
        let doing: Vec<_> = doing.iter().map(|d| (d.name.as_str(), d.us)).collect();
        assert_eq!(
            doing,
            [("read 128 KiB", 730.0), ("decompress 128 KiB", 600.0)]
        );
    }

    /// The program queues an item at 20 us and wakes its worker, which executes it from 41 us on.
    const ITEM: &str = "10 0 0 R 20; 20 0 20 queue 1 z_erofs_decompressqueue_work erofs_worker;
        21 0 20 waking 30; 30 0 20 D 0; 40 1 0 R 30; 41 1 30 start 1 z_erofs_decompressqueue_work;
        80 1 30 waking 20; 90 0 0 R 20";

    fn item() -> Trace {
        let mut trace = trace(ITEM);
        crate::script::rename(&mut trace, WORKER, "kworker/1:0", 120);
        trace
    }

    const WORK: &str = "erofs_worker z_erofs_decompressqueue_work";

    #[test]
    fn the_chain_of_a_worker_names_its_item_and_the_threads_that_queued_it_and_woke_it() {
        let chain = &chains(&item(), WORKER)[0];
        assert_eq!(
            (chain.origin, chain.work.as_deref()),
            (Origin::WorkItem, Some(WORK))
        );
        let [queued, woken, waits] = &chain.steps[..] else {
            panic!("{:?}", chain.steps);
        };
        let queues = Action::Queues { work: WORK.into() };
        assert_eq!((queued.pid, &queued.action), (PROGRAM, &queues));
        assert_eq!((woken.pid, woken.end_ns), (PROGRAM, 21_000));
        assert_eq!((waits.pid, waits.end_ns), (WORKER, 40_000));
    }

    #[test]
    fn a_wait_behind_a_worker_names_the_item_that_it_executed() {
        let script = ITEM.replace("waking 20; 90 0 0 R 20", "waking 20 1; 300 1 30 S 20");
        let mut trace = trace(&script);
        rename(&mut trace, WORKER, "kworker/1:0", 120);
        let chain = &chains(&trace, PROGRAM)[0];
        let last = chain.steps.last().map(|step| &step.action);
        let Some(Action::Waits { behind_work, .. }) = last else {
            panic!("{:?}", chain.steps);
        };
        assert_eq!(behind_work.as_deref(), Some(WORK), "{:?}", chain.steps);
    }

    #[test]
    fn a_work_item_tells_the_thread_that_queued_it() {
        let chain = &chains(&item(), PROGRAM)[0];
        let doing = chain.steps.iter().find_map(|step| match &step.action {
            Action::Runs { doing, .. } => doing.first(),
            _ => None,
        });
        let doing = doing.unwrap();
        assert_eq!(
            (doing.name.as_str(), doing.queued_by),
            (WORK, Some(PROGRAM))
        );
    }

    #[test]
    fn waits_after_a_preemption_are_counted_although_they_have_no_chain() {
        let counts = |script: &str| {
            let trace = trace(script);
            let chains = longest(&trace, &analyse(&trace), &|pid| pid == PROGRAM, 3);
            (chains.of, chains.preemptions)
        };
        assert_eq!(counts(ITEM), (1, 0));
        let preempted = format!("{ITEM}; 100 0 20 R 9; 150 0 9 S 20");
        assert_eq!(counts(&preempted), (1, 1));
    }

    #[test]
    fn a_chain_begins_with_an_interrupt_or_with_the_waker() {
        let disk = trace("10 0 0 R 20; 20 0 20 D 0; 500 0 0 waking 20; 510 0 0 R 20");
        let chain = &chains(&disk, PROGRAM)[0];
        assert_eq!(
            (chain.origin, chain.start_ns),
            (Origin::UninterruptibleSleep, 20_000)
        );
        assert_eq!(chain.steps[0].action, Action::Interrupt { cpu: 0 });
        let woken = trace("10 1 0 R 20; 21 1 20 waking 30; 40 0 0 R 30");
        let first = &chains(&woken, WORKER)[0].steps[0];
        assert_eq!(
            (first.pid, &first.action),
            (PROGRAM, &Action::Wakes { cpu: 1 })
        );
    }
}
