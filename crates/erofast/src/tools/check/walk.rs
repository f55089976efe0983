//! The thread that walks the tree: checks names, types and link counts, and sends content to the
//! readers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use erofast_cli::units;
use erofs_engine::erofs_format::{FileType, Inode, Nid};
use erofs_engine::{Engine, Error};

use super::found::Found;
use super::manifest::Manifest;
use super::report::{Compared, FAULTS, Fault, Report};
use super::task::{Action, Task};
use crate::tools::batch::BatchSender;
use crate::tools::listing::{Listing, Name};
use crate::tools::parts::{self, Parts};
use crate::tools::text;
use crate::tools::tree;

/// Maximum number of inodes whose names are counted.
const LINKS: usize = 1 << 18;
/// Maximum number of blocks whose entries are compared to look up the names of an unsorted
/// directory.
const COMPARED: u64 = 1 << 16;

/// How to treat the content of regular files.
pub enum Content {
    /// Check only where it is stored.
    Map,
    /// Read it.
    Read,
    /// Read it and compare it with the digest in the extended attribute of this name.
    Digest(Vec<u8>),
}

/// The thread that walks the tree.
pub struct Walk<'a> {
    engine: &'a Engine,
    pub sender: BatchSender<Task>,
    found: &'a Found,
    content: &'a Content,
    pub report: Report,
    /// Sums of listed files that have not been found yet.
    manifest: Option<Manifest>,
    /// For each inode its link count, the number of names found, and the path found first. Contains
    /// inodes with several names and those whose link count is not 1.
    links: HashMap<Nid, (u32, u32, Box<[u8]>)>,
    order: usize,
}

impl<'a> Walk<'a> {
    /// A walk that has not begun.
    pub fn new(
        engine: &'a Engine,
        sender: BatchSender<Task>,
        found: &'a Found,
        content: &'a Content,
        manifest: Option<Manifest>,
    ) -> Self {
        let listed = manifest.as_ref().map(|manifest| Compared {
            listed: manifest.len() as u64,
            ..Compared::default()
        });
        Self {
            engine,
            sender,
            found,
            content,
            report: Report {
                manifest: listed,
                ..Report::default()
            },
            manifest,
            links: HashMap::new(),
            order: 0,
        }
    }

    /// Walks everything below `root`.
    pub fn run(&mut self, root: &Arc<Inode>) -> anyhow::Result<()> {
        for visit in tree::walk(self.engine, root) {
            self.order += 1;
            match visit {
                Ok(entry) => self.entry(entry)?,
                Err(tree::Fault { path, nid, error }) => {
                    self.fault(&path, nid, error);
                }
            }
        }
        self.sender.flush()?;
        self.name_missing();
        self.count_links();
        Ok(())
    }

