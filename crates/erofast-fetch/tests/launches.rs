//! Launch profiles that travel with images: beside a URL, and in a registry.

use std::fs::File;
use std::io::{Read, Seek};
use std::sync::Arc;
use std::thread;

use remote_image::Event;
use remote_image::launches::{LONGEST, MEDIA_TYPE};
use serde_json::{Value, json};

use crate::repository::{EROFS, Repository, digest};
use crate::*;

const LENGTH: usize = 100_000;
const PROFILE: &[u8] = b"erofast-launches 4\nprogram a\nfile 9 a\nread 0 0\n";

fn options_with_launches(cache: &tempfile::TempDir) -> Options {
    Options {
        launches: true,
        ..options(cache)
    }
}

/// A server with an image and, beside it, this file.
fn server(beside: Option<&[u8]>) -> Server {
    let server = Server::start(Vec::new());
    let mut state = server.state();
    let files = &mut state.files;
    files.insert("/x.erofs".into(), Arc::new(image(LENGTH)));
    if let Some(bytes) = beside {
        let beside = Arc::new(bytes.to_vec());
        files.insert("/x.erofs.launches".into(), beside);
    }
    drop(state);
    server
}

/// The profile, which must arrive in time.
fn comes(fetcher: &mut Fetcher) -> Vec<u8> {
    loop {
        if let Some(file) = fetcher.take_launches() {
            let (mut file, mut bytes) = (File::from(file), Vec::new());
            file.rewind().unwrap();
            file.read_to_end(&mut bytes).unwrap();
            return bytes;
        }
        assert_ne!(fetcher.event().unwrap(), Event::Died);
    }
}

fn asked(server: &Server) -> Vec<String> {
    let asked = server.state().asked.clone();
    let mut paths: Vec<String> = asked.into_iter().map(|asked| asked.path).collect();
    paths.sort();
    paths
}

#[test]
fn a_profile_beside_a_url_comes_once_an_image() {
    let (server, cache) = (server(Some(PROFILE)), cache());
    let options = options_with_launches(&cache);
    let url = server.url("/x.erofs?sign=1");
    for _ in 0..2 {
        let mut fetcher = start(&url, &options).unwrap();
        assert_eq!(comes(&mut fetcher), PROFILE);
        let both = ["/x.erofs.launches?sign=1", "/x.erofs?sign=1"];
        let again = [
            "/x.erofs.launches?sign=1",
            "/x.erofs?sign=1",
            "/x.erofs?sign=1",
        ];
        let asked = asked(&server);
        assert!(asked == both || asked == again, "{asked:?}");
    }
    // Another image at the URL has another profile.
    server.state().etag = Some("\"2\"".into());
    let other = Arc::new(PROFILE.repeat(2));
    server
        .state()
        .files
        .insert("/x.erofs.launches".into(), other);
    let mut fetcher = start(&url, &options).unwrap();
    assert_eq!(comes(&mut fetcher), PROFILE.repeat(2));
}

#[test]
fn it_is_asked_for_together_with_the_image() {
    let (server, cache) = (server(Some(PROFILE)), cache());
    server.state().always = Some(Fault::Informational);
    let options = Options {
        timeout: Duration::from_secs(3),
        ..options_with_launches(&cache)
    };
    let url = server.url("/x.erofs");
    let opening = thread::spawn(move || start(&url, &options).map(drop));
    soon("both requests", || asked(&server).len() >= 2);
    assert!(!opening.is_finished(), "neither was answered");
    assert_eq!(asked(&server)[..2], ["/x.erofs", "/x.erofs.launches"]);
    assert!(opening.join().unwrap().is_err());
}

/// Opens and reads an image while requests for its profile (paths with `held`) are not answered,
/// then receives the profile.
fn opens_without_an_answer(server: &Server, url: &str, held: &'static str) {
    let cache = cache();
    server.state().held = Some(held);
    let mut fetcher = start(url, &options_with_launches(&cache)).unwrap();
    let file = RemoteFile::new(fetcher.client().unwrap());
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    soon("the question", || {
        asked(server).iter().any(|path| path.contains(held))
    });
    assert!(fetcher.take_launches().is_none());
    server.state().held = None;
    assert_eq!(comes(&mut fetcher), PROFILE);
}

