//! The tokens and logins that a registry demands.

use super::*;
use crate::repository::answer;

/// The registry's own token path.
const TOKENS: &str = "/token?service=s&scope=repository%3Atools%3Apull";

/// Makes the registry demand this token, which it issues to anyone who requests one.
fn guard(registry: &Repository, token: &str) {
    let realm = registry.0.url("/token");
    let challenge =
        format!("Bearer realm=\"{realm}\",service=\"s\",scope=\"repository:tools:pull\"");
    let mut state = registry.0.state();
    state.guard = Some((format!("Bearer {token}"), challenge));
    let body = json!({ "token": token }).to_string();
    state.answers.insert(TOKENS.to_owned(), answer("", &body));
}

fn user(cache: &tempfile::TempDir) -> Options {
    let path = cache.path().join("user");
    std::fs::write(&path, "me:secret\n").unwrap();
    Options {
        user_file: Some(path),
        ..options(cache)
    }
}

#[test]
fn a_token_is_fetched_and_again_when_it_is_over() {
    let (registry, cache) = (Repository::new(), cache());
    registry.put_image("v1", &image(LENGTH));
    guard(&registry, "first");
    let file = open(&registry.url(":v1"), &options(&cache)).unwrap();
    guard(&registry, "second");
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    let asked = registry.asked();
    let tokens = asked.iter().filter(|path| path.starts_with("/token"));
    assert_eq!(tokens.clone().count(), 2, "{asked:?}");
    assert!(tokens.clone().all(|path| path == TOKENS), "{asked:?}");
    // No range failed: the requests were repeated immediately.
    assert_eq!(file.counters().unwrap().failures, 0);
}

#[test]
fn user_and_password_go_to_the_token_server_and_the_token_to_the_registry_alone() {
    let (registry, store, cache) = (Repository::new(), Server::start(image(LENGTH)), cache());
    let [_, blob] = registry.put_image("v1", &image(LENGTH));
    guard(&registry, "abc");
    let away = format!(
        "HTTP/1.1 307 No\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
        store.url("/s")
    );
    registry
        .0
        .state()
        .answers
        .insert(Repository::blob_path(&blob), away);
    let file = open(&registry.url(":v1"), &user(&cache)).unwrap();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    for asked in &registry.0.state().asked {
        let authorization = asked.header("authorization");
        match asked.path.starts_with("/token") {
            true => assert_eq!(authorization, Some("Basic bWU6c2VjcmV0")),
            false => assert!(matches!(authorization, None | Some("Bearer abc"))),
        }
    }
    let stored = store.state().asked.clone();
    assert!(
        stored
            .iter()
            .all(|asked| asked.header("authorization").is_none())
    );
    assert!(!stored.is_empty());
}

#[test]
fn basic_is_answered_where_it_is_wanted() {
    let (registry, cache) = (Repository::new(), cache());
    registry.put_image("v1", &image(LENGTH));
    let challenge = "Basic realm=\"registry\"".to_owned();
    registry.0.state().guard = Some(("Basic bWU6c2VjcmV0".into(), challenge));
    let line = refused(&registry.url(":v1"), &options(&cache));
    assert!(line.contains("requires a login; "), "{line}");
    let netrc = cache.path().join("netrc");
    let text = format!("machine {} login me password secret", registry.0.address);
    std::fs::write(&netrc, text).unwrap();
    let netrc = Options {
        netrc_file: Some(netrc),
        ..options(&cache)
    };
    for options in [user(&cache), netrc] {
        let file = open(&registry.url(":v1"), &options).unwrap();
        assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    }
}

/// Logins as stored by `podman login` and `docker login`.
#[test]
fn a_login_of_other_programs_is_used_where_no_other_is_named() {
    let (registry, cache) = (Repository::new(), cache());
    registry.put_image("v1", &image(LENGTH));
    let challenge = "Basic realm=\"registry\"".to_owned();
    registry.0.state().guard = Some(("Basic bWU6c2VjcmV0".into(), challenge));
    let path = cache.path().join("auth.json");
    let host = registry.0.address.to_string();
    let opened = |logins: serde_json::Value, options: &Options| {
        std::fs::write(&path, logins.to_string()).unwrap();
        let program = program_with(cache.path(), &[("REGISTRY_AUTH_FILE", &path)]);
        open_with(program, &registry.url(":v1"), options).map_err(|error| error.to_string())
    };
    let good = json!({ "auths": { &host: { "auth": "bWU6c2VjcmV0" } } });
    let file = opened(good.clone(), &options(&cache)).unwrap();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    let shown = path.display();
    let other = user(&cache);
    std::fs::write(other.user_file.as_ref().unwrap(), "me:wrong").unwrap();
    for (logins, options, why) in [
        (good, &other, "the credentials from ".to_owned()),
        (
            json!({ "auths": { &host: { "auth": "bWU6d3Jvbmc=" } } }),
            &options(&cache),
            format!("the login for {host} from {shown} was rejected"),
        ),
        (
            json!({ "credsStore": "pass" }),
            &options(&cache),
            format!("{shown} keeps the login for {host} in docker-credential-pass, which is not"),
        ),
        (
            json!([1]),
            &options(&cache),
            format!("{shown}: not a file of logins in JSON (line 1, column"),
        ),
    ] {
        let line = opened(logins, options).unwrap_err();
        assert!(line.contains(&why), "{line}");
    }
}

#[test]
fn a_token_that_is_refused_is_one_line() {
    let (registry, cache) = (Repository::new(), cache());
    registry.put_image("v1", &image(LENGTH));
    guard(&registry, "abc");
    registry.0.state().guard.as_mut().unwrap().0 = "Bearer other".into();
    let line = refused(&registry.url(":v1"), &options(&cache));
    assert!(line.contains("401"), "{line}");
    registry
        .0
        .state()
        .answers
        .insert(TOKENS.into(), answer("", "{}"));
    let line = refused(&registry.url(":v1"), &options(&cache));
    assert!(
        line.ends_with("token from 127.0.0.1: the response contains no token"),
        "{line}"
    );
    registry.0.state().answers.remove(TOKENS);
    let line = refused(&registry.url(":v1"), &options(&cache));
    assert!(
        line.ends_with("token from 127.0.0.1: the server answered 404 Not Found"),
        "{line}"
    );
    let elsewhere = "Bearer realm=\"http://tokens.test/\"".to_owned();
    registry.0.state().guard.as_mut().unwrap().1 = elsewhere;
    let line = refused(&registry.url(":v1"), &user(&cache));
    assert!(
        line.contains("no token is requested over http://"),
        "{line}"
    );
}

/// A token from a file is used unchanged; if the file is rewritten, it is read again without a
/// pause.
#[test]
fn a_token_of_a_file_is_read_again() {
    let (registry, cache) = (Repository::new(), cache());
    registry.put_image("v1", &image(LENGTH));
    let path = cache.path().join("token");
    let token_file = Some(path.clone());
    let options = Options {
        token_file,
        ..options(&cache)
    };
    guard(&registry, "first");
    std::fs::write(&path, "first\n").unwrap();
    let file = open(&registry.url(":v1"), &options).unwrap();
    std::fs::write(&path, "second\n").unwrap();
    guard(&registry, "second");
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    assert!(
        registry
            .asked()
            .iter()
            .all(|path| !path.starts_with("/token"))
    );
    assert_eq!(file.counters().unwrap().failures, 0);
}
