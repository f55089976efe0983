//! The filesystem's side of a launch profile: reports of requests, and its state.

use erofs_engine::erofs_format::{Inode, Nid};
use serde_json::{Value, json};
use sys::pi_mutex::PiMutex;

use super::learning::Learning;
use super::recorder::Recorder;
use super::replay::Replay;

/// Launches that are recorded or replayed.
#[derive(Debug)]
pub(in super::super) struct Launch {
    mode: Mode,
    /// L: what went wrong beside it.
    trouble: PiMutex<Option<String>>,
}

#[derive(Debug)]
pub(super) enum Mode {
    Record(Recorder),
    Replay(Replay),
    Learn(Learning),
}

impl Launch {
    pub(super) fn new(mode: Mode, trouble: Option<String>) -> Self {
        let trouble = PiMutex::new(trouble);
        Self { mode, trouble }
    }

    /// A file was read.
    pub(in super::super) fn read(&self, inode: &Inode, offset: u64, length: usize) {
        let nid = inode.nid;
        if let Mode::Learn(learning) = &self.mode
            && offset == 0
            && inode.mode & 0o111 != 0
        {
            learning.recorder.begin(nid);
        }
        self.record(|recorder| recorder.note(|log| log.read(nid, offset, length)));
        if let Some(replay) = self.replay() {
            replay.was_read(nid, offset, length);
        }
    }

    /// A name was looked up.
    pub(in super::super) fn looked_up(&self, directory: Nid, name: &[u8], found: bool) {
        self.record(|recorder| {
            recorder.visited(directory);
            recorder.note(|log| log.looked_up(directory, name, found));
        });
    }

    /// A directory was listed from its beginning.
    pub(in super::super) fn listed(&self, directory: Nid) {
        self.record(|recorder| {
            recorder.visited(directory);
            recorder.note(|log| log.listed(directory));
        });
    }

    /// A symbolic link was read.
    pub(in super::super) fn read_link(&self, nid: Nid) {
        self.record(|recorder| recorder.note(|log| log.read_link(nid)));
    }

    fn record(&self, act: impl FnOnce(&Recorder)) {
        if let Some(recorder) = self.recorder() {
            act(recorder);
        }
    }

    pub(super) fn recorder(&self) -> Option<&Recorder> {
        match &self.mode {
            Mode::Record(recorder) => Some(recorder),
            Mode::Replay(_) => None,
            Mode::Learn(learning) => Some(&learning.recorder),
        }
    }

    pub(super) fn replay(&self) -> Option<&Replay> {
        match &self.mode {
            Mode::Replay(replay) => Some(replay),
            Mode::Record(_) => None,
            Mode::Learn(learning) => learning.replay.get(),
        }
    }

    pub(super) fn learning(&self) -> Option<&Learning> {
        match &self.mode {
            Mode::Learn(learning) => Some(learning),
            Mode::Record(_) | Mode::Replay(_) => None,
        }
    }

    pub(super) fn fail(&self, line: String) {
        *self.trouble.lock() = Some(line);
    }

    /// For the counters.
    pub(in super::super) fn report(&self) -> Value {
        let mut report = match &self.mode {
            Mode::Record(recorder) => json!({
                "state": if recorder.is_on() { "recording" } else { "recorded" },
            }),
            Mode::Replay(replay) => replay.report(),
            Mode::Learn(learning) => learning.report(),
        };
        let trouble = self.trouble.lock();
        if let Some(line) = &*trouble {
            report["error"] = json!(line);
        }
        report
    }
}
