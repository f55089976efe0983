//! The work queue of the writers.
//!
//! Each writer takes small files in batches and big ones singly, because two threads that write to
//! one file wait for each other in the kernel. Once no new files are left, the writers help with
//! unfinished big files.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::vec;

use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Inode};

use super::outfile::OutFile;
use crate::tools::batch::BatchReceiver;
use crate::tools::parts::PART;

/// The path and inode of an entry to create, other than a directory.
pub type Leaf = (Vec<u8>, Arc<Inode>);

/// Whether the file is big: several threads may write it, and it is sent in a separate batch.
pub fn is_big(inode: &Inode) -> bool {
    inode.file_type() == FileType::Regular && inode.size > PART
}

/// Work for one writer.
pub enum Work<'a> {
    /// A file, which other writers may also be writing.
    File(Arc<OutFile<'a>>),
    /// A symlink, device node, FIFO or socket.
    Node(Vec<u8>, Arc<Inode>),
}

/// The queue from which writers get their work.
pub struct Queue<'a> {
    engine: &'a Engine,
    /// Receives the leaves found by the walk.
    leaves: BatchReceiver<Leaf>,
    /// Guarded by its own lock. Big files that a writer has started.
    unfinished: Mutex<Vec<Arc<OutFile<'a>>>>,
}

/// Leaves that a writer has received but not started.
pub type Taken = vec::IntoIter<Leaf>;

impl<'a> Queue<'a> {
    /// A queue of the leaves that the walk sends.
    pub fn new(engine: &'a Engine, leaves: BatchReceiver<Leaf>) -> Self {
        Self {
            engine,
            leaves,
            unfinished: Mutex::default(),
        }
    }

    /// The next work for a writer; `None` if nothing is left to start or to help with.
    pub fn next(&self, taken: &mut Taken) -> Option<Work<'a>> {
        loop {
            if let Some((path, inode)) = taken.next() {
                if inode.file_type() != FileType::Regular {
                    return Some(Work::Node(path, inode));
                }
                let file = OutFile::new(self.engine, path, inode);
                return Some(Work::File(Arc::new(file)));
            }
            // A writer that finds nothing more to receive must see the big file that another writer
            // received just before, so the file is added while the channel is locked.
            let found = self.leaves.receive_with(|batch| match batch {
                None => Err(self.unfinished().first().cloned()),
                Some(mut batch) if batch.len() == 1 && is_big(&batch[0].1) => {
                    let big = batch.pop().map(|(path, inode)| {
                        let file = Arc::new(OutFile::new(self.engine, path, inode));
                        self.unfinished().push(file.clone());
                        file
                    });
                    Err(big)
                }
                Some(batch) => Ok(batch),
            });
            match found {
                Ok(batch) => *taken = batch.into_iter(),
                Err(file) => return file.map(Work::File),
            }
        }
    }

    /// Releases a file whose parts are all taken. The last writer that releases it gets it back.
    pub fn release(&self, file: Arc<OutFile<'a>>) -> Option<OutFile<'a>> {
        self.unfinished().retain(|other| !Arc::ptr_eq(other, &file));
        Arc::into_inner(file)
    }

    fn unfinished(&self) -> MutexGuard<'_, Vec<Arc<OutFile<'a>>>> {
        self.unfinished
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
