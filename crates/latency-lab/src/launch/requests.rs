//! Finds those waits of a FUSE daemon's threads that did not delay the program. A daemon may read
//! its own mount ahead of a launch, through a process that is a client like any other: the
//! companion of erofast, which is recognised by its name, since it may start and end without
//! sending any request.
//!
//! In Linux 6.10 and later, traces show which thread sends a request and which one answers it
//! (`fuse_request_send`, `fuse_request_end`). A thread that is woken only to serve the daemon's own
//! client does not delay the program, unless its answer wakes the program, which was waiting for a
//! page that was being read ahead.

use std::collections::{HashMap, HashSet};

use sched_trace::latency::{Report, Wait, WaitKind};
use sched_trace::{Comm, Kind, Trace};

use super::owner::Owner;

/// Names of the companion's threads.
const COMPANION: [&[u8]; 2] = [b"erofs_companion", b"erofs_replay/"];

/// A request that was answered.
#[derive(Debug, Clone, Copy)]
struct Request {
    sent_ns: u64,
    done_ns: u64,
    /// Whether the daemon's own client sent the request and the program did not wait for its
    /// answer.
    ahead: bool,
}

/// An answer and, if the trace shows it, when and by which thread the request was sent.
struct Answer {
    server: i32,
    done_ns: u64,
    sent: Option<(u64, i32)>,
}

/// The requests that the measured daemon answered.
#[derive(Debug, Default)]
pub(super) struct Requests {
    /// The requests that each thread answered, ordered by time.
    answered: HashMap<i32, Vec<Request>>,
    /// Threads of the daemon's processes that are clients of a mount.
    clients: HashSet<i32>,
    /// The waits of these clients that delayed the program too, by thread and time of their end.
    awaited: HashSet<(i32, u64)>,
}

impl Requests {
    pub(super) fn of(trace: &Trace, report: &Report, owner: &dyn Fn(i32) -> Owner) -> Requests {
        let mut sent: HashMap<(u32, u64), (u64, i32)> = HashMap::new();
        let mut answers: Vec<Answer> = Vec::new();
        for event in &trace.events {
            match event.kind {
                Kind::FuseSent {
                    connection, unique, ..
                } => {
                    sent.insert((connection, unique), (event.time_ns, event.pid));
                }
                Kind::FuseDone { connection, unique } if owner(event.pid) == Owner::Engine => {
                    answers.push(Answer {
                        server: event.pid,
                        done_ns: event.time_ns,
                        sent: sent.remove(&(connection, unique)),
                    });
                }
                _ => {}
            }
        }
        let servers: HashSet<i32> = answers.iter().map(|answer| answer.server).collect();
        let senders = answers.iter().filter_map(|answer| answer.sent);
        // If a server appears as a sender, the request is another thread's, for which the server
        // has only made room in the kernel's queue.
        let is_client = |pid: &i32| owner(*pid) == Owner::Engine && !servers.contains(pid);
        let senders = senders.map(|(_, pid)| pid).filter(is_client).collect();
        let mut clients = processes(senders, &servers, report, owner);
        clients.extend(companions(trace, report, owner));
        let mut found = Requests {
            clients,
            ..Requests::default()
        };
        for answer in answers {
            let all = found.answered.entry(answer.server).or_default();
            let before = all.last().map_or(0, |request| request.done_ns);
            let by_client = |(_, pid): (u64, i32)| found.clients.contains(&pid);
            all.push(Request {
                sent_ns: answer.sent.map_or(before, |(sent_ns, _)| sent_ns),
                done_ns: answer.done_ns,
                ahead: answer.sent.is_some_and(by_client),
            });
        }
        let of_program = report
            .waits
            .iter()
            .filter(|wait| wait.kind == WaitKind::Wakeup && owner(wait.pid) == Owner::Program);
        for wait in of_program {
            found.was_awaited(wait);
            found.was_awaited_from_client(wait, report);
        }
        found
    }

    /// Whether the trace shows which threads send and answer requests.
    fn are_known(&self) -> bool {
        !self.answered.is_empty()
    }

    /// Whether the trace allows waits for read-ahead to be told from other waits.
    pub(super) fn show_ahead(&self) -> bool {
        self.are_known() || !self.clients.is_empty()
    }

