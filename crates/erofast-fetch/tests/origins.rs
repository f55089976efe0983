//! Redirects, and where credentials are sent.

use crate::*;

const LENGTH: usize = 300_000;

fn secrets(cache: &tempfile::TempDir) -> Options {
    let file = |name: &str, text: &str| {
        let path = cache.path().join(name);
        std::fs::write(&path, text).unwrap();
        Some(path)
    };
    Options {
        header_file: file("headers", "X-Key: key\n\nX-Other: a: b\n"),
        token_file: file("token", "abc\n"),
        ..options(cache)
    }
}

#[test]
fn credentials_go_to_the_origin_of_the_url_and_no_further() {
    let (store, front, cache) = (
        Server::start(image(LENGTH)),
        Server::start(Vec::new()),
        cache(),
    );
    front.state().always = Some(Fault::Redirect(store.url("/stored?sign=1")));
    let file = open(&front.url("/a"), &secrets(&cache)).unwrap();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    let (first, then) = (front.state().asked.clone(), store.state().asked.clone());
    // The target is remembered.
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].header("authorization"), Some("Bearer abc"));
    assert_eq!(
        (first[0].header("x-key"), first[0].header("x-other")),
        (Some("key"), Some("a: b"))
    );
    for asked in then {
        assert_eq!(asked.path, "/stored?sign=1");
        assert_eq!(
            (asked.header("authorization"), asked.header("x-key")),
            (None, None)
        );
    }
    // An expired signature: the redirect is requested again.
    let location = store.url("/none");
    front.state().always = Some(Fault::Redirect(location));
    let file = open(&front.url("/b"), &options(&cache));
    assert!(file.unwrap_err().to_string().contains("404"));
}

#[test]
fn a_place_that_is_gone_is_asked_for_again() {
    let (store, front, cache) = (
        Server::start(image(LENGTH)),
        Server::start(Vec::new()),
        cache(),
    );
    front.state().always = Some(Fault::Redirect(store.url("/1")));
    let file = open(&front.url("/a"), &options(&cache)).unwrap();
    front.state().always = Some(Fault::Redirect(store.url("/2")));
    store.state().faults = [Some(Fault::Status(403))].into();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    assert_eq!(store.state().asked.last().unwrap().path, "/2");
}

#[test]
fn a_server_to_which_a_redirect_led_is_not_asked_for_ever() {
    for fault in [Fault::Closed, Fault::Short] {
        let [old, new] = [(); 2].map(|()| Server::start(image(LENGTH)));
        let (front, cache) = (Server::start(Vec::new()), cache());
        front.state().always = Some(Fault::Redirect(old.url("/a")));
        let file = open(&front.url("/a"), &options(&cache)).unwrap();
        old.state().always = Some(fault);
        front.state().always = Some(Fault::Redirect(new.url("/a")));
        assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
        assert!(!new.state().asked.is_empty());
    }
}

#[test]
fn a_server_to_which_a_redirect_led_is_left_if_the_whole_image_breaks_off_there() {
    let [old, new] = [(); 2].map(|()| Server::start(image(LENGTH)));
    let (front, cache) = (Server::start(Vec::new()), cache());
    new.state().always = Some(Fault::Whole);
    old.state().always = Some(Fault::WholeShort);
    front.state().faults = [Some(Fault::Redirect(old.url("/a")))].into();
    front.state().always = Some(Fault::Redirect(new.url("/a")));
    let whole = Options {
        whole: true,
        ..options(&cache)
    };
    let file = open(&front.url("/a"), &whole).unwrap();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    assert_eq!(old.state().asked.len(), 1);
}

#[test]
fn redirects_end() {
    let (server, cache) = (Server::start(Vec::new()), cache());
    server.state().always = Some(Fault::Redirect("/a".into()));
    let error = start(&server.url("/a"), &options(&cache))
        .unwrap_err()
        .to_string();
    assert!(error.ends_with("more than 10 redirects"), "{error}");
    server.state().always = Some(Fault::Redirect("file:///etc/passwd".into()));
    let error = start(&server.url("/a"), &options(&cache))
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("a redirect to file:// is not followed"),
        "{error}"
    );
}

#[test]
fn user_and_password_are_sent_and_in_nobodys_arguments() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let path = cache.path().join("user");
    std::fs::write(&path, "me:secret\n").unwrap();
    let user = Options {
        user_file: Some(path),
        ..options(&cache)
    };
    let fetcher = start(&server.url("/a?sign=secret"), &user).unwrap();
    let sent = server.state().asked[0].clone();
    assert_eq!(sent.header("authorization"), Some("Basic bWU6c2VjcmV0"));
    for file in ["cmdline", "environ"] {
        let text = std::fs::read(format!("/proc/{}/{file}", fetcher.id())).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains("secret"));
    }
}

#[test]
fn a_file_that_is_none_is_named_without_what_is_in_it() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let path = cache.path().join("headers");
    std::fs::write(&path, "Name: value\nsecret\n").unwrap();
    let bad = Options {
        header_file: Some(path.clone()),
        ..options(&cache)
    };
    let error = start(&server.url("/a"), &bad).unwrap_err().to_string();
    let line = format!(
        "{}: {}:2: not a header 'Name: value'",
        server.url("/a"),
        path.display()
    );
    assert_eq!(error, line);
    std::fs::write(&path, "Range: bytes=0-1\n").unwrap();
    let error = start(&server.url("/a"), &bad).unwrap_err().to_string();
    assert!(error.ends_with(":1: range is set by erofast"), "{error}");
    std::fs::write(&path, "Name: value\n".repeat(6000)).unwrap();
    let error = start(&server.url("/a"), &bad).unwrap_err().to_string();
    assert!(
        error.ends_with("headers: longer than 65536 bytes"),
        "{error}"
    );
    std::fs::remove_file(&path).unwrap();
    let error = start(&server.url("/a"), &bad).unwrap_err().to_string();
    let named = format!("http.header_file={}: No such file", path.display());
    assert!(error.contains(&named), "{error}");
    let both = Options {
        user_file: Some(path.clone()),
        token_file: Some(path),
        ..options(&cache)
    };
    let error = start(&server.url("/a"), &both).unwrap_err().to_string();
    assert!(error.contains("exclude each other"), "{error}");
}

