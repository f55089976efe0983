//! Reading from a server that works correctly.

use std::os::unix::fs::PermissionsExt;

use crate::*;
use remote_image::store::BLOCK;
use remote_image::{Event, Options};

const LENGTH: usize = 160 * BLOCK as usize + 777;

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
    // The first block, the last, and the rest in ranges of 64 blocks.
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

#[test]
fn all_of_an_image_is_fetched_ahead() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let file = open(&server.url("/a"), &options(&cache)).unwrap();
    file.fetch_all().unwrap();
    server.state().always = Some(Fault::Closed);
    let mut bytes = vec![0; LENGTH];
    assert!(file.read_cached(&mut bytes, 0).unwrap() && bytes == image(LENGTH));
}

#[test]
fn a_reader_that_goes_on_is_read_ahead_of() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let file = open(&server.url("/a"), &options(&cache)).unwrap();
    for part in (0..LENGTH - 20_000).step_by(20_000) {
        assert_eq!(
            read(&file, part..part + 20_000).unwrap(),
            image(LENGTH)[part..part + 20_000]
        );
    }
    // With one request per block there would be 161.
    let requests = server.state().asked.len();
    assert!(requests < 16, "{requests} requests");
    assert_eq!(file.counters().unwrap().fetched_bytes, LENGTH as u64);
}

/// The fetcher with this proxy in its environment.
fn start_behind(proxy: &str, url: &str, cache: &tempfile::TempDir) -> std::io::Result<Fetcher> {
    let script = cache.path().join("fetch");
    let program = program();
    let exports = format!("export http_proxy={proxy} https_proxy={proxy}");
    let lines = format!("#!/bin/sh\n{exports}\nexec {}\n", program.display());
    std::fs::write(&script, lines).unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    Fetcher::start_program(script, &[], &source(url), &options(cache))
}

#[test]
fn a_proxy_that_fails_is_named_without_its_password() {
    let (proxy, cache) = (Server::start(Vec::new()), cache());
    let address = proxy.url("").replace("http://", "");
    let line = |address: &str, scheme: &str| {
        let url = format!("{scheme}://images.test/a");
        let failed = start_behind(&format!("http://me:hidden@{address}"), &url, &cache);
        failed.unwrap_err().to_string().replace(&url, "URL")
    };
    proxy.state().always = Some(Fault::Status(407));
    let refused = line(&address, "http");
    assert!(
        refused.starts_with(&format!("URL: the proxy {address} answered 407")),
        "{refused}"
    );
    let no_tunnel = line(&address, "https");
    let begin = format!("URL: no connection through the proxy {address}: ");
    assert!(no_tunnel.starts_with(&begin), "{no_tunnel}");
    drop(proxy);
    for scheme in ["http", "https"] {
        let dead = line("127.0.0.1:1", scheme);
        let begin = "URL: no connection through the proxy 127.0.0.1:1: Connection refused";
        assert!(dead.starts_with(begin), "{dead}");
    }
}

#[test]
fn a_proxy_of_the_environment_is_asked() {
    let (proxy, cache) = (Server::start(image(LENGTH)), cache());
    let mut fetcher = start_behind(&proxy.url(""), "http://images.test/a", &cache).unwrap();
    let file = RemoteFile::new(fetcher.client().unwrap());
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    assert!(
        proxy
            .state()
            .asked
            .iter()
            .all(|asked| asked.path == "http://images.test/a")
    );
}

#[test]
fn readers_come_and_go_but_are_not_without_end() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let mut fetcher = start_behind(&server.url(""), "http://images.test/a", &cache).unwrap();
    for _ in 0..3 {
        let mut readers = Vec::new();
        let refused = loop {
            match fetcher.client() {
                Ok(reader) if readers.len() < 1000 => readers.push(reader),
                Ok(_) => panic!("a thousand readers"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(refused.contains(": already has "), "{refused}");
        assert!(readers.len() > 8);
    }
    let file = RemoteFile::new(fetcher.client().unwrap());
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
}

/// On a full disk, blocks can still be read, repeatedly, and none of them is wrong.
#[test]
fn a_disk_that_is_full_is_one_line() {
    let Some(small) = SmallDisk::mount() else {
        println!("skipped: no right to mount a tmpfs");
        return;
    };
    let server = Server::start(image(LENGTH));
    let mut fetcher = start(&server.url("/a"), &options(&small.0)).unwrap();
    let file = RemoteFile::new(fetcher.client().unwrap());
    for _ in 0..2 {
        assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    }
    let Event::Note(line) = fetcher.event().unwrap() else {
        panic!("it died");
    };
    let begin = format!(
        "{}: nothing is kept in the cache now: No space left",
        server.url("/a")
    );
    assert!(line.starts_with(&begin), "{line}");
    drop((file, fetcher));
}

/// An image that cannot be kept can still be read; the line about it is sent once the image is
/// open.
#[test]
fn an_image_that_cannot_be_kept_is_one_line() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let (nowhere, url) = (cache.path().join("file"), server.url("/a"));
    std::fs::write(&nowhere, "").unwrap();
    let elsewhere = Options {
        cache_dir: Some(nowhere.clone()),
        ..options(&cache)
    };
    let refused = format!("{}: Not a directory (os error 20)", nowhere.display());
    for (etag, options, why) in [
        (Some("\"1\"".to_owned()), elsewhere, refused.as_str()),
        (
            None,
            options(&cache),
            "the server sent neither ETag nor Last-Modified",
        ),
    ] {
        server.state().etag = etag;
        let mut fetcher = start(&url, &options).unwrap();
        let file = RemoteFile::new(fetcher.client().unwrap());
        assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
        let line = format!("{url}: nothing is kept in the cache: {why}");
        assert_eq!(fetcher.event().unwrap(), Event::Note(line));
    }
}

pub(crate) struct SmallDisk(pub(crate) tempfile::TempDir);

impl SmallDisk {
    pub(crate) fn mount() -> Option<SmallDisk> {
        let place = cache();
        let mut mount = std::process::Command::new("mount");
        mount
            .args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"])
            .arg(place.path());
        mount
            .output()
            .ok()?
            .status
            .success()
            .then_some(SmallDisk(place))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = std::process::Command::new("umount")
            .arg("-l")
            .arg(self.0.path())
            .status();
        assert!(unmounted.is_ok_and(|status| status.success()));
    }
}
