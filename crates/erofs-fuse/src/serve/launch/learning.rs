//! What the filesystem sees of launches that are [learned](super::learner).

use std::sync::OnceLock;

use serde_json::{Value, json};
use sys::pi_mutex::PiMutex;

use super::recorder::Recorder;
use super::replay::Replay;

/// Launches of one mount.
#[derive(Debug)]
pub(super) struct Learning {
    pub(super) recorder: Recorder,
    pub(super) replay: OnceLock<Replay>,
    /// L: for the counters.
    pub(super) programs: PiMutex<Vec<Value>>,
}

impl Learning {
    pub(super) fn new() -> Self {
        Self {
            recorder: Recorder::new(false),
            replay: OnceLock::new(),
            programs: PiMutex::default(),
        }
    }

    pub(super) fn report(&self) -> Value {
        let mut report = match self.replay.get() {
            Some(replay) => replay.report(),
            None => json!({"state": "learning"}),
        };
        report["programs"] = json!(&*self.programs.lock());
        report
    }
}