#[test]
fn no_byte_of_an_image_waits_for_an_answer_about_its_profile() {
    let beside = server(Some(PROFILE));
    opens_without_an_answer(&beside, &beside.url("/x.erofs"), ".launches");
    // In a registry, requests for the layer and for the list of referrers are not answered.
    let registry = Repository::new();
    let layer = registry.put_blob(PROFILE, MEDIA_TYPE);
    let layers = [registry.put_blob(&image(LENGTH), EROFS), layer.clone()];
    registry.put_manifest("v1", &json!({ "layers": layers }));
    let blob = Repository::blob_path(&digest(PROFILE)).leak();
    opens_without_an_answer(&registry.0, &registry.url(":v1"), blob);
    let registry = Repository::new();
    let [subject, _] = registry.put_image("v1", &image(LENGTH));
    registry.put_blob(PROFILE, MEDIA_TYPE);
    let manifest = json!({ "artifactType": MEDIA_TYPE, "layers": [layer] });
    let attached = json!({
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "digest": registry.put_manifest("none", &manifest),
        "size": 1,
        "artifactType": MEDIA_TYPE,
    });
    let path = format!("/v2/tools/referrers/{subject}?artifactType={MEDIA_TYPE}");
    put_answer(&registry, &path, &json!({ "manifests": [attached] }));
    opens_without_an_answer(&registry.0, &registry.url(":v1"), "/referrers/");
}

#[test]
fn that_there_is_none_is_remembered_as_long_as_the_image_is_the_same() {
    let (server, cache) = (server(None), cache());
    let options = options_with_launches(&cache);
    let url = server.url("/x.erofs");
    let count = || {
        asked(&server)
            .iter()
            .filter(|path| path.ends_with(".launches"))
            .count()
    };
    let remembered = || {
        let entries = std::fs::read_dir(cache.path().join("cache")).unwrap();
        entries
            .flatten()
            .filter(|it| it.path().join("launches").is_file())
            .count()
    };
    let first = start(&url, &options).unwrap();
    soon("an answer", || remembered() == 1);
    drop(first);
    for _ in 0..2 {
        let fetcher = start(&url, &options).unwrap();
        thread::sleep(Duration::from_millis(100));
        drop(fetcher);
    }
    assert_eq!(count(), 1);
    server.state().etag = Some("\"2\"".into());
    let _fetcher = start(&url, &options).unwrap();
    soon("another question", || count() == 2 && remembered() == 2);
    // A mount that does not use the profile does not request it.
    let plain = crate::options(&crate::cache());
    drop(start(&url, &plain).unwrap());
    assert_eq!(count(), 2);
}

#[test]
fn what_is_no_profile_is_none_and_what_is_too_long_is_cut() {
    let page = [&b"<html>"[..], &[b' '; 100_000]].concat();
    let long = [PROFILE, &vec![b'#'; 2 * LONGEST]].concat();
    for (bytes, has) in [(page, None), (long, Some(LONGEST + 1))] {
        let (server, cache) = (server(Some(&bytes)), cache());
        let mut fetcher = start(&server.url("/x.erofs"), &options_with_launches(&cache)).unwrap();
        let file = RemoteFile::new(fetcher.client().unwrap());
        assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
        match has {
            Some(length) => assert_eq!(comes(&mut fetcher).len(), length),
            None => {
                thread::sleep(Duration::from_millis(200));
                assert!(fetcher.take_launches().is_none());
            }
        }
    }
    // A profile that cannot be fetched leads to a line in the log.
    let (server, cache) = (server(None), cache());
    let failing = "HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_owned();
    server
        .state()
        .answers
        .insert("/x.erofs.launches".into(), failing);
    let mut fetcher = start(&server.url("/x.erofs"), &options_with_launches(&cache)).unwrap();
    let Event::Note(line) = fetcher.event().unwrap() else {
        panic!("no line");
    };
    let why = ": launch profile: the server answered 500";
    assert!(line.contains(why), "{line}");
}

