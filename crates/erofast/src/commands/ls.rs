//! `erofast ls`: what is in directories of an image.

use std::collections::HashSet;
use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use erofs_engine::erofs_format::{FileType, Inode};
use erofs_engine::{Engine, WorkersMode};
use serde_json::{Value, json};

use crate::cli::LsArgs;
use erofs_fuse::note;

use crate::outcome::{Outcome, one_line};
use crate::{glob, name, text, tree};

/// Runs the subcommand. Entries that cannot be shown are named on the standard error.
pub fn run(args: &LsArgs) -> anyhow::Result<Outcome> {
    let engine = Engine::open(&args.image.image, &args.image.options(WorkersMode::Inline))?;
    let mut list = List {
        engine: &engine,
        args,
        out: BufWriter::new(io::stdout().lock()),
        outcome: Outcome::Fine,
        begun: false,
    };
    let mut found = Vec::new();
    for pattern in &args.paths {
        match glob::expand(&engine, pattern.as_bytes(), false) {
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
    // As ls does: what is no directory comes first, then each directory under its name.
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

type Listed = (Vec<u8>, Result<Arc<Inode>, erofs_engine::Error>);

/// The entries of one directory, in the order of their names; broken ones have the empty name.
fn entries(engine: &Engine, directory: &Arc<Inode>) -> anyhow::Result<Vec<Listed>> {
    let mut entries: Vec<Listed> = Vec::new();
    engine.read_dir_strict(directory, 0, &mut |entry| {
        match entry {
            Ok(entry) if entry.name == b"." || entry.name == b".." => {}
            Ok(entry) => entries.push((entry.name.to_vec(), engine.inode(entry.nid))),
            Err(error) => entries.push((Vec::new(), Err(error))),
        }
        ControlFlow::Continue(())
    })?;
    Ok(entries)
}

struct List<'a, W: Write> {
    engine: &'a Engine,
    args: &'a LsArgs,
    out: W,
    outcome: Outcome,
    /// Something was listed before.
    begun: bool,
}

impl<W: Write> List<'_, W> {
    /// The entries of a directory, under its name if there are several, and those below it.
    fn directory(&mut self, path: &[u8], inode: &Arc<Inode>, named: bool) -> anyhow::Result<()> {
        let mut waiting = vec![(path.to_vec(), inode.clone())];
        // Malformed images have directories that are in themselves.
        let mut seen = HashSet::new();
        while let Some((path, inode)) = waiting.pop() {
            if !seen.insert(inode.nid) {
                self.complain(&path, "this directory is in the tree more than once");
                continue;
            }
            if named && !self.args.json {
                let gap = if self.begun { "\n" } else { "" };
                writeln!(self.out, "{gap}/{}:", text::name(&path))?;
            }
            self.begun = true;
            let mut below = Vec::new();
            for (name, inode) in self.entries(&path, &inode) {
                let path = tree::join(&path, &name);
                match inode {
                    Ok(inode) => {
                        self.print(&path, &name, &inode)?;
                        if self.args.recursive && inode.file_type() == FileType::Directory {
                            below.push((path, inode));
                        }
                    }
                    Err(error) => self.complain(&path, &error.to_string()),
                }
            }
            waiting.extend(below.into_iter().rev());
        }
        Ok(())
    }

    /// The entries of one directory, in the order of their names; broken ones have the empty name.
    fn entries(&mut self, path: &[u8], directory: &Arc<Inode>) -> Vec<Listed> {
        let listed = entries(self.engine, directory);
        listed.unwrap_or_else(|error| {
            self.complain(path, &error.to_string());
            Vec::new()
        })
    }

    fn complain(&mut self, path: &[u8], error: &str) {
        note(format_args!("/{}: {error}", text::name(path)));
        self.outcome = Outcome::Faulty;
    }

    /// One entry: by its path as JSON, else by what it is called where it stands.
    fn print(&mut self, path: &[u8], name: &[u8], inode: &Arc<Inode>) -> anyhow::Result<()> {
        self.begun = true;
        let target = match inode.file_type() {
            FileType::Symlink => Some(self.engine.read_link(inode)),
            _ => None,
        };
        let name = match name {
            b"" => "/".to_owned(),
            name => text::name(name),
        };
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
