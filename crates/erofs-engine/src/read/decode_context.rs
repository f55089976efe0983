//! Decode contexts: codec streams and scratch memory of one decoding thread, and their pool.

use cpu_workers::PiMutex;
use erofs_codecs::{Decoder, Settings};

/// Codec streams, created on first use, and a buffer for stored bytes, which grows to the longest
/// run fetched so far.
#[derive(Debug)]
pub(crate) struct DecodeContext {
    pub(crate) decoder: Decoder,
    pub(crate) input: PageBuffer,
}

/// Idle contexts. Contexts never outnumber the threads that decode at the same time.
#[derive(Debug)]
pub(crate) struct ContextPool {
    pub(crate) settings: Settings,
    /// Guarded by its own lock. A stack: the most recently released context is reused first,
    /// because its buffer is warm.
    idle: PiMutex<Vec<DecodeContext>>,
}

impl ContextPool {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            idle: PiMutex::new(Vec::new()),
        }
    }

    /// Lends a context, which is taken from the pool when first needed: a read of cached bytes
    /// needs none.
    pub(crate) fn lend(&self) -> LentContext<'_> {
        LentContext {
            pool: self,
            context: None,
        }
    }

    /// Takes an idle context, or creates one.
    fn take(&self) -> DecodeContext {
        let idle = self.idle.lock().pop();
        idle.unwrap_or_else(|| DecodeContext {
            decoder: Decoder::new(self.settings),
            input: PageBuffer::default(),
        })
    }
}

/// A context for a series of decodes.
#[derive(Debug)]
pub(crate) struct LentContext<'p> {
    pool: &'p ContextPool,
    context: Option<DecodeContext>,
}

impl LentContext<'_> {
    pub(crate) fn get(&mut self) -> &mut DecodeContext {
        self.context.get_or_insert_with(|| self.pool.take())
    }
}

impl Drop for LentContext<'_> {
    fn drop(&mut self) {
        // A context in which a decoder panicked is not reused.
        if let Some(context) = self.context.take().filter(|_| !std::thread::panicking()) {
            self.pool.idle.lock().push(context);
        }
    }
}

/// Alignment in bytes; it works equally well if pages are larger.
const PAGE: usize = 4096;

/// A buffer for stored bytes, which grows to the longest length requested. The buffer begins on a
/// page boundary. If the destination of a copy is 1 to 31 bytes past a page boundary, where glibc
/// puts large allocations, copying takes four times as long on some processors (AMD Zen: 1.3
/// instead of 5.3 GB/s).
#[derive(Debug, Default)]
pub(crate) struct PageBuffer {
    memory: Vec<u8>,
    /// Offset of the first page boundary in `memory`.
    start: usize,
}

impl PageBuffer {
    /// The first `length` bytes; their content is lost when the buffer grows.
    pub(crate) fn first(&mut self, length: usize) -> &mut [u8] {
        if self.bytes().len() < length {
            self.memory = vec![0; length + PAGE];
            self.start = self.memory.as_ptr().align_offset(PAGE);
        }
        &mut self.memory[self.start..][..length]
    }

    /// All bytes of the buffer.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory[self.start..]
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    #[test]
    fn it_begins_on_a_page_and_grows() {
        let mut buffer = PageBuffer::default();
        assert!(buffer.bytes().is_empty());
        for length in [1, 5000, 4096, 200_000] {
            let bytes = buffer.first(length);
            bytes.fill(7);
            assert_eq!((bytes.len(), bytes.as_ptr() as usize % PAGE), (length, 0));
            assert_eq!(buffer.bytes()[..length], vec![7; length]);
        }
        buffer.first(1)[0] = 8;
        assert_eq!(buffer.bytes()[..3], [8, 7, 7], "it keeps its contents");
    }
}
