//! The thread that decodes and stores files.

use std::io::ErrorKind;
use std::sync::{Arc, Weak};

use erofs_engine::Engine;
use fuse_transport::PageStore;

use super::super::storing_threads::StoringThreads;
use super::queue::{FileReadAhead, Job, is_small_file};
use crate::nodes::Nodes;
use crate::threads::with_that_of_workers;

/// Maximum number of requests to wait for until the kernel knows a file: not every request comes
/// from the reader that listed it.
const TRIES: u32 = 4;

/// Ends the thread, if it was started, when dropped.
#[derive(Debug)]
pub(crate) struct Running(Arc<FileReadAhead>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Makes `threads` start the thread when a file is due to be stored.
pub(crate) fn start(
    files: &Arc<FileReadAhead>,
    engine: &Arc<Engine>,
    nodes: Nodes,
    threads: &mut StoringThreads<'_>,
) -> Running {
    let running = Running(Arc::clone(files));
    let (files, engine) = (Arc::clone(files), Arc::downgrade(engine));
    threads.add("erofs_readahead", &running.0.demand, move |pages| {
        with_that_of_workers(&engine, || store_all(&files, &engine, nodes, pages));
    });
    running
}

fn store_all(files: &FileReadAhead, engine: &Weak<Engine>, nodes: Nodes, pages: &PageStore) {
    // Grows to the size of the largest file so far.
    let mut buffer = Vec::new();
    while let Some(job) = files.next() {
        let Some(engine) = engine.upgrade() else {
            return;
        };
        let _busy = engine.busy();
        store(files, &job, &engine, nodes, pages, &mut buffer);
    }
}

fn store(
    files: &FileReadAhead,
    job: &Job,
    engine: &Engine,
    nodes: Nodes,
    pages: &PageStore,
    buffer: &mut Vec<u8>,
) {
    let (Some(bytes), Some(node)) = (decode(job, engine, buffer), nodes.node(job.nid)) else {
        return files.done(job, None);
    };
    for _ in 0..TRIES {
        // If a reader has requested the file in the meantime, the reader gets the same bytes, and
        // storing them would have to wait for its read.
        if !files.is_wanted(job) {
            return;
        }
        let seen = files.requests();
        match pages.store(node, 0, bytes) {
            Ok(()) => return files.done(job, Some(bytes.len() as u64)),
            // The reader may not have taken the listing yet.
            Err(error) if error.kind() == ErrorKind::NotFound && files.wait_for_request(seen) => {}
            Err(_) => break,
        }
    }
    files.done(job, None);
}

/// Decodes the content of a file; `None` if that fails, in which case a program that reads the file
/// gets the error.
fn decode<'b>(job: &Job, engine: &Engine, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
    let inode = engine.inode(job.nid).ok()?;
    if !is_small_file(inode.mode.into(), inode.size) {
        return None;
    }
    let size = inode.size as usize;
    if buffer.len() < size {
        buffer.resize(size, 0);
    }
    let bytes = &mut buffer[..size];
    let request = engine.waiting();
    engine.read_ahead_at(&request, &inode, 0, bytes).ok()?;
    Some(bytes)
}
