//! The consequences of a server's death: start another server, refuse a request, or end the mount.

use std::collections::VecDeque;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

use fuse_transport::TakenRequest;

use crate::child::ChildProcess;

/// This many crashes within [`WITHIN`] end a mount. So do this many consecutive deaths of any kind
/// if no server has answered a request for [`WITHIN`]. A request that was being served at this many
/// consecutive deaths, whatever their cause, is refused.
///
/// A kill is no evidence of a fault in the server: however frequent kills are, the mount stays as
/// long as servers answer requests in between. The time limit ends a mount whose servers lack the
/// memory to start.
const MOST: usize = 5;
const WITHIN: Duration = Duration::from_secs(10);

/// Initial and maximum pause before starting a server after one that answered no request.
const PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(250)];

/// How long to wait for the exit status of the last server before starting the next one. Each
/// further death multiplies this time by four: on a busy machine, one request killed five servers
/// before the first exit status was known.
const PATIENCE: Duration = Duration::from_millis(5);

/// The state that a server had reached when it died.
#[derive(Debug, Default)]
pub(crate) struct Death {
    /// The requests that the server was handling.
    pub(crate) taken: Vec<TakenRequest>,
    /// The last request that the server took.
    pub(crate) last: Option<TakenRequest>,
    /// Whether the server had answered a request.
    pub(crate) answered: bool,
}

/// A process that must still be waited for.
#[derive(Debug)]
struct Dying {
    child: ChildProcess,
    /// The requests that the process was handling; `None` once its cause of death is known. The
    /// thread that stores pages may live until the next server has answered a read, and that server
    /// may die of the same request first.
    taken: Option<Vec<TakenRequest>>,
}

impl Dying {
    /// Whether the process still exists, and how it died, if known.
    fn check(&self) -> (bool, Option<ExitStatus>) {
        match self.child.try_wait() {
            Ok(None) => (true, self.child.outcome_of_first_thread()),
            Ok(outcome) => (false, outcome),
            Err(_) => (false, None),
        }
    }
}

/// The deaths of one mount's servers.
#[derive(Debug)]
pub(crate) struct Deaths {
    recent: VecDeque<Instant>,
    /// Times of those recent deaths that were crashes or exits with an error.
    failed: VecDeque<Instant>,
    /// Number of consecutive deaths of servers that answered no request.
    fruitless: u32,
    /// When a server that had answered a request was last seen.
    answered: Instant,
    dying: Vec<Dying>,
    /// The requests that were being served at the last crash.
    suspects: Vec<TakenRequest>,
    /// The requests that were being served at the last death, and the number of earlier deaths for
    /// each.
    stuck: Vec<(TakenRequest, usize)>,
    /// Exit status of the last death whose status is known.
    last: Option<ExitStatus>,
    last_taken: Option<TakenRequest>,
}

impl Default for Deaths {
    fn default() -> Self {
        Self {
            recent: VecDeque::new(),
            failed: VecDeque::new(),
            fruitless: 0,
            answered: Instant::now(),
            dying: Vec::new(),
            suspects: Vec::new(),
            stuck: Vec::new(),
            last: None,
            last_taken: None,
        }
    }
}

impl Deaths {
    /// Notes that a server died. Returns the requests that must be refused.
    pub(crate) fn add(&mut self, child: Option<ChildProcess>, death: Death) -> Vec<TakenRequest> {
        let now = Instant::now();
        self.recent.push_back(now);
        self.recent.retain(|death| now - *death < WITHIN);
        self.last_taken = death.last.or(self.last_taken);
        if death.answered {
            (self.answered, self.fruitless) = (now, 0);
        } else {
            self.fruitless += 1;
        }
        let mut refused = self.count_stuck(&death.taken);
        self.await_end(child, death.taken);
        refused.extend(self.judge());
        let others = self.recent.len().min(MOST) as u32 - 1;
        let patience = PATIENCE * 4_u32.pow(others);
        while self.is_outcome_missing() && now.elapsed() < patience {
            thread::sleep(Duration::from_micros(200));
            refused.extend(self.judge());
        }
        refused
    }

    /// Counts deaths for each of these requests, and returns those that were being served at
    /// [`MOST`] consecutive deaths.
    fn count_stuck(&mut self, taken: &[TakenRequest]) -> Vec<TakenRequest> {
        let before = |request: &TakenRequest| {
            let known = self.stuck.iter().find(|(other, _)| other == request);
            known.map_or(0, |(_, deaths)| *deaths)
        };
        let counted = taken.iter().map(|request| (*request, before(request) + 1));
        self.stuck = counted.collect();
        let most = self.stuck.iter().filter(|(_, deaths)| *deaths >= MOST);
        most.map(|(request, _)| *request).collect()
    }

    /// How long to delay the start of the next server because the previous servers answered no
    /// request.
    pub(crate) fn pause(&self) -> Duration {
        let [first, longest] = PAUSES;
        let doubled = |before: u32| first * 2_u32.pow(before.min(16));
        let before = self.fruitless.checked_sub(1);
        before.map_or(Duration::ZERO, |before| doubled(before).min(longest))
    }

    /// Adds a process that is expected to end and must be waited for.
    pub(crate) fn expect(&mut self, child: Option<ChildProcess>) {
        self.await_end(child, Vec::new());
    }

    fn await_end(&mut self, child: Option<ChildProcess>, taken: Vec<TakenRequest>) {
        let taken = Some(taken);
        self.dying.extend(child.map(|child| Dying { child, taken }));
    }