    fn entry(&mut self, entry: tree::Entry) -> anyhow::Result<()> {
        let tree::Entry {
            path,
            inode,
            claimed_type,
            first,
            ..
        } = entry;
        let file_type = inode.file_type();
        if claimed_type != 0 && claimed_type != file_type as u8 {
            let what = format!(
                "its directory entry has type {claimed_type}, its inode {}",
                file_type as u8
            );
            self.odd(&path, inode.nid, what);
        }
        if file_type != FileType::Directory {
            self.count_name(&path, &inode, first);
        }
        let listed = self.compare(&path, &inode, first)?;
        if !first {
            return Ok(());
        }
        self.attributes(&path, &inode);
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
                if let Err(error) = self.engine.read_link(&self.engine.waiting(), &inode) {
                    self.fault(&path, inode.nid, error);
                }
            }
            _ => self.report.others += 1,
        }
        Ok(())
    }

    /// Checks that every listed attribute can be looked up: the inode's name filter may hide some.
    fn attributes(&mut self, path: &[u8], inode: &Inode) {
        if let Err(error) = self.hidden_attributes(path, inode) {
            self.fault(path, inode.nid, error);
        }
    }

    fn hidden_attributes(&mut self, path: &[u8], inode: &Inode) -> Result<(), Error> {
        for each in self.engine.xattrs(&self.engine.waiting(), inode)? {
            let found = self
                .engine
                .xattr(&self.engine.waiting(), inode, &each.name)?;
            if found.is_none() {
                let name = text::name(&each.name);
                let what = format!("attribute {name} is listed, but not found by name");
                self.odd(path, inode.nid, what);
            }
        }
        Ok(())
    }

    /// Sends the parts of a file to the readers.
    fn content(&mut self, path: &[u8], inode: &Arc<Inode>) -> anyhow::Result<()> {
        if let Content::Digest(name) = self.content
            && inode.size > 0
        {
            return self.digest(path, inode, name);
        }
        if let Some(offset) = self.engine.contradiction(inode) {
            let error = format!(
                "{}: nid {}: the extent found at file offset {offset} depends on where reading \
                 begins, and so does the content",
                self.engine.name(),
                inode.nid
            );
            self.found
                .add_content(self.order, offset, Fault::new(path, inode.nid, error));
        }
        let path: Arc<[u8]> = path.into();
        for part in Parts::new(self.engine, inode.clone()) {
            if self.found.is_broken(self.order) {
                break;
            }
            match part {
                parts::Part::Data(_) if matches!(self.content, Content::Map) => {}
                parts::Part::Data(range) => {
                    self.send(path.clone(), inode, Action::Read(range))?;
                }
                parts::Part::Hole(range) => {
                    self.found.bar.add(range.end - range.start);
                    self.report.hole_bytes += range.end - range.start;
                }
                parts::Part::Fault { offset, error } => {
                    self.found
                        .add_content(self.order, offset, Fault::new(&path, inode.nid, error));
                }
            }
        }
        Ok(())
    }

    /// Passes a file to a reader with the digest that the image stores for it.
    fn digest(&mut self, path: &[u8], inode: &Arc<Inode>, name: &[u8]) -> anyhow::Result<()> {
        let stored = self.engine.xattr(&self.engine.waiting(), inode, name)?;
        let Some(stored) = stored else {
            self.odd(path, inode.nid, "no digest");
            return Ok(());
        };
        let Some(Ok(expected)) = stored.strip_prefix(b"sha256:").map(TryInto::try_into) else {
            self.fault(path, inode.nid, "its digest is not SHA-256");
            return Ok(());
        };
        let counts = true;
        self.send(path.into(), inode, Action::Compare { expected, counts })
    }

    fn send(&mut self, path: Arc<[u8]>, inode: &Arc<Inode>, action: Action) -> anyhow::Result<()> {
        let bytes = match &action {
            Action::Read(range) => range.end - range.start,
            Action::Compare { .. } => inode.size,
        };
        let task = Task {
            order: self.order,
            path,
            inode: inode.clone(),
            action,
        };
        Ok(self.sender.send(task, bytes)?)
    }

    /// Checks that every listed name can be looked up. A lookup in an unsorted directory compares
    /// all of its entries, so only the first names of such a directory are looked up.
    fn lookups(&mut self, path: &[u8], inode: &Arc<Inode>) {
        let blocks =
            inode.size / u64::from(self.engine.image_of(inode.nid).superblock().block_size) + 1;
        let (mut compared, mut out_of_order) = (0, false);
        let mut listing = Listing::new(inode.clone());
        // The walk itself reports entries that cannot be listed.
        while let Some(item) = listing.next(self.engine) {
            let Ok(name) = item else { continue };
            out_of_order |= !name.in_order;
            if out_of_order {
                compared += blocks;
                if compared > COMPARED {
                    let what = "names are out of order: not all of them can be looked up";
                    return self.odd(path, inode.nid, what);
                }
            }
            self.look_up(path, inode, &name);
        }
    }

    fn look_up(&mut self, path: &[u8], inode: &Arc<Inode>, name: &Name) {
        let nid = name.nid;
        let what = match self
            .engine
            .lookup(&self.engine.waiting(), inode, &name.name)
        {
            Ok(Some(found)) if found == nid => return,
            Ok(Some(found)) => format!("listed as nid {nid}, but looked up as nid {found}"),
            Ok(None) => "listed, but not found by name: names are out of order".to_owned(),
            Err(error) => format!("listed, but not found by name: {error}"),
        };
        self.odd(&tree::join(path, &name.name), nid, what);
    }

    fn fault(&self, path: &[u8], nid: Nid, error: impl ToString) {
        self.found.add(self.order, Fault::new(path, nid, error));
    }

    fn odd(&mut self, path: &[u8], nid: Nid, what: impl ToString) {
        let fault = Fault::new(path, nid, what);
        match self.report.oddities.len() < FAULTS {
            true => self.report.oddities.push(fault),
            false => self.report.left_out += 1,
        }
    }

    /// Counts the names of inodes that have several, or whose link count is not 1.
    fn count_name(&mut self, path: &[u8], inode: &Inode, first: bool) {
        let known = self.links.len();
        match self.links.entry(inode.nid) {
            Entry::Occupied(mut link) => link.get_mut().1 += 1,
            Entry::Vacant(_) if first && inode.nlink == 1 => {}
            Entry::Vacant(link) if known < LINKS => {
                link.insert((inode.nlink, if first { 1 } else { 2 }, path.into()));
            }
            Entry::Vacant(_) => {}
        }
    }

    /// Reports link counts that differ from the number of names, unless there are several images,
    /// because upper layers may hide names.
    fn count_links(&mut self) {
        if self.engine.image_count() > 1 {
            return;
        }
        let mut wrong: Vec<_> = self
            .links
            .drain()
            .filter(|(_, (nlink, names, _))| nlink != names)
            .collect();
        wrong.sort_by(|a, b| a.1.2.cmp(&b.1.2));
        for (nid, (nlink, names, path)) in wrong {
            let what = format!(
                "its link count is {nlink}, but the tree has {}",
                units::count(names.into(), "name")
            );
            self.odd(&path, nid, what);
        }
    }

    /// Passes a file to a reader if the manifest lists its name. Returns whether its content needs
    /// no further check.
    fn compare(&mut self, path: &[u8], inode: &Arc<Inode>, first: bool) -> anyhow::Result<bool> {
        let Some(manifest) = &mut self.manifest else {
            return Ok(false);
        };
        let regular = inode.file_type() == FileType::Regular;
        let Some(expected) = manifest.remove(path) else {
            if let Some(compared) = &mut self.report.manifest {
                compared.unlisted += u64::from(regular);
            }
            return Ok(false);
        };
        // sha256sum reads the target of a symlink.
        let target = match inode.file_type() {
            FileType::Symlink => self.engine.resolve(path, true),
            _ => Ok(inode.clone()),
        };
        let what = match target {
            Ok(target) if target.file_type() == FileType::Regular => {
                let counts = regular && first;
                self.send(path.into(), &target, Action::Compare { expected, counts })?;
                return Ok(regular);
            }
            Ok(_) => "the manifest lists it, but it is not a regular file".to_owned(),
            Err(error) => format!("the manifest lists it, but the symlink is broken: {error}"),
        };
        self.fault(path, inode.nid, what);
        Ok(false)
    }

    /// Reports files that the manifest lists and the walk did not find.
    fn name_missing(&mut self) {
        for (path, _) in self.manifest.take().into_iter().flatten() {
            self.order += 1;
            let what = "the manifest lists it, but it is not in the image";
            self.fault(&path, 0, what);
        }
    }
}
