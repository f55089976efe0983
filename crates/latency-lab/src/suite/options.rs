//! Options of the suite, and the names of its parts.

use std::path::PathBuf;
use std::time::Duration;

use super::files::FILES;
use super::program::PROGRAMS;
use crate::engine::Engine;
use crate::error::need_root;
use crate::load::LoadChoice;
use crate::{LabError, Result};

/// One run of the suite. The default has no launches; `erofast lab suite` sets every field.
#[derive(Debug, Clone, Default)]
pub struct SuiteOptions {
    /// The `erofast` binary for the engines `erofast:...`.
    pub erofast: PathBuf,
    /// The engines to compare, each with the first one; if empty, those of [`Engine::default_list`]
    /// that are available.
    pub engines: Vec<Engine>,
    /// Number of launches of each program that count; trees are read at most 14 times.
    pub iterations: usize,
    /// The load that keeps the machine busy during launches. Trees are read without load.
    pub load: LoadChoice,
    /// Names of the parts to run, as in [`part_names`]; all parts if empty.
    pub only: Vec<String>,
    /// The directory in which images are kept; by default it is in the user's cache directory.
    pub work: Option<PathBuf>,
    /// How long a launch may take.
    pub timeout: Duration,
    /// Seed of the order, and of the places of random reads.
    pub seed: u64,
}

/// The parts of the suite: programs first, then trees.
pub fn part_names() -> Vec<&'static str> {
    let parts = PROGRAMS.iter().chain(&FILES);
    parts.map(|part| part.name).collect()
}

impl SuiteOptions {
    pub(super) fn check(&self) -> Result<()> {
        let wrong = |text: String| Err(LabError::Usage(format!("lab suite: {text}")));
        if self.iterations == 0 {
            return wrong("at least one iteration is needed".into());
        }
        let parts = part_names();
        if let Some(unknown) = self
            .only
            .iter()
            .find(|name| !parts.contains(&name.as_str()))
        {
            return wrong(format!(
                "unknown part {unknown}; known are {}",
                parts.join(", ")
            ));
        }
        need_root("lab suite: needs root, to record the scheduler and to mount")
    }

    pub(super) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == name)
    }
}
