//! What the tests of experiments share: an image from the repository, a lock, and the line for a
//! skipped test.

pub mod schema;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A small LZ4 image that every kernel with EROFS can mount, kept with the tests of the command.
pub fn image() -> PathBuf {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
    let path = fixtures.join("lz4-full-index-64k.erofs");
    path.canonicalize()
        .unwrap_or_else(|reason| panic!("{}: {reason}", path.display()))
}

/// Lets only one experiment run at a time, since each checks the whole machine for leftovers.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Prints the line by which `make test` counts skipped tests.
pub fn skipped(why: impl std::fmt::Display) {
    println!("skipped: {why}");
}
