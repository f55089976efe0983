//! A server that dies is replaced, and no reader notices.
//!
//! `EROFS_FUSE_SOAK` is the number of deaths and of upgrades (default 12).

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use erofs_mount::{mount, stat, umount};
use rustix::fs::{Advice, fadvise, getxattr};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::built::Random;
use crate::death::Death;
use crate::place::{self, Place, image};
use crate::{Test, pid_of, request, soon};

pub const TESTS: &[Test] = tests![
    a_server_that_dies_is_replaced_and_no_reader_notices,
    five_crashes_in_ten_seconds_end_a_mount,
    kills_at_any_rate_end_no_mount,
    a_request_that_crashes_the_server_twice_gets_eio_and_no_other_does,
    what_cannot_be_restarted_says_why,
    a_server_whose_helper_was_killed_goes_on_and_says_so,
    upgrades_are_noticed_by_no_reader,
];

/// Number of deaths in quick succession that do not end a mount.
const DEATHS_OF_A_MOUNT: usize = 4;

const READERS: u64 = 6;

pub fn number_of_deaths() -> u64 {
    let asked = std::env::var("EROFS_FUSE_SOAK").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(12)
}

/// Whether servers of this mount are replaced.
pub fn is_restarted(place: &Place) -> bool {
    let restart = &stat(&place.path).unwrap()["restart"];
    if restart["on"] == false {
        println!("skipped: {}", restart["reason"]);
    }
    restart["on"] == true
}

/// Files with many pages, and their content.
fn files(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(root.join("data")).unwrap().map(Result::unwrap);
    let paths = entries.map(|entry| entry.path());
    let files: Vec<_> = paths
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect();
    files
        .into_iter()
        .filter(|(_, bytes)| bytes.len() > 100_000)
        .collect()
}

/// There are eight readers, two of which map a file; the moments of the deaths are random.
fn a_server_that_dies_is_replaced_and_no_reader_notices() {
    let mut pauses = Vec::new();
    let mut deaths = Death::ALL
        .iter()
        .cycle()
        .take(number_of_deaths() as usize)
        .peekable();
    let mut seed = 0;
    while deaths.peek().is_some() {
        seed += 1;
        let place = Place::new();
        let options = "restart=on,cache=1G";
        mount(&request(&image("lzma-1m-dict8m"), &place, options)).unwrap();
        if !is_restarted(&place) {
            return;
        }
        assert_eq!(stat(&place.path).unwrap()["transport"], "dev_fuse");
        under_readers(&place, seed, |slowest| {
            let mut random = Random::new(seed);
            for death in deaths.by_ref().take(DEATHS_OF_A_MOUNT) {
                thread::sleep(Duration::from_millis(50 + random.below(100) as u64));
                slowest.store(0, Ordering::Relaxed);
                die_and_be_replaced(*death, &place);
                thread::sleep(Duration::from_millis(50));
                pauses.push(Duration::from_nanos(slowest.load(Ordering::Relaxed)));
            }
        });
        umount(&place.path, false).unwrap();
    }
    print("deaths", pauses);
}

fn print(what: &str, mut pauses: Vec<Duration>) {
    pauses.sort();
    let (median, longest) = (pauses[pauses.len() / 2], pauses[pauses.len() - 1]);
    let count = pauses.len();
    println!("{count} {what}: the longest read took {median:?} at the median, at most {longest:?}");
}

/// Runs `work` while readers run, and checks that they see no error and no wrong byte. `work` gets
/// the time of their slowest read.
pub fn under_readers<T>(place: &Place, seed: u64, work: impl FnOnce(&AtomicU64) -> T) -> T {
    let files = files(&place.path);
    let mappers = files[..2].iter().filter_map(|(file, _)| map(file));
    let mut mappers: Vec<Child> = mappers.collect();
    let (ended, slowest) = (AtomicBool::new(false), AtomicU64::new(0));
    let done = thread::scope(|scope| {
        for reader in 0..READERS {
            let random = Random::new(seed * READERS + reader);
            let (files, ended, slowest) = (&files, &ended, &slowest);
            scope.spawn(move || read_until(ended, files, random, slowest));
        }
        let _end = AtEnd(&ended);
        work(&slowest)
    });
    for mapper in &mut mappers {
        let ended = mapper.try_wait().unwrap();
        assert!(ended.is_none(), "a program with a mapping has ended");
        mapper.kill().unwrap();
        mapper.wait().unwrap();
    }
    done
}

