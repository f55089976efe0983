//! Decoded bytes kept outside the engine, and used instead of decoding again.
//!
//! Decoded bytes belong to stored bytes, not to a location in an image: their key is a hash of the
//! stored bytes. They are therefore right wherever the same stored bytes occur, and are never used
//! for other stored bytes.

use std::fmt;

use erofs_format::{Algorithm, Pcluster};
use twox_hash::XxHash3_128;

/// Decoded bytes by their keys.
pub trait DecodedSource: fmt::Debug + Send + Sync {
    /// The seed of the key hash. The author of an image cannot know it.
    fn seed(&self) -> u64;

    /// Fills `out` with the beginning of the bytes for this key; false if there are none. `keeps`
    /// says whether the bytes are for a [`DecodedSink`] rather than a reader.
    fn read(&self, key: u128, out: &mut [u8], keeps: bool) -> bool;
}

/// A receiver that keeps decoded bytes.
pub trait DecodedSink: fmt::Debug + Sync {
    /// See [`DecodedSource::seed`].
    fn seed(&self) -> u64;

    /// Whether the sink lacks some of the first `length` bytes for this key.
    fn wants(&self, key: u128, length: usize) -> bool;

    /// Keeps the beginning of a decoded pcluster.
    fn keep(&self, key: u128, decoded: &[u8]);
}

/// The key of a pcluster with these stored bytes.
pub(crate) fn key(seed: u64, algorithm: Algorithm, pcluster: &Pcluster, stored: &[u8]) -> u128 {
    let kind = u64::from(algorithm.bit()) << 1 | u64::from(pcluster.partial);
    let seed = seed ^ pcluster.decoded_length.rotate_left(32) ^ kind;
    XxHash3_128::oneshot_with_seed(seed, stored)
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use std::collections::HashMap;
    use std::path::Path;
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::{Engine, EngineOptions, ReadContext, WorkersMode};

    /// A sink and source that keeps decoded bytes in memory.
    #[derive(Debug, Default)]
    struct Kept(Mutex<HashMap<u128, Vec<u8>>>);

    impl DecodedSink for Kept {
        fn seed(&self) -> u64 {
            7
        }

        fn wants(&self, key: u128, length: usize) -> bool {
            let kept = self.0.lock().unwrap();
            kept.get(&key).is_none_or(|kept| kept.len() < length)
        }

        fn keep(&self, key: u128, decoded: &[u8]) {
            self.0.lock().unwrap().insert(key, decoded.to_vec());
        }
    }

    impl DecodedSource for Kept {
        fn seed(&self) -> u64 {
            7
        }

        fn read(&self, key: u128, out: &mut [u8], keeps: bool) -> bool {
            let kept = self.0.lock().unwrap();
            let found = kept.get(&key).and_then(|kept| kept.get(..out.len()));
            found.filter(|_| !keeps).is_some_and(|found| {
                out.copy_from_slice(found);
                true
            })
        }
    }

    /// Opens an image without a cache, and a file in that image.
    fn opened(image: &str, file: &[u8]) -> (Arc<Engine>, Arc<erofs_format::Inode>) {
        let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
        let options = EngineOptions {
            workers: WorkersMode::Inline,
            cache_bytes: 0,
            ..EngineOptions::default()
        };
        let engine = Engine::open(&images.join(image), &options).unwrap();
        let inode = engine.resolve(file, true).unwrap();
        (engine, inode)
    }

    fn content(engine: &Engine, inode: &erofs_format::Inode) -> Vec<u8> {
        let mut bytes = vec![0; inode.size as usize];
        let request = engine.request(ReadContext::Worker);
        let read = engine.read_at(&request, inode, 0, &mut bytes);
        assert_eq!(read.unwrap(), bytes.len());
        bytes
    }

    #[test]
    fn what_is_kept_is_not_decoded_again_and_serves_no_other_stored_bytes() {
        let kept = Arc::new(Kept::default());
        for (image, file) in [
            ("lzma-1m-dict8m.erofs", &b"/data/mixed-200000"[..]),
            ("lz4-64k.erofs", &b"/data/mixed-200000"[..]),
        ] {
            let (engine, inode) = opened(image, file);
            let expected = content(&engine, &inode);
            // Reads page by page, as a launch does.
            for offset in (0..inode.size - 4096).step_by(4096) {
                let page = offset..offset + 4096;
                engine.decode_for(&inode, page, &*kept).unwrap();
            }
            let (engine, inode) = opened(image, file);
            engine.set_decoded(Arc::clone(&kept) as Arc<dyn DecodedSource>);
            assert!(content(&engine, &inode) == expected, "{image}");
            assert_eq!(engine.stats().decodes, 0, "{image}");
            let page = engine.decode_for(&inode, 0..4096, &Kept::default());
            assert!(page.is_ok() && engine.stats().decodes == 1, "{image}");
            // Changes the kept bytes, which must not affect another image.
            kept.0
                .lock()
                .unwrap()
                .values_mut()
                .for_each(|bytes| bytes.fill(1));
        }
        let (engine, inode) = opened("lz4-full-index-64k.erofs", b"/mixed-90000");
        let expected = content(&engine, &inode);
        engine.set_decoded(kept);
        assert!(content(&engine, &inode) == expected);
    }
}
