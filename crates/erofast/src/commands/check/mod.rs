//! `erofast check`: reads everything, lists each fault once, compares with a manifest.
//!
//! One thread walks the tree and cuts each file into parts; the others read them. Holes are not
//! read. A file that the manifest lists goes to one reader as a whole, since a sum takes its bytes
//! in order.

mod manifest;
mod sums;

use std::collections::{BTreeMap, HashMap};
use std::num::NonZero;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{iter, thread};

use erofs_engine::erofs_format::{FileType, Inode, Nid};
use erofs_engine::{Engine, ReadContext, WorkersMode};
use serde::Serialize;

use self::manifest::Manifest;
use self::sums::Whole;
use super::print_json;
use crate::Outcome;
use crate::bar::Gauge;
use crate::batch::{Giver, Taker, batches};
use crate::cli::CheckArgs;
use crate::parts::{self, Parts};
use crate::text;
use crate::tree::{self, Entry, Visit};

/// What `check --json` prints.
#[derive(Debug, Default, Serialize)]
struct Report {
    /// Regular files, hard links counted once.
    files: u64,
    /// Bytes of content that are right, holes included.
    bytes: u64,
    directories: u64,
    symlinks: u64,
    others: u64,
    /// What cannot be read.
    faults: Vec<Fault>,
    /// What can be read and was never written by mkfs.erofs.
    oddities: Vec<Fault>,
    /// With `--manifest`.
    #[serde(skip_serializing_if = "Option::is_none")]
    manifest: Option<Compared>,
}

/// How an image and a manifest fit. What does not is among the faults.
#[derive(Debug, Default, Serialize)]
struct Compared {
    /// Files that the manifest lists.
    listed: u64,
    /// Those that have the sum it says.
    matched: u64,
    /// Names of regular files that it does not list.
    unlisted: u64,
}

#[derive(Clone, Debug, Serialize)]
struct Fault {
    path: String,
    nid: Nid,
    error: String,
}

/// A range of a file for one of the readers.
#[derive(Debug)]
struct Part {
    /// Place of the file in the walk: faults are listed in that order.
    order: usize,
    path: Arc<[u8]>,
    inode: Arc<Inode>,
    offset: u64,
    length: u64,
}

/// Work for one of the readers.
#[derive(Debug)]
enum Task {
    Part(Part),
    Whole(Whole),
}

/// Runs the subcommand.
pub fn run(args: &CheckArgs) -> anyhow::Result<Outcome> {
    let manifest = args.manifest.as_deref().map(manifest::read).transpose()?;
    let engine = Engine::open(&args.image.image, &args.image.options(WorkersMode::Inline))?;
    let cpus = thread::available_parallelism().map_or(1, NonZero::get);
    let report = check(&engine, args.threads.map_or(cpus, NonZero::get), manifest)?;
    if args.json {
        print_json(&report)?;
    } else {
        print(&report, engine.name())?;
    }
    Ok(if report.faults.is_empty() {
        Outcome::Fine
    } else {
        Outcome::Faulty
    })
}

fn check(engine: &Engine, readers: usize, manifest: Option<Manifest>) -> anyhow::Result<Report> {
    let (giver, taker) = batches(readers);
    let root = engine.inode(engine.root())?;
    let found = Found::new(Gauge::new("check", || tree::total_bytes(engine, &root))?);
    let walked = thread::scope(|scope| {
        let threads: Vec<_> = iter::repeat_with(|| scope.spawn(|| work(engine, &taker, &found)))
            .take(readers)
            .collect();
        let mut walk = Walk::new(engine, giver, &found, manifest);
        let walked = walk.run(&root);
        // Readers end when nobody can give any more.
        let report = walk.report;
        drop(walk.giver);
        for thread in threads {
            thread
                .join()
                .map_err(|_| anyhow::anyhow!("a reader panicked"))?;
        }
        walked.map(|()| report)
    });
    let mut report = walked?;
    found.gauge.finish();
    report.bytes = found.gauge.done();
    if let Some(compared) = &mut report.manifest {
        compared.matched = *found.matched();
    }
    report.faults = found.faults().values().flatten().cloned().collect();
    Ok(report)
}

