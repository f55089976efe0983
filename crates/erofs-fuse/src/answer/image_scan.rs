//! Scans an image to learn whether it has no extended attributes at all, or no holes at all.
//!
//! `ls -l` requests several attributes of every file, and `cp` the holes of every compressed one.
//! The kernel stops asking only after ENOSYS, which means that no file has attributes or holes. No
//! field of the image states this, so all inodes below the root have to be read. A background
//! thread reads them, but only once a mount has had so many such requests that the scan is
//! worthwhile: each request wakes a worker, and under load the requesting program then has to wait
//! for its turn again.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use erofs_engine::erofs_format::{FileType, Inode, Nid};
use erofs_engine::{Engine, ReadContext};

/// Maximum number of requests that find no attribute or hole before the scan starts. The launch of
/// a program requests one attribute of each program file.
const WORTH_SCANNING: u64 = 64;

/// One request justifies scanning this many inodes.
const INODES_A_REQUEST: u64 = 512;

/// Number of directory entries after which the scan stops: 100 times as many as common images have.
const MAX_ENTRIES: usize = 1 << 24;

/// Number of directories after which the scan stops, since it remembers each of them.
const MAX_DIRECTORIES: usize = 1 << 18;

/// Number of index entries after which the scan stops: as many as 32 GiB in lclusters of 4 KiB
/// have.
const MAX_INDEX_ENTRIES: u64 = 1 << 23;

/// Tells whether an inode has an attribute or a hole; `None` if unknown. The last argument is the
/// number of index entries that may still be read.
pub(crate) type Has = fn(&Engine, &Inode, &mut u64) -> Option<bool>;

/// State of one mount's scan.
#[derive(Debug)]
pub(crate) struct ImageScan {
    root: Nid,
    has: Has,
    misses: AtomicU32,
    found_none: Arc<AtomicBool>,
}

impl ImageScan {
    pub(crate) fn new(root: Nid, has: Has) -> Self {
        Self {
            root,
            has,
            misses: AtomicU32::new(0),
            found_none: Arc::default(),
        }
    }

    /// Whether the scan is complete and has found no attribute or hole.
    pub(crate) fn found_none(&self) -> bool {
        self.found_none.load(Ordering::Relaxed)
    }

    /// Counts a request that found no attribute or hole, and starts the scan after enough such
    /// requests.
    pub(crate) fn missed(&self, engine: &Arc<Engine>) {
        // No scan of an image at a URL, since all of its inodes would be fetched.
        let misses = u64::from(self.misses.fetch_add(1, Ordering::Relaxed)) + 1;
        let inodes = engine.images().map(|(_, image)| image.superblock().inos);
        let inodes = inodes.fold(0, u64::saturating_add);
        if engine.is_remote() || misses != worth_scanning(inodes) {
            return;
        }
        let workers = engine.workers().cloned();
        let (engine, root, has) = (Arc::downgrade(engine), self.root, self.has);
        let found_none = Arc::clone(&self.found_none);
        let scan = move || {
            if is_without(&engine, root, has) == Some(true) {
                found_none.store(true, Ordering::Relaxed);
            }
        };
        // A thread created by this one would inherit its pinning and real-time priority, so another
        // thread runs the scan.
        if let Some(workers) = workers {
            workers.queue(None, Box::new(move |_: &_| scan()));
        } else {
            // If the thread cannot be created, the kernel keeps asking.
            let name = "erofs_scan".to_owned();
            let _ = thread::Builder::new().name(name).spawn(scan);
        }
    }
}

/// The number of requests after which the scan of an image with this many inodes starts.
fn worth_scanning(inodes: u64) -> u64 {
    inodes.div_ceil(INODES_A_REQUEST).clamp(1, WORTH_SCANNING)
}

pub(crate) fn has_xattrs(_: &Engine, inode: &Inode, _: &mut u64) -> Option<bool> {
    Some(inode.xattr_icount != 0)
}

