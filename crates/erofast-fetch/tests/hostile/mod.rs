//! A malicious registry: its answers become one line of moderate length, which a terminal shows
//! unchanged, and no secret is sent to a server that it is not meant for.

mod http_2;

use std::time::Duration;

use serde_json::{Value, json};

use crate::repository::{EROFS, Repository, answer, digest};
use crate::*;

const LENGTH: usize = 300_000;
/// Limit of a line, including its subject.
const LONGEST: usize = 1200;
const SECRET: &str = "Basic bWU6c2VjcmV0";

/// The single error line of an image that cannot be opened.
fn refused(registry: &Repository, options: &Options) -> String {
    let line = start(&registry.url(":v1"), options).unwrap_err();
    let line = line.to_string();
    assert!(line.len() < LONGEST, "{} bytes: {line}", line.len());
    assert!(!line.contains(char::is_control), "{line:?}");
    line
}

fn user(cache: &tempfile::TempDir) -> Options {
    let path = cache.path().join("user");
    std::fs::write(&path, "me:secret\n").unwrap();
    Options {
        user_file: Some(path),
        timeout: Duration::from_secs(2),
        ..options(cache)
    }
}

#[test]
fn what_a_manifest_says_is_shown_as_one_short_line() {
    let (registry, cache) = (Repository::new(), cache());
    let layer = registry.put_blob(&image(LENGTH), EROFS);
    let with = |name: &str, value: Value| {
        let mut layer = layer.clone();
        layer[name] = value;
        json!({ "layers": [layer] })
    };
    let escape = "\u{1b}[2J\u{1b}]0;x\u{7}\r\nroot@host:~# \u{202e}";
    let long = "a".repeat(3 << 20);
    let many = |what: Value, count: usize| -> Vec<Value> { vec![what; count] };
    let platform = json!({
        "mediaType": "m", "digest": "d", "size": 1, "platform": { "os": escape, "architecture": "x" }
    });
    let device = json!({ "mediaType": "a.tar", "digest": digest(b"x"), "size": 1 });
    let devices = [vec![layer.clone()], many(device, 51)].concat();
    for (manifest, why) in [
        (
            with("mediaType", format!("{escape}+gzip").into()),
            "its layers: ",
        ),
        (
            with("mediaType", format!("{long}+gzip").into()),
            "its layers: ",
        ),
        (with("digest", escape.into()), "not a sha256 digest"),
        (with("digest", long.clone().into()), "not a sha256 digest"),
        (with("size", json!(-1)), "the manifest: "),
        (
            with("size", json!(u64::MAX)),
            "but the manifest says 18446744073709551615",
        ),
        (with("platform", escape.into()), "the manifest: "),
        (
            with("annotations", json!({ escape: [escape] })),
            "the manifest: ",
        ),
        (json!({ "layers": devices }), "more than 50 devices"),
        (
            json!({ "manifests": many(platform, 9000) }),
            "no image for linux/",
        ),
        (
            json!({ "layers": many(json!({}), 2 << 20) }),
            "the response is longer than",
        ),
        (json!({ "layers": escape }), "the manifest: "),
    ] {
        registry.put_manifest("v1", &manifest);
        let line = refused(&registry, &options(&cache));
        assert!(line.contains(why), "{why}: {line}");
    }
    for (text, why) in [
        ("[".repeat(100_000), "the manifest: "),
        (escape.to_owned(), "the manifest: "),
        (String::new(), "the manifest: "),
    ] {
        let path = "/v2/tools/manifests/v1".to_owned();
        registry.0.state().answers.insert(path, answer("", &text));
        let line = refused(&registry, &options(&cache));
        assert!(line.contains(why), "{line}");
    }
}

#[test]
fn indexes_have_an_end() {
    let (registry, cache) = (Repository::new(), cache());
    let mut inner = registry.put_manifest("none", &json!({ "manifests": [] }));
    for _ in 0..5 {
        let entry = json!({ "mediaType": "m", "digest": inner, "size": 1 });
        inner = registry.put_manifest("v1", &json!({ "manifests": [entry] }));
    }
    let line = refused(&registry, &options(&cache));
    assert!(line.contains("indexes are nested"), "{line}");
    assert!(registry.asked().len() <= 4);
}

/// The names of devices arrive in one packet, each with the name of the repository.
#[test]
fn names_that_are_too_long_for_a_packet_are_one_line() {
    let (registry, cache) = (Repository::new(), cache());
    let layer = registry.put_blob(&image(LENGTH), EROFS);
    let device = |number: usize| json!({ "mediaType": "a.tar", "digest": digest(&[number as u8]), "size": 1 });
    let layers: Vec<_> = std::iter::once(layer.clone())
        .chain((0..40).map(device))
        .collect();
    registry.put_manifest("v1", &json!({ "layers": layers }));
    let start_as = |name: &str| {
        let mut state = registry.0.state();
        let manifest = state.answers["/v2/tools/manifests/v1"].clone();
        state
            .answers
            .insert(format!("/v2/{name}/manifests/v1"), manifest);
        let blob = layer["digest"].as_str().unwrap();
        let bytes = state.files[&Repository::blob_path(blob)].clone();
        state
            .files
            .insert(format!("/v2/{name}/blobs/{blob}"), bytes);
        drop(state);
        let url = format!("oci://{}/{name}:v1", registry.0.address);
        start(&url, &options(&cache))
    };
    // Twice as long as registries accept.
    let long = vec!["a".repeat(100); 5].join("/");
    assert_eq!(start_as(&long).unwrap().listed(0).count(), 40);
    let longer = vec!["a".repeat(100); 40].join("/");
    let line = start_as(&longer).unwrap_err().to_string();
    assert!(line.ends_with(" bytes; the limit is 131072"), "{line}");
}

