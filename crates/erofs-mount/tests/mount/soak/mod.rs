//! Condenses a long life into a short time: mounts, reads, deaths, upgrades, memory pressure,
//! images that are truncated and replaced, and CPUs that go offline, mixed by a seeded generator.
//! Nothing is left at the end.
//!
//! `EROFS_FUSE_SOAK_SECONDS` is how long the test runs (default 6). `EROFS_FUSE_SOAK_SEED` repeats
//! the same steps, though the requests in progress at each step differ. `EROFAST_TEST_HOTPLUG=1`
//! takes CPU 1 offline now and then.

mod content;
mod footprint;
mod slot;

use std::collections::VecDeque;
use std::fs;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{Mode, OFlags};

use self::content::Content;
use self::footprint::{Footprint, children_end};
use self::slot::Slot;
use crate::Test;
use crate::built::{BuiltImage, Random};
use crate::death::{Death, MemoryGroup};
use crate::place::image;

pub const TESTS: &[Test] = tests![a_long_life_leaves_nothing_behind];

/// Number of recent steps that are shown if a step fails.
const SHOWN: usize = 12;

/// Number of mounts at a time. The first two exist throughout the test, and their processes are
/// checked for growth; the first goes through deaths and upgrades, and the second does not.
const SLOTS: usize = 4;
const DYING: usize = 0;
const CALM: usize = 1;

/// How much the memory of a server may grow without counting as a leak, because its cache and
/// arenas fill at different times.
const SERVER_SLACK_KIB: u64 = 24 << 10;

const CPU: &str = "/sys/devices/system/cpu/cpu1/online";

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn a_long_life_leaves_nothing_behind() {
    let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap();
    let seed = number("EROFS_FUSE_SOAK_SEED").unwrap_or(since_1970.as_nanos() as u64 >> 10);
    let seconds = number("EROFS_FUSE_SOAK_SECONDS").unwrap_or(6);
    println!("soak: EROFS_FUSE_SOAK_SEED={seed} EROFS_FUSE_SOAK_SECONDS={seconds}");
    // Servers whose helper is gone become children of this process too, and so they are counted.
    let this = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(this)).unwrap();
    children_end();
    let before = Footprint::of_this_process();
    let mut soak = Soak::new(seed);
    soak.run(Duration::from_secs(seconds));
    println!("soak: {}", soak.totals());
    let directory = soak.directory.path.clone();
    drop(soak);
    children_end();
    Footprint::of_this_process().has_not_grown(before, "the test", 0);
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    assert!(!mounts.contains(directory.to_str().unwrap()), "{mounts}");
    rustix::process::set_child_subreaper(None).unwrap();
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    Read,
    Die(Death),
    Upgrade,
    Press,
    Cut,
    Replace,
    Remount,
    Hotplug,
}

/// Steps, each with its relative frequency.
const STEPS: &[(usize, Step)] = &[
    (2, Step::Read),
    (1, Step::Die(Death::Killed)),
    (1, Step::Die(Death::Crashed)),
    (1, Step::Die(Death::Aborted)),
    (1, Step::Die(Death::OutOfMemory)),
    (2, Step::Upgrade),
    (1, Step::Press),
    (1, Step::Cut),
    (1, Step::Replace),
    (2, Step::Remount),
    (1, Step::Hotplug),
];

struct Soak {
    random: Random,
    slots: Vec<Slot>,
    /// The latest steps, each with its number and slot.
    last: VecDeque<String>,
    counts: [usize; STEPS.len()],
    hotplug: bool,
    // Dropped after the slots, whose images are in this directory.
    directory: slot::Directory,
}

