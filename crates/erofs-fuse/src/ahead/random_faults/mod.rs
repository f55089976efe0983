//! Declines the kernel's reads around random page faults.
//!
//! Around a fault in a mapping the kernel reads a whole window, and stops doing so only when a
//! hundred more faults have fallen outside earlier windows than inside. In a file of a gigabyte,
//! half of the windows are read before that, with hundreds of kilobytes decoded for each page that
//! is used. Declined windows stay empty, so every fault is a miss. After the first hundred, the
//! kernel requests single pages; until then, it requests the window first and then the page that is
//! used.

mod file;
mod files;

use std::sync::atomic::{AtomicBool, Ordering};

use erofs_engine::erofs_format::Nid;
use serde::Serialize;
use sys::pi_mutex::PiMutex;

use self::file::Shows;
use self::files::Files;

/// Shortest read in bytes that counts as a window. Declining a shorter read would save little,
/// because a read of a single page decodes about as much.
const SHORTEST: u32 = (64 << 10) + 1;

figures::figures! {
    /// Data that the kernel would have read around random faults.
    #[derive(Debug, Default, Serialize)]
    pub(crate) struct RandomFaultFigures counted by struct Counters {
        /// Declined bytes.
        declined_bytes,
        /// Declined windows that were needed after all.
        needed_windows,
    }
}

/// The windows of one mount.
#[derive(Debug)]
pub(crate) struct RandomFaults {
    /// Guarded by its own lock; no thread waits for the lock if another holds it.
    files: PiMutex<Files>,
    /// Size in bytes of the kernel's largest window.
    longest: u64,
    /// Whether any window was declined. From then on, requests for single pages are examined.
    declined_any: AtomicBool,
    /// Set if the kernel uses large folios; from then on, no window is declined.
    unfit: AtomicBool,
    page_size: u32,
    counters: Counters,
}

impl RandomFaults {
    /// Watches windows of at most `longest` bytes, the kernel's limit.
    pub(crate) fn new(longest: u64) -> Self {
        Self {
            files: PiMutex::default(),
            longest,
            declined_any: AtomicBool::new(false),
            unfit: AtomicBool::new(false),
            page_size: u32::try_from(rustix::param::page_size()).unwrap_or(u32::MAX),
            counters: Counters::default(),
        }
    }

    /// Whether to decline a read by the page cache: `size` bytes of a file from `offset` on.
    pub(crate) fn declines(&self, file: Nid, offset: u64, size: u32) -> bool {
        if size < SHORTEST {
            if self.declined_any.load(Ordering::Relaxed) {
                self.page(file, offset, size);
            }
            return false;
        }
        if self.unfit.load(Ordering::Relaxed) {
            return false;
        }
        let Some(mut files) = self.files.try_lock() else {
            return false;
        };
        let window = offset..offset.saturating_add(size.into());
        let declines = files.file(file).window(&window, self.longest);
        drop(files);
        if declines {
            self.declined_any.store(true, Ordering::Relaxed);
            let declined = &self.counters.declined_bytes;
            declined.fetch_add(size.into(), Ordering::Relaxed);
        }
        declines
    }

    fn page(&self, file: Nid, offset: u64, size: u32) {
        let Some(mut files) = self.files.try_lock() else {
            return;
        };
        match files.page(file, offset, size <= self.page_size) {
            Shows::Nothing => {}
            Shows::Needed => drop(self.counters.needed_windows.fetch_add(1, Ordering::Relaxed)),
            Shows::LargePages => self.unfit.store(true, Ordering::Relaxed),
        }
    }

    /// Whether the reads of a file are random, so that the bytes around them are not worth storing.
    pub(crate) fn is_random(&self, file: Nid) -> bool {
        let files = || self.files.try_lock();
        self.declined_any.load(Ordering::Relaxed)
            && files().is_some_and(|files| files.is_random(file))
    }

    pub(crate) fn figures(&self) -> RandomFaultFigures {
        let mut figures = RandomFaultFigures::default();
        self.counters.add_to(&mut figures);
        figures
    }
}
