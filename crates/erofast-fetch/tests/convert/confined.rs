//! Checks the restrictions of the processes that convert a layer, with scripts in place of
//! mkfs.erofs.

use std::net::TcpListener;

use super::*;

/// The output of a script that attempts something forbidden.
fn tried(attempt: &str) -> String {
    let place = Place::new("");
    let version = COPY.lines().next().unwrap();
    let secret = place.cache.path().join("secret");
    std::fs::write(&secret, "secret\n").unwrap();
    let attempt = attempt.replace("PLACE", &place.cache.path().display().to_string());
    place.program(&format!(
        "{version}\n({attempt}) 2>/dev/null && echo '<E> done' >&2\n{attempt} && echo '<E> done' >&2
         echo '<E> tried' >&2; exit 1"
    ));
    place.put_archives("v1", &[(&archive(LENGTH, 1), GZIP)]);
    place.refused(":v1")
}

#[test]
fn files_of_the_machine_are_neither_read_nor_written() {
    for attempt in [
        "read line < /etc/passwd",
        "read line < PLACE/secret",
        "echo x > PLACE/file",
        "echo x > /tmp/erofast-convert-must-not",
        "echo x > ../file",
        "read line < ../../map",
    ] {
        let line = tried(attempt);
        assert!(!line.contains("done"), "{attempt}: {line}");
    }
    assert!(!Path::new("/tmp/erofast-convert-must-not").exists());
}

#[test]
fn no_process_is_made_and_none_is_signalled() {
    let line = tried("/bin/true");
    assert!(!line.contains("done"), "{line}");
    let line = tried("kill -0 $PPID");
    assert!(!line.contains("done"), "{line}");
}

#[test]
fn there_is_no_network() {
    if !Path::new("/bin/bash").exists() {
        println!("skipped: no bash, which can connect");
        return;
    }
    let place = Place::new("");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let version = COPY.lines().next().unwrap();
    let connect = format!("exec 3<>/dev/tcp/{}/{}", address.ip(), address.port());
    // Outside the sandbox the same command works.
    let outside = std::process::Command::new("bash")
        .args(["-c", &connect])
        .status();
    assert!(outside.unwrap().success());
    listener.accept().unwrap();
    place.program(&format!(
        "{version}\nexec bash -c '{connect} && echo \"<E> done\" >&2; echo \"<E> tried\" >&2; exit 1'"
    ));
    place.put_archives("v1", &[(&archive(LENGTH, 1), GZIP)]);
    let line = place.refused(":v1");
    assert!(!line.contains("done"), "{line}");
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err(), "nobody came");
}

/// A process started by root makes images as nobody.
#[test]
fn root_does_not_make_images() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: not root");
        return;
    }
    let place = Place::new("");
    let version = COPY.lines().next().unwrap();
    place.program(&format!("{version}\nexec id -u >image"));
    place.put_archives("v1", &[(&archive(LENGTH, 1), GZIP)]);
    let fetcher = &mut place.start(":v1").unwrap();
    let found = read_layers(fetcher, &place.options());
    assert_eq!(found, [b"65534\n"]);
}
