//! Parameters of one extraction.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use erofs_engine::Engine;
use erofs_engine::erofs_format::Inode;

/// The task of an extraction, and its number of threads.
#[derive(Debug)]
pub struct Job {
    pub engine: Arc<Engine>,
    /// The inode at which the tree begins.
    pub start: Arc<Inode>,
    /// Name of the start if it is not a directory; otherwise empty, since it becomes the target
    /// itself.
    pub name: Vec<u8>,
    pub threads: usize,
    /// Set by Ctrl-C.
    pub interrupted: Arc<AtomicBool>,
}