fn put_answer(registry: &Repository, path: &str, body: &Value) {
    let answer = repository::answer("", &body.to_string());
    registry.0.state().answers.insert(path.to_owned(), answer);
}

#[test]
fn a_layer_beside_the_image_in_a_manifest_is_its_profile() {
    let (registry, cache) = (Repository::new(), cache());
    let layers = [
        registry.put_blob(&image(LENGTH), EROFS),
        registry.put_blob(PROFILE, MEDIA_TYPE),
    ];
    registry.put_manifest("v1", &json!({ "layers": layers }));
    for _ in 0..2 {
        let mut fetcher = start(&registry.url(":v1"), &options_with_launches(&cache)).unwrap();
        assert_eq!(comes(&mut fetcher), PROFILE);
        let file = RemoteFile::new(fetcher.client().unwrap());
        assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    }
    let blob = Repository::blob_path(&digest(PROFILE));
    let asked = registry.asked();
    assert_eq!(asked.iter().filter(|path| **path == blob).count(), 1);
    // A profile that does not match its digest counts as absent.
    let other = Arc::new(b"erofast-launches 4\n".to_vec());
    registry.0.state().files.insert(blob, other);
    let cache = crate::cache();
    let mut fetcher = start(&registry.url(":v1"), &options_with_launches(&cache)).unwrap();
    let lines = [fetcher.event().unwrap(), fetcher.event().unwrap()];
    let is_refused =
        |event: &Event| matches!(event, Event::Note(line) if line.ends_with("a different digest"));
    assert!(lines.iter().any(is_refused), "{lines:?}");
}

/// A profile attached to an existing image is found with the referrers API, or by a tag if the
/// registry does not support it.
#[test]
fn what_refers_to_an_image_may_be_its_profile() {
    for by_tag in [false, true] {
        let (registry, cache) = (Repository::new(), cache());
        let [subject, _] = registry.put_image("v1", &image(LENGTH));
        let layer = registry.put_blob(PROFILE, MEDIA_TYPE);
        let old = registry.put_blob(b"erofast-launches 3\n", MEDIA_TYPE);
        let attached = |layer: &Value, created: &str| {
            let manifest = json!({ "artifactType": MEDIA_TYPE, "layers": [layer] });
            json!({
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": registry.put_manifest("none", &manifest),
                "size": 1,
                "artifactType": MEDIA_TYPE,
                "annotations": { "org.opencontainers.image.created": created },
            })
        };
        let mut signature = attached(&old, "2027-01-01T00:00:00Z");
        signature["artifactType"] = json!("application/vnd.example.signature");
        let index = json!({ "manifests": [
            signature,
            attached(&old, "2026-01-01T00:00:00Z"),
            attached(&layer, "2026-06-01T00:00:00Z"),
        ]});
        let path = match by_tag {
            true => format!("/v2/tools/manifests/{}", subject.replace(':', "-")),
            false => format!("/v2/tools/referrers/{subject}?artifactType={MEDIA_TYPE}"),
        };
        put_answer(&registry, &path, &index);
        let mut fetcher = start(&registry.url(":v1"), &options_with_launches(&cache)).unwrap();
        assert_eq!(comes(&mut fetcher), PROFILE, "by tag: {by_tag}");
    }
}

#[test]
fn an_image_that_nothing_refers_to_has_none() {
    let (registry, cache) = (Repository::new(), cache());
    let [subject, _] = registry.put_image("v1", &image(LENGTH));
    let options = options_with_launches(&cache);
    let first = start(&registry.url(":v1"), &options).unwrap();
    let tag = format!("/v2/tools/manifests/{}", subject.replace(':', "-"));
    let count = || {
        let state = registry.0.state();
        state.asked.iter().filter(|asked| asked.path == tag).count()
    };
    soon("the last question", || count() == 1);
    let remembered = || {
        let mut entries = std::fs::read_dir(cache.path().join("cache")).unwrap();
        entries.any(|entry| entry.unwrap().path().join("launches").is_file())
    };
    soon("an answer", remembered);
    drop(first);
    let _second = start(&registry.url(":v1"), &options).unwrap();
    thread::sleep(Duration::from_millis(100));
    assert_eq!(count(), 1, "it is remembered");
}
