//! The filesystem's side of a launch profile: reports of requests, and its state.

use erofs_engine::erofs_format::Nid;
use serde_json::{Value, json};
use sys::pi_mutex::PiMutex;

use super::recorder::Recorder;
use super::replay::Replay;

/// A launch that is recorded or replayed.
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
}

impl Launch {
    pub(super) fn new(mode: Mode, trouble: Option<String>) -> Self {
        let trouble = PiMutex::new(trouble);
        Self { mode, trouble }
    }

    /// A file was read.
    pub(in super::super) fn read(&self, nid: Nid, offset: u64, length: usize) {
        match &self.mode {
            Mode::Record(recorder) => recorder.note(|log| log.read(nid, offset, length)),
            Mode::Replay(replay) => replay.was_read(nid, offset, length),
        }
    }

    /// A name was looked up.
    pub(in super::super) fn looked_up(&self, directory: Nid, name: &[u8], found: bool) {
        self.record(|recorder| recorder.note(|log| log.looked_up(directory, name, found)));
    }

    /// A directory was listed from its beginning.
    pub(in super::super) fn listed(&self, directory: Nid) {
        self.record(|recorder| recorder.note(|log| log.listed(directory)));
    }

    /// A symbolic link was read.
    pub(in super::super) fn read_link(&self, nid: Nid) {
        self.record(|recorder| recorder.note(|log| log.read_link(nid)));
    }

    fn record(&self, act: impl FnOnce(&Recorder)) {
        if let Mode::Record(recorder) = &self.mode {
            act(recorder);
        }
    }

    pub(super) fn recorder(&self) -> Option<&Recorder> {
        match &self.mode {
            Mode::Record(recorder) => Some(recorder),
            Mode::Replay(_) => None,
        }
    }

    pub(super) fn replay(&self) -> Option<&Replay> {
        match &self.mode {
            Mode::Replay(replay) => Some(replay),
            Mode::Record(_) => None,
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
        };
        let trouble = self.trouble.lock();
        if let Some(line) = &*trouble {
            report["error"] = json!(line);
        }
        report
    }
}
