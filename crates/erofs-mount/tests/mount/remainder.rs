//! Small reads leave the remainders of pclusters in the page cache.

use std::os::unix::fs::FileExt;

use rustix::fs::{Advice, fadvise};

use super::*;

pub(super) const TESTS: &[Test] = tests![a_small_read_brings_its_pcluster_into_the_page_cache];

fn a_small_read_brings_its_pcluster_into_the_page_cache() {
    let file = |place: &Place| place.path.join("data/mixed-200000");
    for transport in ["io_uring=off", "io_uring=on"] {
        let plain = mounted("lz4-64k", "cache=0");
        let expected = fs::read(file(&plain)).unwrap();
        let place = Place::new();
        if let Err(error) = mount(&request(&image("lz4-64k"), &place, transport)) {
            assert!(error.to_string().contains("io_uring"), "{error}");
            println!("skipped: {error}");
            continue;
        }
        let file = File::open(file(&place)).unwrap();
        fadvise(&file, 0, None, Advice::Random).unwrap();
        let page = |number: usize| {
            let mut bytes = [0; 4096];
            file.read_exact_at(&mut bytes, number as u64 * 4096)
                .unwrap();
            assert_eq!(bytes[..], expected[number * 4096..][..4096], "{number}");
        };
        let reads = || {
            stat(&place.path).unwrap()["fuse"]["by_kind"]["read"]
                .as_u64()
                .unwrap()
        };
        let pages = expected.len() / 4096;
        let mut number = 0;
        // A page and the page two pages later belong to the same pcluster nearly everywhere. If
        // they do not, or if the storing thread was late, try the next place.
        soon("a page that came without a read", || {
            page(number % pages);
            thread::sleep(Duration::from_millis(20));
            let before = reads();
            page((number + 2) % pages);
            let came = reads() == before;
            number += 17;
            came
        });
        (0..pages).rev().for_each(page);
        assert!(reads() < pages as u64, "{} reads of {pages} pages", reads());
        let counters = stat(&place.path).unwrap();
        assert!(counters["engine"]["surplus_bytes"].as_u64().unwrap() > 0);
    }
}
