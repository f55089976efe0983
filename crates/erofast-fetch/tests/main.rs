//! Tests of the fetcher against their own web server.

mod ahead;
mod convert;
mod deaths;
mod faults;
mod hostile;
mod launches;
mod offline;
mod origins;
mod reading;
mod registry;
mod repository;
mod server;
mod tls;
mod tools;
#[path = "../../dm-verity/tests/common/writer.rs"]
mod writer;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use remote_image::{Class, Fetcher, ImageUrl, Options, RemoteFile};

pub(crate) use server::{Fault, Server};

/// Bytes in which each block differs from all others.
pub(crate) fn image(length: usize) -> Vec<u8> {
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut bytes = vec![0; length];
    for eight in bytes.chunks_mut(8) {
        eight.copy_from_slice(&random.next().to_le_bytes()[..eight.len()]);
    }
    bytes
}

/// Numbers that are the same in each run (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 8
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

pub(crate) fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_erofast-fetch").into()
}

/// A script that starts the fetcher with these environment variables.
pub(crate) fn program_with(folder: &Path, variables: &[(&str, &Path)]) -> PathBuf {
    let script = folder.join("fetch");
    let mut text = "#!/bin/sh\n".to_owned();
    for (name, value) in variables {
        text += &format!("export {name}={}\n", value.display());
    }
    text += &format!("exec {}\n", program().display());
    std::fs::write(&script, text).expect("a script");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, mode).expect("its mode");
    script
}

/// A file whose fetcher is started from this program.
pub(crate) fn open_with(
    program: PathBuf,
    url: &str,
    options: &Options,
) -> std::io::Result<RemoteFile> {
    let mut fetcher = Fetcher::start_program(program, &[], &source(url), options)?;
    let file = RemoteFile::new(fetcher.client()?);
    fetcher.watch(|_| ())?;
    Ok(file)
}

/// Options with a separate cache.
pub(crate) fn options(cache: &tempfile::TempDir) -> Options {
    let cache_dir = Some(cache.path().join("cache"));
    Options {
        cache_dir,
        timeout: Duration::from_secs(20),
        ..Options::default()
    }
}

/// Whether the name `localhost` has an address; it has none in a bare chroot without /etc/hosts.
pub(crate) fn names_localhost() -> bool {
    let named = std::net::ToSocketAddrs::to_socket_addrs("localhost:1").is_ok();
    if !named {
        println!("skipped: localhost has no address");
    }
    named
}

pub(crate) fn source(url: &str) -> ImageUrl {
    ImageUrl::parse(url).expect("a URL").expect("a good one")
}

pub(crate) fn start(url: &str, options: &Options) -> std::io::Result<Fetcher> {
    Fetcher::start_program(program(), &[], &source(url), options)
}

/// A file whose fetcher is started again when it dies.
pub(crate) fn open(url: &str, options: &Options) -> std::io::Result<RemoteFile> {
    open_with(program(), url, options)
}

pub(crate) fn read(file: &RemoteFile, range: std::ops::Range<usize>) -> std::io::Result<Vec<u8>> {
    let mut bytes = vec![0; range.len()];
    let range = range.start as u64..range.end as u64;
    while !file.read_cached(&mut bytes, range.start)? {
        let ranges = std::slice::from_ref(&range);
        file.request(ranges, Class::Demand)?.wait()?;
    }
    Ok(bytes)
}

/// Waits until something has happened; `what` describes it.
pub(crate) fn soon(what: &str, happened: impl Fn() -> bool) {
    let begin = Instant::now();
    while !happened() {
        assert!(begin.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

pub(crate) fn cache() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory")
}

#[test]
fn the_program_prints_its_version() {
    let output = std::process::Command::new(program())
        .arg("--version")
        .output()
        .unwrap();
    let line = concat!("erofast-fetch ", env!("CARGO_PKG_VERSION"), "\n");
    assert_eq!(String::from_utf8_lossy(&output.stdout), line);
    assert!(output.status.success());
}
