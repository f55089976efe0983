//! Policies and processes of threads, from /proc: no event contains them.
//!
//! All threads are noted when a recording begins, and the threads in its events when it ends. A
//! thread that was created and ended in between is taken to have its creator's policy.

use crate::{Kind, Policy, Trace};
use std::collections::HashMap;
use std::fs;
use std::path::Path;

/// The threads noted when the recording began.
#[derive(Clone, Debug, Default)]
pub(super) struct Noted(HashMap<i32, (i32, Option<Policy>)>);

impl Noted {
    /// All threads of the machine.
    pub(super) fn now() -> Self {
        let mut noted = HashMap::new();
        for tgid in numbers(Path::new("/proc")) {
            let tasks = format!("/proc/{tgid}/task");
            for pid in numbers(Path::new(&tasks)) {
                noted.insert(pid, (tgid, policy(&format!("{tasks}/{pid}/stat"))));
            }
        }
        Self(noted)
    }

    /// Values noted by a test.
    #[cfg(test)]
    pub(super) fn of<const N: usize>(noted: [(i32, (i32, Option<Policy>)); N]) -> Self {
        Self(noted.into())
    }

    /// Fills in what is known about the threads of a trace.
    pub(super) fn fill_in(self, trace: &mut Trace) {
        let Self(mut noted) = self;
        let mut policies: HashMap<i32, Option<Policy>> = HashMap::new();
        let threads = &mut trace.threads;
        for event in &trace.events {
            if let Kind::NewTask { pid, .. } = event.kind {
                let parent = policies.get(&event.pid).copied();
                let parent = parent.or_else(|| Some(noted.get(&event.pid)?.1));
                policies.insert(pid, parent.flatten());
                // What was noted concerns an earlier thread with this pid.
                noted.remove(&pid);
            }
        }
        for (pid, thread) in threads.iter_mut() {
            let before = noted.get(pid);
            if let (0, Some((tgid, _))) = (thread.tgid, before) {
                thread.tgid = *tgid;
            }
            let at_end = policy(&format!("/proc/{pid}/stat"));
            thread.policy = match (before.and_then(|(_, policy)| *policy), at_end) {
                // It is unknown when the policy changed.
                (Some(before), Some(now)) if before != now => None,
                (before, now) => now
                    .or(before)
                    .or_else(|| policies.get(pid).copied().flatten()),
            };
        }
    }
}

/// The names in a directory that are numbers.
fn numbers(directory: &Path) -> Vec<i32> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

/// The policy from a file "stat": its 41st field. The second, a name in parentheses, may contain
/// spaces.
pub(super) fn policy(stat: &str) -> Option<Policy> {
    let text = fs::read(stat).ok()?;
    let text = String::from_utf8_lossy(&text);
    let (_, fields) = text.rsplit_once(')')?;
    Policy::from_number(fields.split_whitespace().nth(38)?.parse().ok()?)
}
