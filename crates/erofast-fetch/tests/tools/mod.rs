//! The commands of `erofast` with URLs, compared with their output for files.

mod registry;
mod verified;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::server::{Fault, Server};

/// A web server with an image, and a cache.
struct Site {
    server: Server,
    directory: TempDir,
    image: PathBuf,
}

impl Site {
    /// Returns `None`, after printing why, if the program is missing.
    fn new(name: &str) -> Option<Site> {
        if !erofast().is_file() {
            println!("skipped: no erofast beside erofast-fetch: cargo build -p erofast");
            return None;
        }
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../erofast/tests/fixtures");
        let image = fixtures.join(name);
        Some(Site {
            server: Server::start(fs::read(&image).expect("a fixture")),
            directory: tempfile::tempdir().expect("a directory"),
            image,
        })
    }

    fn url(&self) -> String {
        self.server.url("/x.erofs")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Runs a command of `erofast` with a cache below the site's directory.
    fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(erofast());
        command.args(arguments).env("XDG_CACHE_HOME", self.path(""));
        command.output().expect("erofast starts")
    }

    /// The output of a successful command.
    fn printed(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (printed, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success(), "{arguments:?}: {errors}");
        printed + &errors
    }

    /// The single line of a failing command.
    fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {line}");
        assert_eq!(line.lines().count(), 1, "{arguments:?}: {line}");
        line
    }

    /// The number of requests to the server since the last call.
    fn asked(&self) -> usize {
        std::mem::take(&mut self.server.state().asked).len()
    }
}

