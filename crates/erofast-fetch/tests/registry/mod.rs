//! Images in the tests' own registry, and in Debian's if it is installed.

pub(crate) mod docker;
mod tokens;

use std::io::{Read, Write};
use std::sync::Arc;

use remote_image::Event;
use serde_json::json;

use crate::repository::{EROFS, Repository, TAR, digest};
use crate::*;

const LENGTH: usize = 300_000;

/// The single error line of an image that cannot be opened.
fn refused(url: &str, options: &Options) -> String {
    let line = start(url, options).unwrap_err().to_string();
    assert!(line.starts_with(&format!("{url}: ")), "{line}");
    line
}

#[test]
fn a_tag_is_pinned_while_the_image_is_open() {
    let (registry, cache) = (Repository::new(), cache());
    let [manifest, blob] = registry.put_image("v1", &image(LENGTH));
    let mut fetcher = start(&registry.url(":v1"), &options(&cache)).unwrap();
    let line = format!(
        "{}: manifest {manifest}; the image is blob {blob}",
        registry.url(":v1")
    );
    assert_eq!(fetcher.event().unwrap(), Event::Note(line));
    registry.put_image("v1", b"another");
    let file = RemoteFile::new(fetcher.client().unwrap());
    fetcher.restart().unwrap();
    fetcher.watch(|_| ()).unwrap();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    // Every fetcher requests ranges of the same blob.
    let asked = registry.asked();
    assert_eq!(asked[0], "/v2/tools/manifests/v1");
    assert!(
        asked[1..]
            .iter()
            .all(|path| *path == Repository::blob_path(&blob)),
        "{asked:?}"
    );
}

#[test]
fn an_index_has_the_image_of_this_machine_and_rather_one_of_erofs_layers() {
    let (registry, cache) = (Repository::new(), cache());
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let entry = |bytes: &[u8], platform: serde_json::Value| {
        let [manifest, _] = registry.put_image("none", bytes);
        json!({ "mediaType": "m", "digest": manifest, "size": 1, "platform": platform })
    };
    let own = json!({ "os": "linux", "architecture": architecture });
    let mut erofs = own.clone();
    erofs["os.features"] = json!(["erofs"]);
    let other = json!({ "os": "linux", "architecture": "z80" });
    let entries = [
        entry(b"other", other),
        entry(b"tar", own),
        entry(&image(LENGTH), erofs),
    ];
    registry.put_manifest("v1", &json!({ "manifests": entries }));
    let file = open(&registry.url(":v1"), &options(&cache)).unwrap();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    registry.put_manifest("v2", &json!({ "manifests": entries[..1] }));
    let line = refused(&registry.url(":v2"), &options(&cache));
    assert!(
        line.contains("no image for linux/") && line.ends_with(": linux/z80"),
        "{line}"
    );
}

#[test]
fn layers_below_the_image_are_its_devices() {
    let (registry, cache) = (Repository::new(), cache());
    let tar = registry.put_blob(b"tar", TAR);
    let mut other = registry.put_blob(b"other", EROFS);
    other["annotations"] = json!({ "org.erofs.role": "device" });
    let index = registry.put_blob(b"chunks", "application/vnd.erofs.chunk-index.v1");
    let top = registry.put_blob(&image(LENGTH), "application/vnd.erofs.layer.v1");
    other["size"] = json!(9);
    let digest_of =
        |text: &[u8], bytes: u64| source(&registry.url(&format!("@{}#blob={bytes}", digest(text))));
    registry.put_manifest("v1", &json!({ "layers": [tar, other, index, top] }));
    let mut fetcher = start(&registry.url(":v1"), &options(&cache)).unwrap();
    assert_eq!(fetcher.client().unwrap().about.length, LENGTH as u64);
    let devices = [digest_of(b"tar", 3), digest_of(b"other", 9)];
    assert!(fetcher.listed(0).eq(&devices));
    let line = start(devices[1].url(), &options(&cache)).unwrap_err();
    let end = "the blob has 5 bytes, but the manifest says 9";
    assert!(line.to_string().ends_with(end), "{line}");
    let device = open(devices[0].url(), &options(&cache)).unwrap();
    assert_eq!(read(&device, 0..3).unwrap(), b"tar");
}

