//! Extraction as a tar stream on the standard output.
//!
//! One thread walks the tree; readers decode parts, several at a time; this thread writes them in
//! the order of the walk.

use std::collections::HashSet;
use std::io::{self, IsTerminal, Write};
use std::ops::Range;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::{iter, thread};

use erofs_engine::erofs_format::{FileType, Inode};
use erofs_engine::{Engine, Error, ReadContext};

use super::Job;
use super::entries::{self, Step, Then, is_plain};
use super::journal::Journal;
use super::tar::{self, Kind};
use crate::parts::{Part, Parts};

/// Parts that are decoded before their turn at most, for each reader: they are kept in memory.
const AHEAD: usize = 4;
/// A stream has no holes: who claims more than this is not believed.
const SIZE_MAX: u64 = 1 << 40;

/// A range of a file for one of the readers.
#[derive(Debug)]
struct Order {
    inode: Arc<Inode>,
    range: Range<u64>,
    answer: SyncSender<Result<Vec<u8>, Error>>,
}

/// What comes next in the stream.
#[derive(Debug)]
enum Item {
    /// A member begins.
    Member {
        path: Vec<u8>,
        header: Vec<u8>,
        file_type: FileType,
        /// Bytes of content, which follow.
        size: u64,
    },
    /// Another name of a member.
    Link {
        path: Vec<u8>,
        first: Vec<u8>,
        header: Vec<u8>,
    },
    /// Bytes of the member, when they are ready.
    Data(Receiver<Result<Vec<u8>, Error>>),
    /// So many zeros of it.
    Zeros(u64),
    /// There is no more of it.
    Fault(String),
}

/// Writes the stream.
pub fn run(job: &Job, journal: &Journal) -> anyhow::Result<()> {
    let out = io::stdout().lock();
    anyhow::ensure!(
        !out.is_terminal(),
        "a tar stream is not for a terminal: redirect the standard output"
    );
    let (orders, queue) = sync_channel(AHEAD * job.threads);
    let (items, line) = sync_channel(AHEAD * job.threads);
    let queue = Mutex::new(queue);
    thread::scope(|scope| {
        for thread in iter::repeat_n(|| read(&job.engine, &queue), job.threads) {
            scope.spawn(thread);
        }
        let walking = scope.spawn(move || walk(job, journal, &orders, &items));
        let written = Stream::new(out, journal).write_all(line);
        let walked = walking.join();
        // When the writer fails, the walk fails for that reason.
        written?;
        walked.map_err(|_| anyhow::anyhow!("the walk panicked"))?
    })
}

/// A reader: takes orders until there are no more.
fn read(engine: &Engine, orders: &Mutex<Receiver<Order>>) {
    loop {
        let next = orders.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(order) = next else { return };
        let Order {
            inode,
            range,
            answer,
        } = order;
        let mut bytes = vec![0; (range.end - range.start) as usize];
        let result = engine.read_at(&inode, range.start, &mut bytes, ReadContext::Worker);
        // Nobody waits for it when the stream was closed.
        let _ = answer.send(result.map(|_| bytes));
    }
}

