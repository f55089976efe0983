//! Options of a read experiment.

use std::path::PathBuf;

use super::cell::{ImageState, Test};
use crate::engine::Engine;
use crate::process::FOREIGN_LIMIT;

/// One read experiment.
#[derive(Debug, Clone)]
pub struct ReadOptions {
    /// The image to read.
    pub image: PathBuf,
    /// The `erofast` binary for the engines `erofast:...`.
    pub erofast: PathBuf,
    /// The engines to compare, each with the first one; if empty, those of [`Engine::default_list`]
    /// that are available.
    pub engines: Vec<Engine>,
    /// Number of samples per test; by default as many as are needed for a claim, or 5 if there is
    /// only one engine.
    pub iterations: Option<usize>,
    /// The tests to run.
    pub tests: Vec<Test>,
    /// Whether to test with the image in the page cache, on the disk, or both.
    pub states: Vec<ImageState>,
    /// Seed of the order and of the places of random reads.
    pub seed: u64,
    /// A sample is spoilt if unrelated programs took more than this fraction of all CPU time.
    pub foreign_limit: f64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            image: PathBuf::new(),
            erofast: PathBuf::new(),
            engines: Vec::new(),
            iterations: None,
            tests: Test::all(),
            states: vec![ImageState::Warm, ImageState::Cold],
            seed: 1,
            foreign_limit: FOREIGN_LIMIT,
        }
    }
}
