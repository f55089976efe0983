//! What deaths of servers mean: start another one, refuse a request, or end the mount.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use fuse_transport::TakenRequest;

use super::child::ChildProcess;

/// This many deaths within [`WITHIN`] end a mount.
const MOST: usize = 5;
const WITHIN: Duration = Duration::from_secs(10);

/// How long the start of the next server waits for the outcome of the last one. Each further death
/// makes it four times as long: on a busy machine one request killed five servers before the first
/// death was judged.
const PATIENCE: Duration = Duration::from_millis(5);

/// A process that has to be waited for.
#[derive(Debug)]
struct Dying {
    child: ChildProcess,
    /// The requests it was serving; `None` once it is known how it died. Its thread that stores
    /// pages may live until the next server has answered a read, and that server may die of the
    /// same request first.
    taken: Option<Vec<TakenRequest>>,
}

impl Dying {
    fn new(child: ChildProcess, taken: Vec<TakenRequest>) -> Self {
        let taken = Some(taken);
        Self { child, taken }
    }

    /// Whether the process is there, and how it died if that is known.
    fn check(&self) -> (bool, Option<ExitStatus>) {
        match self.child.try_wait() {
            Ok(None) => (true, self.child.outcome_of_first_thread()),
            Ok(outcome) => (false, outcome),
            Err(_) => (false, None),
        }
    }
}

/// The deaths of one mount's servers.
#[derive(Debug, Default)]
pub(super) struct Deaths {
    recent: VecDeque<Instant>,
    dying: Vec<Dying>,
    /// The requests that were being served at the last crash.
    suspects: Vec<TakenRequest>,
    /// How the last server died whose outcome is known.
    last: Option<ExitStatus>,
}

impl Deaths {
    /// A server died while it was serving `taken`. The result: requests that killed twice.
    pub(super) fn add(
        &mut self,
        child: Option<ChildProcess>,
        taken: Vec<TakenRequest>,
    ) -> Vec<TakenRequest> {
        let now = Instant::now();
        self.recent.push_back(now);
        self.recent.retain(|death| now - *death < WITHIN);
        self.dying
            .extend(child.map(|child| Dying::new(child, taken)));
        let mut twice = self.judge();
        let others = self.recent.len().min(MOST) as u32 - 1;
        let patience = PATIENCE * 4_u32.pow(others);
        while self.is_outcome_missing() && now.elapsed() < patience {
            thread::sleep(Duration::from_micros(200));
            twice.extend(self.judge());
        }
        twice
    }

    /// Waits for a process whose end is wanted.
    pub(super) fn expect(&mut self, child: Option<ChildProcess>) {
        self.dying
            .extend(child.map(|child| Dying::new(child, Vec::new())));
    }

    /// Learns how processes ended that did so meanwhile. The result: requests that killed twice.
    pub(super) fn judge(&mut self) -> Vec<TakenRequest> {
        let mut twice = Vec::new();
        let mut dying = std::mem::take(&mut self.dying);
        dying.retain_mut(|process| {
            let (is_there, outcome) = process.check();
            if let Some(status) = outcome
                && let Some(taken) = process.taken.take()
            {
                twice.extend(self.convict(status, taken));
            }
            is_there
        });
        self.dying = dying;
        twice
    }

    /// Only a crash is a request's fault: SIGKILL comes from outside, or from the OOM killer.
    fn convict(&mut self, status: ExitStatus, taken: Vec<TakenRequest>) -> Vec<TakenRequest> {
        self.last = Some(status);
        if !is_crash(status) || taken.is_empty() {
            return Vec::new();
        }
        let suspects = std::mem::replace(&mut self.suspects, taken);
        let is_suspect = |request: &&TakenRequest| suspects.contains(request);
        self.suspects.iter().filter(is_suspect).copied().collect()
    }

    /// Whether processes are left that have to be waited for.
    pub(super) fn are_pending(&self) -> bool {
        !self.dying.is_empty()
    }

    fn is_outcome_missing(&self) -> bool {
        self.dying.iter().any(|process| process.taken.is_some())
    }

    /// Whether the last death was a crash, as far as is known: then one of the requests that were
    /// being served may be at fault.
    pub(super) fn may_be_crash(&self) -> bool {
        self.is_outcome_missing() || self.last.is_some_and(is_crash)
    }

    /// Whether two of the recent deaths came after that moment.
    pub(super) fn came_twice_since(&self, moment: Instant) -> bool {
        let after = self.recent.iter().filter(|death| **death >= moment);
        after.count() >= 2
    }

    /// Whether there were so many lately that another server would die too.
    pub(super) fn are_too_many(&self) -> bool {
        self.recent.len() >= MOST
    }

    /// For the line that says why a mount ends.
    pub(super) fn describe(&self, last: Option<TakenRequest>) -> String {
        let (count, seconds) = (self.recent.len(), WITHIN.as_secs());
        let how = self
            .last
            .map_or(String::new(), |status| format!(", last by {status}"));
        let what = last.map_or(String::new(), |request| format!("; last served: {request}"));
        format!("the server died {count} times in {seconds} s{how}{what}")
    }
}

fn is_crash(status: ExitStatus) -> bool {
    let harmless = [libc::SIGKILL, libc::SIGTERM, libc::SIGINT, libc::SIGHUP];
    status
        .signal()
        .is_some_and(|signal| !harmless.contains(&signal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    use std::process::Command;

    fn died(signal: &str) -> Option<ChildProcess> {
        let script = format!("kill -{signal} $$");
        let child = Command::new("sh").args(["-c", &script]).spawn().unwrap();
        let died = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&child)), died).unwrap();
        Some(ChildProcess::from(child))
    }

    fn request(unique: u64) -> TakenRequest {
        TakenRequest {
            unique,
            node: 1,
            opcode: 15,
        }
    }

    #[test]
    fn a_request_that_crashes_two_servers_is_refused() {
        let mut deaths = Deaths::default();
        assert_eq!(deaths.add(died("SEGV"), vec![request(2), request(4)]), []);
        assert_eq!(deaths.add(died("KILL"), vec![request(4)]), []);
        let twice = deaths.add(died("ABRT"), vec![request(4), request(6)]);
        assert_eq!(twice, [request(4)]);
        assert_eq!(deaths.add(died("ABRT"), vec![request(8)]), []);
    }

    #[test]
    fn a_request_is_refused_in_time_where_servers_take_long_to_die() {
        let slowly = || {
            let mut shell = Command::new("sh");
            let child = shell.args(["-c", "sleep 0.03; kill -SEGV $$"]).spawn();
            Some(ChildProcess::from(child.unwrap()))
        };
        let mut deaths = Deaths::default();
        let mut add = || deaths.add(slowly(), vec![request(4)]);
        let refused = (1..MOST).position(|_| !add().is_empty());
        assert!(refused.is_some());
    }

    #[test]
    fn five_deaths_in_ten_seconds_are_too_many() {
        let mut deaths = Deaths::default();
        for _ in 0..MOST {
            assert!(!deaths.are_too_many());
            deaths.add(died("KILL"), Vec::new());
        }
        assert!(deaths.are_too_many());
        let line = deaths.describe(Some(request(8)));
        assert!(
            line.starts_with("the server died 5 times in 10 s, last by signal: 9"),
            "{line}"
        );
        assert!(
            line.ends_with("last served: request 8 (read of node 1)"),
            "{line}"
        );
    }
}