fn walk(
    job: &Job,
    journal: &Journal,
    orders: &SyncSender<Order>,
    items: &SyncSender<Item>,
) -> anyhow::Result<()> {
    entries::walk(job, journal, &mut |step| {
        let path = match &step {
            Step::Directory(path, _) | Step::Leaf(path, _) | Step::Link { path, .. } => path,
        };
        if !path.is_empty() && !is_plain(path) {
            journal.failure(path, "a name that leads out of its directory");
            return Ok(Then::SkipContent);
        }
        match member(&job.engine, &step, journal) {
            Ok(Some(item)) => send(items, item)?,
            Ok(None) => return Ok(Then::Continue),
            Err(error) => {
                journal.failure(path, error);
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

/// The beginning of a member; none for what tar cannot hold.
fn member(engine: &Engine, step: &Step, journal: &Journal) -> anyhow::Result<Option<Item>> {
    let (path, inode) = match step {
        Step::Directory(path, inode) | Step::Leaf(path, inode) => (path, inode),
        Step::Link { path, first, inode } => {
            let kind = Kind::HardLink(&name(first, false));
            return Ok(Some(Item::Link {
                path: path.clone(),
                first: first.clone(),
                header: tar::header(&name(path, false), kind, inode, &[]),
            }));
        }
    };
    let file_type = inode.file_type();
    let xattrs = engine.xattrs(inode)?;
    let target;
    let kind = match file_type {
        FileType::Regular if inode.size > SIZE_MAX => {
            anyhow::bail!("{} bytes are too much for a stream", inode.size)
        }
        FileType::Regular => Kind::File(inode.size),
        FileType::Symlink => {
            target = engine.read_link(inode)?;
            Kind::Symlink(&target)
        }
        other => match Kind::of(other) {
            Some(kind) => kind,
            None => {
                journal.not_kept("sockets", path, "tar has none");
                return Ok(None);
            }
        },
    };
    let name = name(path, kind == Kind::Directory);
    Ok(Some(Item::Member {
        header: tar::header(&name, kind, inode, &xattrs),
        path: path.clone(),
        file_type,
        size: if let Kind::File(size) = kind { size } else { 0 },
    }))
}

/// `./PATH`, with a slash at the end of a directory.
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
    for part in Parts::new(engine.image(), inode) {
        let item = match part {
            Part::Data(range) => {
                let (answer, bytes) = sync_channel(1);
                orders.send(Order {
                    inode: inode.clone(),
                    range,
                    answer,
                })?;
                Item::Data(bytes)
            }
            Part::Hole(range) => Item::Zeros(range.end - range.start),
            Part::Fault { error, .. } => {
                Item::Fault(format!("{}: nid {}: {error}", engine.name(), inode.nid))
            }
        };
        send(items, item)?;
    }
    Ok(())
}

/// The member that is being written.
#[derive(Debug)]
struct Current {
    path: Vec<u8>,
    file_type: FileType,
    /// Not written yet: a file whose first part cannot be read is left out.
    header: Option<Vec<u8>>,
    size: u64,
    /// Bytes of content that are still to come.
    left: u64,
    failed: bool,
}

/// The writing end.
struct Stream<'a, W> {
    out: W,
    journal: &'a Journal,
    current: Option<Current>,
    /// Members that were left out: they have no other names.
    missing: HashSet<Vec<u8>>,
}

impl<'a, W: Write> Stream<'a, W> {
    fn new(out: W, journal: &'a Journal) -> Self {
        Self {
            out,
            journal,
            current: None,
            missing: HashSet::new(),
        }
    }

    fn write_all(mut self, items: Receiver<Item>) -> anyhow::Result<()> {
        for item in items {
            match item {
                Item::Member {
                    path,
                    header,
                    file_type,
                    size,
                } => {
                    self.end_member()?;
                    self.current = Some(Current {
                        path,
                        file_type,
                        header: Some(header),
                        size,
                        left: size,
                        failed: false,
                    });
                }
                Item::Link {
                    path,
                    first,
                    header,
                } => {
                    self.end_member()?;
                    self.link(&path, &first, &header)?;
                }
                Item::Data(bytes) => match bytes.recv()? {
                    Ok(bytes) => self.data(&bytes)?,
                    Err(error) => self.fault(&error.to_string()),
                },
                Item::Zeros(count) => self.zeros(count)?,
                Item::Fault(error) => self.fault(&error),
            }
        }
        self.end_member()?;
        self.out.write_all(&[0; 2 * tar::BLOCK])?;
        self.out.flush()?;
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(current) = &mut self.current else {
            return Ok(());
        };
        if current.failed {
            return Ok(());
        }
        if let Some(header) = current.header.take() {
            self.out.write_all(&header)?;
        }
        self.out.write_all(bytes)?;
        current.left = current.left.saturating_sub(bytes.len() as u64);
        self.journal.wrote(bytes.len() as u64);
        Ok(())
    }

    fn zeros(&mut self, mut count: u64) -> io::Result<()> {
        let zeros = [0; 64 << 10];
        while count > 0 {
            let now = count.min(zeros.len() as u64);
            self.data(&zeros[..now as usize])?;
            count -= now;
        }
        Ok(())
    }

    fn fault(&mut self, error: &str) {
        let Some(current) = &mut self.current else {
            return;
        };
        if !current.failed {
            let error = match current.header {
                Some(_) => error.to_owned(),
                None => format!("{error}; its last {} bytes are zeros now", current.left),
            };
            self.journal.failure(&current.path, error);
            current.failed = true;
        }
    }

    /// Fills a member up: with zeros to its size if it broke off, and to a whole block.
    fn end_member(&mut self) -> io::Result<()> {
        let Some(mut current) = self.current.take() else {
            return Ok(());
        };
        match current.header.take() {
            Some(_) if current.failed => {
                self.missing.insert(current.path);
                return Ok(());
            }
            Some(header) => self.out.write_all(&header)?,
            None => {}
        }
        let padding = current.size.next_multiple_of(tar::BLOCK as u64) - current.size;
        io::copy(
            &mut io::Read::take(io::repeat(0), current.left + padding),
            &mut self.out,
        )?;
        if !current.failed {
            self.journal.done(current.file_type);
        }
        Ok(())
    }

    fn link(&mut self, path: &[u8], first: &[u8], header: &[u8]) -> io::Result<()> {
        if self.missing.contains(first) {
            let first = crate::text::name(first);
            let error = format!("hard link to {first}, which is left out");
            self.journal.failure(path, error);
            return Ok(());
        }
        self.out.write_all(header)?;
        self.journal.linked();
        Ok(())
    }
}
