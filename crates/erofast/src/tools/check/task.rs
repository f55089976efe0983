//! Work for the reading threads.

use std::ops::Range;
use std::sync::Arc;

use erofs_engine::erofs_format::Inode;

use super::manifest::Sum;
use super::report::Fault;

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
