//! The reading threads.

use erofs_engine::Engine;

use super::found::Found;
use super::sums;
use super::task::{Action, Task};
use crate::tools::batch::BatchReceiver;
use crate::tools::parts;

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
