//! Finds the path of an inode by a search from the root, because nodes of a mount are numbers, and
//! inodes do not contain their names.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use erofs_engine::erofs_format::{FileType, Nid};
use erofs_engine::{Engine, ReadContext};

/// Number of entries after which a search stops without a result: a fault is worth no more work.
const MAX_ENTRIES: usize = 1 << 16;

/// Maximum bytes of paths kept during the search.
const MAX_BYTES: usize = 4 << 20;

/// Time after which the search stops; checked between directories.
const MAX_TIME: Duration = Duration::from_millis(300);

/// Finds the path of `wanted` in the tree below `root`, which is `/`. If there are several paths,
/// returns one with the fewest directories. `stop` ends the search early.
pub(super) fn find_path(
    engine: &Engine,
    root: Nid,
    wanted: Nid,
    stop: &dyn Fn() -> bool,
) -> Option<Vec<u8>> {
    if wanted == root {
        return Some(b"/".to_vec());
    }
    // The search does not wait for directories that would have to be fetched.
    let request = engine.request(ReadContext::Worker).without_waiting();
    let begin = Instant::now();
    let mut search = Search {
        wanted,
        seen: HashSet::from([root]),
        waiting: VecDeque::from([(root, Vec::new())]),
        entries: 0,
        bytes: 0,
        found: None,
    };
    while search.has_room() && begin.elapsed() < MAX_TIME && !stop() {
        let (nid, path) = search.waiting.pop_front()?;
        // A directory that cannot be read hides its contents.
        if let Ok(directory) = engine.borrow_inode(&request, nid) {
            let _ = engine.read_dir_part(&request, &directory, 0, &mut |entry| match entry {
                Ok(entry) => search.entry(&path, entry.name, entry.nid, entry.file_type),
                Err(_) => ControlFlow::Continue(()),
            });
        }
        if search.found.is_some() {
            return search.found;
        }
    }
    None
}

/// A breadth-first search.
struct Search {
    wanted: Nid,
    /// Directories already visited: a damaged image may have cycles.
    seen: HashSet<Nid>,
    waiting: VecDeque<(Nid, Vec<u8>)>,
    entries: usize,
    bytes: usize,
    found: Option<Vec<u8>>,
}

impl Search {
    fn has_room(&self) -> bool {
        self.entries < MAX_ENTRIES && self.bytes < MAX_BYTES
    }

    fn entry(&mut self, parent: &[u8], name: &[u8], nid: Nid, kind: u8) -> ControlFlow<()> {
        self.entries += 1;
        if matches!(name, b"." | b"..") {
            return ControlFlow::Continue(());
        }
        let path = || [parent, b"/", name].concat();
        if nid == self.wanted {
            self.found = Some(path());
            return ControlFlow::Break(());
        }
        if kind == FileType::Directory as u8 && self.seen.insert(nid) {
            let path = path();
            self.bytes += path.len();
            self.waiting.push_back((nid, path));
        }
        match self.has_room() {
            true => ControlFlow::Continue(()),
            false => ControlFlow::Break(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use erofs_engine::EngineOptions;

    use super::*;

    fn engine() -> Arc<Engine> {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
        Engine::open(&fixtures.join("lz4-4k.erofs"), &EngineOptions::default()).unwrap()
    }

    #[test]
    fn files_and_directories_are_found_by_their_number() {
        let engine = engine();
        let root = engine.root();
        let of = |path: &str| engine.resolve(path.as_bytes(), false).unwrap().nid;
        let find = |nid| find_path(&engine, root, nid, &|| false);
        assert_eq!(find(root).as_deref(), Some(&b"/"[..]));
        let text = of("/text");
        assert_eq!(find(text).as_deref(), Some(&b"/text"[..]));
        let below = engine.inode(text).unwrap();
        let mut first = None;
        let each = &mut |name: &[u8], nid, _, _| {
            if !matches!(name, b"." | b"..") {
                first.get_or_insert((nid, [b"/text/", name].concat()));
            }
            ControlFlow::Continue(())
        };
        engine.read_dir(&below, 0, each).unwrap();
        let (nid, path) = first.unwrap();
        assert_eq!(find(nid), Some(path));
    }

    #[test]
    fn a_number_that_is_nowhere_and_a_search_that_is_stopped_end() {
        let engine = engine();
        let root = engine.root();
        assert_eq!(find_path(&engine, root, Nid::MAX, &|| false), None);
        assert_eq!(find_path(&engine, root, Nid::MAX, &|| true), None);
    }
}
