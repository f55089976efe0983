//! Finds out whether an image has extended attributes at all.
//!
//! `ls -l` asks twice for every file, and the kernel stops only after ENOSYS, which means that no
//! file has any. No field of the image has this fact: all inodes below the root have to be read.
//! That is done in the background, and only for a mount with many such requests.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use erofs_engine::Engine;
use erofs_engine::erofs_format::{FileType, Nid};

/// Requests for attributes of files without any, before the scan starts. The launch of a program
/// makes one for each program file.
const WORTH_SCANNING: u32 = 64;

/// Directory entries after which the scan stops: 100 times as many as common images have.
const MAX_ENTRIES: usize = 1 << 24;

/// Directories after which it stops: they are remembered.
const MAX_DIRECTORIES: usize = 1 << 18;

/// State of one mount's scan.
#[derive(Debug)]
pub(super) struct XattrScan {
    root: Nid,
    misses: AtomicU32,
    found_none: Arc<AtomicBool>,
}

impl XattrScan {
    pub(super) fn new(root: Nid) -> Self {
        Self {
            root,
            misses: AtomicU32::new(0),
            found_none: Arc::default(),
        }
    }

    /// No inode has attributes, and never will.
    pub(super) fn found_none(&self) -> bool {
        self.found_none.load(Ordering::Relaxed)
    }

    /// Counts a request for an attribute of a file without any. Starts the scan after many of them.
    pub(super) fn missed(&self, engine: &Arc<Engine>) {
        if self.misses.fetch_add(1, Ordering::Relaxed) + 1 != WORTH_SCANNING {
            return;
        }
        let workers = engine.workers().cloned();
        let (engine, root) = (Arc::downgrade(engine), self.root);
        let found_none = Arc::clone(&self.found_none);
        let scan = move || {
            if is_without(&engine, root) == Some(true) {
                found_none.store(true, Ordering::Relaxed);
            }
        };
        // Not by a thread of this one's making, which would be pinned and possibly real-time as it
        // is.
        if let Some(workers) = workers {
            workers.queue(None, Box::new(move |_: &_| scan()));
        } else {
            // Without the thread the kernel goes on asking.
            let name = "erofs_xattrscan".to_owned();
            let _ = thread::Builder::new().name(name).spawn(scan);
        }
    }
}

/// Whether no inode below `root` has attributes; `None` if unknown: the image is damaged or
/// very large, or the mount is gone.
fn is_without(engine: &Weak<Engine>, root: Nid) -> Option<bool> {
    let mut seen = HashSet::from([root]);
    let mut waiting = vec![root];
    let mut entries = 0;
    while let Some(directory) = waiting.pop() {
        let engine = engine.upgrade()?;
        let inode = Arc::new(engine.image().inode(directory).ok()?);
        if inode.xattr_icount != 0 {
            return Some(false);
        }
        let mut all_without = Some(true);
        let mut each = |name: &[u8], nid: Nid, kind: u8, _| {
            entries += 1;
            if matches!(name, b"." | b"..") {
                return ControlFlow::Continue(());
            }
            if kind == FileType::Directory as u8 {
                if seen.insert(nid) {
                    waiting.push(nid);
                }
                return match entries < MAX_ENTRIES && seen.len() < MAX_DIRECTORIES {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                };
            }
            let found = engine.image().inode(nid);
            all_without = found.ok().map(|inode| inode.xattr_icount == 0);
            match all_without == Some(true) && entries < MAX_ENTRIES {
                true => ControlFlow::Continue(()),
                false => ControlFlow::Break(()),
            }
        };
        engine.read_dir(&inode, 0, &mut each).ok()?;
        let much = entries >= MAX_ENTRIES || seen.len() >= MAX_DIRECTORIES;
        if all_without != Some(true) || much {
            return all_without.filter(|without| !without);
        }
    }
    Some(true)
}
