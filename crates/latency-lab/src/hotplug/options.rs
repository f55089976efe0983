//! Options of a hotplug experiment.

use std::ffi::OsString;
use std::path::PathBuf;

use crate::engine::Engine;
use crate::load::LoadChoice;

/// One hotplug experiment. The default has no cycles; `erofast lab hotplug` sets every field.
#[derive(Debug, Clone, Default)]
pub struct HotplugOptions {
    /// The image to read.
    pub image: PathBuf,
    /// The `erofast` binary for the engines `erofast:...`.
    pub erofast: PathBuf,
    /// The engine under test.
    pub engine: Engine,
    /// Number of cycles.
    pub cycles: usize,
    /// The CPU to take offline; by default the last one that can go offline.
    pub cpu: Option<u32>,
    /// Number of threads that read during the cycles.
    pub readers: usize,
    /// A program to launch while the CPU is offline, with `{}` for the mount point; none if empty.
    pub command: Vec<OsString>,
    /// The load that keeps the machine busy.
    pub load: LoadChoice,
}