    /// Checks how processes have ended in the meantime. Returns the requests that killed two
    /// servers.
    pub(crate) fn judge(&mut self) -> Vec<TakenRequest> {
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

    /// Returns the requests that are to blame for a second crash. Other deaths are no request's
    /// fault: SIGKILL comes from outside or from the OOM killer.
    fn convict(&mut self, status: ExitStatus, taken: Vec<TakenRequest>) -> Vec<TakenRequest> {
        self.last = Some(status);
        if is_crash(status) || status.code().is_some() {
            let now = Instant::now();
            self.failed.push_back(now);
            self.failed.retain(|death| now - *death < WITHIN);
        }
        if !is_crash(status) || taken.is_empty() {
            return Vec::new();
        }
        let suspects = std::mem::replace(&mut self.suspects, taken);
        let is_suspect = |request: &&TakenRequest| suspects.contains(request);
        self.suspects.iter().filter(is_suspect).copied().collect()
    }

    /// Whether there are still processes to wait for.
    pub(crate) fn are_pending(&self) -> bool {
        !self.dying.is_empty()
    }

    fn is_outcome_missing(&self) -> bool {
        self.dying.iter().any(|process| process.taken.is_some())
    }

    /// Whether the last death was, or may have been, a crash. In that case one of the requests that
    /// were being served may be at fault.
    pub(crate) fn may_be_crash(&self) -> bool {
        self.is_outcome_missing() || self.last.is_some_and(is_crash)
    }

    /// Whether at least two of the recent deaths came after `moment`.
    pub(crate) fn came_twice_since(&self, moment: Instant) -> bool {
        let after = self.recent.iter().filter(|death| **death >= moment);
        after.count() >= 2
    }

    /// Whether so many servers have died that another one would probably die too.
    pub(crate) fn are_too_many(&self) -> bool {
        let is_silent = self.fruitless as usize >= MOST && self.answered.elapsed() >= WITHIN;
        self.failed.len() >= MOST || is_silent
    }

    /// Describes the deaths, for the line that says why the mount has ended.
    pub(crate) fn describe(&self) -> String {
        let (count, seconds) = (self.recent.len(), WITHIN.as_secs());
        let how = self
            .last
            .map_or(String::new(), |status| format!(", last by {status}"));
        let what = self
            .last_taken
            .map_or(String::new(), |request| format!("; last served: {request}"));
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

    fn answered(taken: Vec<TakenRequest>) -> Death {
        Death {
            last: taken.last().copied(),
            taken,
            answered: true,
        }
    }

    #[test]
    fn a_request_that_crashes_two_servers_is_refused() {
        let mut deaths = Deaths::default();
        let mut add = |signal, taken| deaths.add(died(signal), answered(taken));
        assert_eq!(add("SEGV", vec![request(2), request(4)]), []);
        assert_eq!(add("KILL", vec![request(4)]), []);
        let twice = add("ABRT", vec![request(4), request(6)]);
        assert_eq!(twice, [request(4)]);
        assert_eq!(add("ABRT", vec![request(8)]), []);
    }

    #[test]
    fn a_request_is_refused_in_time_where_servers_take_long_to_die() {
        let slowly = || {
            let mut shell = Command::new("sh");
            let child = shell.args(["-c", "sleep 0.03; kill -SEGV $$"]).spawn();
            Some(ChildProcess::from(child.unwrap()))
        };
        let mut deaths = Deaths::default();
        let mut add = || deaths.add(slowly(), answered(vec![request(4)]));
        let refused = (1..MOST).position(|_| !add().is_empty());
        assert!(refused.is_some());
    }

    #[test]
    fn five_crashes_in_ten_seconds_are_too_many() {
        let mut deaths = Deaths::default();
        for number in 0..MOST {
            assert!(!deaths.are_too_many());
            let how = ["ABRT", "SEGV"][number % 2];
            deaths.add(died(how), answered(vec![request(8)]));
        }
        assert!(deaths.are_too_many());
        let line = deaths.describe();
        assert!(
            line.starts_with("the server died 5 times in 10 s, last by signal: 6"),
            "{line}"
        );
        assert!(
            line.ends_with("last served: request 8 (read of node 1)"),
            "{line}"
        );
    }

    #[test]
    fn kills_are_never_too_many_while_servers_answer() {
        let mut deaths = Deaths::default();
        for _ in 0..MOST * 4 {
            deaths.add(died("KILL"), answered(Vec::new()));
            assert!(!deaths.are_too_many());
            assert_eq!(deaths.pause(), Duration::ZERO);
        }
        // From here on, no server answers any request.
        for _ in 0..MOST {
            deaths.add(died("KILL"), Death::default());
            assert!(!deaths.are_too_many());
        }
        assert_eq!(deaths.pause(), PAUSES[0] * 16);
        deaths.answered = Instant::now().checked_sub(WITHIN).unwrap();
        assert!(deaths.are_too_many());
        deaths.add(died("KILL"), answered(Vec::new()));
        assert!(!deaths.are_too_many());
    }

    #[test]
    fn a_request_that_no_server_survives_is_refused_however_they_die() {
        let mut deaths = Deaths::default();
        let mut add = |unique: &[u64]| {
            let taken = unique.iter().copied().map(request).collect();
            deaths.add(died("KILL"), answered(taken))
        };
        for other in 1..MOST as u64 {
            assert_eq!(add(&[4, 100 + other]), []);
        }
        assert_eq!(add(&[4]), [request(4)]);
        // The count of a request that was answered in the meantime starts over.
        assert_eq!(add(&[6]), []);
        assert_eq!(add(&[4, 6]), []);
    }
}
