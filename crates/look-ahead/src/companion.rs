//! The companion of a mount: learns its launches, replays those that are expected, and lists
//! directories ahead of a walk.
//!
//! A launch begins when a program is read from its beginning. The programs that were launched from
//! one of the last mounts are replayed at once; if there are none, nothing is read, and the replay
//! of a program begins with its launch.

use std::collections::{HashMap, HashSet, VecDeque};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use launch_profile::text::escaped;
use launch_profile::{Error, ImageIdentity, Learned, Profile, Program, learned, limits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use serde_json::{Value, json};

use crate::client::{self, Room};
use crate::events::now_ms;
use crate::figures::{probes, report};
use crate::learning::{self, Place};
use crate::names::Names;
use crate::reader::{Event, Reader, Until};
use crate::recording::Recording;
use crate::replay::{Limits, Replay};
use crate::surroundings::{Mount, Settings, Store};
use crate::travelling::{Candidate, Known, Origin, PATH_IN_MOUNT, Travelling};
use crate::turns::Turns;

/// How often a profile is read again that another mount of the image writes at the same time.
const TRIES: usize = 20;

/// After this many consecutive mounts without a launch, none is expected.
const IDLE_MOUNTS: u32 = 3;

/// A program that reads more windows, 512 MiB, is copying or searching, not launching.
const MOST_WINDOWS: usize = 4096;

/// Anything that uses more directories does so as well.
const MOST_DIRECTORIES: usize = 1024;

/// A launch has changed if at least one window in this many that it requests is not in its profile.
const NEW_SHARE: usize = 20;

/// Probes that show whether a profile is still good.
const ENOUGH_PROBES: u64 = 8;

/// A launch is over after this time without requests, in milliseconds.
const QUIET_MS: u64 = 2000;

/// It is over after this time in any case.
const LONGEST_MS: u64 = 30_000;

/// The most replays of one mount: those at its beginning, and those of programs launched later.
const MOST_REPLAYS: usize = 64;

/// Time between checks for events during a launch or a replay.
const NAP: Duration = Duration::from_millis(20);

/// How long a copy of the mount is kept when nothing needs it.
const KEPT: Duration = Duration::from_millis(50);

/// Time to find the names of a recorded launch after the mount is gone.
const LAST_NAMES: Duration = Duration::from_millis(300);

/// The most recently listed directories that are remembered: a launch reads files that were known
/// before.
const RECENT: usize = 64;

/// The most directory entries that are searched for names.
const MOST_ENTRIES: usize = 1 << 15;

/// A launch without requests for this many milliseconds may be over.
const PAUSE_MS: u64 = 100;

/// Time to find names during a launch.
const SOME_NAMES: Duration = Duration::from_millis(20);

/// Bytes that are read ahead at a time. No kernel takes less, and over `/dev/fuse` more would
/// become several requests.
const LEAST: u64 = 128 << 10;
const MOST: u64 = 256 << 10;

/// The most programs whose figures are published.
const SHOWN: usize = 40;

/// The most requests for profiles that travel with the image: only one is expected.
const MOST_ARRIVALS: usize = 8;

/// A launch in progress. Times are in milliseconds.
#[derive(Clone, Copy, Debug)]
struct Launch {
    program: u64,
    began: u64,
    last: u64,
}

/// The companion of one mount.
pub struct Companion {
    reader: Reader,
    mount: Arc<dyn Mount>,
    store: Box<dyn Store>,
    settings: Settings,
    names: Names,
    /// Content of the file when it was last read. Other mounts write it too.
    learned: Learned,
    image: ImageIdentity,
    launch: Option<Launch>,
    /// Programs that were launched by now, in this launch.
    begun: HashSet<Vec<u8>>,
    /// The launch is of a program that was replayed before: any other work for it waits for a
    /// pause.
    is_behind: bool,
    /// Whether there has been a launch; used with `any_file`.
    launched_once: bool,
    recording: Recording,
    replays: Vec<Arc<Replay>>,
    turns: Arc<Turns>,
    /// Programs that are replayed.
    replayed: HashSet<Vec<u8>>,
    /// The knowledge that came with the image, and the replays based on it, until it is known
    /// whether they fit.
    travelling: Travelling,
    unproved: Vec<(Known, Arc<Replay>)>,
    /// The number of announcements at the last request, and the number of requests.
    arrivals: (u64, usize),
    has_looked_inside: bool,
    /// Programs that were launched from this mount, and how many windows their last launch had to
    /// request, if they were known before.
    launched: HashMap<Vec<u8>, Option<usize>>,
    trouble: Option<String>,
    /// The most recently listed directories.
    recent: VecDeque<u64>,
    /// Directories that were searched for names during the launch, and their contents.
    searched: HashSet<Vec<u8>>,
    entries: HashMap<u64, Vec<u8>>,
    room: Room,
    /// When the mount was last used.
    used: Instant,
    published: Value,
}

impl std::fmt::Debug for Companion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Companion").finish_non_exhaustive()
    }
}

