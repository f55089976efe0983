//! Deaths of the fetcher while files are read.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::*;
use remote_image::Event;
use remote_image::store::BLOCK;
use rustix::process::{Pid, Signal, kill_process};

const LENGTH: usize = 2000 * BLOCK as usize + 4711;
const DEATHS: usize = 100;

/// The fetcher dies at random moments while ranges are in flight over a slow link. The cache's file
/// is emptied now and then, so that there is always something to fetch.
#[test]
fn a_hundred_deaths_of_the_fetcher_are_no_error_and_no_wrong_byte() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    server.state().bytes_per_second = Some(4 << 20);
    let mut fetcher = start(&server.url("/a"), &options(&cache)).unwrap();
    let file = RemoteFile::new(fetcher.client().unwrap());
    let (content, over) = (image(LENGTH), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for seed in 1..4 {
            let (file, content, over) = (&file, &content, &over);
            scope.spawn(move || compare_until(over, file, content, seed));
        }
        let mut random = Random(7);
        for _ in 0..DEATHS {
            std::thread::sleep(Duration::from_millis(random.below(40)));
            let pid = Pid::from_raw(fetcher.id() as i32).unwrap();
            kill_process(pid, Signal::KILL).unwrap();
            while fetcher.event().unwrap() != Event::Died {}
            fetcher.restart().unwrap();
        }
        over.store(true, Ordering::Relaxed);
    });
    server.state().bytes_per_second = None;
    assert!(read(&file, 0..LENGTH).unwrap() == content);
    // Also check the blocks left on disk.
    drop((file, fetcher));
    let again = open(&server.url("/a"), &options(&cache)).unwrap();
    assert!(read(&again, 0..LENGTH).unwrap() == content);
}

fn compare_until(over: &AtomicBool, file: &RemoteFile, content: &[u8], seed: u64) {
    let mut random = Random(seed);
    while !over.load(Ordering::Relaxed) {
        let start = random.below(LENGTH as u64) as usize;
        let end = (start + random.below(24 * BLOCK) as usize).min(LENGTH);
        let bytes = read(file, start..end).expect("no error");
        assert!(bytes == content[start..end], "{start}..{end}");
    }
}

/// A reader that connects while the fetcher is dead is served by the next one.
#[test]
fn a_reader_may_come_while_the_fetcher_is_dead() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let mut fetcher = start(&server.url("/a"), &options(&cache)).unwrap();
    let pid = Pid::from_raw(fetcher.id() as i32).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    while fetcher.event().unwrap() != Event::Died {}
    let file = RemoteFile::new(fetcher.client().unwrap());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| read(&file, LENGTH - 100..LENGTH).unwrap());
        fetcher.restart().unwrap();
        assert_eq!(reader.join().unwrap(), image(LENGTH)[LENGTH - 100..]);
    });
}

/// The next fetcher reads the credentials again.
#[test]
fn a_file_of_credentials_that_is_gone_is_named_until_it_is_there_again() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let path = cache.path().join("user");
    let write = || std::fs::write(&path, "me:secret\n").unwrap();
    write();
    let options = Options {
        user_file: Some(path.clone()),
        timeout: Duration::from_secs(1),
        ..options(&cache)
    };
    let mut fetcher = start(&server.url("/a"), &options).unwrap();
    let file = RemoteFile::new(fetcher.client().unwrap());
    std::fs::remove_file(&path).unwrap();
    let pid = Pid::from_raw(fetcher.id() as i32).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    while fetcher.event().unwrap() != Event::Died {}
    fetcher.restart().unwrap();
    let line = read(&file, LENGTH - 100..LENGTH).unwrap_err().to_string();
    let named = format!("http.user_file={}: No such file", path.display());
    assert!(line.contains(&named), "{line}");
    write();
    while read(&file, LENGTH - 100..LENGTH).is_err() {}
}
