//! Server faults.

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use crate::*;
use remote_image::store::{BLOCK, Store, blocks};

const LENGTH: usize = 60 * BLOCK as usize + 99;

fn passing() -> Vec<Fault> {
    use Fault::{Closed, Compressed, Garbage, Long, OtherRange, Short, Stalled, Status, Whole};
    let statuses = [400, 401, 403, 404, 408, 416, 429, 500, 502, 503, 504].map(Status);
    let others = [
        Short, Long, OtherRange, Whole, Stalled, Closed, Garbage, Compressed,
    ];
    statuses.into_iter().chain(others).collect()
}

/// Options with which a stalled answer is noticed after a second.
fn impatient(cache: &tempfile::TempDir) -> Options {
    Options {
        timeout: Duration::from_secs(4),
        ..options(cache)
    }
}

/// After a failure, nothing is requested until the time limit has passed once more.
#[test]
fn a_command_waits_once_for_a_server_that_is_away() {
    let (server, cache, content) = (Server::start(image(LENGTH)), cache(), image(LENGTH));
    let options = Options {
        gives_up: true,
        ..impatient(&cache)
    };
    let file = open(&server.url("/a"), &options).unwrap();
    let block = |number: usize| number * BLOCK as usize..(number + 1) * BLOCK as usize;
    server.state().always = Some(Fault::Status(503));
    let begun = std::time::Instant::now();
    let first = read(&file, block(10)).unwrap_err();
    assert_eq!(first.kind(), ErrorKind::TimedOut);
    server.state().asked.clear();
    for number in [20, 30] {
        // If more time has passed, this process itself was stopped for that long.
        if begun.elapsed() < 2 * options.timeout {
            let (error, at) = (read(&file, block(number)).unwrap_err(), block(number));
            let bytes = format!("bytes {}-{}", at.start, at.end - 1);
            let line = format!("{bytes}: not requested again: the server answered 503");
            assert!(error.to_string().contains(&line), "{error}");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
        }
    }
    assert_eq!(server.state().asked.len(), 0);
    server.state().always = None;
    let end = std::time::Instant::now() + Duration::from_secs(60);
    let read = std::iter::from_fn(|| Some(read(&file, block(20))));
    let read = read.take_while(|_| std::time::Instant::now() < end);
    assert_eq!(read.flatten().next().unwrap(), content[block(20)]);
}

#[test]
fn a_fault_that_passes_is_no_error() {
    // Read from the end to the beginning, since read-ahead goes in the other direction, however
    // much it fetches.
    let begin = |number: usize| 6 * (passing().len() + 1 - number) * BLOCK as usize;
    let range = |number| begin(number)..begin(number) + BLOCK as usize;
    let image = image(range(1).end);
    let (server, cache) = (Server::start(image.clone()), cache());
    let file = open(&server.url("/a"), &options(&cache)).unwrap();
    for (number, fault) in (1..).zip(passing()) {
        server.state().faults = [Some(fault.clone())].into();
        let bytes = read(&file, range(number));
        let bytes = bytes.unwrap_or_else(|error| panic!("{fault:?}: {error}"));
        assert_eq!(bytes, image[range(number)], "{fault:?}");
        // A block that was fetched along with others may arrive incomplete, which is noticed after
        // the reader has continued.
        let failures = || file.counters().unwrap().failures;
        let begun = std::time::Instant::now();
        while failures() < number as u64 && begun.elapsed() < Duration::from_secs(120) {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(failures(), number as u64, "{fault:?}");
    }
}

/// Only the minimum is checked: a pause may be longer.
#[test]
fn a_server_is_not_asked_before_it_wants_to_be() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    server.state().faults = [Some(Fault::Later("2"))].into();
    let begun = std::time::Instant::now();
    let file = open(&server.url("/a"), &options(&cache)).unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(2));
    server.state().faults = [Some(Fault::Later("2"))].into();
    let begun = std::time::Instant::now();
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
    assert!(begun.elapsed() >= Duration::from_secs(2));
    // A date in the past requests no pause.
    server.state().faults = [Some(Fault::Later("Sun, 06 Nov 1994 08:49:37 GMT"))].into();
    open(&server.url("/a"), &options(&cache)).unwrap();
}