/// What all threads add to.
#[derive(Debug)]
struct Found {
    /// L. By place in the walk; of a file only the first fault, by offset.
    faults: Mutex<BTreeMap<(usize, u64), Vec<Fault>>>,
    /// L. Files with a fault: what is left of them is not read.
    broken: Mutex<HashMap<usize, u64>>,
    /// L. Files that are what the manifest says.
    matched: Mutex<u64>,
    /// Bytes read without a fault.
    gauge: Gauge,
}

impl Found {
    fn new(gauge: Gauge) -> Self {
        Self {
            faults: Mutex::default(),
            broken: Mutex::default(),
            matched: Mutex::default(),
            gauge,
        }
    }

    fn matched(&self) -> MutexGuard<'_, u64> {
        self.matched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn faults(&self) -> MutexGuard<'_, BTreeMap<(usize, u64), Vec<Fault>>> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A fault of a name or a directory; there may be several in one place.
    fn add(&self, order: usize, fault: Fault) {
        self.faults().entry((order, 0)).or_default().push(fault);
    }

    /// A fault in a file's content: the one at the lowest offset stands for all.
    fn add_content(&self, order: usize, offset: u64, fault: Fault) {
        let mut broken = self.broken.lock().unwrap_or_else(PoisonError::into_inner);
        let key = |offset: u64| (order, offset.saturating_add(1));
        match broken.get(&order) {
            Some(&known) if known <= offset => return,
            Some(&known) => {
                self.faults().remove(&key(known));
            }
            None => {}
        }
        broken.insert(order, offset);
        self.faults().insert(key(offset), vec![fault]);
    }

    fn is_broken(&self, order: usize) -> bool {
        self.broken
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .contains_key(&order)
    }
}

fn fault(path: &[u8], nid: Nid, error: impl ToString) -> Fault {
    Fault {
        path: text::name(path),
        nid,
        error: error.to_string(),
    }
}

/// A reader: takes work until there is no more.
fn work(engine: &Engine, tasks: &Taker<Task>, found: &Found) {
    let mut buffer = Vec::new();
    while let Some(batch) = tasks.take() {
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
    match engine.read_at(&part.inode, part.offset, out, ReadContext::Worker) {
        Ok(count) => found.gauge.add(count as u64),
        Err(error) => {
            let fault = fault(&part.path, part.inode.nid, error);
            found.add_content(part.order, part.offset, fault);
        }
    }
}

/// The thread that walks the tree.
struct Walk<'a> {
    engine: &'a Engine,
    giver: Giver<Task>,
    found: &'a Found,
    report: Report,
    /// Sums of files that were not met yet.
    manifest: Option<Manifest>,
    /// Names met for each inode that is no directory, against its link count.
    links: HashMap<Nid, (u32, u32, Vec<u8>)>,
    order: usize,
}

impl<'a> Walk<'a> {
    fn new(
        engine: &'a Engine,
        giver: Giver<Task>,
        found: &'a Found,
        manifest: Option<Manifest>,
    ) -> Self {
        let listed = manifest.as_ref().map(|manifest| Compared {
            listed: manifest.len() as u64,
            ..Compared::default()
        });
        Self {
            engine,
            giver,
            found,
            report: Report {
                manifest: listed,
                ..Report::default()
            },
            manifest,
            links: HashMap::new(),
            order: 0,
        }
    }

    fn run(&mut self, root: &Arc<Inode>) -> anyhow::Result<()> {
        let engine = self.engine;
        tree::walk(engine, root, &mut |visit| {
            self.order += 1;
            match visit {
                Visit::Entry(entry) => self.entry(entry)?,
                Visit::Fault { path, nid, error } => {
                    self.found.add(self.order, fault(&path, nid, error));
                }
            }
            Ok(())
        })?;
        self.giver.flush()?;
        self.name_missing();
        self.count_links();
        Ok(())
    }

