//! One buffer per thread: the alternative to a pool.
//!
//! As fast as a pool, since the buffer is always ready, but there is one for each thread that ever
//! allocated, as large as the largest buffer which that thread released.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sys::memory::Run;

thread_local! {
    /// At most one entry per pool to which this thread released a buffer.
    static BUFFERS: RefCell<Vec<Buffer>> = const { RefCell::new(Vec::new()) };
}

/// The buffers of all threads of one pool. Atomic: the sum of their pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadBuffers(Arc<AtomicUsize>);

/// Unmapped and no longer counted when it is replaced or its thread ends.
struct Buffer {
    run: Option<Run>,
    pages: Arc<AtomicUsize>,
}

impl ThreadBuffers {
    /// This thread's buffer, if it has `pages` pages.
    pub(crate) fn take(&self, pages: usize) -> Option<Run> {
        BUFFERS.with_borrow_mut(|kept| {
            let index = self.index(kept)?;
            let fits = kept[index]
                .run
                .as_ref()
                .is_some_and(|run| run.pages() >= pages);
            fits.then(|| kept.swap_remove(index).run.take())
                .flatten()
                .inspect(|run| {
                    self.0.fetch_sub(run.pages(), Ordering::Relaxed);
                })
        })
    }

    /// Keeps a buffer, unless this thread has a larger one.
    pub(crate) fn put(&self, run: Run) {
        let pages = run.pages();
        // Unmapped outside of the borrow, and silently where the thread is ending already.
        let replaced = BUFFERS.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            let index = self.index(&kept);
            let larger = index
                .and_then(|index| kept[index].run.as_ref())
                .is_some_and(|run| run.pages() >= pages);
            if larger {
                return None;
            }
            let old = index.map(|index| kept.swap_remove(index));
            self.0.fetch_add(pages, Ordering::Relaxed);
            kept.push(Buffer {
                run: Some(run),
                pages: Arc::clone(&self.0),
            });
            old
        });
        drop(replaced);
    }

    /// Pages that threads keep now.
    pub(crate) fn pages(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    fn index(&self, kept: &[Buffer]) -> Option<usize> {
        kept.iter()
            .position(|kept| Arc::ptr_eq(&kept.pages, &self.0))
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.pages.fetch_sub(run.pages(), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    fn run(pages: usize) -> Run {
        Run::map(pages).unwrap()
    }

    #[test]
    fn a_thread_takes_back_only_its_own_buffer() {
        let buffers = ThreadBuffers::default();
        buffers.put(run(4));
        let other = buffers.clone();
        std::thread::spawn(move || assert!(other.take(1).is_none()))
            .join()
            .unwrap();
        assert!(buffers.take(5).is_none(), "too small for that");
        assert_eq!(buffers.take(3).unwrap().pages(), 4);
        assert!(buffers.take(1).is_none());
        assert_eq!(buffers.pages(), 0);
    }

    #[test]
    fn the_largest_buffer_is_kept() {
        let buffers = ThreadBuffers::default();
        for pages in [2, 8, 3] {
            buffers.put(run(pages));
        }
        assert_eq!(buffers.pages(), 8);
        assert_eq!(buffers.take(1).unwrap().pages(), 8);
    }

    #[test]
    fn buffers_end_with_their_thread_and_are_kept_per_pool() {
        let (one, two) = (ThreadBuffers::default(), ThreadBuffers::default());
        let (first, second) = (one.clone(), two.clone());
        let thread = std::thread::spawn(move || {
            first.put(run(2));
            second.put(run(3));
            assert_eq!((first.pages(), second.pages()), (2, 3));
            assert_eq!(second.take(1).unwrap().pages(), 3);
        });
        thread.join().unwrap();
        assert_eq!((one.pages(), two.pages()), (0, 0));
    }
}