/// Ends the readers when dropped, even if the test fails.
struct AtEnd<'e>(&'e AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A mount survives far more upgrades in quick succession than deaths.
fn upgrades_are_noticed_by_no_reader() {
    let place = Place::new();
    mount(&request(&image("lzma-1m-dict8m"), &place, "restart=on")).unwrap();
    if !is_restarted(&place) {
        return;
    }
    let mut pauses = Vec::new();
    under_readers(&place, 1, |slowest| {
        for _ in 0..number_of_deaths() {
            let old = pid_of(&place);
            slowest.store(0, Ordering::Relaxed);
            crate::upgrade(&place).unwrap();
            assert_ne!(old, pid_of(&place));
            soon("the end of the old server", || place::is_gone(old));
            thread::sleep(Duration::from_millis(50));
            pauses.push(Duration::from_nanos(slowest.load(Ordering::Relaxed)));
        }
    });
    assert_eq!(restarts(&place), 0);
    umount(&place.path, false).unwrap();
    print("upgrades", pauses);
}

pub fn die_and_be_replaced(death: Death, place: &Place) {
    let old = pid_of(place);
    let restarts = restarts(place);
    let group = death.prepare(old);
    death.bring(old);
    soon("the death of the server", || place::is_gone(old));
    // The next server answers the query in `pid_of`.
    assert_ne!(old, pid_of(place));
    assert_eq!(restarts + 1, self::restarts(place), "{death:?}");
    drop(group);
}

pub fn helper(place: &Place) -> Pid {
    let helper = stat(&place.path).unwrap()["restart"]["helper"].as_i64();
    Pid::from_raw(helper.unwrap() as i32).unwrap()
}

pub fn restarts(place: &Place) -> u64 {
    stat(&place.path).unwrap()["restart"]["restarts"]
        .as_u64()
        .unwrap()
}