#[test]
fn the_layers_of_an_image_are_opened_in_one_round_trip() {
    let (registry, cache) = (Repository::new(), cache());
    let bytes: Vec<_> = (0..12).map(|layer| image(LENGTH + 8 * layer)).collect();
    let layers = bytes.iter().map(|bytes| registry.put_blob(bytes, EROFS));
    let layers: Vec<_> = layers.collect();
    registry.put_manifest("v1", &json!({ "layers": layers }));
    // The registry answers no request for a blob until all blobs have been requested.
    registry.0.state().together = bytes.len();
    let options = options(&cache);
    let mut fetcher = start(&registry.url(":v1"), &options).unwrap();
    let listed: Vec<_> = fetcher.listed(0).cloned().collect();
    let mut files = vec![RemoteFile::new(fetcher.client().unwrap())];
    for layer in listed {
        let number = fetcher.open(&[], &layer, &options).unwrap();
        files.push(RemoteFile::new(fetcher.client_of(number).unwrap()));
    }
    let mut asked = registry.asked();
    assert_eq!(asked.remove(0), "/v2/tools/manifests/v1");
    let blob = |bytes: &Vec<u8>| Repository::blob_path(&digest(bytes));
    let mut blobs: Vec<_> = bytes.iter().map(blob).collect();
    asked.sort();
    blobs.sort();
    assert_eq!(asked, blobs);
    for (file, bytes) in files.iter().zip(bytes.iter().rev()) {
        assert_eq!(read(file, 0..bytes.len()).unwrap(), *bytes);
    }
    // All blobs are in the cache: they are not requested again.
    registry.asked();
    let mut fetcher = start(&registry.url(":v1"), &options).unwrap();
    let listed: Vec<_> = fetcher.listed(0).cloned().collect();
    for layer in &listed {
        fetcher.open(&[], layer, &options).unwrap();
    }
    assert_eq!(registry.asked().len(), 2, "the manifest and the top layer");
}

#[test]
fn a_digest_may_be_that_of_a_blob() {
    let (registry, cache) = (Repository::new(), cache());
    let [_, blob] = registry.put_image("v1", &image(LENGTH));
    // Registries differ in how they answer a request for a manifest by a blob's digest.
    for status in [404, 500] {
        let path = format!("/v2/tools/manifests/{blob}");
        let answer = format!("HTTP/1.1 {status} No\r\nContent-Length: 0\r\n\r\n");
        registry.0.state().answers.insert(path, answer);
        let file = open(&registry.url(&format!("@{blob}")), &options(&cache)).unwrap();
        assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    }
    registry.asked();
    open(&registry.url(&format!("@{blob}#blob")), &options(&cache)).unwrap();
    assert_eq!(registry.asked(), [Repository::blob_path(&blob)]);
}

/// A registry that proxies another one does not support ranges at first.
#[test]
fn a_registry_without_ranges_is_asked_again() {
    let (registry, cache) = (Repository::new(), cache());
    let [_, blob] = registry.put_image("v1", &image(LENGTH));
    registry.0.state().faults = [None, Some(Fault::Whole), Some(Fault::Whole)].into();
    let file = open(&registry.url(":v1"), &options(&cache)).unwrap();
    let blob = Repository::blob_path(&blob);
    let asked = ["/v2/tools/manifests/v1", &blob, &blob, &blob];
    assert_eq!(registry.asked(), asked);
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    registry.0.state().always = Some(Fault::Whole);
    let soon = Options {
        timeout: Duration::from_secs(1),
        ..options(&cache)
    };
    let url = registry.url(&format!("@{}#blob", digest(&image(LENGTH))));
    let line = start(&url, &soon).unwrap_err().to_string();
    assert!(
        line.contains("the server does not support range requests"),
        "{line}"
    );
    assert!(registry.asked().len() > 2);
}

#[test]
fn registries_share_what_is_in_the_cache() {
    let (first, second, cache) = (Repository::new(), Repository::new(), cache());
    first.put_image("v1", &image(LENGTH));
    let [_, blob] = second.put_image("v2", &image(LENGTH));
    let file = open(&first.url(":v1"), &options(&cache)).unwrap();
    read(&file, 0..LENGTH).unwrap();
    let again = open(&second.url(":v2"), &options(&cache)).unwrap();
    assert_eq!(read(&again, 0..LENGTH).unwrap(), image(LENGTH));
    let blob = Repository::blob_path(&blob);
    assert_eq!(second.asked(), ["/v2/tools/manifests/v2", &blob]);
    let counters = again.counters().unwrap();
    assert!(
        counters.kept && counters.cached_bytes == LENGTH as u64,
        "{counters:?}"
    );
}

