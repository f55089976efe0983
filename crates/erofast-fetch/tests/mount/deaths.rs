//! Deaths of server and fetcher while files are read over a slow link.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use rustix::fs::{Advice, fadvise};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit};

use crate::site::{Site, files, soon};

/// Server deaths per mount: too few to end the mount, whatever their cause.
const DEATHS_OF_A_MOUNT: u64 = 4;

fn number_of_deaths() -> u64 {
    let asked = std::env::var("EROFS_FUSE_SOAK").ok();
    asked.and_then(|count| count.parse().ok()).unwrap_or(12)
}

/// Every second death is that of a fetcher. Each mount has a separate cache, so that there is
/// something to fetch.
pub fn deaths_are_noticed_by_no_reader() {
    let files = files();
    let mut left = number_of_deaths();
    let mut random = Random(7);
    while left > 0 {
        let site = Site::new();
        site.server.state().latency = Duration::from_millis(20);
        site.server.state().bytes_per_second = Some(500_000);
        site.mount("restart=on").unwrap();
        let ended = AtomicBool::new(false);
        thread::scope(|scope| {
            for reader in 0..4 {
                let (site, files, ended) = (&site, &files, &ended);
                scope.spawn(move || read_until(ended, site, files, Random(reader + left * 4)));
            }
            let _end = AtEnd(&ended);
            for _ in 0..left.min(DEATHS_OF_A_MOUNT) {
                die(&site, Process::Fetcher, &mut random);
                die(&site, Process::Server, &mut random);
            }
        });
        left -= left.min(DEATHS_OF_A_MOUNT);
    }
}

/// Without the helper nothing is restarted, but the other processes continue.
pub fn a_mount_whose_helper_is_dead_goes_on_fetching() {
    let (site, files) = (Site::mounted("restart=on,prefetch=none"), files());
    let helper = site.stat()["restart"]["helper"].as_i64().unwrap();
    let helper = Pid::from_raw(helper as i32).unwrap();
    kill_process(helper, Signal::KILL).unwrap();
    soon("the end of the helper", || is_gone(helper));
    for (name, bytes) in &files {
        assert!(fs::read(site.path(name)).unwrap() == *bytes);
    }
}

/// A stopped process does not notice that the others are dead.
pub fn no_fetcher_outlives_a_mount_whatever_was_stopped_and_killed_before() {
    // Helper, server and fetcher by index.
    const KILL_HELPER: (usize, Signal) = (0, Signal::KILL);
    const KILL_SERVER: (usize, Signal) = (1, Signal::KILL);
    const KILL_FETCHER: (usize, Signal) = (2, Signal::KILL);
    const STOP_FETCHER: (usize, Signal) = (2, Signal::STOP);
    for steps in [
        &[STOP_FETCHER][..],
        &[STOP_FETCHER, KILL_HELPER],
        &[STOP_FETCHER, KILL_SERVER],
        &[STOP_FETCHER, KILL_HELPER, KILL_SERVER],
        &[KILL_FETCHER, KILL_HELPER, KILL_SERVER],
    ] {
        let site = Site::mounted("restart=on,prefetch=none,timeout.read=2");
        let [server, fetcher] = [Process::Server, Process::Fetcher].map(|it| pid(&site, it));
        let processes = [parent_of(server), server, fetcher];
        for (process, signal) in steps {
            kill_process(processes[*process], *signal).unwrap();
        }
        erofs_mount::umount(&site.point(), false).unwrap();
        soon("the end of the processes", || {
            processes.into_iter().all(is_gone)
        });
    }
}

fn parent_of(pid: Pid) -> Pid {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).unwrap();
    let parent = stat.rsplit_once(") ").unwrap().1.split(' ').nth(1).unwrap();
    Pid::from_raw(parent.parse().unwrap()).unwrap()
}

fn is_gone(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
    stat.map_or(true, |stat| stat.contains(") Z "))
}