/// Whether a launch is expected according to the file of what was learned.
pub(crate) fn is_expected_by(file: &File) -> bool {
    let mut header = [0; learned::HEADER_BYTES];
    let length = file.read_at(&mut header, 0).unwrap_or(0);
    Learned::idle_mounts_of(&header[..length]) < IDLE_MOUNTS
}

impl Companion {
    /// `Reader` belongs to the ring in which the server records events.
    pub fn new(
        reader: Reader,
        mount: Arc<dyn Mount>,
        store: Box<dyn Store>,
        mut settings: Settings,
    ) -> Self {
        let trouble = settings.trouble.take();
        let (names, image) = (Names::new(reader.root()), reader.image());
        Self {
            reader,
            mount,
            store,
            settings,
            names,
            learned: Learned::default(),
            image,
            launch: None,
            begun: HashSet::new(),
            is_behind: false,
            launched_once: false,
            recording: Recording::default(),
            replays: Vec::new(),
            turns: Arc::default(),
            replayed: HashSet::new(),
            travelling: Travelling::default(),
            unproved: Vec::new(),
            arrivals: (0, 0),
            has_looked_inside: false,
            launched: HashMap::new(),
            trouble,
            recent: VecDeque::new(),
            searched: HashSet::new(),
            entries: HashMap::new(),
            room: Room::new(),
            used: Instant::now(),
            published: Value::Null,
        }
    }

    /// Reports a failure outside the launch itself, for the counters.
    pub fn fail(reader: &Reader, line: &str) {
        let report = json!({"state": "learning", "programs": [], "error": line});
        reader.publish(report.to_string().as_bytes());
        reader.set_closed(true);
    }

    /// Waits until there is work, before anything untrusted is read; returns false if the mount
    /// ends first. `file` holds what was learned from launches.
    pub fn wait_for_work(
        reader: &Reader,
        file: Option<&File>,
        settings: &Settings,
        end: BorrowedFd<'_>,
    ) -> bool {
        let travels = || reader.arrivals() > 0 || reader.is_inside() == Some(true);
        if settings.learns && (travels() || file.is_some_and(is_expected_by)) {
            return true;
        }
        let mut report = json!({"state": "learning", "programs": []});
        if let Some(line) = &settings.trouble {
            report["error"] = json!(line);
        }
        reader.publish(report.to_string().as_bytes());
        let until = if settings.learns && settings.any_file {
            Until::Any
        } else {
            Until::Urgent
        };
        let woken = !reader.may_sleep(until) || {
            let watched = [(reader.as_fd(), PollFlags::IN), (end, PollFlags::IN)];
            wait(&watched, None);
            // Before the end: an event recorded by then may begin a launch.
            !reader.may_sleep(until) || settings.learns && travels()
        };
        reader.awake();
        woken
    }