fn read_until(
    ended: &AtomicBool,
    files: &[(PathBuf, Vec<u8>)],
    mut random: Random,
    slowest: &AtomicU64,
) {
    let mut page = [0; 4096];
    while !ended.load(Ordering::Relaxed) {
        let (path, whole) = &files[random.below(files.len())];
        let file = File::open(path).unwrap();
        fadvise(&file, 0, None, Advice::Random).unwrap();
        for _ in 0..8 {
            let at = random.below(whole.len() / 4096) * 4096;
            let begin = Instant::now();
            file.read_exact_at(&mut page, at as u64).unwrap();
            assert_eq!(
                page,
                whole[at..at + 4096],
                "{}: wrong bytes at {at}",
                path.display()
            );
            let took = begin.elapsed().as_nanos() as u64;
            slowest.fetch_max(took, Ordering::Relaxed);
        }
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

/// A program that repeatedly compares the pages of a mapping with the original content of the file.
fn map(file: &Path) -> Option<Child> {
    const PROGRAM: &str = "
import mmap, os, sys
with open(sys.argv[1], 'rb') as f:
    whole = f.read()
    m = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)
    while True:
        for at in range(0, len(m), 8192):
            if m[at:at + 4096] != whole[at:at + 4096]:
                sys.exit('wrong bytes')
        os.posix_fadvise(f.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        m.madvise(mmap.MADV_DONTNEED)
        os.statvfs(sys.argv[1])
";
    let python = Command::new("python3")
        .args(["-c", PROGRAM])
        .arg(file)
        .stdout(Stdio::null())
        .spawn();
    if let Err(error) = &python {
        println!("skipped: programs that map need python3: {error}");
    }
    python.ok()
}

/// The log file of a test's mount; removed at the end.
struct Log(PathBuf);

impl Log {
    fn of(place: &Place) -> Self {
        Self(place.path.with_extension("log"))
    }

    fn options(&self) -> String {
        format!("restart=on,log={}", self.0.display())
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.0).unwrap()
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn five_crashes_in_ten_seconds_end_a_mount() {
    let place = Place::new();
    let log = Log::of(&place);
    mount(&request(&image("kitchen-sink"), &place, &log.options())).unwrap();
    if !is_restarted(&place) {
        return;
    }
    let helper = helper(&place);
    for _ in 0..DEATHS_OF_A_MOUNT {
        die_and_be_replaced(Death::Aborted, &place);
    }
    let last = pid_of(&place);
    Death::Aborted.bring(last);
    soon("the end of the mount", || {
        rustix::fs::statfs(&place.path).is_err()
    });
    soon("the end of the helper", || place::is_gone(helper));
    // The exit status is that of a failed service, so that the service manager starts it again.
    let status = waitpid(Some(helper), WaitOptions::empty()).unwrap();
    assert_eq!(status.unwrap().1.exit_status(), Some(1));
    let text = log.text();
    let line = "the server died 5 times in 10 s, last by signal: 6 (SIGABRT); last served: request";
    assert!(text.contains(line), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    umount(&place.path, false).unwrap();
}

/// Servers are killed even when they have hardly started.
fn kills_at_any_rate_end_no_mount() {
    let place = Place::new();
    let log = Log::of(&place);
    mount(&request(&image("lzma-1m-dict8m"), &place, &log.options())).unwrap();
    if !is_restarted(&place) {
        return;
    }
    let helper = helper(&place);
    let raw = helper.as_raw_nonzero();
    let children = format!("/proc/{raw}/task/{raw}/children");
    under_readers(&place, 7, |_| {
        let mut random = Random::new(7);
        let begin = Instant::now();
        let mut kills = 0;
        while kills < number_of_deaths() * 2 && begin.elapsed() < Duration::from_secs(60) {
            // Pauses are mostly short or zero, so that two or three servers die before one has
            // answered.
            let pause = [0, 1, 0, 200][random.below(4)];
            thread::sleep(Duration::from_millis(pause));
            let server = fs::read_to_string(&children).unwrap();
            let server = server.split_whitespace().next_back();
            if let Some(server) = server.and_then(|pid| Pid::from_raw(pid.parse().ok()?))
                && !place::is_gone(server)
            {
                let _ = kill_process(server, Signal::KILL);
                kills += 1;
            }
        }
        assert!(!place::is_gone(helper), "{}", log.text());
    });
    umount(&place.path, false).unwrap();
}

/// The process that this thread started most recently.
fn last_child() -> Pid {
    let children = fs::read_to_string("/proc/thread-self/children").unwrap();
    let last = children.split_whitespace().next_back().unwrap();
    Pid::from_raw(last.parse().unwrap()).unwrap()
}

/// The test covers helpers that are killed before they have answered the server.
fn a_server_whose_helper_was_killed_goes_on_and_says_so() {
    for round in 0..20 {
        let place = Place::new();
        mount(&request(&image("kitchen-sink"), &place, "")).unwrap();
        if round == 0 && !is_restarted(&place) {
            return;
        }
        let helper = last_child();
        kill_process(helper, Signal::KILL).unwrap();
        waitpid(Some(helper), WaitOptions::empty()).unwrap();
        let restart = &stat(&place.path).unwrap()["restart"];
        assert_eq!(restart["on"], false);
        assert_eq!(restart["reason"], "the mount helper was killed");
        assert!(restart["helper"].is_null());
        assert!(fs::read_dir(&place.path).unwrap().next().is_some());
        umount(&place.path, false).unwrap();
    }
}

/// Other requests are in flight at both crashes.
fn a_request_that_crashes_the_server_twice_gets_eio_and_no_other_does() {
    let place = Place::new();
    let log = Log::of(&place);
    mount(&request(&image("lzma-1m-dict8m"), &place, &log.options())).unwrap();
    if !is_restarted(&place) {
        return;
    }
    let crash = erofs_mount::CRASH_XATTR;
    let asked = under_readers(&place, 1, |_| getxattr(&place.path, crash, &mut [0; 1]));
    assert_eq!(asked.unwrap_err(), rustix::io::Errno::IO);
    let counters = stat(&place.path).unwrap();
    // A server may serve before it is known how the last server died; then the request kills one
    // more.
    let restarts = counters["restart"]["restarts"].as_u64().unwrap();
    assert!(
        (2..=DEATHS_OF_A_MOUNT as u64).contains(&restarts),
        "{restarts}"
    );
    let named = "(getxattr of node 1) was being served each time the server died";
    let notices = counters["notices"].to_string();
    assert!(notices.contains(named), "{notices}");
    let text = log.text();
    assert!(text.contains(named), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    umount(&place.path, false).unwrap();
}

fn what_cannot_be_restarted_says_why() {
    let place = Place::new();
    let image = image("kitchen-sink");
    let error = mount(&request(&image, &place, "restart=on,io_uring=on")).unwrap_err();
    assert!(
        error.to_string().starts_with("restart=on: over io_uring"),
        "{error}"
    );
    mount(&request(&image, &place, "restart=off")).unwrap();
    let restart = stat(&place.path).unwrap()["restart"].clone();
    assert_eq!(
        (&restart["on"], &restart["reason"]),
        (&false.into(), &"restart=off".into())
    );
    umount(&place.path, false).unwrap();
}