#[test]
fn a_fault_that_stays_is_one_line_and_the_mount_goes_on_when_it_ends() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let file = open(&server.url("/a?sign=secret"), &impatient(&cache)).unwrap();
    let cases = [
        (Fault::Status(404), "404"),
        (Fault::Status(500), "500"),
        (Fault::Short, "was cut off"),
        (Fault::Long, "the server announced "),
        (Fault::OtherRange, "a different range"),
        (Fault::Whole, "range requests"),
        (Fault::Stalled, ""),
        (Fault::Drip, "did not send a block of 16 KiB in time"),
        (Fault::Closed, ""),
        (Fault::Garbage, ""),
        (Fault::Compressed, "compressed data"),
    ];
    read(&file, 59 * BLOCK as usize..LENGTH).unwrap();
    for (number, (fault, words)) in (1..).zip(cases) {
        server.state().always = Some(fault.clone());
        // Before the previous range: after it, read-ahead would already have fetched this one.
        let begin = (59 - number) * BLOCK as usize;
        let range = begin..begin + BLOCK as usize;
        let error = read(&file, range.clone()).map(drop).unwrap_err();
        let line = error.to_string();
        assert_eq!(error.kind(), ErrorKind::TimedOut, "{line}");
        let begin = format!(
            "{}: bytes {}-{}: ",
            server.url("/a"),
            range.start,
            range.end - 1
        );
        assert!(
            line.starts_with(&begin) && line.contains(words),
            "{fault:?}: {line}"
        );
        assert!(!line.contains("secret") && !line.contains('\n'), "{line}");
        assert_eq!(read(&file, 5..99).unwrap(), image(LENGTH)[5..99]);
        server.state().always = None;
        // For a moment after an error, the next reader gets the same error.
        let again = std::iter::repeat_with(|| read(&file, range.clone()));
        let good = again.take(1000).find_map(|read| {
            std::thread::sleep(Duration::from_millis(10));
            read.ok()
        });
        assert_eq!(good.expect("the server is back"), image(LENGTH)[range]);
    }
}

#[test]
fn an_image_that_changed_is_an_error_and_never_a_mixture() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let file = open(&server.url("/a"), &options(&cache)).unwrap();
    for fault in [Fault::Changed, Fault::Length(LENGTH as u64 + 1)] {
        server.state().always = Some(fault.clone());
        let error = read(&file, LENGTH - 9..LENGTH).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle, "{error}");
        assert!(error.to_string().contains("the image changed"), "{error}");
    }
    // A server that no longer sends anything that identifies the image.
    (server.state().always, server.state().etag) = (None, None);
    let error = read(&file, LENGTH - 9..LENGTH).map(drop).unwrap_err();
    assert!(error.to_string().contains("no ETag"), "{error}");
    // The check by date alone, for a server without ETag.
    server.state().always = None;
    (server.state().etag, server.state().modified) = (None, Some("yesterday".into()));
    let file = open(&server.url("/b"), &options(&cache)).unwrap();
    server.state().modified = Some("today".into());
    let error = read(&file, LENGTH - 9..LENGTH).map(drop).unwrap_err();
    assert!(error.to_string().contains("the image changed"), "{error}");
    server.state().modified = Some("yesterday".into());
    assert_eq!(
        read(&file, LENGTH - 9..LENGTH).unwrap(),
        image(LENGTH)[LENGTH - 9..]
    );
}

#[test]
fn what_cannot_be_opened_is_one_line() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let error = start(&server.url("/none?secret"), &options(&cache)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    let line = format!("{}: the server answered 404 Not Found", server.url("/none"));
    assert_eq!(error.to_string(), line);
    server.state().always = Some(Fault::Whole);
    let error = start(&server.url("/a"), &options(&cache))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("range requests (mount -o fetch=whole, or --fetch whole,"),
        "{error}"
    );
    server.state().always = Some(Fault::Length(1 << 62));
    let error = start(&server.url("/a"), &options(&cache)).unwrap_err();
    assert!(
        error.to_string().ends_with("the limit is 16 TiB"),
        "{error}"
    );
    (server.state().always, server.state().etag) = (None, Some("x".repeat(60_000)));
    let error = start(&server.url("/a"), &options(&cache)).unwrap_err();
    assert!(
        error.to_string().contains("an ETag of 60000 bytes"),
        "{error}"
    );
    let opened = |fault| {
        (server.state().always, server.state().asked) = (Some(fault), Vec::new());
        let error = start(&server.url("/a"), &impatient(&cache)).unwrap_err();
        (error.to_string(), server.state().asked.len())
    };
    let (line, asked) = opened(Fault::Redirect(server.url("/a")));
    assert!(line.ends_with(": more than 10 redirects"), "{line}");
    assert_eq!(asked, 10);
    // Each attempt takes a third of the time limit, so the fourth would begin after it.
    let (line, asked) = opened(Fault::Informational);
    assert!(line.contains("did not answer in time"), "{line}");
    assert!(asked <= 3, "{asked} requests");
    let unused = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let error = start(&format!("http://{unused}/a"), &options(&cache))
        .unwrap_err()
        .to_string();
    assert!(error.contains("no connection: "), "{error}");
    server.state().always = None;
    server.state().image = Vec::new().into();
    let error = start(&server.url("/a"), &options(&cache))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with(&server.url("/a")), "{error}");
}

#[test]
fn without_ranges_the_whole_image_comes_first() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    server.state().always = Some(Fault::Whole);
    server.state().faults = [Some(Fault::Whole), Some(Fault::Closed)].into();
    let whole = Options {
        whole: true,
        ..options(&cache)
    };
    let file = open(&server.url("/a"), &whole).unwrap();
    server.state().always = Some(Fault::Status(500));
    assert_eq!(read(&file, 0..LENGTH).unwrap(), image(LENGTH));
}