#[test]
fn a_token_that_was_written_anew_is_sent_at_once() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let options = secrets(&cache);
    let guard = |token: &str| Some((format!("Bearer {token}"), "Bearer realm=\"r\"".to_owned()));
    server
        .state()
        .files
        .insert("/v2/a".into(), image(LENGTH).into());
    server.state().guard = guard("abc");
    let file = open(&server.url("/v2/a"), &options).unwrap();
    std::fs::write(options.token_file.as_ref().unwrap(), "def\n").unwrap();
    server.state().guard = guard("def");
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    assert_eq!(file.counters().unwrap().failures, 0);
    // This token is refused even after the file was read again, so there is only one request.
    server.state().guard = guard("xyz");
    server.state().asked.clear();
    let refused = |options: &Options| {
        let refused = start(&server.url("/v2/a"), options);
        refused.unwrap_err().to_string()
    };
    let line = refused(&options);
    let [token, header] = [options.token_file, options.header_file].map(|path| path.unwrap());
    let (token, header) = (token.display(), header.display());
    let end =
        format!("answered 401 Unauthorized; the credentials from {token}, {header} were rejected");
    assert!(line.ends_with(&end), "{line}");
    assert_eq!(server.state().asked.len(), 1);
    let line = refused(&crate::options(&cache));
    let end = "401 Unauthorized; give credentials with http.user_file=, http.token_file= or \
               http.netrc_file=";
    assert!(line.ends_with(end), "{line}");
    let host = server.address;
    let url = format!("machine http://{host}/ login me password secret");
    let line = refused(&netrc(&cache, &url));
    let end = format!("/netrc has no login for {host}");
    assert!(line.ends_with(&end), "{line}");
    let line = refused(&netrc(&cache, "machine 127.0.0.1 login me password secret"));
    assert!(
        line.contains(&format!("; the login for {host} from /")),
        "{line}"
    );
}

/// Options with a netrc file that contains this text.
fn netrc(cache: &tempfile::TempDir, text: &str) -> Options {
    let path = cache.path().join("netrc");
    std::fs::write(&path, text).unwrap();
    Options {
        netrc_file: Some(path),
        ..options(cache)
    }
}

#[test]
fn a_host_gets_its_own_entry_of_netrc_and_where_it_leads_none() {
    if !names_localhost() {
        return;
    }
    let servers = [(); 3].map(|()| Server::start(image(LENGTH)));
    let ([first, second, store], cache) = (&servers, cache());
    let entry = |server: &Server, user| {
        let address = server.address;
        format!("machine {address} login {user} password secret\n")
    };
    let text = entry(first, "me") + &entry(store, "other") + "machine localhost login you\n";
    let options = netrc(&cache, &text);
    first.state().always = Some(Fault::Redirect(store.url("/s")));
    let here = second.url("/a").replace("127.0.0.1", "localhost");
    for url in [first.url("/a"), here, second.url("/b")] {
        let file = open(&url, &options).unwrap();
        assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    }
    let sent = |server: &Server| {
        let asked = server.state().asked.clone();
        let sent = asked.iter().map(|one| {
            let header = one.header("authorization").map(str::to_owned);
            (one.path.clone(), header)
        });
        sent.collect::<std::collections::BTreeSet<_>>()
    };
    let with = |path: &str, header: Option<&str>| (path.to_owned(), header.map(str::to_owned));
    let me = Some("Basic bWU6c2VjcmV0");
    assert_eq!(sent(first), [with("/a", me)].into());
    assert_eq!(sent(store), [with("/s", None)].into());
    let you = with("/a", Some("Basic eW91Og=="));
    assert_eq!(sent(second), [you, with("/b", None)].into());
}

#[test]
fn a_header_or_a_token_is_sent_instead_of_an_entry_of_netrc() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let any = netrc(&cache, "default login me password secret");
    let header = cache.path().join("authorization");
    std::fs::write(&header, "Authorization: Own x").unwrap();
    let with_header = Options {
        header_file: Some(header),
        ..any.clone()
    };
    let with_token = Options {
        token_file: secrets(&cache).token_file,
        ..any
    };
    for (options, expected) in [(with_header, "Own x"), (with_token, "Bearer abc")] {
        server.state().asked.clear();
        open(&server.url("/a"), &options).unwrap();
        let asked = server.state().asked[0].clone();
        let sent = asked.headers.iter().filter(|one| one.0 == "authorization");
        assert_eq!(
            sent.map(|one| one.1.as_str()).collect::<Vec<_>>(),
            [expected]
        );
    }
}

#[test]
fn a_netrc_file_that_is_none_is_named_without_what_is_in_it() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let long = "machine a login b\n".repeat(6000);
    for (text, end) in [
        ("\nmachine a.org pass secret", ":2: not in netrc format"),
        (&long, "netrc: longer than 65536 bytes"),
    ] {
        let refused = start(&server.url("/a"), &netrc(&cache, text));
        let line = refused.unwrap_err().to_string();
        assert!(line.ends_with(end) && !line.contains("secret"), "{line}");
    }
    assert!(server.state().asked.is_empty());
}