    /// Runs until `end` is readable.
    pub fn run(mut self, file: Option<File>, end: BorrowedFd<'_>) {
        let _registered = self.reader.register();
        if self.settings.learns {
            let known = match file {
                Some(file) => self.parse(file),
                None => Ok(Vec::new()),
            };
            match known {
                Ok(programs) => self.learned.programs = programs,
                Err(()) => self.settings.learns = false,
            }
            self.replay(is_expected);
            // Slower sources must not delay what is already known.
            self.look_inside();
        }
        loop {
            self.take_travelling();
            self.drain();
            self.end_launch(false);
            self.prove_replays();
            let pauses = self.pauses();
            self.turns.hold(self.launch.is_some() && !pauses);
            if pauses {
                self.catch_up();
                self.find_some_names();
            }
            self.publish();
            if self.rest(end) {
                break;
            }
        }
        self.drain();
        self.end_launch(true);
        self.count_idle_mount();
        self.turns.stop();
        self.publish();
    }

    /// Sleeps; returns true when the mount ends.
    fn rest(&mut self, end: BorrowedFd<'_>) -> bool {
        let replaying = self.replays.iter().any(|replay| replay.is_running());
        if replaying || self.launch.is_some() {
            self.used = Instant::now();
        }
        let changes = self.mount.changes();
        let limit = match (replaying || self.launch.is_some(), &changes) {
            (true, _) => Some(NAP),
            (false, Some(_)) => Some(KEPT),
            (false, None) => None,
        };
        let until = match self.settings.learns && self.settings.any_file && !self.launched_once {
            true => Until::Any,
            false => Until::Urgent,
        };
        let watched = [
            (Some(end), PollFlags::IN),
            (Some(self.reader.as_fd()), PollFlags::IN),
            (changes.as_deref().map(AsFd::as_fd), PollFlags::PRI),
        ];
        let watched = watched
            .into_iter()
            .filter_map(|(fd, events)| Some((fd?, events)));
        let watched: Vec<_> = watched.collect();
        let ready = match self.reader.may_sleep(until) {
            true => wait(&watched, limit),
            false => wait(&watched, Some(Duration::ZERO)),
        };
        self.reader.awake();
        let is_ready = |place: usize| ready.get(place).copied().unwrap_or(false);
        if changes.is_some() && self.mount.is_gone(is_ready(2)) {
            self.mount_has_gone();
        } else if changes.is_some() && self.used.elapsed() > KEPT {
            self.mount.release();
        }
        is_ready(0)
    }

    /// A launch may need names that only the mount has: this gives it a moment to find them.
    fn mount_has_gone(&mut self) {
        if let Some(root) = self.mount.kept().filter(|_| self.launch.is_some()) {
            self.drain();
            self.find_names(&root, Instant::now() + LAST_NAMES);
        }
        self.mount.release();
    }

    fn drain(&mut self) {
        while let Some((at_ms, event)) = self.reader.next() {
            self.note(at_ms, event);
        }
    }

    fn note(&mut self, at_ms: u64, event: Event) {
        if let Some(launch) = &mut self.launch {
            let before = launch.last;
            launch.last = at_ms.clamp(before, now_ms().max(before));
            if event == Event::Waits {
                launch.began += launch.last - before;
            }
            let since = launch.last.saturating_sub(launch.began);
            self.recording.now_ms = u32::try_from(since).unwrap_or(u32::MAX);
        }
        let records = self.launch.is_some();
        match event {
            Event::LookedUp {
                directory,
                name,
                found,
            } => {
                if let Some(found) = found {
                    self.names.add(directory, &name, found);
                }
                if records {
                    let ino = found.map(|found| found.ino);
                    self.recording.looked_up(directory, &name, ino);
                }
            }
            Event::Listed(directory) => {
                if records {
                    self.recording.listed(directory);
                }
                if self.recent.back() != Some(&directory) {
                    if self.recent.len() == RECENT {
                        self.recent.pop_front();
                    }
                    self.recent.push_back(directory);
                }
            }
            Event::LinkRead(ino) if records => self.recording.read_link(ino),
            Event::Began(ino) => self.begin(ino, at_ms),
            Event::Read {
                ino,
                offset,
                length,
            } => {
                if self.settings.any_file && !self.launched_once {
                    self.begin(ino, at_ms);
                }
                if self.launch.is_some() {
                    self.recording.read(ino, offset, length);
                }
                self.was_read(ino, offset, length);
            }
            Event::Wanted(path) => self.list(&path),
            Event::Waits | Event::LinkRead(_) => {}
        }
    }

