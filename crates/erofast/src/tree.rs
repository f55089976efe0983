//! Walking the tree of an image, whatever its directories say.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::Arc;

use erofs_engine::erofs_format::{FileType, Inode, Nid};
use erofs_engine::{Engine, Error};

/// An entry met on the walk.
#[derive(Debug)]
pub struct Entry {
    /// Path from the start of the walk, without a leading slash; empty for the start itself.
    pub path: Vec<u8>,
    /// What it is.
    pub inode: Arc<Inode>,
    /// The type its directory entry claims (0: none), which the inode may contradict.
    pub claimed_type: u8,
    /// Whether this inode was met for the first time; later ones are further hard links.
    pub first: bool,
}

/// What a walk reports.
#[derive(Debug)]
pub enum Visit {
    /// An entry that can be reached.
    Entry(Entry),
    /// Something that cannot.
    Fault {
        /// Path of it, or of the directory it is in.
        path: Vec<u8>,
        /// The inode, or the directory.
        nid: Nid,
        /// Why.
        error: String,
    },
}

/// A name in a directory that waits for its turn.
#[derive(Debug)]
struct Pending {
    path: Vec<u8>,
    nid: Nid,
    claimed_type: u8,
}

/// Walks everything below `start`, which is met first; a directory's entries come in its own
/// order, right after it. Each directory is entered once, so no loop of directories is endless.
pub fn walk(
    engine: &Engine,
    start: &Arc<Inode>,
    visit: &mut dyn FnMut(Visit) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut seen = HashSet::new();
    let mut stack = vec![Pending {
        path: Vec::new(),
        nid: start.nid,
        claimed_type: 0,
    }];
    while let Some(pending) = stack.pop() {
        let Pending {
            path,
            nid,
            claimed_type,
        } = pending;
        let inode = match engine.inode(nid) {
            Ok(inode) => inode,
            Err(error) => {
                visit(Visit::Fault {
                    path,
                    nid,
                    error: error.to_string(),
                })?;
                continue;
            }
        };
        let first = seen.insert(nid);
        let directory = inode.file_type() == FileType::Directory;
        if directory && !first {
            let error = format!("nid {nid}: this directory is in the tree more than once");
            visit(Visit::Fault { path, nid, error })?;
            continue;
        }
        visit(Visit::Entry(Entry {
            path: path.clone(),
            inode: inode.clone(),
            claimed_type,
            first,
        }))?;
        if directory {
            let mut children = Vec::new();
            for item in children_of(engine, &inode, &path) {
                match item {
                    Ok(pending) => children.push(pending),
                    Err((path, error)) => {
                        visit(Visit::Fault {
                            path,
                            nid,
                            error: error.to_string(),
                        })?;
                    }
                }
            }
            stack.extend(children.into_iter().rev());
        }
    }
    Ok(())
}

type Child = Result<Pending, (Vec<u8>, Error)>;

fn children_of(engine: &Engine, inode: &Arc<Inode>, path: &[u8]) -> Vec<Child> {
    let mut children: Vec<Child> = Vec::new();
    let outcome = engine.read_dir_strict(inode, 0, &mut |entry| {
        match entry {
            Ok(entry) if entry.name == b"." || entry.name == b".." => {}
            Ok(entry) => children.push(Ok(Pending {
                path: join(path, entry.name),
                nid: entry.nid,
                claimed_type: entry.file_type,
            })),
            Err(error) => children.push(Err((path.to_vec(), error))),
        }
        ControlFlow::Continue(())
    });
    if let Err(error) = outcome {
        children.push(Err((path.to_vec(), error)));
    }
    children
}

/// Bytes of all files below `start`, as far as they can be reached.
pub fn total_bytes(engine: &Engine, start: &Arc<Inode>) -> anyhow::Result<u64> {
    let mut total = 0_u64;
    walk(engine, start, &mut |visit| {
        if let Visit::Entry(entry) = visit
            && entry.first
            && entry.inode.file_type() == FileType::Regular
        {
            total = total.saturating_add(entry.inode.size);
        }
        Ok(())
    })?;
    Ok(total)
}

/// `directory/name`, or just `name` at the start.
pub fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() {
        return name.to_vec();
    }
    [directory, b"/", name].concat()
}