/// Whether `has` is false for all inodes below `root`; `None` if unknown because the image is
/// damaged or very large, or the mount is gone.
fn is_without(engine: &Weak<Engine>, root: Nid, has: Has) -> Option<bool> {
    let mut left = MAX_INDEX_ENTRIES;
    let mut seen = HashSet::from([root]);
    let mut waiting = vec![root];
    let mut entries = 0;
    while let Some(directory) = waiting.pop() {
        let engine = engine.upgrade()?;
        let request = engine.request(ReadContext::Worker);
        let inode = engine.peek_inode(&request, directory).ok()?;
        if has(&engine, &inode, &mut left)? {
            return Some(false);
        }
        let mut all_without = Some(true);
        let mut each = |name: &[u8], nid: Nid, _, _| {
            entries += 1;
            if matches!(name, b"." | b"..") {
                return ControlFlow::Continue(());
            }
            // The inode's own type counts: the one in the entry may be wrong.
            let found = engine.peek_inode(&request, nid);
            let found = found.as_ref().ok();
            all_without = found.and_then(|inode| Some(!has(&engine, inode, &mut left)?));
            let is_directory = found.is_some_and(|it| it.file_type() == FileType::Directory);
            if is_directory && seen.insert(nid) {
                waiting.push(nid);
            }
            let few = entries < MAX_ENTRIES && seen.len() < MAX_DIRECTORIES;
            match all_without == Some(true) && few {
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

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use erofs_engine::EngineOptions;

    use super::*;

    /// An image whose only attribute belongs to `d/f`, and whose root says that `d` is a file.
    fn mistyped() -> Option<Arc<Engine>> {
        let place = tempfile::tempdir().unwrap();
        let (tree, image) = (place.path().join("tree"), place.path().join("image"));
        fs::create_dir_all(tree.join("d")).unwrap();
        fs::write(tree.join("d/f"), "x").unwrap();
        let flags = rustix::fs::XattrFlags::empty();
        let set = rustix::fs::setxattr(tree.join("d/f"), "user.a", b"b", flags);
        let made = Command::new("mkfs.erofs")
            .args(["--quiet", "-Enosbcrc"])
            .args([&image, &tree])
            .output();
        let made = set.is_ok() && made.is_ok_and(|made| made.status.success());
        made.then(|| {
            let open = || Engine::open(&image, &EngineOptions::default()).unwrap();
            let nid = open().resolve(b"d", false).unwrap().nid.to_le_bytes();
            let mut bytes = fs::read(&image).unwrap();
            let is_entry = |at: &[u8]| at[..8] == nid && at[10] == FileType::Directory as u8;
            // The first match is in the root directory.
            let at = bytes.windows(12).position(is_entry).unwrap();
            bytes[at + 10] = FileType::Regular as u8;
            fs::write(&image, bytes).unwrap();
            open()
        })
    }

    #[test]
    fn a_small_image_is_scanned_with_the_first_request_and_a_large_one_with_the_last() {
        let requests = [0, 512, 513, 17_000, u64::MAX].map(worth_scanning);
        assert_eq!(requests, [1, 1, 2, 34, 64]);
    }

    #[test]
    fn the_type_in_an_entry_hides_no_attributes() {
        let Some(engine) = mistyped() else {
            println!("skipped: no mkfs.erofs, or no attributes here");
            return;
        };
        let (mut kinds, root) = (Vec::new(), engine.inode(engine.root()).unwrap());
        let each = &mut |name: &[u8], _, kind, _| {
            if name == b"d" {
                kinds.push(kind);
            }
            ControlFlow::Continue(())
        };
        engine.read_dir(&root, 0, each).unwrap();
        assert_eq!(kinds, [FileType::Regular as u8]);
        assert_eq!(
            is_without(&Arc::downgrade(&engine), engine.root(), has_xattrs),
            Some(false)
        );
    }
}
