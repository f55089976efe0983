//! The thread that walks the tree: checks names, types and link counts, gives content to the
//! readers.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Inode, Nid};

use super::found::Found;
use super::manifest::Manifest;
use super::report::{Compared, Fault, Report};
use super::sums::Whole;
use super::work::{Part, Task};
use crate::batch::Giver;
use crate::parts::{self, Parts};
use crate::tree::{self, Entry, Visit};

/// The thread that walks the tree.
pub struct Walk<'a> {
    engine: &'a Engine,
    pub giver: Giver<Task>,
    found: &'a Found,
    pub report: Report,
    /// Sums of files that were not met yet.
    manifest: Option<Manifest>,
    /// Names met for each inode that is no directory, against its link count.
    links: HashMap<Nid, (u32, u32, Vec<u8>)>,
    order: usize,
}

impl<'a> Walk<'a> {
    /// A walk that has not begun.
    pub fn new(
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

    /// Walks everything below `root`.
    pub fn run(&mut self, root: &Arc<Inode>) -> anyhow::Result<()> {
        let engine = self.engine;
        tree::walk(engine, root, &mut |visit| {
            self.order += 1;
            match visit {
                Visit::Entry(entry) => self.entry(entry)?,
                Visit::Fault { path, nid, error } => {
                    self.found.add(self.order, Fault::new(&path, nid, error));
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
            self.report
                .oddities
                .push(Fault::new(&path, inode.nid, what));
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
            self.found
                .add(self.order, Fault::new(&path, inode.nid, error));
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
                    self.found
                        .add(self.order, Fault::new(&path, inode.nid, error));
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
                        .add_content(self.order, offset, Fault::new(&path, inode.nid, error));
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
                .push(Fault::new(&tree::join(path, &name), nid, what));
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
            self.report.oddities.push(Fault::new(&path, nid, what));
        }
    }

    /// Gives a file to a reader if the manifest lists its name. Whether that is all its content
    /// needs is returned.
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
        // sha256sum reads what a symlink leads to.
        let target = match inode.file_type() {
            FileType::Symlink => self.engine.resolve(path, true),
            _ => Ok(inode.clone()),
        };
        let what = match target {
            Ok(target) if target.file_type() == FileType::Regular => {
                let bytes = target.size;
                let whole = Whole {
                    order: self.order,
                    path: path.into(),
                    inode: target,
                    expected,
                    counts: regular && first,
                };
                self.giver.give(Task::Whole(whole), bytes)?;
                return Ok(regular);
            }
            Ok(_) => "the manifest lists it, but it is not a regular file".to_owned(),
            Err(error) => format!("the manifest lists it, but it leads nowhere: {error}"),
        };
        self.found
            .add(self.order, Fault::new(path, inode.nid, what));
        Ok(false)
    }

    /// What the manifest lists and the walk did not meet.
    fn name_missing(&mut self) {
        for (path, _) in self.manifest.take().into_iter().flatten() {
            self.order += 1;
            let what = "the manifest lists it, but it is not in the image";
            self.found.add(self.order, Fault::new(&path, 0, what));
        }
    }
}