    fn entry(&mut self, entry: Entry) -> anyhow::Result<()> {
        let Entry {
            path,
            inode,
            claimed_type,
            first,
        } = entry;
        let file_type = inode.file_type();
        if claimed_type != 0 && claimed_type != file_type as u8 {
            let what = format!(
                "its entry says type {claimed_type}, the inode {}",
                file_type as u8
            );
            self.report.oddities.push(fault(&path, inode.nid, what));
        }
        if file_type != FileType::Directory {
            let link = self.links.entry(inode.nid);
            link.or_insert_with(|| (inode.nlink, 0, path.clone())).1 += 1;
        }
        let listed = self.compare(&path, &inode, first)?;
        if !first {
            return Ok(());
        }
        if let Err(error) = self.engine.xattrs(&inode) {
            self.found.add(self.order, fault(&path, inode.nid, error));
        }
        match file_type {
            FileType::Regular => {
                self.report.files += 1;
                if !listed {
                    self.content(&path, &inode)?;
                }
            }
            FileType::Directory => {
                self.report.directories += 1;
                self.lookups(&path, &inode);
            }
            FileType::Symlink => {
                self.report.symlinks += 1;
                if let Err(error) = self.engine.read_link(&inode) {
                    self.found.add(self.order, fault(&path, inode.nid, error));
                }
            }
            _ => self.report.others += 1,
        }
        Ok(())
    }

    /// Sends the parts of a file to the readers.
    fn content(&mut self, path: &[u8], inode: &Arc<Inode>) -> anyhow::Result<()> {
        let path: Arc<[u8]> = path.into();
        for part in Parts::new(self.engine.image(), inode.clone()) {
            if self.found.is_broken(self.order) {
                break;
            }
            match part {
                parts::Part::Data(range) => self.send(&path, inode, range)?,
                parts::Part::Hole(range) => self.found.gauge.add(range.end - range.start),
                parts::Part::Fault { offset, error } => {
                    let error = format!("{}: nid {}: {error}", self.engine.name(), inode.nid);
                    self.found
                        .add_content(self.order, offset, fault(&path, inode.nid, error));
                }
            }
        }
        Ok(())
    }

    fn send(
        &mut self,
        path: &Arc<[u8]>,
        inode: &Arc<Inode>,
        range: Range<u64>,
    ) -> anyhow::Result<()> {
        let part = Part {
            order: self.order,
            path: path.clone(),
            inode: inode.clone(),
            offset: range.start,
            length: range.end - range.start,
        };
        let bytes = part.length;
        Ok(self.giver.give(Task::Part(part), bytes)?)
    }

    /// Every name that is listed must be found.
    fn lookups(&mut self, path: &[u8], inode: &Arc<Inode>) {
        let mut names = Vec::new();
        // What cannot be listed is reported by the walk.
        let _ = self.engine.read_dir(inode, 0, &mut |name, nid, _, _| {
            names.push((name.to_vec(), nid));
            std::ops::ControlFlow::Continue(())
        });
        for (name, nid) in names {
            let what = match self.engine.lookup(inode, &name) {
                Ok(Some(found)) if found == nid => continue,
                Ok(Some(found)) => format!("listed as nid {nid}, looked up as nid {found}"),
                Ok(None) => "listed, but not found by its name: names out of order".to_owned(),
                Err(error) => format!("listed, but not found by its name: {error}"),
            };
            self.report
                .oddities
                .push(fault(&tree::join(path, &name), nid, what));
        }
    }

    fn count_links(&mut self) {
        let mut wrong: Vec<_> = self
            .links
            .drain()
            .filter(|(_, (nlink, names, _))| nlink != names)
            .collect();
        wrong.sort_by(|a, b| a.1.2.cmp(&b.1.2));
        for (nid, (nlink, names, path)) in wrong {
            let what = format!("link count {nlink}, but {names} name(s) in the tree");
            self.report.oddities.push(fault(&path, nid, what));
        }
    }
}

fn print(report: &Report, name: &str) -> anyhow::Result<()> {
    for fault in &report.faults {
        outln!("fault: {}: {}", shown(&fault.path), fault.error);
    }
    for oddity in &report.oddities {
        outln!("odd: {}: {}", shown(&oddity.path), oddity.error);
    }
    let Report {
        files,
        directories,
        symlinks,
        others,
        ..
    } = report;
    if let Some(Compared {
        listed,
        matched,
        unlisted,
    }) = &report.manifest
    {
        outln!("manifest: {matched} of {listed} files match; {unlisted} are not listed");
    }
    outln!(
        "{name}: {files} files, {directories} directories, {symlinks} symlinks, {others} others, {} \
         read: {} fault(s), {} oddity(ies)",
        text::size(report.bytes),
        report.faults.len(),
        report.oddities.len()
    );
    Ok(())
}

fn shown(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}
