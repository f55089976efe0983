//! A value for each thread in its own cache lines, so that threads do not slow each other down by
//! counting.

use thread_local::ThreadLocal;

/// Two cache lines of 64 bytes, since CPUs fetch them in pairs.
#[derive(Debug, Default)]
#[repr(align(128))]
struct OwnLines<T>(T);

/// One value for each thread that has used it. A thread that ends leaves its value to the next new
/// thread.
#[derive(Debug)]
pub(crate) struct PerThread<T: Send>(ThreadLocal<OwnLines<T>>);

impl<T: Send + Sync + Default> PerThread<T> {
    pub(crate) fn new() -> Self {
        Self(ThreadLocal::new())
    }

    /// Returns the calling thread's value, which other threads only read.
    pub(crate) fn own(&self) -> &T {
        &self.0.get_or_default().0
    }

    /// The values of all threads.
    pub(crate) fn all(&self) -> impl Iterator<Item = &T> {
        self.0.iter().map(|own| &own.0)
    }
}