impl Soak {
    fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let directory = slot::Directory::new();
        let contents = contents();
        let slots = (0..SLOTS).map(|number| {
            let stays = number == DYING || number == CALM;
            Slot::new(number, &directory, &contents, stays, &mut random)
        });
        Self {
            slots: slots.collect(),
            random,
            last: VecDeque::new(),
            counts: [0; STEPS.len()],
            hotplug: std::env::var_os("EROFAST_TEST_HOTPLUG").is_some() && is_writable(CPU),
            directory,
        }
    }

    fn run(&mut self, duration: Duration) {
        let begin = Instant::now();
        self.slots
            .iter_mut()
            .for_each(|slot| slot.mount(&mut self.random));
        let mut first = None;
        while begin.elapsed() < duration {
            let (number, slot) = (self.any_step(), self.random.below(SLOTS));
            let step = STEPS[number].1;
            self.note(format!("{step:?} of slot {slot}"));
            self.counts[number] += usize::from(self.step(step, slot));
            self.slots.iter().for_each(Slot::check_readers);
            // Measure once everything that is created on first use exists.
            if first.is_none() && begin.elapsed() > duration / 4 {
                first = Some(self.footprints());
            }
        }
        self.note("the end".to_owned());
        if let Some(first) = first {
            let names = [
                "the helper",
                "the helper without deaths",
                "the server without deaths",
            ];
            let slack = [1 << 10, 1 << 10, SERVER_SLACK_KIB];
            for (number, now) in self.footprints().into_iter().enumerate() {
                now.has_not_grown(first[number], names[number], slack[number]);
            }
        }
        self.slots.iter_mut().for_each(Slot::unmount);
    }

    /// Picks a step by its weight.
    fn any_step(&mut self) -> usize {
        let all = STEPS.iter().map(|(times, _)| times).sum();
        let mut left = self.random.below(all);
        let is_it = |(times, _): &(usize, Step)| match left.checked_sub(*times) {
            Some(less) => {
                left = less;
                false
            }
            None => true,
        };
        STEPS.iter().position(is_it).unwrap()
    }

    /// Footprints of the processes that live from beginning to end.
    fn footprints(&self) -> [Footprint; 3] {
        let (dying, calm) = (&self.slots[DYING], &self.slots[CALM]);
        // The helper reaps dead processes within this time.
        thread::sleep(Duration::from_millis(300));
        [
            Footprint::of(dying.helper()),
            Footprint::of(calm.helper()),
            Footprint::of(calm.server()),
        ]
    }

    fn note(&mut self, step: String) {
        self.last.push_back(step);
        if self.last.len() > SHOWN {
            self.last.pop_front();
        }
    }

    /// Takes a step; returns false if the step is not possible now.
    fn step(&mut self, step: Step, number: usize) -> bool {
        let random = &mut self.random;
        let slot = &mut self.slots[number];
        let stays = number == DYING || number == CALM;
        match step {
            Step::Hotplug if !self.hotplug => return false,
            Step::Die(_) | Step::Press | Step::Upgrade if number == CALM => return false,
            Step::Cut | Step::Remount if stays => return false,
            Step::Die(_) | Step::Press if !slot.survives_a_death() => return false,
            Step::Read => slot.read_all(),
            Step::Die(death) => slot.die(death),
            Step::Upgrade => slot.upgrade(),
            Step::Press => slot.press(MemoryGroup::with_little_memory),
            Step::Cut => slot.cut(random),
            Step::Replace => slot.replace_image(random),
            Step::Remount => {
                slot.unmount();
                slot.mount(random);
            }
            Step::Hotplug => {
                let back = Online;
                fs::write(CPU, "0").unwrap();
                thread::sleep(Duration::from_millis(20 + random.below(100) as u64));
                drop(back);
            }
        }
        true
    }

    fn totals(&self) -> String {
        let each = STEPS.iter().zip(self.counts);
        let each = each.map(|((_, step), count)| format!("{step:?} {count}"));
        let reads: u64 = self.slots.iter().map(Slot::reads).sum();
        format!("{reads} reads, {}", each.collect::<Vec<_>>().join(", "))
    }
}

impl Drop for Soak {
    fn drop(&mut self) {
        if thread::panicking() {
            println!("soak: the last steps:");
            self.last.iter().for_each(|step| println!("  {step}"));
        }
    }
}

/// Brings CPU 1 back online when dropped.
struct Online;

impl Drop for Online {
    fn drop(&mut self) {
        let _ = fs::write(CPU, "1");
    }
}

fn is_writable(file: &str) -> bool {
    rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()).is_ok()
}

/// Images with their content: those of the repository and, if mkfs.erofs is available, images made
/// from known trees.
fn contents() -> Vec<Content> {
    let built = [
        &["-zlz4hc", "-C65536"][..],
        &["-zlz4hc", "-C4096", "-Eztailpacking"],
        &[],
    ];
    let built = built.iter().enumerate().filter_map(|(number, options)| {
        let built = BuiltImage::new(&format!("soak{number}"), options, 8)?;
        Some(Content::new(&built.image(), &built.tree()))
    });
    let of_repository = |name| Content::mounted(&image(name));
    let fixtures = ["lzma-1m-dict8m", "lz4-4k"].map(of_repository);
    built.chain(fixtures).collect()
}