    fn was_read(&self, ino: u64, offset: u64, length: u64) {
        if self.replays.is_empty() {
            return;
        }
        let path = self.names.path(ino);
        for replay in &self.replays {
            if let Some(file) = replay.file(ino, path.as_deref()) {
                replay.was_read(file, offset, length);
            }
        }
    }

    /// Lists a directory ahead of a walk.
    fn list(&mut self, path: &[u8]) {
        self.used = Instant::now();
        if let Some(root) = self.mount.root() {
            let _ = client::list(&root, path, &mut self.room, |_, _| true);
        }
    }

    /// A program was read from its beginning: begins a launch, unless one is in progress.
    fn begin(&mut self, program: u64, at_ms: u64) {
        if !self.settings.learns {
            return self.reader.stop_recording();
        }
        let path = self.place(program).map(|place| place.path);
        if let Some(path) = path.as_ref().filter(|_| self.begun.len() < MOST_REPLAYS) {
            self.begun.insert(path.clone());
            self.turns.launched(|replay| replay.program() == path);
        }
        let was_replayed = path.as_ref().is_some_and(|it| self.replayed.contains(it));
        self.replay_one(path.as_deref());
        self.look_inside();
        // Nobody here can have changed what came with the image.
        let is_replayed = was_replayed
            || path.is_some_and(|path| {
                self.travelling.of(&path).is_some() && self.replayed.contains(&path)
            });
        let is_only = self.settings.any_file && self.settings.one_launch;
        if self.launch.is_some() || is_only && self.launched_once {
            return;
        }
        self.launched_once = true;
        let began = at_ms.min(now_ms());
        self.launch = Some(Launch {
            program,
            began,
            last: began,
        });
        self.is_behind = true;
        if !is_replayed {
            self.catch_up();
        }
    }

    /// Does what a launch needs at its beginning if nothing is known about it.
    fn catch_up(&mut self) {
        let Some(launch) = self.launch else { return };
        if !std::mem::take(&mut self.is_behind) {
            return;
        }
        // Kept for names, in case the mount goes away during the launch.
        drop(self.mount.root());
        // Others may have changed it: a program that was removed is learned again.
        if self.read().is_ok() {
            let path = self.place(launch.program).map(|place| place.path);
            self.replay_one(path.as_deref());
        }
    }

    /// Takes a profile that travels with the image, if it has arrived.
    fn take_travelling(&mut self) {
        let (seen, asked) = self.arrivals;
        let arrivals = self.reader.arrivals();
        if !self.settings.replays || arrivals == seen || asked == MOST_ARRIVALS {
            return;
        }
        self.arrivals = (arrivals, asked + 1);
        match self.store.travelling() {
            Ok(Some(file)) => self.add_travelling(file, self.settings.origin),
            Ok(None) => {}
            Err(line) => self.complain(line),
        }
    }

    /// Looks for a profile inside the mount.
    fn look_inside(&mut self) {
        let may_be_there = self.reader.is_inside() != Some(false) && !self.settings.is_named;
        if !may_be_there || !self.settings.replays || self.has_looked_inside {
            return;
        }
        // A profile beside the image takes precedence.
        self.take_travelling();
        self.has_looked_inside = true;
        let Some(root) = self.mount.root() else {
            return;
        };
        match client::open_file(&root, PATH_IN_MOUNT.as_bytes()) {
            Ok((file, ..)) => self.add_travelling(file.into(), Origin::Image),
            Err(Errno::NOENT) => {}
            Err(error) => self.complain(format!("{PATH_IN_MOUNT}: {error}")),
        }
    }

