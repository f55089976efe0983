//! Work for the reading threads.

use std::sync::Arc;

use erofs_engine::Engine;
use erofs_engine::erofs_format::Inode;

use super::found::Found;
use super::report::Fault;
use super::sums::{self, Whole};
use crate::batch::BatchReceiver;

/// A range of a file for one of the readers.
#[derive(Debug)]
pub struct Part {
    /// Position of the file in the walk: faults are listed in that order.
    pub order: usize,
    pub path: Arc<[u8]>,
    pub inode: Arc<Inode>,
    pub offset: u64,
    pub length: u64,
}

/// Work for one of the readers.
#[derive(Debug)]
pub enum Task {
    Part(Part),
    Whole(Whole),
}

/// A reader: runs tasks until the sender is gone.
pub fn work(engine: &Engine, tasks: &BatchReceiver<Task>, found: &Found) {
    let mut buffer = Vec::new();
    while let Some(batch) = tasks.receive() {
        for task in &batch {
            match task {
                Task::Part(part) => read_part(engine, part, &mut buffer, found),
                Task::Whole(whole) => sums::compare(engine, whole, &mut buffer, found),
            }
        }
    }
}

fn read_part(engine: &Engine, part: &Part, buffer: &mut Vec<u8>, found: &Found) {
    if found.is_broken(part.order) {
        return;
    }
    let length = part.length as usize;
    if buffer.len() < length {
        buffer.resize(length, 0);
    }
    let out = &mut buffer[..length];
    match engine.read_at(&engine.waiting(), &part.inode, part.offset, out) {
        Ok(count) => found.bar.add(count as u64),
        Err(error) => {
            let fault = Fault::new(&part.path, part.inode.nid, error);
            found.add_content(part.order, part.offset, fault);
        }
    }
}