/// Whatever the server does, every byte that is read or kept is correct.
#[test]
fn two_hundred_faults_leave_nothing_wrong_behind() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let faults = passing();
    let mut random = Random(42);
    let mut made = 0;
    let mut choose = || {
        let choice = random.below(2 * faults.len() as u64 + 2) as usize;
        let fault = faults.get(choice).cloned();
        let fault = if choice == 2 * faults.len() {
            Some(Fault::Changed)
        } else {
            fault
        };
        made += usize::from(fault.is_some());
        fault
    };
    let queue: std::collections::VecDeque<_> = (0..600).map(|_| choose()).collect();
    assert!(made >= 200, "{made} faults");
    let planned = queue.len();
    server.state().faults = queue;
    let mut round = 0;
    while !server.state().faults.is_empty() {
        round += 1;
        let own = tempfile::tempdir().unwrap();
        read_under_faults(&server, &own, round);
        check_kept(&own);
    }
    assert!(server.state().asked.len() >= planned);
    drop(cache);
}

/// Reads with three simultaneous readers, which may get errors, and then everything without an
/// error.
fn read_under_faults(server: &Server, cache: &tempfile::TempDir, seed: u64) {
    let patient = Options {
        timeout: Duration::from_secs(3),
        ..options(cache)
    };
    // With faults, this might open the changed image.
    let faults = std::mem::take(&mut server.state().faults);
    let file = open(&server.url("/a"), &patient).unwrap();
    server.state().faults = faults;
    let content = image(LENGTH);
    let changed = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for reader in 0..3 {
            let (file, content, changed) = (&file, &content, &changed);
            scope.spawn(move || {
                let mut random = Random(seed * 10 + reader + 1);
                for _ in 0..40 {
                    let start = random.below(LENGTH as u64) as usize;
                    let end = (start + random.below(3 * BLOCK) as usize).min(LENGTH);
                    match read(file, start..end) {
                        Ok(bytes) => assert!(bytes == content[start..end]),
                        Err(error) => {
                            let stale = error.kind() == ErrorKind::StaleNetworkFileHandle;
                            let over = error.kind() == ErrorKind::TimedOut;
                            assert!(stale || over, "{error}");
                            changed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    // While there are faults left, they may affect these reads too.
    while read(&file, 0..LENGTH).is_err() {}
    assert!(read(&file, 0..LENGTH).unwrap() == content);
}

/// Checks all blocks that the maps of the cache on disk list.
fn check_kept(cache: &tempfile::TempDir) {
    let entries = remote_image::cache::list(&cache.path().join("cache")).unwrap();
    let stores: Vec<Store> = entries.iter().map(|entry| entry.store().unwrap()).collect();
    let content = image(LENGTH);
    let mut whole = 0;
    for store in stores {
        for block in blocks(&(0..store.length())) {
            let range = store.range(block);
            let bytes = store.read_block(block).unwrap();
            if let Some(bytes) = bytes {
                whole += 1;
                assert!(bytes == content[range.start as usize..range.end as usize]);
            }
        }
    }
    assert!(whole >= blocks(&(0..LENGTH as u64)).end, "{whole} blocks");
}

#[test]
fn a_bit_that_flips_in_the_cache_is_fetched_again() {
    use std::os::unix::fs::FileExt;
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    read(
        &open(&server.url("/a"), &options(&cache)).unwrap(),
        0..LENGTH,
    )
    .unwrap();
    let entry = remote_image::cache::list(&cache.path().join("cache"))
        .unwrap()
        .remove(0);
    let data = std::fs::File::options()
        .write(true)
        .open(entry.path.join("data"))
        .unwrap();
    data.write_all_at(&[image(LENGTH)[200_000] ^ 1], 200_000)
        .unwrap();
    let file = open(&server.url("/a"), &options(&cache)).unwrap();
    let all_is_right = || assert!(read(&file, 0..LENGTH).unwrap() == image(LENGTH));
    all_is_right();
    // The wrong byte is noticed even by a reader that has already checked the block.
    data.write_all_at(&[image(LENGTH)[200_000] ^ 1], 200_000)
        .unwrap();
    all_is_right();
    // A truncated file: fetching into it extends it again, with a hole.
    data.set_len(70_000).unwrap();
    let last = LENGTH - 1..LENGTH;
    assert_eq!(read(&file, last.clone()).unwrap(), image(LENGTH)[last]);
    all_is_right();
}

#[test]
fn readers_that_wait_do_not_hold_up_what_is_there() {
    let (server, cache) = (Server::start(image(LENGTH)), cache());
    let file = open(&server.url("/a"), &options(&cache)).unwrap();
    server.state().always = Some(Fault::Stalled);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let bytes = read(&file, 30 * BLOCK as usize..31 * BLOCK as usize);
            assert!(done.load(Ordering::SeqCst));
            bytes.unwrap()
        });
        while file.counters().unwrap().waiting == 0 {}
        assert_eq!(read(&file, 0..50).unwrap(), image(LENGTH)[..50]);
        server.state().always = None;
        done.store(true, Ordering::SeqCst);
        assert_eq!(
            waiting.join().unwrap(),
            image(LENGTH)[30 * BLOCK as usize..31 * BLOCK as usize]
        );
    });
}
