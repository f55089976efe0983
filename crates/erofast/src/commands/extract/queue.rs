//! What the writers do next.
//!
//! Each takes a file of its own as long as there are any: two threads that write to one file wait
//! for each other in the kernel. At the end they help with the big ones that are not finished.

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Inode};

use super::outfile::OutFile;
use crate::parts::PART;

/// Something to make that is no directory: its path, and what it is.
pub type Leaf = (Vec<u8>, Arc<Inode>);

/// Work for one writer.
#[derive(Debug)]
pub enum Work<'a> {
    /// A file; others may work at it too.
    File(Arc<OutFile<'a>>),
    /// A symlink, device node, FIFO or socket.
    Node(Vec<u8>, Arc<Inode>),
}

/// Where writers get their work.
#[derive(Debug)]
pub struct Queue<'a> {
    engine: &'a Engine,
    /// L. From the walk.
    leaves: Mutex<Receiver<Leaf>>,
    /// L. Big files that somebody works at. Taken with `leaves` held, or alone.
    unfinished: Mutex<Vec<Arc<OutFile<'a>>>>,
}

impl<'a> Queue<'a> {
    /// A queue of what the walk sends.
    pub fn new(engine: &'a Engine, leaves: Receiver<Leaf>) -> Self {
        Self {
            engine,
            leaves: Mutex::new(leaves),
            unfinished: Mutex::default(),
        }
    }

    /// The next work; none when nothing is left to begin or to help with.
    pub fn next(&self) -> Option<Work<'a>> {
        // Whoever finds the end of the walk must see the big file that was taken just before.
        let leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        let Ok((path, inode)) = leaves.recv() else {
            return self.unfinished().first().cloned().map(Work::File);
        };
        if inode.file_type() != FileType::Regular {
            return Some(Work::Node(path, inode));
        }
        let big = inode.size > PART;
        let file = Arc::new(OutFile::new(self.engine, path, inode));
        if big {
            self.unfinished().push(file.clone());
        }
        Some(Work::File(file))
    }

    /// Lets go of a file of which all parts are taken. Whoever is the last gets it back.
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