    fn add_travelling(&mut self, file: File, origin: Origin) {
        match self.travelling.add(file, origin) {
            Ok(()) => self.replay(is_expected),
            Err(line) => self.complain(line),
        }
    }

    /// For as long as the mount exists: forgets a profile that came with the image and is wrong.
    fn forget(&mut self, path: &[u8]) {
        self.travelling.forget(path);
        let of = self.unproved.iter();
        let of = of.filter(|(known, _)| known.program.path == path);
        of.for_each(|(_, replay)| replay.stop());
    }

    /// Reports a fault of what came with the image: none of it is needed to learn.
    fn complain(&mut self, line: String) {
        self.store.note(&line);
        self.trouble = Some(line);
    }

    /// Forgets profiles most of whose files do not exist or have other sizes.
    fn prove_replays(&mut self) {
        let (running, ended) = std::mem::take(&mut self.unproved)
            .into_iter()
            .partition(|(_, replay)| replay.is_running());
        self.unproved = running;
        for (Known { program, origin }, replay) in ended {
            let (refused, windows) = replay.refused();
            if 2 * refused > windows {
                self.travelling.forget(&program.path);
                self.complain(format!(
                    "{} no longer fits: {}: {refused} of {windows} windows belong to files that \
                     are missing or have other sizes",
                    origin.subject(),
                    escaped(&program.path),
                ));
            }
        }
    }

    fn replay_one(&mut self, path: Option<&[u8]>) {
        if let Some(path) = path {
            self.replay(|one| one.program.path == path);
        }
    }

    /// Ends the launch if it is over or, with `now`, in any case.
    fn end_launch(&mut self, now: bool) {
        let Some(launch) = self.launch else { return };
        let is_quiet = now_ms() >= launch.last + QUIET_MS;
        if !now && !is_quiet && now_ms() < launch.began + LONGEST_MS {
            return;
        }
        self.reader.stop_recording();
        if let Some(root) = self.mount.root() {
            self.find_names(&root, Instant::now() + LAST_NAMES);
        }
        self.launch = None;
        self.begun.clear();
        let recording = std::mem::take(&mut self.recording);
        self.searched.clear();
        self.entries.clear();
        let before = self.learned.programs.clone();
        let mut left = TRIES;
        while left > 0 && self.learn(launch.program, &recording) && !self.write() {
            self.learned.programs.clone_from(&before);
            left -= 1;
        }
    }

    /// Finds the names of files that were read without a lookup: they are in directories that were
    /// listed.
    fn find_names(&mut self, root: &OwnedFd, deadline: Instant) {
        let mut unknown = self.unknown();
        // The names found in one directory may lead to the next one.
        while !unknown.is_empty()
            && Instant::now() < deadline
            && let Some(directory) = self.next_to_search()
        {
            let entries = &mut self.entries;
            let _ = client::list(root, &directory, &mut self.room, |name, ino| {
                if !matches!(name, b"." | b"..") {
                    let path = learning::joined(&directory, name);
                    entries.entry(ino).or_insert(path);
                }
                entries.len() < MOST_ENTRIES
            });
            self.searched.insert(directory);
        }
        unknown.retain(|ino| self.entries.contains_key(ino));
        for path in unknown.iter().filter_map(|ino| self.entries.get(ino)) {
            self.names.find(root, path);
        }
    }

    /// Whether a launch is in progress but currently requests nothing.
    fn pauses(&self) -> bool {
        let pauses = |launch: Launch| now_ms() >= launch.last + PAUSE_MS;
        self.launch.is_some_and(pauses)
    }

    fn find_some_names(&mut self) {
        let can_help = self.next_to_search().is_some() || !self.entries.is_empty();
        if can_help
            && !self.unknown().is_empty()
            && let Some(root) = self.mount.root()
        {
            self.find_names(&root, Instant::now() + SOME_NAMES);
        }
    }

