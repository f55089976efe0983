//! Faults of the web server, as readers of a mount meet them.

use std::fs;

use crate::server::Fault;
use crate::site::{Site, files};

pub fn the_time_limit_is_an_error_until_the_server_returns() {
    let site = Site::mounted("timeout.read=1");
    let (name, bytes) = files()
        .into_iter()
        .max_by_key(|(_, bytes)| bytes.len())
        .unwrap();
    let path = site.path(&name);
    assert!(path.exists());
    site.server.state().always = Some(Fault::Status(503));
    let error = fs::read(&path).unwrap_err();
    assert_eq!(
        error.raw_os_error(),
        Some(rustix::io::Errno::IO.raw_os_error())
    );
    crate::site::soon("the line in the log", || !site.log().is_empty());
    let log = site.log();
    assert!(
        log.contains(&site.server.url("/x.erofs")) && log.contains("503"),
        "{log}"
    );
    assert!(!log.contains("secret"), "{log}");
    site.server.state().always = None;
    crate::site::soon("the server's return", || fs::read(&path).is_ok());
    assert!(fs::read(&path).unwrap() == bytes);
}

pub fn an_image_that_changed_is_an_error() {
    let site = Site::mounted("timeout.read=1");
    let files = files();
    let mut large = files.iter().filter(|(_, bytes)| bytes.len() > 100_000);
    let (cached, bytes) = large.next().unwrap();
    assert!(fs::read(site.path(cached)).unwrap() == *bytes);
    let (other, _) = large.next_back().unwrap();
    let known = site.path(other).exists();
    site.server.state().etag = Some("\"2\"".into());
    assert!(known && fs::read(site.path(other)).is_err());
    // What is cached stays readable.
    let file = fs::File::open(site.path(cached)).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert!(fs::read(site.path(cached)).unwrap() == *bytes);
}
