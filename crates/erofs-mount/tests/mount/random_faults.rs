//! The kernel's reads around random page faults are declined, and every byte is correct.

use std::fs::File;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

use erofs_mount::{mount, stat};
use serde_json::Value;

use crate::built::BuiltImage;
use crate::place::Place;
use crate::{Test, request};

pub const TESTS: &[Test] =
    tests![what_is_read_around_random_faults_is_declined_and_no_program_sees_it];

const PAGE: u64 = 4096;
const SIZE: u64 = 1 << 30;

/// Pages that a program jumps to, in a fixed pattern; every second jump leads to a page that has
/// data.
fn jumps() -> impl Iterator<Item = u64> {
    let step = |at: &u64| Some((at * 48_271 + 12_345) % (SIZE / PAGE));
    std::iter::successors(Some(4711), step)
        .enumerate()
        .map(|(number, page)| match number % 2 {
            0 => page / 961 * 961,
            _ => page,
        })
}

fn what_is_read_around_random_faults_is_declined_and_no_program_sees_it() {
    let Some(built) = BuiltImage::of_a_large_file("random-faults") else {
        return;
    };
    let original = File::open(built.tree().join("large")).unwrap();
    let expected = |offset: u64, length: usize| {
        let mut bytes = vec![0; length];
        original.read_exact_at(&mut bytes, offset).unwrap();
        bytes
    };
    for options in ["", "io_uring=on", "read_ahead_kb=0"] {
        let place = Place::new();
        match mount(&request(&built.image(), &place, options)) {
            Err(error) if options == "io_uring=on" => {
                println!("skipped: {error}");
                continue;
            }
            outcome => outcome.unwrap(),
        }
        let file = File::open(place.path.join("large")).unwrap();
        for page in jumps().take(300) {
            let mut bytes = [0; 16];
            sys::mapped_read::read(&file, page * PAGE, &mut bytes).unwrap();
            assert_eq!(
                bytes[..],
                expected(page * PAGE, 16),
                "{options}: page {page}"
            );
        }
        let counters = stat(&place.path).unwrap();
        if options.ends_with("read_ahead_kb=0") {
            assert_eq!(counters["read_ahead"]["random_faults"], Value::Null);
            continue;
        }
        let declined = &counters["read_ahead"]["random_faults"]["declined_bytes"];
        let (declined, read) = (declined.as_u64(), counters["fuse"]["bytes_read"].as_u64());
        assert!(declined > Some(10 << 20), "{options}: {counters}");
        assert!(read < declined, "{options}: {counters}");
        // Read through the page cache, in which some pages are missing, and with direct I/O.
        let direct = File::options()
            .read(true)
            .custom_flags(libc::O_DIRECT)
            .open(place.path.join("large"))
            .unwrap();
        for page in jumps().skip(100).take(100) {
            let (begin, length) = (page.saturating_sub(64) * PAGE, 512 << 10);
            let length = length.min((SIZE - begin) as usize);
            for file in [&direct, &file] {
                let mut bytes = vec![0; length];
                file.read_exact_at(&mut bytes, begin).unwrap();
                assert!(bytes == expected(begin, length), "{options}: {begin}");
            }
        }
        let counters = stat(&place.path).unwrap();
        assert_eq!(counters["fuse"]["errors"], 0, "{options}: {counters}");
        assert_eq!(counters["faults"]["count"], 0, "{options}: {counters}");
    }
}