    /// Notes that the program was woken. If a server woke it, the program was waiting for that
    /// server's last answer.
    fn was_awaited(&mut self, wait: &Wait) {
        if let Some(all) = self.answered.get_mut(&wait.caused_by) {
            let next = all.partition_point(|request| request.done_ns <= wait.start_ns);
            if let Some(last) = next.checked_sub(1).and_then(|at| all.get_mut(at)) {
                last.ahead = false;
            }
        }
    }

    /// Notes that the program was woken by a client that held what the program needed: a name being
    /// looked up, or a page for which no request had been sent yet.
    fn was_awaited_from_client(&mut self, wait: &Wait, report: &Report) {
        if self.clients.contains(&wait.caused_by) {
            let waits = report.waits.iter().filter(|it| it.pid == wait.caused_by);
            let ends = waits
                .map(|it| it.end_ns)
                .filter(|&end| end <= wait.start_ns);
            self.awaited
                .extend(ends.max().map(|end| (wait.caused_by, end)));
        }
    }

    /// Whether a wait of a thread of the daemon delayed only the daemon's own client.
    pub(super) fn is_ahead(&self, wait: &Wait) -> bool {
        if self.clients.contains(&wait.pid) {
            return !self.awaited.contains(&(wait.pid, wait.end_ns));
        }
        if !self.are_known() {
            return false;
        }
        let own = self.serves_ahead(wait.pid, wait.end_ns);
        let waker = match wait.kind {
            WaitKind::Preempted => None,
            // A thread that a server wakes may be helping that server.
            WaitKind::Wakeup if self.answered.contains_key(&wait.caused_by) => {
                self.serves_ahead(wait.caused_by, wait.start_ns)
            }
            WaitKind::Wakeup => {
                (own.is_none() && self.clients.contains(&wait.caused_by)).then_some(true)
            }
        };
        match (own, waker) {
            (None, None) => false,
            (own, waker) => own.unwrap_or(true) && waker.unwrap_or(true),
        }
    }

    /// Whether all requests that a thread has yet to answer at this time are for read-ahead; none
    /// if it has no such requests.
    fn serves_ahead(&self, server: i32, at_ns: u64) -> Option<bool> {
        let all = self.answered.get(&server)?;
        let first = all.partition_point(|request| request.done_ns <= at_ns);
        let open = all[first..].iter().filter(|it| it.sent_ns < at_ns);
        open.map(|request| request.ahead).reduce(|a, b| a && b)
    }
}

/// The threads of erofast's companions, and those of the processes that the companions started.
fn companions(trace: &Trace, report: &Report, owner: &dyn Fn(i32) -> Owner) -> HashSet<i32> {
    let is_named = |comm: Comm| {
        COMPANION
            .iter()
            .any(|name| comm.as_bytes().starts_with(name))
    };
    let mut found = HashSet::new();
    for event in &trace.events {
        if let Kind::Switch { prev, next, .. } = event.kind {
            let named = [prev, next].into_iter().filter(|task| is_named(task.comm));
            found.extend(named.map(|task| task.pid));
        }
    }
    found.retain(|pid| owner(*pid) == Owner::Engine);
    for event in &trace.events {
        if let Kind::Fork {
            child_pid,
            parent_pid,
            ..
        } = event.kind
            && (found.contains(&parent_pid)
                || report
                    .process(parent_pid)
                    .is_some_and(|it| found.contains(&it)))
        {
            found.insert(child_pid);
        }
    }
    found
}

/// `threads`, plus the other engine threads of their processes, except in processes that also serve
/// requests.
fn processes(
    threads: HashSet<i32>,
    servers: &HashSet<i32>,
    report: &Report,
    owner: &dyn Fn(i32) -> Owner,
) -> HashSet<i32> {
    let of = |pids: &HashSet<i32>| -> HashSet<i32> {
        pids.iter().filter_map(|pid| report.process(*pid)).collect()
    };
    let (clients, serving) = (of(&threads), of(servers));
    let waits = report.waits.iter().chain(&report.unfinished);
    let all = waits.map(|wait| wait.pid).filter(|pid| {
        let process = report.process(*pid);
        let is_client = process.is_some_and(|it| clients.contains(&it) && !serving.contains(&it));
        is_client && owner(*pid) == Owner::Engine
    });
    all.chain(threads.iter().copied()).collect()
}
