//! Opening images from the cache when their servers do not answer.

use crate::repository::Repository;
use crate::*;
use remote_image::Offline;

const LENGTH: usize = 300_000;

fn with(cache: &tempfile::TempDir, offline: Offline) -> Options {
    Options {
        offline,
        timeout: Duration::from_secs(6),
        ..options(cache)
    }
}

/// A file whose bytes are all in the cache, and the message about its server.
fn whole(url: &str, options: &Options) -> (Vec<u8>, Option<String>) {
    let file = open(url, options).unwrap();
    let bytes = read(&file, 0..LENGTH).unwrap();
    (bytes, file.offline().map(str::to_owned))
}

fn away() -> [Fault; 5] {
    use Fault::{Closed, Garbage, Informational, Later, Status};
    [Closed, Garbage, Status(500), Later("0"), Informational]
}

#[test]
fn an_image_that_is_all_there_is_read_when_its_server_does_not_answer() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let auto = with(&cache, Offline::Auto);
    for url in [server.url("/a"), server.url("/b?sign=secret")] {
        let (bytes, line) = whole(&url, &auto);
        assert_eq!((bytes, line), (image(LENGTH), None));
        for fault in away() {
            server.state().always = Some(fault.clone());
            let (bytes, line) = whole(&url, &auto);
            assert_eq!(bytes, image(LENGTH));
            let line = line.unwrap_or_else(|| panic!("{fault:?}"));
            let begin = "using the copy in the cache, confirmed ";
            assert!(
                line.starts_with(begin) && line.contains(" GMT: "),
                "{fault:?}: {line}"
            );
            assert!(!line.contains("secret"), "{line}");
            start(&url, &with(&cache, Offline::Off)).unwrap_err();
        }
        server.state().always = None;
    }
}

#[test]
fn what_a_server_refuses_is_refused() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let auto = with(&cache, Offline::Auto);
    whole(&server.url("/a"), &auto);
    for status in [401, 403, 404] {
        server.state().always = Some(Fault::Status(status));
        let line = start(&server.url("/a"), &auto).unwrap_err().to_string();
        assert!(line.contains(&status.to_string()), "{line}");
    }
}

#[test]
fn an_image_that_is_there_in_part_needs_its_server() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let auto = with(&cache, Offline::Auto);
    drop(start(&server.url("/a"), &auto).unwrap());
    server.state().always = Some(Fault::Status(500));
    let line = start(&server.url("/a"), &auto).unwrap_err().to_string();
    assert!(line.contains("the server answered 500"), "{line}");
    let line = start(&server.url("/a"), &with(&cache, Offline::On)).unwrap_err();
    let end = "offline=on, but the image is not completely in the cache";
    assert_eq!(line.to_string(), format!("{}: {end}", server.url("/a")));
    let never = remote_image::Options {
        keep: false,
        ..with(&cache, Offline::On)
    };
    let line = start(&server.url("/a.roothash"), &never).unwrap_err();
    let end = "offline=on, but root hashes and signatures are not cached";
    assert!(line.to_string().ends_with(end), "{line}");
}

#[test]
fn no_server_is_asked_where_none_is_wanted() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    whole(&server.url("/a"), &with(&cache, Offline::Auto));
    server.state().asked.clear();
    let (bytes, line) = whole(&server.url("/a"), &with(&cache, Offline::On));
    assert_eq!((bytes, line), (image(LENGTH), None));
    assert!(server.state().asked.is_empty());
    // The image on the server has changed since.
    server.state().etag = Some("\"2\"".into());
    server.state().image = std::sync::Arc::new(vec![1; LENGTH]);
    assert_eq!(
        whole(&server.url("/a"), &with(&cache, Offline::On)).0,
        image(LENGTH)
    );
    assert_eq!(
        whole(&server.url("/a"), &with(&cache, Offline::Auto)).0,
        vec![1; LENGTH]
    );
    assert_eq!(
        whole(&server.url("/a"), &with(&cache, Offline::On)).0,
        vec![1; LENGTH]
    );
}

#[test]
fn a_digest_needs_no_registry_and_a_tag_is_what_it_was() {
    let (registry, cache) = (Repository::new(), cache());
    let [manifest, blob] = registry.put_image("v1", &image(LENGTH));
    let auto = with(&cache, Offline::Auto);
    let urls = [":v1".into(), format!("@{manifest}"), format!("@{blob}")];
    let urls = urls.map(|version: String| registry.url(&version));
    for url in &urls {
        assert_eq!(whole(url, &auto), (image(LENGTH), None));
    }
    registry.asked();
    for url in &urls[1..] {
        assert_eq!(whole(url, &auto), (image(LENGTH), None));
    }
    let known = format!("{}#blob={LENGTH}", urls[2]);
    assert_eq!(whole(&known, &auto), (image(LENGTH), None));
    assert_eq!(registry.asked(), Vec::<String>::new());
    registry.0.state().always = Some(Fault::Closed);
    let (bytes, line) = whole(&urls[0], &auto);
    assert!(bytes == image(LENGTH) && line.is_some());
    let line = start(&registry.url(":v2"), &auto).unwrap_err().to_string();
    assert!(line.starts_with(&registry.url(":v2")), "{line}");
}

/// A blob that is complete but was never compared with its digest.
#[test]
fn what_is_there_is_compared_with_its_digest() {
    let (registry, cache) = (Repository::new(), cache());
    let [_, blob] = registry.put_image("v1", &image(LENGTH));
    let auto = with(&cache, Offline::Auto);
    let mut wrong = image(LENGTH);
    wrong[LENGTH - 1] ^= 1;
    let identity = remote_image::message::Identity {
        length: LENGTH as u64,
        digest: Some(blob.clone()),
        ..Default::default()
    };
    let url = registry.url(&format!("@{blob}#blob={LENGTH}"));
    let store = remote_image::home::open(&source(&url), &auto, &identity).unwrap();
    for (block, bytes) in (0..).zip(wrong.chunks(16 << 10)) {
        store.write_block(block, bytes).unwrap();
    }
    drop(store);
    let line = start(&url, &auto).unwrap_err().to_string();
    assert!(line.contains("the blob has a different digest"), "{line}");
    assert_eq!(
        whole(&url, &auto),
        (image(LENGTH), None),
        "it is fetched anew"
    );
}
