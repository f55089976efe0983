//! Extraction into a directory.
//!
//! 1. One thread walks the tree and makes the directories. Everything else goes to the writers:
//!    small files whole, big ones by parts, so that several threads work at one of them.
//! 2. The writers end when the walk has.
//! 3. Hard links are made, since now their first names are there.
//! 4. The directories get their metadata, the deepest ones first: from here on they may forbid
//!    writing, and their times stay.

use std::os::fd::AsFd;
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::{iter, thread};

use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Inode};

use super::Job;
use super::entries::{self, Step, Then};
use super::journal::Journal;
use super::metadata::{self, Handle};
use super::outfile::{OutFile, Writer};
use super::target::Target;
use crate::parts::{PART, Part, Parts};

/// Orders that wait for a writer at most, for each writer.
const AHEAD: usize = 16;

/// What a writer is told to do.
#[derive(Debug)]
enum Order {
    /// All of an entry.
    Leaf(Vec<u8>, Arc<Inode>),
    /// A part of a big file.
    Part(Arc<OutFile>, Part),
}

/// What is left for the end.
#[derive(Debug, Default)]
struct Rest {
    /// New name, first name.
    links: Vec<(Vec<u8>, Vec<u8>)>,
    directories: Vec<(Vec<u8>, Arc<Inode>)>,
}

/// Extracts into a directory.
pub fn run(job: &Job, directory: &Path, force: bool, journal: &Journal) -> anyhow::Result<()> {
    let target = Target::open(directory, force)?;
    let (sender, receiver) = sync_channel(AHEAD * job.threads);
    let receiver = Mutex::new(receiver);
    let writer = || Writer::new(&job.engine, &target, journal);
    let rest = thread::scope(|scope| {
        let threads: Vec<_> = iter::repeat_with(|| scope.spawn(|| write(writer(), &receiver)))
            .take(job.threads)
            .collect();
        let walked = walk(job, &target, journal, &writer(), &sender);
        // Writers end when nobody can send any more.
        drop(sender);
        for thread in threads {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a writer panicked"))?;
        }
        walked
    })?;
    for (path, first) in rest.links {
        match target.make_link(&first, &path) {
            Ok(()) => journal.linked(),
            Err(error) => {
                let first = crate::text::name(&first);
                journal.failure(&path, format!("hard link to {first}: {error}"));
            }
        }
    }
    for (path, inode) in rest.directories.iter().rev() {
        if let Err(error) = finish_directory(&job.engine, &target, path, inode, journal) {
            journal.failure(path, error);
        }
    }
    Ok(())
}

/// A writer: takes orders until there are no more.
fn write(mut writer: Writer<'_>, orders: &Mutex<Receiver<Order>>) {
    loop {
        let next = orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
        match next {
            Ok(Order::Leaf(path, inode)) => writer.leaf(path, inode),
            Ok(Order::Part(file, part)) => {
                writer.part(&file, part);
                release(&writer, file);
            }
            Err(_) => return,
        }
    }
}

/// Lets go of a file; whoever does that last ends it.
fn release(writer: &Writer<'_>, file: Arc<OutFile>) {
    if let Some(file) = Arc::into_inner(file) {
        writer.finish(file);
    }
}

fn walk(
    job: &Job,
    target: &Target,
    journal: &Journal,
    writer: &Writer<'_>,
    orders: &SyncSender<Order>,
) -> anyhow::Result<Rest> {
    let mut rest = Rest::default();
    let send = |order| {
        orders
            .send(order)
            .map_err(|_| anyhow::anyhow!("all writers are gone"))
    };
    entries::walk(job, journal, &mut |step| {
        match step {
            Step::Directory(path, inode) => {
                if let Err(error) = target.make_directory(&path) {
                    journal.failure(&path, error);
                    return Ok(Then::SkipContent);
                }
                rest.directories.push((path, inode));
            }
            Step::Link { path, first, .. } => rest.links.push((path, first)),
            Step::Leaf(path, inode)
                if inode.file_type() == FileType::Regular && inode.size > PART =>
            {
                let file = Arc::new(OutFile::new(path, inode.clone()));
                for part in Parts::new(job.engine.image(), &inode) {
                    if file.has_failed() {
                        break;
                    }
                    send(Order::Part(file.clone(), part))?;
                }
                release(writer, file);
            }
            Step::Leaf(path, inode) => send(Order::Leaf(path, inode))?,
        }
        Ok(Then::Continue)
    })?;
    Ok(rest)
}

fn finish_directory(
    engine: &Engine,
    target: &Target,
    path: &[u8],
    inode: &Inode,
    journal: &Journal,
) -> anyhow::Result<()> {
    let directory = target.open_directory(path)?;
    // One whose xattrs cannot be read still gets the rest.
    let xattrs = engine.xattrs(inode);
    let known = xattrs.as_deref().unwrap_or_default();
    metadata::apply(Handle::Open(directory.as_fd()), inode, known, path, journal);
    xattrs?;
    journal.done(FileType::Directory);
    Ok(())
}
