//! Extraction into a directory.
//!
//! 1. One thread walks the tree and creates the directories; everything else goes to the writers.
//! 2. The writers end after the walk; once they have ended, all files are complete.
//! 3. Hard links are created, now that their first names exist.
//! 4. The directories receive their metadata, deepest first. Nothing is written into them any more,
//!    so they may be read-only, and their times persist.

use std::os::fd::AsFd;
use std::thread;

use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Nid};

use super::entries::{self, Step, Then};
use super::job::Job;
use super::journal::Journal;
use super::metadata;
use super::outfile::Writer;
use super::paths::{PathId, Paths};
use super::queue::{self, Leaf, Queue, Work};
use super::stop::Stop;
use super::target::Target;
use crate::tools::batch::{BatchSender, batches, threads};

/// Work to do after the walk.
#[derive(Default)]
struct Rest {
    paths: Paths,
    /// Hard links to create: the new name, and the name found first.
    links: Vec<(PathId, PathId)>,
    directories: Vec<(PathId, Nid)>,
}

/// Extracts into a directory.
pub fn run(job: &Job, target: &Target, journal: &Journal) -> anyhow::Result<()> {
    let (mut sender, receiver) = batches(job.threads);
    let queue = Queue::new(&job.engine, receiver);
    let stop = Stop::new(&job.interrupted);
    let writer = || Writer::new(job, &stop, target, journal);
    let rest = thread::scope(|scope| {
        let threads = threads(scope, job.threads, || write(writer(), &queue))?;
        let walked = walk(job, &stop, target, journal, &mut sender);
        // The writers end once the sender is dropped.
        drop(sender);
        for thread in threads {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a writer panicked"))?;
        }
        stop.check()?;
        walked
    })?;
    for (path, first) in rest.links {
        let (path, first) = (rest.paths.path(path), rest.paths.path(first));
        match target.make_link(&first, &path) {
            Ok(()) => journal.linked(),
            Err(error) => {
                let first = crate::tools::text::name(&first);
                journal.failure(&path, format!("hard link to {first}: {error}"));
            }
        }
    }
    for &(path, nid) in rest.directories.iter().rev() {
        let path = rest.paths.path(path);
        if let Err(error) = finish_directory(&job.engine, target, &path, nid, journal) {
            journal.failure(&path, error);
        }
    }
    Ok(())
}

/// Runs a writer until no work is left.
fn write<'a>(mut writer: Writer<'a>, queue: &Queue<'a>) {
    let mut taken = Vec::new().into_iter();
    while let Some(work) = queue.next(&mut taken) {
        match work {
            Work::Node(path, inode) => writer.node(&path, &inode),
            Work::File(file) => {
                writer.write(&file);
                if let Some(file) = queue.release(file) {
                    writer.finish(file);
                }
            }
        }
    }
}

fn walk(
    job: &Job,
    stop: &Stop<'_>,
    target: &Target,
    journal: &Journal,
    leaves: &mut BatchSender<Leaf>,
) -> anyhow::Result<Rest> {
    let mut rest = Rest::default();
    let mut paths = Paths::default();
    entries::walk(job, journal, &mut paths, &mut |_, step| {
        stop.check()?;
        match step {
            Step::Directory(path, inode, id) => {
                if let Err(error) = target.make_directory(&path) {
                    let error = error.into();
                    if !stop.takes(&error) {
                        journal.failure(&path, error);
                    }
                    return Ok(Then::SkipContent);
                }
                match id {
                    Some(id) => rest.directories.push((id, inode.nid)),
                    None => journal
                        .failure(&path, "too many directories: its metadata was not restored"),
                }
            }
            Step::Link { path, first, .. } => rest.links.push((path, first)),
            Step::Leaf(path, inode) if target.keeps(&path, &inode) => {
                journal.wrote(inode.size);
                journal.done(FileType::Regular);
            }
            Step::Leaf(path, inode) if queue::is_big(&inode) => leaves.send_alone((path, inode))?,
            Step::Leaf(path, inode) => {
                let bytes = match inode.file_type() {
                    FileType::Regular => inode.size,
                    _ => 0,
                };
                leaves.send((path, inode), bytes)?;
            }
        }
        Ok(Then::Continue)
    })?;
    leaves.flush()?;
    rest.paths = paths;
    Ok(rest)
}

fn finish_directory(
    engine: &Engine,
    target: &Target,
    path: &[u8],
    nid: Nid,
    journal: &Journal,
) -> anyhow::Result<()> {
    let inode = &*engine.inode(nid)?;
    let directory = target.open_directory(path)?;
    // An entry whose xattrs cannot be read still gets its other metadata.
    let xattrs = engine.xattrs(&engine.waiting(), inode);
    let known = xattrs.as_deref().unwrap_or_default();
    let directory = directory.as_fd();
    metadata::apply(directory, inode, known, target.keep, path, journal);
    xattrs?;
    journal.done(FileType::Directory);
    Ok(())
}
