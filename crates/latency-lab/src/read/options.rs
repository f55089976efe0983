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
    /// The engines to compare, each with the first one; where none is named, those of
    /// [`Engine::default_list`] that are there.
    pub engines: Vec<Engine>,
    /// Samples of each test that count.
    pub iterations: usize,
    /// Samples before them that do not.
    pub warm_ups: usize,
    /// What is measured.
    pub tests: Vec<Test>,
    /// Image in the page cache, out of it, or both.
    pub states: Vec<ImageState>,
    /// Sequential tests read this much at most, of the biggest files.
    pub sequential_bytes: u64,
    /// Random tests make this many reads at most, each of a place of its own.
    pub random_reads: usize,
    /// Of the order and of the places of random reads.
    pub seed: u64,
    /// As for launches.
    pub foreign_limit: f64,
}

impl Default for ReadOptions {
    fn default() -> Self {
        ReadOptions {
            image: PathBuf::new(),
            erofast: PathBuf::new(),
            engines: Vec::new(),
            iterations: 5,
            warm_ups: 1,
            tests: Test::all(),
            states: vec![ImageState::Warm, ImageState::Cold],
            sequential_bytes: 512 << 20,
            random_reads: 4000,
            seed: 1,
            foreign_limit: FOREIGN_LIMIT,
        }
    }
}
