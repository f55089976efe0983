//! What a reader gets of a server that does what it should.

use crate::*;
use remote_image::store::BLOCK;

const LENGTH: usize = 40 * BLOCK as usize + 777;

#[test]
fn every_byte_is_that_of_the_server_and_comes_once() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let file = open(&server.url("/a.erofs"), &options(&cache)).unwrap();
    assert_eq!(file.length(), LENGTH as u64);
    assert_eq!(
        read(&file, LENGTH - 5..LENGTH).unwrap(),
        image(LENGTH)[LENGTH - 5..]
    );
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    let counters = file.counters().unwrap();
    assert_eq!(
        (counters.fetched_bytes, counters.cached_bytes),
        (LENGTH as u64, LENGTH as u64)
    );
    assert!(read(&file, LENGTH..LENGTH + 1).is_err());
    // The first block, the last, and what is between in ranges of 16 blocks.
    assert_eq!(server.state().asked.len(), 2 + 3);
}

#[test]
fn the_next_to_open_it_finds_it_in_the_cache_while_the_image_is_the_same() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let first = open(&server.url("/a"), &options(&cache)).unwrap();
    read(&first, 0..LENGTH).unwrap();
    server.state().asked.clear();
    let again = open(&server.url("/a"), &options(&cache)).unwrap();
    assert_eq!(read(&again, 0..LENGTH).unwrap(), image(LENGTH));
    assert_eq!(server.state().asked.len(), 1);
    let other: Vec<u8> = image(LENGTH).iter().map(|byte| !byte).collect();
    (server.state().image, server.state().etag) = (other.clone().into(), Some("\"3\"".into()));
    let new = open(&server.url("/a"), &options(&cache)).unwrap();
    assert_eq!(read(&new, 0..LENGTH).unwrap(), other);
    assert_eq!(read(&again, 0..LENGTH).unwrap(), image(LENGTH));
}
