//! Faults of the web server, as seen by readers of a mount.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::server::Fault;
use crate::site::{Site, files};

pub fn the_time_limit_is_an_error_until_the_server_returns() {
    let site = Site::mounted("timeout.read=1,prefetch=none");
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
    let site = Site::mounted("timeout.read=1,prefetch=none");
    let files = files();
    let mut large = files.iter().filter(|(_, bytes)| bytes.len() > 100_000);
    let (cached, bytes) = large.next().unwrap();
    assert!(fs::read(site.path(cached)).unwrap() == *bytes);
    let (other, _) = large.next_back().unwrap();
    let known = site.path(other).exists();
    site.server.state().etag = Some("\"2\"".into());
    assert!(known && fs::read(site.path(other)).is_err());
    // Cached bytes stay readable.
    let file = fs::File::open(site.path(cached)).unwrap();
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
    assert!(fs::read(site.path(cached)).unwrap() == *bytes);
}

pub fn a_cache_that_cannot_be_used_is_a_notice() {
    let site = Site::new();
    let nowhere = site.point().with_file_name("file");
    fs::write(&nowhere, "").unwrap();
    site.mount(&format!("cache_dir={}", nowhere.display()))
        .unwrap();
    let (url, stat) = (site.server.url("/x.erofs"), site.stat());
    let why = format!("{}: Not a directory (os error 20)", nowhere.display());
    let line = format!("{url}: nothing is kept in the cache: {why}");
    let notices = stat["notices"].as_array().unwrap();
    assert!(notices.contains(&line.into()), "{notices:?}");
    assert_eq!(stat["remote"][0]["not_kept"], why, "{stat}");
    assert_eq!(stat["remote"][0]["kept"], false);
    for (name, bytes) in files().iter().take(3) {
        assert!(fs::read(site.path(name)).unwrap() == *bytes);
    }
}

/// For a program, a read has one time limit, however often the kernel requests its pages. The
/// number of requests to the server shows that; on a slow machine there are fewer.
pub fn one_read_has_one_time_limit() {
    // An answer may stall for one second; with other faults, there is time for four attempts.
    let tried = [
        (Fault::Status(500), 1, 4),
        (Fault::Closed, 1, 4),
        (Fault::Stalled, 3, 3),
        (Fault::Drip, 3, 3),
    ];
    for (fault, limit, tries) in tried {
        std::thread::scope(|scope| {
            for (program, arguments) in READERS {
                let fault = fault.clone();
                scope.spawn(move || tries_at_most(tries + 1, &fault, limit, program, arguments));
            }
        });
    }
}

/// Makes the program read what the server does not send.
fn tries_at_most(most: u64, fault: &Fault, limit: u64, program: &str, arguments: &[&str]) {
    let site = Site::new();
    let directory = crate::site::image().with_file_name("dir.erofs");
    let mut name = Path::new("many").to_owned();
    if program == "ls" {
        site.server.state().image = fs::read(directory).unwrap().into();
    } else {
        let files = files().into_iter();
        name = files.max_by_key(|(_, bytes)| bytes.len()).unwrap().0;
    }
    // Nothing may be fetched ahead before the server fails.
    site.mount(&format!("timeout.read={limit},prefetch=none"))
        .unwrap();
    fs::metadata(site.path(&name)).unwrap();
    site.server.state().asked.clear();
    site.server.state().always = Some(fault.clone());
    let (file, copy) = (site.path(&name), site.point().with_file_name("copy"));
    let read = Command::new(program)
        .args(arguments.iter().map(|argument| {
            let argument = argument.replace("FILE", file.to_str().unwrap());
            argument.replace("COPY", copy.to_str().unwrap())
        }))
        .output();
    let Ok(read) = read else {
        println!("skipped: no {program}");
        return;
    };
    assert!(!read.status.success(), "{fault:?} {program} {read:?}");
    let mut requests = BTreeMap::new();
    let asked = site.server.state().asked.clone();
    for range in asked.iter().filter_map(crate::server::Asked::range) {
        *requests.entry(range.start).or_insert(0) += 1;
    }
    let of_one = requests.values().max().copied().unwrap_or(0);
    assert!(
        (1..=most).contains(&of_one),
        "{fault:?} {program}: {requests:?} {read:?}"
    );
}

/// Programs that read FILE in different ways.
const READERS: [(&str, &[&str]); 4] = [
    ("dd", &["if=FILE", "of=/dev/null", "bs=64K", "count=1"]),
    ("cp", &["FILE", "COPY"]),
    (
        "python3",
        &[
            "-c",
            "import mmap, sys\nwith open('FILE', 'rb') as file:\n    \
             mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[5000]",
        ],
    ),
    ("ls", &["-l", "FILE"]),
];
