//! Extraction as a tar stream to standard output.
//!
//! One thread walks the tree; readers decode parts, several at a time; the calling thread writes
//! them in the order of the walk.

use std::io::{self, IsTerminal};
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use anyhow::Context;
use erofs_engine::erofs_format::{FileType, Inode};
use erofs_engine::{Engine, Error};

use super::archive::{Archive, Item, Member};
use super::entries::{self, Step, Then, is_plain};
use super::job::Job;
use super::journal::Journal;
use super::paths::Paths;
use super::sparse::{self, Map, Segment};
use super::tar::{self, Kind};
use crate::tools::batch::threads;
use crate::tools::parts::{self, Parts};

/// Maximum number of parts per reader that are decoded ahead of their turn and kept in memory.
const AHEAD: usize = 4;
/// Maximum number of data bytes of a file in a stream, without holes; a file that claims more is
/// refused.
const SIZE_MAX: u64 = 1 << 40;

/// A range of a file for one of the readers.
struct Order {
    inode: Arc<Inode>,
    range: Range<u64>,
    answer: SyncSender<Result<Vec<u8>, Error>>,
}

/// Refuses to write to a terminal, before anything is printed.
pub fn check_output() -> anyhow::Result<()> {
    anyhow::ensure!(
        !io::stdout().is_terminal(),
        "will not write a tar stream to a terminal: redirect standard output"
    );
    Ok(())
}

/// Writes the stream.
pub fn run(job: &Job, journal: &Journal) -> anyhow::Result<()> {
    let out = erofast_cli::stdout();
    let (orders, queue) = sync_channel(AHEAD * job.threads);
    let (items, line) = sync_channel(AHEAD * job.threads);
    let queue = Mutex::new(queue);
    thread::scope(|scope| {
        threads(scope, job.threads, || read(&job.engine, &queue))?;
        let walker = move || walk(job, journal, &orders, &items);
        let walking = thread::Builder::new()
            .spawn_scoped(scope, walker)
            .context("cannot start the thread that walks the tree")?;
        let written = Archive::new(out, journal).write_all(line);
        let walked = walking.join();
        // If the writer fails, its error is reported: the walk fails only as a consequence.
        written?;
        walked.map_err(|_| anyhow::anyhow!("the thread that walks the tree panicked"))?
    })
}

/// Runs a reader until there are no more orders.
fn read(engine: &Engine, orders: &Mutex<Receiver<Order>>) {
    loop {
        let next = orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(order) = next else { return };
        let mut bytes = Vec::new();
        let result = parts::read(engine, &order.inode, &order.range, &mut bytes).map(drop);
        // If the stream was closed, no thread waits for the answer.
        let _ = order.answer.send(result.map(|()| bytes));
    }
}

fn walk(
    job: &Job,
    journal: &Journal,
    orders: &SyncSender<Order>,
    items: &SyncSender<Item>,
) -> anyhow::Result<()> {
    entries::walk(job, journal, &mut Paths::default(), &mut |paths, step| {
        let path = match &step {
            Step::Directory(path, ..) | Step::Leaf(path, _) => path,
            Step::Link { path, .. } => &paths.path(*path),
        };
        if !path.is_empty() && !is_plain(path) {
            journal.failure(path, "the name leads out of its directory");
            send(items, Item::Missing(path.clone()))?;
            return Ok(Then::SkipContent);
        }
        let map = match &step {
            Step::Leaf(_, inode) if inode.file_type() == FileType::Regular => {
                Map::of(Parts::new(&job.engine, inode.clone()), inode.size)
            }
            _ => Map::default(),
        };
        match member(&job.engine, (&step, &map), path, paths, journal) {
            Ok(Some(item)) => send(items, item)?,
            Ok(None) => return Ok(Then::Continue),
            Err(error) => {
                journal.failure(path, error);
                send(items, Item::Missing(path.clone()))?;
                return Ok(Then::Continue);
            }
        }
        if let Step::Leaf(_, inode) = step
            && inode.file_type() == FileType::Regular
        {
            content(&job.engine, &inode, orders, items)?;
        }
        Ok(Then::Continue)
    })
}

fn send(items: &SyncSender<Item>, item: Item) -> anyhow::Result<()> {
    let closed = |_| anyhow::anyhow!("the stream was closed");
    items.send(item).map_err(closed)
}

/// The header of a member; `None` for file types that tar cannot represent.
fn member(
    engine: &Engine,
    (step, map): (&Step, &Map),
    path: &[u8],
    paths: &Paths,
    journal: &Journal,
) -> anyhow::Result<Option<Item>> {
    let inode = match step {
        // Each name of a socket is left out.
        Step::Link { first, inode, .. } if inode.file_type() != FileType::Socket => {
            let first = paths.path(*first);
            let kind = Kind::HardLink(&name(&first, false));
            return Ok(Some(Item::Link {
                path: path.to_vec(),
                header: tar::header((path, &name(path, false)), kind, inode, &[], journal)?,
                first,
            }));
        }
        Step::Directory(_, inode, _) | Step::Leaf(_, inode) | Step::Link { inode, .. } => inode,
    };
    let file_type = inode.file_type();
    let xattrs = engine.xattrs(&engine.waiting(), inode)?;
    let target;
    let kind = match file_type {
        FileType::Regular => file(inode, map)?,
        FileType::Symlink => {
            target = engine.read_link(&engine.waiting(), inode)?;
            Kind::Symlink(&target)
        }
        FileType::Socket => {
            journal.not_kept("sockets", path, "not supported in tar");
            return Ok(None);
        }
        other => Kind::Other(other),
    };
    let name = name(path, file_type == FileType::Directory);
    let mut header = tar::header((path, &name), kind, inode, &xattrs, journal)?;
    let mut size = kind.stored();
    if let Kind::Sparse { .. } = kind {
        header.extend(map.text(inode.size));
        size = map.data_bytes();
    }
    Ok(Some(Item::Member(Member {
        path: path.to_vec(),
        file_type,
        header: Some(header),
        size,
        left: size,
        failed: false,
    })))
}

fn file(inode: &Inode, map: &Map) -> anyhow::Result<Kind<'static>> {
    let data = match map.has_holes() {
        true => map.data_bytes(),
        false => inode.size,
    };
    anyhow::ensure!(
        data <= SIZE_MAX,
        "a file of {data} bytes is too large for tar"
    );
    Ok(match map.has_holes() {
        true => Kind::Sparse {
            size: inode.size,
            stored: map.text(inode.size).len() as u64 + data,
        },
        false => Kind::File(inode.size),
    })
}

/// `./PATH`, with a slash at the end for a directory.
fn name(path: &[u8], directory: bool) -> Vec<u8> {
    let slash: &[u8] = if directory && !path.is_empty() {
        b"/"
    } else {
        b""
    };
    [b"./", path, slash].concat()
}

fn content(
    engine: &Engine,
    inode: &Arc<Inode>,
    orders: &SyncSender<Order>,
    items: &SyncSender<Item>,
) -> anyhow::Result<()> {
    for segment in sparse::segments(Parts::new(engine, inode.clone())) {
        let item = match segment {
            Segment::Data(range) => {
                let (answer, bytes) = sync_channel(1);
                orders.send(Order {
                    inode: inode.clone(),
                    range,
                    answer,
                })?;
                Item::Data(bytes)
            }
            Segment::Zeros(count) => Item::Zeros(count),
            Segment::Fault(error) => Item::Fault(error),
        };
        send(items, item)?;
    }
    Ok(())
}