#[test]
fn wrong_bytes_are_an_error_once_all_of_them_are_there() {
    let (registry, cache) = (Repository::new(), cache());
    let [_, blob] = registry.put_image("v1", &image(LENGTH));
    let path = Repository::blob_path(&blob);
    let mut wrong = image(LENGTH);
    wrong[LENGTH / 2] ^= 1;
    registry
        .0
        .state()
        .files
        .insert(path.clone(), Arc::new(wrong.clone()));
    let file = open(&registry.url(":v1"), &options(&cache)).unwrap();
    // Until the last bytes have arrived, nothing shows that they are wrong.
    assert_eq!(
        read(&file, 0..LENGTH / 2).unwrap(),
        image(LENGTH)[..LENGTH / 2]
    );
    let error = file.fetch_all().unwrap_err().to_string();
    let why = format!(
        "{}: the blob has a different digest: {}",
        registry.url(":v1"),
        digest(&wrong)
    );
    assert_eq!(error, why);
    assert_eq!(read(&file, 0..10).unwrap_err().to_string(), why);
    assert_eq!(file.counters().unwrap().cached_bytes, 0);
    // Now the registry has the right bytes.
    registry
        .0
        .state()
        .files
        .insert(path, Arc::new(image(LENGTH)));
    let file = open(&registry.url(":v1"), &options(&cache)).unwrap();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
}

/// A blob this short may be a root hash, which is used immediately.
#[test]
fn a_blob_of_one_block_is_compared_before_it_is_open() {
    let (registry, cache) = (Repository::new(), cache());
    let [_, blob] = registry.put_image("v1", b"root hash");
    let path = Repository::blob_path(&blob);
    registry
        .0
        .state()
        .files
        .insert(path, Arc::new(b"ROOT HASH".to_vec()));
    let line = refused(&registry.url(":v1"), &options(&cache));
    assert!(line.contains("a different digest"), "{line}");
}

#[test]
fn what_is_no_image_is_one_line() {
    let (registry, cache) = (Repository::new(), cache());
    let layer = |media_type: &str| registry.put_blob(media_type.as_bytes(), media_type);
    let of = |layers: &[&str]| {
        let layers: Vec<_> = layers.iter().map(|media_type| layer(media_type)).collect();
        registry.put_manifest("v1", &json!({ "layers": layers }));
        refused(&registry.url(":v1"), &options(&cache))
    };
    let zstd = "application/vnd.erofs+zstd";
    for layers in [
        &[zstd][..],
        &["a.tar+xz"],
        &["a.tar+gzip+encrypted", EROFS],
        &[EROFS, "b"],
    ] {
        let line = of(layers);
        let end = format!("; its layers: {}", layers.join(", "));
        assert!(
            line.contains("layers must be EROFS or tar") && line.ends_with(&end),
            "{line}"
        );
    }
    let line = of(&[]);
    assert!(line.ends_with(": the manifest lists no layers"), "{line}");
    let mut bad = layer(EROFS);
    bad["digest"] = json!("sha256:../../x");
    registry.put_manifest("v1", &json!({ "layers": [bad] }));
    let line = refused(&registry.url(":v1"), &options(&cache));
    assert!(
        line.ends_with("not a sha256 digest: sha256:../../x"),
        "{line}"
    );
    let mut long = layer(EROFS);
    long["size"] = json!(5);
    registry.put_manifest("v1", &json!({ "layers": [long] }));
    let line = refused(&registry.url(":v1"), &options(&cache));
    assert!(
        line.ends_with("the blob has 21 bytes, but the manifest says 5"),
        "{line}"
    );
    let line = refused(&registry.url(":v9"), &options(&cache));
    assert!(line.contains("404"), "{line}");
}

