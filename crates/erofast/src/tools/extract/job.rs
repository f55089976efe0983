//! Parameters of one extraction.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use erofs_engine::Engine;
use erofs_engine::erofs_format::Inode;

/// What to extract, and with how many threads.
pub struct Job {
    pub engine: Arc<Engine>,
    /// The inode at which the tree begins.
    pub start: Arc<Inode>,
    /// The name under which a start that is not a directory is extracted. Empty for a directory,
    /// which becomes the target itself.
    pub name: Vec<u8>,
    pub threads: usize,
    /// Set by Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
}