fn erofast() -> PathBuf {
    crate::program().with_file_name("erofast")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_command_says_of_a_url_what_it_says_of_the_file() {
    let Some(site) = Site::new("kitchen-sink.erofs") else {
        return;
    };
    let (path, url) = (site.image.display().to_string(), site.url());
    let commands: [(&str, &[&str]); 6] = [
        ("info", &[]),
        ("info", &["--json"]),
        ("ls", &["-lR"]),
        ("cat", &["/**"]),
        ("check", &[]),
        ("extract", &["-"]),
    ];
    for (command, rest) in commands {
        let of = |image: &str| {
            let output = site.run(&[&[command, image], rest].concat());
            let errors = text(&output.stderr).replace(image, "IMAGE");
            (
                output.status,
                text(&output.stdout).replace(image, "IMAGE"),
                errors,
            )
        };
        assert!(
            of(&url) == of(&path),
            "{command}: {:?} {:?}",
            of(&url),
            of(&path)
        );
    }
    let line = site.refused(&["ls", &site.server.url("/none.erofs?sign=secret")]);
    assert!(line.contains("404") && !line.contains("secret"), "{line}");
}

#[test]
fn a_device_may_be_at_a_url() {
    let Some(site) = Site::new("blobdev.erofs") else {
        return;
    };
    let blob = site.image.with_extension("blob").display().to_string();
    let bytes = |path: &Path| fs::read(path).expect("a fixture").into();
    let blob_url = site.server.url("/x.blob");
    site.server.state().files = [
        ("/x.erofs".to_owned(), bytes(&site.image)),
        ("/x.blob".to_owned(), bytes(Path::new(&blob))),
    ]
    .into();
    let path = site.image.display().to_string();
    let local = site.run(&["extract", "--device", &blob, &path, "-"]);
    let remote = site.run(&["extract", "--device", &blob_url, &site.url(), "-"]);
    assert!(
        local.status.success() && local.stdout.len() > 1000,
        "{local:?}"
    );
    assert!(local.stdout == remote.stdout, "{}", text(&remote.stderr));
}

#[test]
fn a_device_at_another_host_gets_its_entry_of_netrc_and_not_the_token_of_the_image() {
    let Some(site) = Site::new("blobdev.erofs") else {
        return;
    };
    let blob = fs::read(site.image.with_extension("blob")).expect("a fixture");
    let other = Server::start(blob);
    let file = |name: &str, text: &str| {
        fs::write(site.path(name), text).expect("a file");
        site.path(name).display().to_string()
    };
    let address = other.address;
    let token = file("token", "abc");
    let netrc = file(
        "netrc",
        &format!("machine {address} login me password secret"),
    );
    let secrets = ["--http-token-file", &token, "--http-netrc-file", &netrc];
    let device = ["--device", &other.url("/x.blob")];
    site.printed(&[&["check"], &device[..], &secrets, &[&site.url()]].concat());
    let sent = |server: &Server| {
        let asked = server.state().asked.clone();
        assert!(!asked.is_empty());
        let header = |one: &crate::server::Asked| one.header("authorization").map(str::to_owned);
        asked.iter().map(header).collect::<Vec<_>>()
    };
    let all = |sent: &[Option<String>], one: &str| sent.iter().all(|it| it.as_deref() == Some(one));
    assert!(all(&sent(&site.server), "Bearer abc"));
    assert!(all(&sent(&other), "Basic bWU6c2VjcmV0"));
}

#[test]
fn an_image_is_fetched_ahead_listed_and_removed() {
    let Some(site) = Site::new("lz4-4k.erofs") else {
        return;
    };
    let url = site.url();
    let fetched = site.printed(&["cache", "fetch", &url]);
    assert!(fetched.starts_with(&format!("{url}: ")), "{fetched}");
    site.asked();
    let check = site.printed(&["check", &url]);
    assert_eq!(site.asked(), 1, "all of it is there: {check}");
    let listed = site.printed(&["cache", "list"]);
    let (entry, total) = listed.split_once('\n').expect("two lines");
    let entry = entry.strip_prefix(&format!("{url}: ")).expect("the URL");
    let (sizes, used) = entry.split_once(", used ").expect("the time");
    let mut sizes = sizes.split(" of ");
    assert!(sizes.next() == sizes.next(), "{listed}");
    let is_time = |used: &str| used.len() == "2026-11-27 11:00:00".len();
    assert!(used.strip_suffix(" UTC").is_some_and(is_time), "{listed}");
    let folder = site.path("erofast").display().to_string();
    assert!(
        total.starts_with("1 image, ") && total.ends_with(&format!(" on disk in {folder}\n")),
        "{listed}"
    );
    let removed = site.printed(&["cache", "prune", "--cache-size", "0"]);
    assert!(
        removed.starts_with(&url) && removed.ends_with("removed\n"),
        "{removed}"
    );
    let listed = site.printed(&["cache", "list"]);
    assert!(listed.starts_with("no images in "), "{listed}");
    site.server.state().always = Some(Fault::Status(403));
    let line = site.refused(&["cache", "fetch", &url]);
    assert!(line.contains("403"), "{line}");
}

/// Another user finds the image in the shared cache, and fetches only what identifies it.
#[test]
fn an_image_that_is_shared_is_read_by_those_who_may_not_write_it() {
    let Some(site) = Site::new("lz4-4k.erofs") else {
        return;
    };
    let (url, shared) = (site.url(), site.path("shared").display().to_string());
    let there = ["--cache-shared", &shared];
    site.printed(&[&["cache", "fetch", "--share"], &there[..], &[&url]].concat());
    site.asked();
    let check = site.printed(&[&["check"], &there[..], &[&url]].concat());
    assert_eq!(site.asked(), 1, "all of it is there: {check}");
    let listed = site.printed(&[&["cache", "list"], &there[..]].concat());
    assert!(
        listed.contains(", fetched ") && listed.contains(&format!(" on disk in {shared}\n")),
        "{listed}"
    );
    let own = site.printed(&["cache", "list", "--cache-shared", "/none"]);
    assert!(own.starts_with("no images in "), "{own}");
    // A block that a bad disk changed is fetched again.
    let entries = fs::read_dir(&shared).unwrap().flatten();
    let mut entries = entries.filter(|entry| entry.path().join("data").exists());
    let entry = entries.next().unwrap();
    let data = fs::File::options()
        .write(true)
        .open(entry.path().join("data"));
    std::os::unix::fs::FileExt::write_all_at(&data.unwrap(), b"bad", 40_000).unwrap();
    assert_eq!(
        site.printed(&[&["check"], &there[..], &[&url]].concat()),
        check
    );
    assert_eq!(site.asked(), 2);
    let removed = site.printed(&[&["cache", "prune", "--shared"], &there[..]].concat());
    assert!(removed.ends_with("removed\n"), "{removed}");
    assert_eq!(fs::read_dir(&shared).unwrap().count(), 0);
    fs::set_permissions(&shared, PermissionsExt::from_mode(0o777)).unwrap();
    let line = site.refused(&[&["cache", "fetch", "--share"], &there[..], &[&url]].concat());
    let end = format!("cache: {shared}: writable by other users (chmod 755)\n");
    assert!(line.ends_with(&end), "{line}");
}

#[test]
fn what_is_no_image_leaves_the_cache_unless_it_was_there_before() {
    let Some(site) = Site::new("lz4-4k.erofs") else {
        return;
    };
    let url = site.url();
    for offset in ["4096", "auto"] {
        site.server.state().image = vec![7; 100_000].into();
        site.refused(&["ls", "--offset", offset, &url]);
        let listed = site.printed(&["cache", "list"]);
        assert!(listed.starts_with("no images in "), "{listed}");
    }
    site.server.state().image = fs::read(&site.image).expect("a fixture").into();
    site.printed(&["ls", &url]);
    site.refused(&["ls", "--offset", "4096", &url]);
    let listed = site.printed(&["cache", "list"]);
    assert!(listed.starts_with(&url), "{listed}");
}

#[test]
fn a_launch_profile_is_found_by_a_url_that_wants_a_token() {
    let Some(site) = Site::new("lz4-4k.erofs") else {
        return;
    };
    site.server.state().guard = Some(("Bearer abc".into(), "Bearer".into()));
    let bytes = fs::read(&site.image).expect("a fixture").into();
    site.server.state().files = [("/v2/a".to_owned(), bytes)].into();
    let token = site.path("token").display().to_string();
    fs::write(&token, "abc").expect("a file");
    let url = site.server.url("/v2/a?sign=secret");
    let shown = site.server.url("/v2/a");
    for command in ["list", "show", "remove"] {
        let line = site.refused(&["profile", command, &url]);
        assert!(
            line.starts_with(&format!("erofast: {shown}: the server answered 401")),
            "{line}"
        );
    }
    let flag = ["--http-token-file", &token];
    for command in ["show", "remove"] {
        let line = site.refused(&[&["profile", command, &url], &flag[..]].concat());
        assert_eq!(
            line,
            format!("erofast: {shown}: no launches have been learned\n")
        );
    }
    site.printed(&[&["profile", "list", &url], &flag[..]].concat());
}

#[test]
fn an_image_larger_than_files_may_be_is_refused_at_once() {
    let Some(site) = Site::new("lz4-4k.erofs") else {
        return;
    };
    let (point, url) = (site.path(""), site.url());
    let point = point.to_str().expect("ASCII");
    for arguments in [&["cat", &url, "/text/a"][..], &["mount", &url, point]] {
        let mut limited = Command::new("sh");
        limited
            .args(["-c", "ulimit -f 512 && exec \"$@\"", "sh"])
            .arg(erofast())
            .args(arguments)
            .env("XDG_CACHE_HOME", site.path(""));
        let output = limited.output().expect("a shell");
        let line = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {line}");
        let why = "the image has 1343488 bytes, but the file size limit is ";
        assert!(
            line.contains(why) && line.ends_with("(ulimit -f)\n") && line.lines().count() == 1,
            "{arguments:?}: {line}"
        );
    }
}

#[test]
fn io_uring_is_refused() {
    let Some(site) = Site::new("lz4-4k.erofs") else {
        return;
    };
    let point = site.directory.path().display().to_string();
    let line = site.refused(&["mount", "-o", "io_uring=on", &site.url(), &point]);
    assert!(line.contains("io_uring: an image at a URL"), "{line}");
    assert_eq!(site.asked(), 0);
}

#[test]
fn a_secret_is_read_of_a_regular_file_alone() {
    let Some(site) = Site::new("lz4-4k.erofs") else {
        return;
    };
    let pipe = site.directory.path().join("pipe");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("a pipe");
    for file in [pipe.to_str().expect("ASCII"), "/dev/zero"] {
        let line = site.refused(&["ls", "--http-token-file", file, &site.url()]);
        assert!(line.contains("not a regular file"), "{line}");
    }
}
