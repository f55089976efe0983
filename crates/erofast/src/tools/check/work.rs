//! Work for the reading threads.

use std::ops::Range;
use std::sync::Arc;

use erofs_engine::Engine;
use erofs_engine::erofs_format::Inode;

use super::found::Found;
use super::manifest::Sum;
use super::report::Fault;
use super::sums;
use crate::tools::batch::BatchReceiver;
use crate::tools::parts;

/// Work for one of the readers.
pub struct Task {
    /// Position of the file's name in the walk: faults are listed in that order.
    pub order: usize,
    pub path: Arc<[u8]>,
    pub inode: Arc<Inode>,
    pub action: Action,
}

/// What to do with a file.
pub enum Action {
    /// Read this range.
    Read(Range<u64>),
    /// Read the whole file and compare its sum.
    Compare {
        expected: Sum,
        /// Whether its bytes are counted; false if they are counted under another name of the file.
        counts: bool,
    },
}

impl Task {
    /// A fault of the file.
    pub fn fault(&self, error: impl ToString) -> Fault {
        Fault::new(&self.path, self.inode.nid, error)
    }
}

/// A reader: runs tasks until the sender is gone.
pub fn work(engine: &Engine, tasks: &BatchReceiver<Task>, found: &Found) {
    let mut buffer = Vec::new();
    while let Some(batch) = tasks.receive() {
        for task in &batch {
            match &task.action {
                Action::Read(_) if found.is_broken(task.order) => {}
                Action::Read(range) => match parts::read(engine, &task.inode, range, &mut buffer) {
                    Ok(bytes) => found.bar.add(bytes.len() as u64),
                    Err(error) => found.add_content(task.order, range.start, task.fault(error)),
                },
                Action::Compare { expected, counts } => {
                    sums::compare(engine, task, (expected, *counts), &mut buffer, found);
                }
            }
        }
    }
}
