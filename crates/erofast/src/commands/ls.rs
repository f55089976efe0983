//! `erofast ls`: what is in a directory of an image.

use std::io::{self, BufWriter, Write};
use std::ops::ControlFlow;
use std::sync::Arc;

use erofs_engine::erofs_format::{FileType, Inode};
use erofs_engine::{Engine, WorkersMode};
use serde_json::json;

use crate::Outcome;
use crate::cli::LsArgs;
use crate::text;
use crate::tree::{self, Visit};

/// Runs the subcommand. Entries that cannot be shown are named on the standard error.
pub fn run(args: &LsArgs) -> anyhow::Result<Outcome> {
    let engine = Engine::open(&args.image.image, &args.image.options(WorkersMode::Inline))?;
    let start = engine.resolve(args.path.as_bytes(), false)?;
    let mut list = List {
        engine: &engine,
        args,
        out: BufWriter::new(io::stdout().lock()),
    };
    let mut outcome = Outcome::Fine;
    if start.file_type() != FileType::Directory {
        list.print(args.path.as_bytes(), &start)?;
    } else if args.recursive {
        tree::walk(&engine, &start, &mut |visit| {
            match visit {
                Visit::Entry(entry) if entry.path.is_empty() => {}
                Visit::Entry(entry) => list.print(&entry.path, &entry.inode)?,
                Visit::Fault { path, error, .. } => outcome = complain(&path, &error),
            }
            Ok(())
        })?;
    } else {
        for (name, inode) in entries(&engine, &start)? {
            match inode {
                Ok(inode) => list.print(&name, &inode)?,
                Err(error) => outcome = complain(&name, &error.to_string()),
            }
        }
    }
    list.out.flush()?;
    Ok(outcome)
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

fn complain(path: &[u8], error: &str) -> Outcome {
    eprintln!("erofast: {}: {error}", text::name(path));
    Outcome::Faulty
}

struct List<'a, W: Write> {
    engine: &'a Engine,
    args: &'a LsArgs,
    out: W,
}

impl<W: Write> List<'_, W> {
    fn print(&mut self, path: &[u8], inode: &Arc<Inode>) -> anyhow::Result<()> {
        let target = match inode.file_type() {
            FileType::Symlink => Some(self.engine.read_link(inode)),
            _ => None,
        };
        let name = text::name(path);
        if self.args.json {
            let entry = json!({
                "path": name,
                "nid": inode.nid,
                "type": text::type_letter(inode.file_type()),
                "mode": format!("{:04o}", inode.mode & 0o7777),
                "nlink": inode.nlink,
                "uid": inode.uid,
                "gid": inode.gid,
                "size": inode.size,
                "mtime": [inode.mtime, i64::from(inode.mtime_nsec)],
                "rdev": is_device(inode).then_some([inode.rdev.major, inode.rdev.minor]),
                "target": target.and_then(Result::ok).map(|target| text::name(&target)),
            });
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
