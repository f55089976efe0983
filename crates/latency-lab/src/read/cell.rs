//! A measurement is a test of one engine with the image in one state.

use serde::{Deserialize, Serialize};

use crate::engine::Engine;

/// A way of reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// Each reader reads its own contiguous part of the biggest files.
    Sequential {
        /// Number of threads.
        readers: usize,
    },
    /// Jobs read blocks at random places, each place at most once.
    Random {
        /// Bytes per read.
        block: usize,
        /// Number of threads.
        jobs: usize,
    },
    /// Reads all files of the tree, one after another.
    Tree,
    /// Reads all entries of the tree with their attributes, but without their contents.
    Metadata,
    /// Runs `ls -lR`, as a user would. `ls` also requests extended attributes.
    List,
}

impl Test {
    /// Bytes per read in the sequential tests and the test of the tree.
    pub const SEQUENTIAL_BLOCK: usize = 128 << 10;

    /// All tests, in the order of the table.
    pub fn all() -> Vec<Test> {
        let mut tests: Vec<Test> = [1, 2, 4].map(|readers| Test::Sequential { readers }).into();
        for block in [4 << 10, 64 << 10] {
            tests.extend([1, 4].map(|jobs| Test::Random { block, jobs }));
        }
        tests.extend([Test::Tree, Test::Metadata, Test::List]);
        tests
    }

    /// The name in the JSON, the number of threads, the bytes per read, and the unit.
    fn facts(&self) -> (&'static str, usize, usize, &'static str) {
        match *self {
            Test::Sequential { readers } => ("seq", readers, Test::SEQUENTIAL_BLOCK, "MB/s"),
            Test::Random { block, jobs } => ("rand", jobs, block, "ops/s"),
            Test::Tree => ("tree", 1, Test::SEQUENTIAL_BLOCK, "s"),
            Test::Metadata => ("meta", 1, 0, "s"),
            Test::List => ("list", 1, 0, "s"),
        }
    }

    /// The name of the test in the JSON.
    pub fn word(&self) -> &'static str {
        self.facts().0
    }

    /// Number of threads that read.
    pub fn readers(&self) -> usize {
        self.facts().1
    }

    /// Bytes per read; 0 if no content is read.
    pub fn block(&self) -> usize {
        self.facts().2
    }

    /// Unit of the samples.
    pub fn unit(&self) -> &'static str {
        self.facts().3
    }

    /// Label for the table.
    pub fn title(&self) -> String {
        match *self {
            Test::Sequential { readers: 1 } => "sequential, 1 reader".into(),
            Test::Sequential { readers } => format!("sequential, {readers} readers"),
            Test::Random { block, jobs: 1 } => format!("random {} KiB, 1 job", block >> 10),
            Test::Random { block, jobs } => format!("random {} KiB, {jobs} jobs", block >> 10),
            Test::Tree => "whole tree".into(),
            Test::Metadata => "metadata walk".into(),
            Test::List => "ls -lR".into(),
        }
    }
}

/// Where the bytes of the image are when a test begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageState {
    /// The image is in the page cache.
    #[default]
    Warm,
    /// The image is on the disk.
    Cold,
}

impl ImageState {
    /// The name of the state in the JSON.
    pub(crate) fn word(self) -> &'static str {
        match self {
            ImageState::Warm => "warm",
            ImageState::Cold => "cold",
        }
    }
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cell {
    /// The engine.
    pub engine: Engine,
    /// The test.
    pub test: Test,
    /// Where the image's bytes are.
    pub image: ImageState,
}