#[test]
fn a_manifest_with_another_digest_is_refused() {
    let (registry, cache) = (Repository::new(), cache());
    let [manifest, _] = registry.put_image("v1", &image(LENGTH));
    let mut state = registry.0.state();
    for version in ["v1", &manifest] {
        let path = format!("/v2/tools/manifests/{version}");
        let answer = state.answers.get_mut(&path).unwrap();
        *answer = answer.replace("\"size\":300000", "\"size\":300001");
    }
    drop(state);
    for version in [":v1".to_owned(), format!("@{manifest}")] {
        let line = refused(&registry.url(&version), &options(&cache));
        assert!(
            line.contains("the manifest has a different digest: sha256:"),
            "{line}"
        );
    }
}

#[test]
fn a_registry_has_tls_unless_it_is_on_this_machine() {
    let (registry, cache) = (Repository::new(), cache());
    registry.put_image("v1", &image(LENGTH));
    let with = |plain_http| Options {
        plain_http,
        ..options(&cache)
    };
    assert!(start(&registry.url(":v1"), &with(Some(true))).is_ok());
    let line = refused(&registry.url(":v1"), &with(Some(false)));
    let end = ": the server does not speak TLS (use http://, or oci.plain_http=on for a registry)";
    assert!(line.ends_with(end), "{line}");
}

#[test]
fn a_registry_on_this_machine_that_has_tls_is_told_from_one_without() {
    let cache = cache();
    let config = crate::tls::certificate(cache.path(), "IP:127.0.0.1");
    let tls = Arc::clone(&config);
    // This server answers in plain text that it wants TLS, as nginx and Go's servers do.
    let answering = Server::start_over(Vec::new(), move |mut stream| {
        let mut first = [0];
        stream.peek(&mut first).ok()?;
        if first[0] == 0x16 {
            return crate::tls::accept(&tls, stream);
        }
        let _ = stream.read(&mut [0; 4096]);
        let head = "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
        stream.write_all(head.as_bytes()).ok()?;
        None
    });
    let closing = Server::start_over(Vec::new(), move |stream| {
        crate::tls::accept(&config, stream)
    });
    for server in [answering, closing] {
        let url = format!("oci://{}/tools:v1", server.address);
        let line = refused(&url, &options(&cache));
        let end = "; the server speaks TLS (set oci.plain_http=off)";
        assert!(line.ends_with(end), "{line}");
    }
    // A registry that breaks off and does not speak TLS is not reported to speak it.
    let broken = Repository::new();
    broken.0.state().always = Some(Fault::Closed);
    let line = refused(&broken.url(":v1"), &options(&cache));
    assert!(!line.contains("TLS"), "{line}");
}

#[test]
fn a_tag_that_is_missing_is_told_from_a_repository_that_is() {
    let (registry, cache) = (Repository::new(), cache());
    let say = |path: &str, status: &str, body: &str| {
        let answer = crate::repository::answer("", body).replace("200 OK", status);
        registry.0.state().answers.insert(path.to_owned(), answer);
    };
    let ends_with = |end: &str| {
        let line = refused(&registry.url(":v9"), &options(&cache));
        assert!(line.ends_with(end), "{line}");
    };
    let (manifest, tags) = ("/v2/tools/manifests/v9", "/v2/tools/tags/list");
    ends_with("the server answered 404 Not Found: no repository tools");
    say(tags, "200 OK", "{}");
    ends_with("the server answered 404 Not Found: no tag v9 in the repository tools");
    let line = refused(
        &registry.url(&format!("@{}", digest(b"x"))),
        &options(&cache),
    );
    let end = format!(": no manifest {} in the repository tools", digest(b"x"));
    assert!(line.ends_with(&end), "{line}");
    say(tags, "403 Forbidden", "");
    ends_with(": no tag v9, or no repository tools");
    let code = |code: &str| {
        json!({ "errors": [{ "code": code, "message": "so\nit is", "detail": {} }] }).to_string()
    };
    say(manifest, "404 Not Found", &code("NAME_UNKNOWN"));
    ends_with(": no repository tools");
    say(manifest, "403 Forbidden", &code("DENIED"));
    ends_with(r"the server answered 403 Forbidden: DENIED so\nit is");
    say(manifest, "403 Forbidden", "{\"errors\": 7}");
    ends_with("the server answered 403 Forbidden");
}
