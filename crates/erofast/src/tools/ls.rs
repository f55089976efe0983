//! `erofast ls`: lists directories of an image.

use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use erofast_cli::{Outcome, one_line, stdout};
use erofs_engine::erofs_format::{FileType, Inode};
use erofs_engine::{Engine, WorkersMode};
use serde_json::{Value, json};

use crate::cli::tools::images::LsArgs;
use erofs_mount::note;

use crate::tools::listing::Listing;
use crate::tools::name::{self, EntryPath};
use crate::tools::tree::{self, join};
use crate::tools::{glob, text};

/// Runs the subcommand. Entries that cannot be shown are reported on standard error.
pub fn run(args: &LsArgs) -> anyhow::Result<Outcome> {
    let list = |engine: &Arc<Engine>| list(engine, args);
    args.image.read(WorkersMode::Inline, list)
}

fn list(engine: &Engine, args: &LsArgs) -> anyhow::Result<Outcome> {
    let mut list = List {
        engine,
        args,
        out: BufWriter::new(stdout()),
        outcome: Outcome::Fine,
        begun: false,
    };
    let mut found = Vec::new();
    for pattern in &args.paths {
        match glob::expand(engine, pattern.as_bytes(), false) {
            Ok(entries) => {
                for entry in entries {
                    match entry.inode {
                        Ok(inode) => found.push((entry.path, inode)),
                        Err(error) => list.complain(&entry.path, &error.to_string()),
                    }
                }
            }
            Err(error) => {
                note(one_line(&error));
                list.outcome = Outcome::Faulty;
            }
        }
    }
    // As in ls, files that are not directories come first, then each directory under its name.
    let is_open = |inode: &Inode| inode.file_type() == FileType::Directory && !args.directory;
    let (directories, others): (Vec<_>, Vec<_>) =
        found.into_iter().partition(|(_, inode)| is_open(inode));
    let several = directories.len() + others.len() > 1 || args.recursive;
    for (path, inode) in &others {
        list.print(path, path, inode)?;
    }
    for (path, inode) in &directories {
        list.directory(path, inode, several)?;
    }
    list.out.flush()?;
    Ok(list.outcome)
}

/// Maximum number of entries that are sorted by name before printing. Longer directories are sorted
/// in batches of this size; mkfs.erofs stores names in order anyway.
const SORTED: usize = 4096;

struct List<'a, W: Write> {
    engine: &'a Engine,
    args: &'a LsArgs,
    out: W,
    outcome: Outcome,
    /// Whether anything has been listed.
    begun: bool,
}

impl<W: Write> List<'_, W> {
    /// Lists a directory, under its name if several are listed, and with `--recursive` the
    /// directories below it.
    fn directory(&mut self, path: &[u8], inode: &Arc<Inode>, named: bool) -> anyhow::Result<()> {
        if !self.args.recursive {
            return self.entries(path, inode, named);
        }
        for visit in tree::walk(self.engine, inode) {
            match visit {
                Ok(entry) if entry.inode.file_type() == FileType::Directory => {
                    self.entries(&join(path, &entry.path), &entry.inode, named)?;
                }
                Ok(_) => {}
                Err(fault) => self.complain(&join(path, &fault.path), &fault.error),
            }
        }
        Ok(())
    }

    /// Prints one directory.
    fn entries(&mut self, path: &[u8], inode: &Arc<Inode>, named: bool) -> anyhow::Result<()> {
        if named && !self.args.json {
            let gap = if self.begun { "\n" } else { "" };
            writeln!(self.out, "{gap}/{}:", text::name(path))?;
        }
        self.begun = true;
        let mut listing = Listing::new(inode.clone());
        loop {
            let mut batch = Vec::new();
            while batch.len() < SORTED
                && let Some(item) = listing.next(self.engine)
            {
                match item {
                    Ok(name) => batch.push((name.name, name.nid)),
                    Err(error) => self.complain_once(path, &error),
                }
            }
            if batch.is_empty() {
                return Ok(());
            }
            batch.sort();
            for (name, nid) in batch {
                let path = join(path, &name);
                match self.engine.inode(nid) {
                    Ok(inode) => self.print(&path, &name, &inode)?,
                    Err(error) => self.complain_once(&path, &error.to_string()),
                }
            }
        }
    }

    /// Reports an error, except with `--recursive`: the walk will then report it.
    fn complain_once(&mut self, path: &[u8], error: &str) {
        if !self.args.recursive {
            self.complain(path, error);
        }
    }

    fn complain(&mut self, path: &[u8], error: &str) {
        note(format_args!("/{}: {error}", text::name(path)));
        self.outcome = Outcome::Faulty;
    }

    /// Prints one entry. JSON names it by its path, text by `name`.
    fn print(&mut self, path: &[u8], name: &[u8], inode: &Arc<Inode>) -> anyhow::Result<()> {
        self.begun = true;
        let target = match inode.file_type() {
            FileType::Symlink => Some(self.engine.read_link(&self.engine.waiting(), inode)),
            _ => None,
        };
        let name = EntryPath::new(name);
        if self.args.json {
            let mut entry = json!({
                "nid": inode.nid,
                "type": text::type_letter(inode.file_type()),
                "mode": format!("{:04o}", inode.mode & 0o7777),
                "nlink": inode.nlink,
                "uid": inode.uid,
                "gid": inode.gid,
                "size": inode.size,
                "mtime": [inode.mtime, i64::from(inode.mtime_nsec)],
                "rdev": is_device(inode).then_some([inode.rdev.major, inode.rdev.minor]),
            });
            if let Some(entry) = entry.as_object_mut() {
                name::insert(entry, "path", path);
                match target.and_then(Result::ok) {
                    Some(target) => name::insert(entry, "target", &target),
                    None => drop(entry.insert("target".to_owned(), Value::Null)),
                }
            }
            writeln!(self.out, "{entry}")?;
        } else if self.args.long {
            let arrow = match target {
                Some(Ok(target)) => format!(" -> {}", text::name(&target)),
                Some(Err(error)) => format!(" -> ? ({error})"),
                None => String::new(),
            };
            let size = if is_device(inode) {
                format!("{}, {}", inode.rdev.major, inode.rdev.minor)
            } else {
                inode.size.to_string()
            };
            let (mode, time) = (text::mode(inode), text::time(inode.mtime));
            let Inode {
                nlink, uid, gid, ..
            } = **inode;
            writeln!(
                self.out,
                "{mode} {nlink:>3} {uid:>5} {gid:>5} {size:>10} {time} {name}{arrow}"
            )?;
        } else {
            writeln!(self.out, "{name}")?;
        }
        Ok(())
    }
}

fn is_device(inode: &Inode) -> bool {
    matches!(
        inode.file_type(),
        FileType::CharDevice | FileType::BlockDevice
    )
}
