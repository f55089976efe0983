//! The engine itself, over an image in memory.

use std::collections::HashSet;
use std::fs::File;
use std::ops::ControlFlow;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};

use erofs_engine::budget::{MAX_BYTES, MAX_STEPS};
use erofs_engine::{Engine, EngineOptions, WorkersMode};
use erofs_format::{FileType, Inode, ReadAt};

use crate::content::{Budget, Content, open_whole, without_checksum};
use crate::memory::metered;

/// The most inodes visited.
const VISITED: usize = 200;
/// Bytes of each file that are read: from its start, around its middle, and before its end.
const SAMPLE: u64 = 20_000;
/// The most bytes decoded for one image.
const DECODED: u64 = 32 << 20;
/// The engine's cache budget: small, so that pclusters are evicted.
const CACHE: u64 = 256 << 10;

/// The engine lists, looks up and reads from the root down. The bytes that it reads match those
/// that the map and the decoders yield without the engine, whether they were decoded for this read,
/// kept from an earlier one, or decoded in part. The cache stays within its budget. Every error is
/// one line. No request exceeds its budget, and all requests together use no more memory than
/// promised.
pub fn engine(data: &[u8]) {
    metered(|| walk_and_read(data));
}

fn walk_and_read(data: &[u8]) {
    let budget = Budget::new();
    let bytes = without_checksum(data);
    let Some((engine, _held)) = opened(&bytes) else {
        return;
    };
    let reference = open_whole(&bytes, &budget).ok();
    let mut waiting = vec![engine.root()];
    let mut seen = HashSet::new();
    while let Some(nid) = waiting.pop() {
        if seen.len() == VISITED || !seen.insert(nid) || engine.stats().decoded_bytes > DECODED {
            continue;
        }
        let Ok(inode) = engine.inode(nid).map_err(|error| one_line(&error)) else {
            continue;
        };
        if inode.file_type() == FileType::Directory {
            let mut names = Vec::new();
            let listed = engine.read_dir(&inode, 0, &mut |name, nid, _, _| {
                names.push((name.to_vec(), nid));
                match names.len() < VISITED {
                    true => ControlFlow::Continue(()),
                    false => ControlFlow::Break(()),
                }
            });
            let _ = listed.map_err(|error| one_line(&error));
            for (name, nid) in names {
                // A hostile directory may be out of order, in which case a lookup may miss a listed
                // name.
                let _ = engine
                    .lookup(&engine.waiting(), &inode, &name)
                    .map_err(|error| one_line(&error));
                waiting.push(nid);
            }
            continue;
        }
        let _ = engine
            .read_link(&engine.waiting(), &inode)
            .map_err(|error| one_line(&error));
        let _ = engine
            .xattrs(&engine.waiting(), &inode)
            .map_err(|error| one_line(&error));
        let own = reference
            .as_ref()
            .map(|image| Content::new(image, Inode::clone(&inode), &budget));
        read(&engine, &inode, own.as_ref());
        let cache = engine.stats().cache;
        assert!(cache.bytes <= cache.budget_bytes, "{cache:?}");
    }
    let requests = engine.stats().requests;
    assert!(requests.steps <= MAX_STEPS + SAMPLE / 64, "{requests:?}");
    assert!(requests.bytes <= MAX_BYTES + SAMPLE * 4, "{requests:?}");
}

fn read(engine: &Engine, inode: &Inode, own: Option<&Content>) {
    let last = inode.size.saturating_sub(SAMPLE);
    for start in [0, inode.size / 2, last] {
        let length = (inode.size - start).min(SAMPLE);
        let Some(whole) = read_at(engine, inode, start, length) else {
            continue;
        };
        let mut right = vec![0; whole.len()];
        // The reference may fail where the engine does not: its budget may be used up, and it
        // always decodes whole pclusters.
        if own.is_some_and(|own| own.read_exact_at(&mut right, start).is_ok()) {
            assert!(
                whole == right,
                "nid {:#x}, {length} bytes at {start}",
                inode.nid
            );
        }
        // Reads the range in three pieces, last to first, each of which ends at a different place
        // in the pcluster.
        for part in [2, 1, 0] {
            let from = length * part / 3;
            let to = length * (part + 1) / 3;
            if let Some(piece) = read_at(engine, inode, start + from, to - from) {
                assert!(
                    piece == whole[from as usize..to as usize],
                    "nid {:#x}, {} bytes at {}",
                    inode.nid,
                    to - from,
                    start + from
                );
            }
        }
    }
}

fn read_at(engine: &Engine, inode: &Inode, offset: u64, length: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; length as usize];
    match engine.read_at(&engine.waiting(), inode, offset, &mut bytes) {
        Ok(count) => {
            assert_eq!(count, bytes.len(), "short inside of the file");
            Some(bytes)
        }
        Err(error) => {
            one_line(&error);
            None
        }
    }
}

fn one_line(error: &erofs_engine::Error) {
    crate::opening::one_line(&error.to_string());
}

/// Opens the image, which also serves as its extra devices, from a file in memory. The guard keeps
/// other threads from writing another image to that file.
fn opened(bytes: &[u8]) -> Option<(std::sync::Arc<Engine>, impl Drop + use<>)> {
    static FILE: OnceLock<Mutex<File>> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let file = rustix::fs::memfd_create("image", flags).expect("a file in memory");
        Mutex::new(file.into())
    });
    let file = file.lock().unwrap_or_else(PoisonError::into_inner);
    file.set_len(0).expect("it shrinks");
    file.write_all_at(bytes, 0).expect("it grows");
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    for extra in 0..=4 {
        let options = EngineOptions {
            workers: WorkersMode::Inline,
            cache_bytes: CACHE,
            devices: vec![path.clone(); extra],
            ..EngineOptions::default()
        };
        match Engine::open(&path, &options) {
            Ok(engine) => return Some((engine, file)),
            Err(error) => one_line(&error),
        }
    }
    None
}
