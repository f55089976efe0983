//! What is fetched while the link is idle, before a reader asks.

use crate::reading::SmallDisk;
use crate::*;
use remote_image::Ahead;
use remote_image::store::BLOCK;
use std::ops::Range;

/// Few enough blocks to arrive soon even on a busy machine.
const BLOCKS: usize = 300;
const LENGTH: usize = BLOCKS * BLOCK as usize;

/// A server whose answers take long enough that the idle time is worth filling.
fn distant() -> Server {
    let server = Server::start(image(LENGTH));
    server.state().latency = Duration::from_millis(20);
    server
}

fn open_ahead(server: &Server, cache: &tempfile::TempDir, ahead: Ahead) -> RemoteFile {
    let options = Options {
        ahead,
        ..options(cache)
    };
    open(&server.url("/a"), &options).unwrap()
}

fn bytes(blocks: Range<usize>) -> Range<usize> {
    blocks.start * BLOCK as usize..blocks.end * BLOCK as usize
}

/// Fetches an image from a new server until all of it is cached; `None` if that takes too long,
/// because a busy machine had little time for the link when it was measured.
fn fetched_whole() -> Option<(Server, tempfile::TempDir, RemoteFile)> {
    let (server, cache) = (distant(), cache());
    let file = open_ahead(&server, &cache, Ahead::Whole);
    for first in (20..BLOCKS - 20).step_by(20) {
        read(&file, bytes(first..first + 10)).unwrap();
        if file.counters().unwrap().ahead_bytes > 0 {
            break;
        }
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    while file.counters().unwrap().cached_bytes < LENGTH as u64 {
        if Instant::now() > deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Some((server, cache, file))
}

#[test]
fn the_rest_of_an_image_comes_while_its_reader_does_something_else() {
    let mut attempts = (0..8).filter_map(|_| fetched_whole());
    let (_server, _cache, file) = attempts.next().expect("all of it is cached");
    let counters = file.counters().unwrap();
    assert_eq!(counters.fetched_bytes, LENGTH as u64, "each block once");
    assert!(counters.ahead_bytes > LENGTH as u64 / 4, "{counters:?}");
    assert!(
        counters.unread_bytes >= counters.ahead_bytes / 2,
        "{counters:?}"
    );
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    assert_eq!(file.counters().unwrap().unread_bytes, 0);
}

/// The rest would displace blocks that readers need.
#[test]
fn on_a_full_disk_the_rest_of_an_image_is_left() {
    let Some(small) = SmallDisk::mount() else {
        println!("skipped: no right to mount a tmpfs");
        return;
    };
    let server = distant();
    let file = open_ahead(&server, &small.0, Ahead::Whole);
    for _ in 0..3 {
        read(&file, bytes(100..130)).unwrap();
    }
    let ahead = || file.counters().unwrap().ahead_bytes;
    let before = std::cell::Cell::new(u64::MAX);
    soon("the link is idle", || {
        std::thread::sleep(Duration::from_millis(500));
        before.replace(ahead()) == ahead()
    });
    assert!(ahead() < LENGTH as u64 / 2, "{:?}", file.counters());
    let refused = file.fetch_all().unwrap_err().to_string();
    let line = ": nothing is kept in the cache: No space left on device (os error 28)";
    assert!(refused.ends_with(line), "{refused}");
    drop(file);
}

#[test]
fn without_it_only_what_is_read_is_fetched() {
    let (server, cache) = (distant(), cache());
    let file = open_ahead(&server, &cache, Ahead::Nothing);
    for first in (100..BLOCKS - 20).step_by(100) {
        read(&file, bytes(first..first + 20)).unwrap();
    }
    let counters = file.counters().unwrap();
    let read = (100..BLOCKS - 20).step_by(100).count() as u64 * 20 + 2;
    assert_eq!(
        (counters.fetched_bytes, counters.ahead_bytes),
        (read * BLOCK, 0)
    );
}

/// Until the last block of the profile has been requested, nothing else is fetched unless a reader
/// waits for it.
#[test]
fn nothing_competes_with_a_launch_profile() {
    let (server, cache) = (distant(), cache());
    let file = open_ahead(&server, &cache, Ahead::Whole);
    let profile: Vec<_> = (200..BLOCKS as u64).step_by(70).collect();
    let ranges: Vec<_> = profile
        .iter()
        .map(|block| block * BLOCK..(block + 1) * BLOCK)
        .collect();
    file.prefetch(&ranges, Class::Profile).unwrap();
    read(&file, bytes(20..60)).unwrap();
    soon("the profile is cached", || {
        ranges.iter().all(|range| file.is_cached(range))
    });
    let asked: Vec<_> = server
        .state()
        .asked
        .iter()
        .filter_map(|asked| asked.range())
        .collect();
    let is_of_profile = |range: &Range<u64>| ranges.iter().any(|part| range.contains(&part.start));
    let last = asked.iter().rposition(is_of_profile).unwrap();
    for range in &asked[..last] {
        let is_wanted = is_of_profile(range) || range.start < 60 * BLOCK;
        assert!(is_wanted, "{range:?} before {:?}", asked[last]);
    }
}
