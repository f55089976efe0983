//! Counters of an engine: one set for each thread, read as a whole by [`EngineStats`].

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::per_thread::PerThread;
use crate::read::claim::PclusterTable;
use crate::request::control::RequestPeaks;

/// The parts of [`EngineStats`] that one thread adds up. All fields are atomic and never reset.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub reads: AtomicU64,
    pub errors: AtomicU64,
    pub delivered: AtomicU64,
    pub fetched: AtomicU64,
    pub decoded: AtomicU64,
    pub decodes: AtomicU64,
    pub prefixes: AtomicU64,
    pub merged: AtomicU64,
    pub remainder: AtomicU64,
    pub kickoffs: AtomicU64,
    pub shared: AtomicU64,
    pub cache_hits: AtomicU64,
    pub cache_misses: AtomicU64,
}

/// Adds to a counter of the calling thread, which no other thread writes.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    let sum = counter.load(Ordering::Relaxed).wrapping_add(count);
    counter.store(sum, Ordering::Relaxed);
}

/// The counters of all threads that read through an engine.
#[derive(Debug)]
pub(crate) struct AllCounters(PerThread<Counters>);

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

impl AllCounters {
    pub(crate) fn new() -> Self {
        Self(PerThread::new())
    }

    /// The counters of the calling thread.
    pub(crate) fn own(&self) -> &Counters {
        self.0.own()
    }

    /// Their sums.
    pub(crate) fn read(&self, table: &PclusterTable, requests: RequestPeaks) -> EngineStats {
        let get = |counter: fn(&Counters) -> &AtomicU64| -> u64 {
            let all = self.0.all();
            all.map(|own| counter(own).load(Ordering::Relaxed)).sum()
        };
        EngineStats {
            reads: get(|own| &own.reads),
            errors: get(|own| &own.errors),
            delivered_bytes: get(|own| &own.delivered),
            fetched_bytes: get(|own| &own.fetched),
            decoded_bytes: get(|own| &own.decoded),
            decodes: get(|own| &own.decodes),
            prefix_decodes: get(|own| &own.prefixes),
            merged: get(|own| &own.merged),
            surplus_bytes: get(|own| &own.remainder),
            kickoffs: get(|own| &own.kickoffs),
            shared: get(|own| &own.shared),
            cache: CacheStats {
                hits: get(|own| &own.cache_hits),
                misses: get(|own| &own.cache_misses),
                bytes: table.bytes(),
                budget_bytes: table.capacity(),
            },
            requests,
        }
    }
}