    /// Inodes whose names are still missing for describing the launch.
    fn unknown(&self) -> HashSet<u64> {
        let recording = &self.recording;
        let read = recording.windows.iter().map(|window| window.ino);
        let links = recording.links.iter().map(|(ino, _)| *ino);
        let looked_in = recording.names.iter().map(|name| name.directory);
        let listed = recording.listed.iter().map(|(ino, _)| *ino);
        let all = read.chain(links).chain(looked_in).chain(listed);
        let unknown = all.filter(|ino| self.place(*ino).is_none());
        unknown.filter_map(|ino| self.names.missing(ino)).collect()
    }

    /// A directory that was listed by the launch, shortly before it, or by a replay.
    fn next_to_search(&self) -> Option<Vec<u8>> {
        let of_launch = self.recording.listed.iter().map(|(ino, _)| *ino);
        let listed = of_launch.chain(self.recent.iter().copied());
        let path = |ino: u64| {
            let found = || self.entries.get(&ino).cloned();
            self.names.path(ino).or_else(found)
        };
        let replayed = self.replays.iter().flat_map(|replay| replay.directories());
        let all = listed.filter_map(path).chain(replayed.map(<[u8]>::to_vec));
        let mut new = all.filter(|path| !self.searched.contains(path));
        new.next()
    }

    /// The known place of an inode.
    fn place(&self, ino: u64) -> Option<Place> {
        if let Some(path) = self.names.path(ino) {
            let known = self.names.get(ino);
            return Some(Place {
                path,
                size: known.map_or(0, |known| known.size),
                mode: known.map_or(DIRECTORY, |known| known.mode),
            });
        }
        let mut replays = self.replays.iter();
        let (path, size) = replays.find_map(|replay| {
            let file = replay.file(ino, None)?;
            Some(replay.describe(file))
        })?;
        Some(Place {
            path: path.to_vec(),
            size,
            mode: FILE,
        })
    }

    /// Reads the file again: other mounts write it, and so does `profile remove`. An error means
    /// that it is something else or out of reach.
    fn read(&mut self) -> Result<(), ()> {
        let file = self.store.open();
        let file = file.map_err(|line| self.trouble = Some(line))?;
        self.learned.programs = file.map_or(Ok(Vec::new()), |file| self.parse(file))?;
        Ok(())
    }

    /// A file that is damaged, or belongs to another image, teaches nothing.
    fn parse(&mut self, file: File) -> Result<Vec<Program>, ()> {
        let (mut bytes, most) = (Vec::new(), limits::LEARNED_BYTES as u64 + 1);
        let _ = file.take(most).read_to_end(&mut bytes);
        match Learned::parse(&bytes, &self.image) {
            Ok(learned) => Ok(learned.programs),
            Err(error) => {
                self.trouble = Some(error.to_string());
                match error {
                    Error::Magic if self.settings.is_named => Err(()),
                    _ => Ok(Vec::new()),
                }
            }
        }
    }

    /// Starts replaying programs that are not being replayed yet.
    fn replay(&mut self, is_one: impl Fn(&Candidate<'_>) -> bool) {
        if !self.settings.replays {
            return;
        }
        let is_new = |one: &Candidate<'_>| {
            let known = self.replayed.contains(&one.program.path);
            !known && is_one(one) && !one.program.profile.windows.is_empty()
        };
        let known = self.travelling.beside(&self.learned.programs);
        let known = known.filter(is_new).map(Candidate::to_known);
        let room = MOST_REPLAYS.saturating_sub(self.replays.len());
        let known: Vec<Known> = known.take(room).collect();
        if known.is_empty() {
            return;
        }
        let paths = known.iter().map(|known| known.program.path.clone());
        self.replayed.extend(paths);
        let memory = self.settings.memory.as_ref().map_or(0, free_memory);
        let limits = Limits {
            budget: memory / 2 / known.len() as u64,
            at_a_time: self.settings.at_a_time.clamp(LEAST, MOST),
        };
        for known in known {
            let Program { profile, path, .. } = &known.program;
            let replay = Arc::new(Replay::new(profile, path, limits));
            self.replays.push(Arc::clone(&replay));
            if known.origin != Origin::Here {
                self.unproved.push((known, Arc::clone(&replay)));
            }
            let is_launched = self.begun.contains(replay.program());
            self.turns.add(replay, is_launched);
        }
        self.turns
            .start_threads(THREADS)
            .for_each(|number| self.start_thread(number));
    }