pub fn why_no_fetcher_can_be_started_is_logged_once() {
    let site = Site::mounted("restart=on,prefetch=none");
    let helper = site.stat()["restart"]["helper"].as_i64().unwrap();
    let open = |file: &u64| fs::symlink_metadata(format!("/proc/{helper}/fd/{file}")).is_ok();
    let current = (0..).find(|file| !open(file));
    let helper = Pid::from_raw(helper as i32);
    let limit = |limit| prlimit(helper, Resource::Nofile, limit).unwrap();
    let usual = getrlimit(Resource::Nofile);
    limit(Rlimit { current, ..usual });
    let before = pid(&site, Process::Fetcher);
    kill_process(before, Signal::KILL).unwrap();
    soon("the line in the log", || !site.log().is_empty());
    // The helper tries again after 2 ms, 4 ms and so on.
    thread::sleep(Duration::from_millis(200));
    limit(usual);
    assert_ne!(pid(&site, Process::Fetcher), before);
    assert!(site.log().contains("Too many open files"), "{}", site.log());
    assert_eq!(site.log().lines().count(), 1, "{}", site.log());
}

#[derive(Clone, Copy, PartialEq)]
pub enum Process {
    Server,
    Fetcher,
}

/// Kills a process at a random moment; returns when another one has replaced it.
fn die(site: &Site, process: Process, random: &mut Random) {
    thread::sleep(Duration::from_millis(20 + random.below(200)));
    replace(site, process);
}

pub fn replace(site: &Site, process: Process) {
    let before = pid(site, process);
    kill_process(before, Signal::KILL).unwrap();
    soon("the next process", || pid(site, process) != before);
}

pub fn pid(site: &Site, process: Process) -> Pid {
    let mut pid = None;
    soon("the process", || {
        pid = find(site, process);
        pid.is_some()
    });
    pid.unwrap()
}

fn find(site: &Site, process: Process) -> Option<Pid> {
    let stat = erofs_mount::stat(&site.point()).ok()?;
    match process {
        Process::Server => Pid::from_raw(stat["pid"].as_i64()? as i32),
        Process::Fetcher => fetchers(&stat).pop(),
    }
}

/// The running fetchers of the mount with this `stat`.
pub fn fetchers(stat: &serde_json::Value) -> Vec<Pid> {
    let helper = stat["restart"]["helper"].as_i64().unwrap_or_default();
    let children = fs::read_to_string(format!("/proc/{helper}/task/{helper}/children"));
    let children = children.unwrap_or_default();
    let is_one = |pid: &&str| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        let state = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        name.trim() == "erofast-fetch" && !state.contains(") Z ")
    };
    let pids = children.split_whitespace().filter(is_one);
    pids.filter_map(|pid| Pid::from_raw(pid.parse().ok()?))
        .collect()
}

fn read_until(
    ended: &AtomicBool,
    site: &Site,
    files: &BTreeMap<PathBuf, Vec<u8>>,
    mut random: Random,
) {
    let files: Vec<_> = files
        .iter()
        .filter(|(_, bytes)| bytes.len() > 4096)
        .collect();
    let mut page = [0; 4096];
    while !ended.load(Ordering::Relaxed) {
        let (name, whole) = files[random.below(files.len() as u64) as usize];
        let file = File::open(site.path(name)).unwrap();
        fadvise(&file, 0, None, Advice::Random).unwrap();
        for _ in 0..8 {
            let at = random.below(whole.len() as u64 / 4096) as usize * 4096;
            file.read_exact_at(&mut page, at as u64).unwrap();
            assert!(
                page == whole[at..at + 4096],
                "{}: wrong bytes at {at}",
                name.display()
            );
        }
        fadvise(&file, 0, None, Advice::DontNeed).unwrap();
    }
}

/// Ends the readers, even if the test fails.
struct AtEnd<'e>(&'e AtomicBool);

impl Drop for AtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Numbers that are the same in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) % limit
    }
}
