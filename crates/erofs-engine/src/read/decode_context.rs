//! Decode contexts: codec streams and scratch memory of one decoding thread, and their pool.

use cpu_workers::PiMutex;
use erofs_codecs::{Decoder, Settings};

use crate::read::page_buffer::PageBuffer;

/// Codec streams, created at their first use, and a buffer for stored bytes, which grows to the
/// longest run that was fetched.
#[derive(Debug)]
pub(crate) struct DecodeContext {
    pub(crate) decoder: Decoder,
    pub(crate) input: PageBuffer,
}

/// Idle contexts. There are never more contexts than threads that decode at the same time.
#[derive(Debug)]
pub(crate) struct ContextPool {
    settings: Settings,
    /// Guarded by its own lock. A stack: the context released last is taken first, since its buffer
    /// is warm.
    idle: PiMutex<Vec<DecodeContext>>,
}

impl ContextPool {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            idle: PiMutex::new(Vec::new()),
        }
    }

    /// A context for the caller, taken when it is first needed: a read of cached bytes needs none.
    pub(crate) fn lend(&self) -> LentContext<'_> {
        LentContext {
            pool: self,
            context: None,
        }
    }

    /// An idle context, or a new one.
    fn take(&self) -> DecodeContext {
        let idle = self.idle.lock().pop();
        idle.unwrap_or_else(|| DecodeContext {
            decoder: Decoder::new(self.settings),
            input: PageBuffer::default(),
        })
    }
}

/// A context for a run of decodes.
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
        // One in which a decoder panicked is not used again.
        if let Some(context) = self.context.take().filter(|_| !std::thread::panicking()) {
            self.pool.idle.lock().push(context);
        }
    }
}
