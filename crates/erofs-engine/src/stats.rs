//! Counters of an engine: one set for each thread, read as a whole by [`EngineStats`].

use serde::Serialize;

use crate::per_thread::PerThread;
use crate::read::claim::PclusterTable;
use crate::request::control::RequestPeaks;

figures::figures! {
    /// Counters of an engine since it was opened.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct EngineStats counted by pub(crate) struct ReadCounters {
        /// Reads requested.
        pub reads,
        /// Reads that failed.
        pub errors => counter "engine_errors_total",
        /// Bytes delivered to readers.
        pub delivered_bytes,
        /// Bytes fetched from the image for decoding.
        pub fetched_bytes => counter "fetched_bytes_total",
        /// Bytes that decoders produced.
        pub decoded_bytes => counter "decoded_bytes_total",
        /// Decoder calls.
        pub decodes,
        /// Decoder calls that stopped at the wanted bytes.
        pub prefix_decodes,
        /// Segments served by another reader's decoding.
        pub merged,
        /// Bytes decoded beyond small reads and passed on to the page cache.
        pub surplus_bytes,
        /// Reads handed to a worker.
        pub kickoffs,
        /// Reads shared with workers of idle CPUs.
        pub shared,
    } and {
        /// The cache of decoded pclusters.
        pub cache: CacheStats,
        /// Maximum cost of a single request.
        pub requests: RequestPeaks,
    }
}

figures::figures! {
    /// Use of the cache of decoded pclusters.
    #[derive(Clone, Debug, Default, Serialize)]
    pub struct CacheStats counted by pub(crate) struct CacheCounters {
        /// Segments found in the cache of decoded pclusters.
        pub hits => counter "cache_hits_total",
        /// Segments not found in the cache of decoded pclusters.
        pub misses => counter "cache_misses_total",
    } and {
        /// Decoded bytes in the cache.
        pub bytes: u64 => gauge "cache_bytes",
        /// Limit of decoded bytes in the cache.
        pub budget_bytes: u64 => gauge "cache_budget_bytes",
    }
}

/// Counters of one thread. Atomic, and never reset.
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub engine: ReadCounters,
    pub cache: CacheCounters,
}

impl std::ops::Deref for Counters {
    type Target = ReadCounters;

    fn deref(&self) -> &ReadCounters {
        &self.engine
    }
}

/// The counters of all threads that read through an engine.
pub(crate) type AllCounters = PerThread<Counters>;

impl AllCounters {
    /// Returns the sums of all threads.
    pub(crate) fn read(&self, table: &PclusterTable, requests: RequestPeaks) -> EngineStats {
        let mut stats = EngineStats {
            requests,
            ..EngineStats::default()
        };
        for own in self.all() {
            own.engine.add_to(&mut stats);
            own.cache.add_to(&mut stats.cache);
        }
        (stats.cache.bytes, stats.cache.budget_bytes) = (table.bytes(), table.capacity());
        stats
    }
}