#[test]
fn validators_that_are_too_long_are_refused() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    for (etag, modified, what) in [
        ("e", "m", None),
        ("e", "m", Some("Last-Modified")),
        ("e", "m", Some("ETag")),
    ] {
        let long = |name: &str, value: &str| match what {
            Some(what) if what == name => Some(value.repeat(20_000)),
            _ => Some(value.to_owned()),
        };
        server.state().etag = long("ETag", etag);
        server.state().modified = long("Last-Modified", modified);
        match (start(&server.url("/a"), &options(&cache)), what) {
            (Ok(_), None) => {}
            (Err(error), Some(what)) => {
                let line = error.to_string();
                assert!(line.contains(&format!("{what} of 20000 bytes")), "{line}");
            }
            (opened, what) => panic!("{what:?}: {opened:?}"),
        }
    }
}

/// The registry names the token server, which is sent user and password, but only over TLS or on
/// this machine. No other server gets them.
#[test]
fn tokens_are_a_line_when_they_are_none() {
    let (registry, other, cache) = (Repository::new(), Server::start(Vec::new()), cache());
    registry.put_image("v1", &image(LENGTH));
    let realm = registry.0.url("/token");
    let challenge = |realm: &str| format!("Bearer realm=\"{realm}\"");
    let redirect = format!(
        "HTTP/1.1 302 No\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
        other.url("/t")
    );
    let again = format!(
        "HTTP/1.1 401 No\r\nWWW-Authenticate: {}\r\nContent-Length: 0\r\n\r\n",
        challenge(&realm)
    );
    let token = |token: &str| answer("", &json!({ "token": token }).to_string());
    for (realm, answer, why) in [
        (realm.as_str(), redirect, "302"),
        (&realm, again, "401"),
        (&realm, token("a\r\nX-Evil: 1"), "no token"),
        (
            &realm,
            token(&"a".repeat(2 << 20)),
            "longer than 1048576 bytes",
        ),
        (&realm, token(""), "401"),
        (&realm, answer("", "[[[[["), "no token"),
        (
            "file:///etc/shadow",
            String::new(),
            "no token is requested over file://",
        ),
        (
            "http://192.0.2.1/token",
            String::new(),
            "no token is requested over http://",
        ),
        ("https://\u{7f}", String::new(), ""),
        ("", String::new(), ""),
    ] {
        let mut state = registry.0.state();
        state.guard = Some(("Bearer never".into(), challenge(realm)));
        state.answers.insert("/token?".into(), answer.clone());
        drop(state);
        let line = refused(&registry, &user(&cache));
        assert!(line.contains(why) && !line.contains("secret"), "{line}");
    }
    assert!(other.state().asked.is_empty(), "no redirect is followed");
    for asked in &registry.0.state().asked {
        let authorization = asked.header("authorization");
        let is_secret = authorization == Some(SECRET);
        assert!(!is_secret || asked.path == "/token?", "{asked:?}");
    }
}

#[test]
fn secrets_go_nowhere_that_a_redirect_leads() {
    let (registry, other, cache) = (Repository::new(), Server::start(image(LENGTH)), cache());
    let [_, blob] = registry.put_image("v1", &image(LENGTH));
    let path = Repository::blob_path(&blob);
    let challenge = "Basic realm=\"x\"".to_owned();
    registry.0.state().guard = Some((SECRET.into(), challenge.clone()));
    // No secret is sent to a server that also demands a login.
    other.state().guard = Some((SECRET.into(), challenge));
    let to = |location: &str| {
        format!("HTTP/1.1 307 No\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n")
    };
    let long = format!("http://127.0.0.1:1/{}", "a".repeat(60_000));
    for (location, why) in [
        (other.url("/v2/x"), "401"),
        (format!("//{}/v2/x", other.address), "401"),
        (format!("http://me:secret2@{}/v2/x", other.address), "401"),
        ("file:///etc/passwd".into(), "a redirect to file://"),
        ("javascript:alert(1)".into(), "a redirect to javascript://"),
        (path.clone(), "more than 10 redirects"),
        ("http://[".into(), "a redirect: "),
        (long, ""),
        (String::new(), "more than 10 redirects"),
    ] {
        registry
            .0
            .state()
            .answers
            .insert(path.clone(), to(&location));
        let line = refused(&registry, &user(&cache));
        assert!(
            line.contains(why) && !line.contains("secret"),
            "{location}: {line}"
        );
    }
    let asked = other.state().asked.clone();
    assert!(asked.len() >= 3, "{asked:?}");
    let sent = |asked: &server::Asked| asked.header("authorization").map(str::to_owned);
    assert!(asked.iter().filter_map(sent).all(|sent| sent != SECRET));
}
