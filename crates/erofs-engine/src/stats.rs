//! Counters of an engine: one lock-free structure, read as a whole by [`EngineStats`].

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::peaks::RequestPeaks;

/// A. All fields: atomic, added to by the reading threads, never reset.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    /// Reads requested.
    pub reads: AtomicU64,
    /// Bytes delivered to readers.
    pub delivered: AtomicU64,
    /// Bytes that decoders produced.
    pub decoded: AtomicU64,
    /// Decoder calls.
    pub decodes: AtomicU64,
    /// Of them, those that stopped at the wanted bytes.
    pub prefixes: AtomicU64,
    /// Bytes fetched for decoding.
    pub fetched: AtomicU64,
    /// Segments served from cached pclusters.
    pub cache_hits: AtomicU64,
    /// Segments that had to be decoded.
    pub cache_misses: AtomicU64,
    /// Pieces served by another reader's decoding.
    pub merged: AtomicU64,
    /// Bytes decoded beyond a small read, for the page cache.
    pub remainder: AtomicU64,
    /// Reads handed to a worker.
    pub kickoffs: AtomicU64,
    /// Reads shared with workers of idle CPUs.
    pub shared: AtomicU64,
    /// Reads that failed.
    pub errors: AtomicU64,
}

/// Adds to a counter. Relaxed: each is a sum of its own.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// Counters of an engine since it was opened.
#[derive(Clone, Debug, Serialize)]
pub struct EngineStats {
    /// Reads requested.
    pub reads: u64,
    /// Reads that failed.
    pub errors: u64,
    /// Bytes delivered to readers.
    pub delivered_bytes: u64,
    /// Bytes fetched for decoding.
    pub fetched_bytes: u64,
    /// Bytes that decoders produced.
    pub decoded_bytes: u64,
    /// Decoder calls.
    pub decodes: u64,
    /// Decoder calls that stopped at the wanted bytes.
    pub prefix_decodes: u64,
    /// Pieces served by another reader's decoding.
    pub merged: u64,
    /// Bytes decoded beyond small reads and passed on to the page cache.
    pub surplus_bytes: u64,
    /// Reads handed to a worker.
    pub kickoffs: u64,
    /// Reads shared with workers of idle CPUs.
    pub shared: u64,
    /// Cached pclusters.
    pub cache: CacheStats,
    /// The most that one request took.
    pub requests: RequestPeaks,
}

/// Use of the pcluster cache.
#[derive(Clone, Debug, Serialize)]
pub struct CacheStats {
    /// Hits.
    pub hits: u64,
    /// Misses.
    pub misses: u64,
    /// Bytes cached now.
    pub bytes: u64,
    /// Bytes that may be cached.
    pub budget_bytes: u64,
}

impl Counters {
    pub(crate) fn read(
        &self,
        cache_bytes: u64,
        cache_budget: u64,
        requests: RequestPeaks,
    ) -> EngineStats {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        EngineStats {
            reads: get(&self.reads),
            errors: get(&self.errors),
            delivered_bytes: get(&self.delivered),
            fetched_bytes: get(&self.fetched),
            decoded_bytes: get(&self.decoded),
            decodes: get(&self.decodes),
            prefix_decodes: get(&self.prefixes),
            merged: get(&self.merged),
            surplus_bytes: get(&self.remainder),
            kickoffs: get(&self.kickoffs),
            shared: get(&self.shared),
            cache: CacheStats {
                hits: get(&self.cache_hits),
                misses: get(&self.cache_misses),
                bytes: cache_bytes,
                budget_bytes: cache_budget,
            },
            requests,
        }
    }
}
