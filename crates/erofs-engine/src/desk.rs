//! What one thread needs to decode: codec streams and room for compressed bytes.

use std::sync::{Mutex, PoisonError};

use erofs_codecs::{Decoder, Settings};

/// Codec streams, made at their first use, and a buffer for compressed bytes, grown to the largest
/// run that was fetched.
#[derive(Debug)]
pub(crate) struct Desk {
    pub(crate) decoder: Decoder,
    pub(crate) input: Vec<u8>,
}

/// Desks that nobody sits at. There are never more than threads that decode at once.
#[derive(Debug)]
pub(crate) struct Desks {
    settings: Settings,
    /// L. The last one left is the first one taken: its buffer is warm.
    free: Mutex<Vec<Desk>>,
}

impl Desks {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            free: Mutex::new(Vec::new()),
        }
    }

    /// Works at a free desk, or a new one.
    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut Desk) -> R) -> R {
        let free = || self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let taken = free().pop();
        let mut desk = taken.unwrap_or_else(|| Desk {
            decoder: Decoder::new(self.settings),
            input: Vec::new(),
        });
        let result = work(&mut desk);
        free().push(desk);
        result
    }
}