    /// Starts one of the threads that replay.
    fn start_thread(&self, number: usize) {
        let Some(registrar) = self.reader.registrar() else {
            return self.turns.did_not_start();
        };
        let (turns, mount) = (Arc::clone(&self.turns), Arc::clone(&self.mount));
        let name = format!("erofs_replay/{number}");
        let spawned = thread::Builder::new().name(name).spawn(move || {
            registrar.register();
            turns.run(&*mount, &registrar);
        });
        if spawned.is_err() {
            self.turns.did_not_start();
        }
    }

    /// Adds a launch to what is known; false if it was not a launch.
    fn learn(&mut self, program: u64, recording: &Recording) -> bool {
        let Some(Place { path, .. }) = self.place(program) else {
            return false;
        };
        let length = |ino| self.place(ino).map(|place| place.size);
        let is_search = recording.windows.len() > MOST_WINDOWS
            || recording.directories() > MOST_DIRECTORIES
            || !self.settings.any_file && recording.is_copy(length);
        if is_search {
            return false;
        }
        let asked = learning::profile(recording, &|ino| self.place(ino));
        let place = |programs: &[Program]| programs.iter().position(|known| known.path == path);
        let was_known = place(&self.learned.programs).is_some() && !self.is_behind;
        if self.read().is_err() {
            return false;
        }
        let at = place(&self.learned.programs);
        // It was removed during the launch.
        if was_known && at.is_none() {
            return false;
        }
        let here = at.map(|at| self.learned.programs.remove(at));
        let here = here.filter(|program| !program.is_note());
        let travelled = self.travelling.of(&path).map(|known| known.program.clone());
        let is_new = here.is_none() && travelled.is_none();
        let mut known = match here.or(travelled) {
            Some(known) => known,
            None if asked.windows.is_empty() => return false,
            None => Program {
                path: path.clone(),
                profile: asked.clone(),
                ..Program::default()
            },
        };
        let windows = known.profile.windows.len();
        known.launches = known.launches.saturating_add(1);
        known.idle_mounts = 0;
        let is_wrong = self.is_wrong(&known.profile);
        // Names and windows are added after those already known.
        let mut all = known.profile.clone();
        all.merge(&asked);
        all.trim(&known.trim);
        let new = all.bytes().saturating_sub(known.profile.bytes());
        if new * NEW_SHARE as u64 > known.profile.bytes() {
            known.profile = all;
        }
        let missed = (!is_new).then(|| asked.windows.len().min(windows));
        self.launched.insert(path, missed);
        // One that must be learned again is forgotten, except for the limits it was trimmed to, and
        // that no profile of it that came with the image is good.
        let travels = self.travelling.of(&known.path).map(|known| known.origin);
        if is_wrong {
            known.profile = Profile::default();
            if let Some(origin) = travels {
                self.forget(&known.path);
                let (subject, path) = (origin.subject(), escaped(&known.path));
                self.complain(format!("{subject} is not followed by launches of {path}"));
            }
        }
        let is_kept = !known.profile.windows.is_empty() || known.trim != Default::default();
        if is_kept || travels.is_some() {
            self.learned.programs.insert(0, known);
        }
        true
    }

    /// Whether launches no longer follow the profile.
    fn is_wrong(&self, profile: &Profile) -> bool {
        let paths: Vec<Vec<u8>> = profile
            .files
            .iter()
            .map(|it| profile.path(&it.name))
            .collect();
        let windows = profile.windows.iter();
        let windows = windows.map(|window| (&paths[window.file as usize][..], window.number));
        let (hit, missed) = probes(&self.replays, windows);
        hit + missed >= ENOUGH_PROBES && hit * 2 < missed
    }

