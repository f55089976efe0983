//! The companion's figures in the counters of the mount.

use launch_profile::text::escaped;
use serde_json::{Value, json};

use super::Companion;
use crate::figures::report;
use crate::reader::Reader;
use crate::travelling::Candidate;

/// Maximum number of programs whose figures are published.
const SHOWN: usize = 40;

impl Companion {
    /// Publishes a failure of the companion for the counters, and says that the ring has no reader.
    pub fn fail(reader: &Reader, line: &str) {
        let report = json!({"state": "learning", "programs": [], "error": line});
        reader.publish(report.to_string().as_bytes());
        reader.set_closed(true);
    }

    /// Publishes the companion's figures for the counters of the mount.
    pub(super) fn publish(&mut self) {
        let mut report = report(&self.replays);
        if let Some(line) = &self.trouble {
            report["error"] = json!(line);
        }
        let shown = |known: Candidate<'_>| {
            let program = known.program;
            json!({
                "origin": known.origin.word(),
                "path": escaped(&program.path),
                "launches": program.launches,
                "windows": program.profile.windows.len(),
                "bytes": program.profile.bytes(),
                "windows_asked": self.launched.get(&program.path).copied().flatten(),
            })
        };
        let known = self.travelling.beside(&self.learned.programs);
        let mut programs: Vec<Value> = known.take(SHOWN).map(shown).collect();
        loop {
            report["programs"] = json!(programs);
            let is_done =
                report == self.published || self.reader.publish(report.to_string().as_bytes());
            if is_done || programs.pop().is_none() {
                break;
            }
        }
        self.published = report;
    }
}
