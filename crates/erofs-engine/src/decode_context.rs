//! Decode contexts: codec streams and scratch memory of one decoding thread, and their pool.

use cpu_workers::PiMutex;
use erofs_codecs::{Decoder, Settings};

use crate::page_buffer::PageBuffer;

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
    /// L. A stack: the context released last is taken first, since its buffer is warm.
    idle: PiMutex<Vec<DecodeContext>>,
}

impl ContextPool {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            idle: PiMutex::new(Vec::new()),
        }
    }

    /// Runs `work` with an idle context, or a new one.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut DecodeContext) -> R) -> R {
        let idle = || self.idle.lock();
        let taken = idle().pop();
        let mut context = taken.unwrap_or_else(|| DecodeContext {
            decoder: Decoder::new(self.settings),
            input: PageBuffer::default(),
        });
        let result = work(&mut context);
        idle().push(context);
        result
    }
}