    /// Programs that were expected but not launched had one more mount without a launch.
    fn count_idle_mount(&mut self) {
        for _ in 0..TRIES {
            if self.has_counted_idle_mount() {
                return;
            }
        }
    }

    /// False: another mount wrote the file meanwhile.
    fn has_counted_idle_mount(&mut self) -> bool {
        let mut known = self.travelling.beside(&self.learned.programs);
        let expects = known.any(|known| is_expected(&known));
        drop(known);
        if !self.settings.learns || !expects || self.read().is_err() {
            return true;
        }
        let mut changed = false;
        // Programs that came with the image and were not launched are noted.
        for known in self.travelling.all() {
            let path = &known.program.path;
            let is_noted = self.learned.programs.iter().any(|one| one.path == *path);
            if !is_noted && self.learned.programs.len() < limits::PROGRAMS {
                self.learned.programs.push(Program {
                    path: path.clone(),
                    ..Program::default()
                });
            }
        }
        for program in &mut self.learned.programs {
            let expected = program.idle_mounts < IDLE_MOUNTS;
            if expected && !self.launched.contains_key(&program.path) {
                program.idle_mounts += 1;
                changed = true;
            }
        }
        !changed || self.write()
    }

    /// False: another mount wrote the file since it was read.
    fn write(&mut self) -> bool {
        let learned = Learned {
            image: Some(self.image),
            programs: std::mem::take(&mut self.learned.programs),
        };
        let written = self.store.write(&learned.to_text());
        if let Err(line) = &written {
            self.trouble = Some(format!("nothing was kept: {line}"));
        }
        self.learned = learned;
        written.unwrap_or(true)
    }

    /// For the counters.
    fn publish(&mut self) {
        let mut report = report(&self.replays);
        if let Some(line) = &self.trouble {
            report["error"] = json!(line);
        }
        let shown = |Candidate {
                         program, origin, ..
                     }: Candidate<'_>| {
            json!({
                "origin": origin.word(),
                "path": escaped(&program.path),
                "launches": program.launches,
                "windows": program.profile.windows.len(),
                "bytes": program.profile.bytes(),
                "windows_asked": self.launched.get(&program.path).copied().flatten(),
            })
        };
        let known = self.travelling.beside(&self.learned.programs);
        let programs = known.take(SHOWN).map(shown);
        let mut programs: Vec<Value> = programs.collect();
        loop {
            report["programs"] = json!(programs);
            if report == self.published || self.reader.publish(report.to_string().as_bytes()) {
                break;
            }
            if programs.pop().is_none() {
                break;
            }
        }
        self.published = report;
    }
}

/// Whether it is replayed when the mount begins.
fn is_expected(one: &Candidate<'_>) -> bool {
    one.idle_mounts < IDLE_MOUNTS
}

/// Threads of a replay: with one, the launch waits for names more often; a third brings no gain.
const THREADS: usize = 2;

/// The modes of entries of which only the place is known.
const DIRECTORY: u32 = 0o040_555;
const FILE: u32 = 0o100_444;

/// Which of the descriptors have an event.
fn wait(watched: &[(BorrowedFd<'_>, PollFlags)], limit: Option<Duration>) -> Vec<bool> {
    let polled = watched.iter();
    let polled = polled.map(|(fd, events)| PollFd::from_borrowed_fd(*fd, *events));
    let mut polled: Vec<_> = polled.collect();
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    // A signal ends the wait early, which does no harm.
    if poll(&mut polled, limit.as_ref()).is_err() {
        return Vec::new();
    }
    polled.iter().map(|fd| !fd.revents().is_empty()).collect()
}

/// Bytes that programs could still allocate without evicting others.
fn free_memory(memory: &File) -> u64 {
    let mut text = [0; 4096];
    let length = memory.read_at(&mut text, 0).unwrap_or(0);
    let text = String::from_utf8_lossy(&text[..length]);
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok());
    kib.unwrap_or(0).saturating_mul(1024)
}
