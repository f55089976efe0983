//! Models pclusters in flight under loom: every interleaving of the readers of one pcluster.
//!
//! `cargo test -p erofs-engine --features loom --lib loom_`

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use loom::thread;
use page_pool::{PageBuf, PagePool, PoolOptions};

use crate::read::claim::{Claim, Key, PclusterTable};

/// The decoded bytes of the pcluster.
const BYTES: [u8; 4] = [1, 2, 3, 4];

/// How the decoding reader ends its lease.
#[derive(Clone, Copy)]
enum Ending {
    /// The bytes are put into the cache.
    Cache,
    /// The bytes were decoded directly into the reader's buffer.
    Direct,
}

struct Model {
    table: PclusterTable,
    pool: Arc<PagePool>,
    /// Number of decoder calls. Not part of the model, since another switch point would only
    /// multiply the interleavings.
    decodes: AtomicUsize,
}

impl Model {
    fn new(capacity: u64) -> Arc<Self> {
        let pool = PagePool::new(&PoolOptions::default()).expect("an empty pool needs no memory");
        Arc::new(Model {
            table: PclusterTable::new(capacity),
            pool,
            decodes: AtomicUsize::new(0),
        })
    }

    fn decode(&self, length: usize) -> PageBuf {
        self.decodes.fetch_add(1, Ordering::Relaxed);
        self.copy(&BYTES[..length])
    }

    fn copy(&self, bytes: &[u8]) -> PageBuf {
        let mut buffer = self.pool.alloc(bytes.len()).expect("a page");
        buffer.copy_from_slice(bytes);
        buffer
    }

    /// Reads the first `length` bytes as `pipeline` does.
    fn read(&self, length: usize, ending: Ending) -> Vec<u8> {
        loop {
            match self.table.claim(Key::example(), length) {
                Claim::Cached(decoded) => return decoded[..length].to_vec(),
                Claim::InFlight(in_flight) => {
                    in_flight.join(length);
                    if let Some(decoded) = in_flight.wait(length) {
                        return decoded[..length].to_vec();
                    }
                }
                Claim::Leader(lease) => {
                    let decoded = self.decode(length);
                    let out = decoded.to_vec();
                    match ending {
                        Ending::Cache => lease.cache(Arc::new(decoded)),
                        Ending::Direct => {
                            lease.delivered(|wanted| (wanted <= out.len()).then(|| self.copy(&out)))
                        }
                    }
                    return out;
                }
            }
        }
    }
}

/// Runs two readers of `lengths` bytes; returns how many decoder calls they made together.
fn two_readers(capacity: u64, lengths: [usize; 2], ending: Ending) -> usize {
    let model = Model::new(capacity);
    let other = model.clone();
    let thread = thread::spawn(move || other.read(lengths[1], ending));
    let mine = model.read(lengths[0], ending);
    let theirs = thread.join().expect("no panic");
    assert_eq!(mine, BYTES[..lengths[0]]);
    assert_eq!(theirs, BYTES[..lengths[1]]);
    model.decodes.load(Ordering::Relaxed)
}

#[test]
fn loom_a_cached_pcluster_is_decoded_once_in_any_order_of_readers() {
    loom::model(|| assert_eq!(two_readers(1 << 20, [4, 4], Ending::Cache), 1));
}

#[test]
fn loom_readers_at_the_same_time_are_served_by_one_decoding_or_come_one_after_the_other() {
    let shared = Arc::new(AtomicUsize::new(0));
    let seen = shared.clone();
    loom::model(move || {
        let decodes = two_readers(0, [4, 4], Ending::Direct);
        assert!(decodes == 1 || decodes == 2, "{decodes}");
        seen.fetch_add(usize::from(decodes == 1), Ordering::Relaxed);
    });
    // In some interleavings the readers overlap.
    assert!(shared.load(Ordering::Relaxed) > 0);
}

#[test]
fn loom_a_reader_that_wants_more_than_is_being_decoded_asks_again_and_gets_it() {
    loom::model(|| {
        let decodes = two_readers(1 << 20, [2, 4], Ending::Cache);
        assert!(decodes <= 2, "{decodes}");
    });
}

#[test]
fn loom_a_reader_that_leaves_without_an_outcome_leaves_no_reader_waiting() {
    loom::model(|| {
        let model = Model::new(0);
        let Claim::Leader(lease) = model.table.claim(Key::example(), 4) else {
            panic!("no other reader exists yet");
        };
        let other = model.clone();
        let thread = thread::spawn(move || other.read(4, Ending::Direct));
        // Imitates a failure or a panic.
        drop(lease);
        assert_eq!(thread.join().expect("no panic"), BYTES);
        assert_eq!(model.decodes.load(Ordering::Relaxed), 1);
    });
}
