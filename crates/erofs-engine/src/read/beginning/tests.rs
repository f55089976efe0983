use std::path::Path;
use std::sync::Arc;

use erofs_format::{Inode, Nid};

use crate::{Engine, EngineOptions, PageCacheWriter, Remainder, WorkersMode};

const PAGE: usize = 4096;

/// A page cache that reports random reads.
#[derive(Debug)]
struct Random;

impl PageCacheWriter for Random {
    fn has_room(&self, _: Nid, _: usize) -> bool {
        false
    }

    fn is_random(&self, _: Nid) -> bool {
        true
    }

    fn store(&self, _: Remainder) {
        panic!("the surrounding bytes are not wanted");
    }
}

fn open(image: &str, path: &str) -> (Arc<Engine>, Arc<Inode>) {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
    let options = EngineOptions {
        workers: WorkersMode::Inline,
        cache_bytes: 1 << 20,
        ..EngineOptions::default()
    };
    let engine = Engine::open(&fixtures.join(image), &options).unwrap();
    let file = engine.resolve(path.as_bytes(), true).unwrap();
    (engine, file)
}

fn read(engine: &Engine, file: &Inode, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    let read = engine.read_at(&engine.waiting(), file, offset as u64, &mut bytes);
    bytes.truncate(read.unwrap());
    bytes
}

#[test]
fn a_random_reader_gets_every_page_right_whatever_the_codec() {
    for (image, path) in [
        ("lz4-64k.erofs", "/data/mixed-200000"),
        ("lz4-64k.erofs", "/data/holes"),
        ("lz4-4k.erofs", "/big/text-then-noise-500000"),
        ("lz4-full-index-64k.erofs", "/mixed-90000"),
        ("lcluster-16k-bigpcluster.erofs", "/text"),
        ("zstd-48bit-unaligned.erofs", "/mixed-90000"),
        ("lzma-lc0lp2pb0.erofs", "/mixed-90000"),
    ] {
        let (engine, file) = open(image, path);
        let all = read(&engine, &file, 0, file.size as usize);
        for step in [7, 1] {
            let (engine, file) = open(image, path);
            engine.set_page_cache(Box::new(Random));
            let pages = all.len().div_ceil(PAGE);
            for page in (0..pages).map(|number| number * step * 5 % pages) {
                let bytes = read(&engine, &file, page * PAGE, PAGE);
                let expected = &all[page * PAGE..][..bytes.len()];
                assert!(
                    bytes == expected && !bytes.is_empty(),
                    "{image}: page {page}"
                );
            }
        }
    }
}

#[test]
fn a_random_reader_has_two_pages_decoded_and_the_whole_when_it_comes_back() {
    let (engine, file) = open("lz4-64k.erofs", "/data/mixed-200000");
    let whole = engine.extent(&file, 0).unwrap().unwrap().length as usize;
    assert!(whole > 16 * PAGE, "{whole}");
    engine.set_page_cache(Box::new(Random));
    let counters = || {
        let stats = engine.stats();
        (
            stats.decodes,
            stats.decoded_bytes as usize,
            stats.fetched_bytes,
        )
    };
    read(&engine, &file, 0, PAGE);
    let (decodes, decoded, fetched) = counters();
    assert_eq!((decodes, decoded), (1, 2 * PAGE));
    // The record continues in the next page.
    read(&engine, &file, PAGE, PAGE);
    assert_eq!(counters(), (decodes, decoded, fetched));
    read(&engine, &file, 8 * PAGE, PAGE);
    let (decodes, decoded, all) = counters();
    assert_eq!((decodes, decoded), (2, 2 * PAGE + whole));
    assert!(2 * fetched < all - fetched, "{fetched} of {all}");
    read(&engine, &file, 12 * PAGE, PAGE);
    assert_eq!(counters().0, 2, "it is cached");
}
