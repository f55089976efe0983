//! One buffer for each thread: what a pool competes with.
//!
//! As fast as a pool, since the buffer is always ready; but there are as many as threads that ever
//! allocated, each as large as the largest that its thread gave back.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use sys::memory::Run;

thread_local! {
    /// At most one entry for each pool that this thread gave a buffer back to.
    static KEPT: RefCell<Vec<Kept>> = const { RefCell::new(Vec::new()) };
}

/// The buffers of all threads, as the pool sees them. A: the sum of their pages.
#[derive(Clone, Debug, Default)]
pub(crate) struct ThreadBuffers(Arc<AtomicUsize>);

/// Goes, and is no longer counted, when it is taken, replaced, or its thread ends.
struct Kept {
    run: Option<Run>,
    pages: Arc<AtomicUsize>,
}

impl ThreadBuffers {
    /// This thread's buffer, if it has so many pages.
    pub(crate) fn take(&self, pages: usize) -> Option<Run> {
        KEPT.with_borrow_mut(|kept| {
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
        let replaced = KEPT.try_with(|kept| {
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
            kept.push(Kept {
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

    fn index(&self, kept: &[Kept]) -> Option<usize> {
        kept.iter()
            .position(|kept| Arc::ptr_eq(&kept.pages, &self.0))
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(run) = self.run.take() {
            self.pages.fetch_sub(run.pages(), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn run(pages: usize) -> Run {
        Run::map(pages).unwrap()
    }

    #[test]
    fn a_thread_gets_back_what_it_gave_and_no_other_thread_does() {
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
    fn the_largest_stays() {
        let buffers = ThreadBuffers::default();
        for pages in [2, 8, 3] {
            buffers.put(run(pages));
        }
        assert_eq!(buffers.pages(), 8);
        assert_eq!(buffers.take(1).unwrap().pages(), 8);
    }

    #[test]
    fn buffers_end_with_their_thread_and_stay_apart_by_pool() {
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
