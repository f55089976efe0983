//! A place where images are mounted, with programs that read from them.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use erofs_mount::{mount, stat, umount};
use rustix::fs::{Advice, fadvise};
use rustix::process::Pid;

use super::content::{Content, Files};
use crate::built::Random;
use crate::death::{Death, MemoryGroup};
use crate::place::{self, Place};
use crate::restarted::{die_and_be_replaced, helper, restarts};
use crate::{pid_of, request, soon};

const READERS: u64 = 2;

/// Maximum number of deaths within [`WITHIN`]: fewer than end a mount.
const DEATHS: usize = 3;

/// A little longer than the period within which deaths count towards the end of a mount.
const WITHIN: Duration = Duration::from_secs(11);

/// Options of the mounts; with `restart=on`, the server can be replaced.
const OPTIONS: &[&str] = &[
    "silent,restart=on",
    "silent,restart=on,workers=unbound",
    "silent,restart=on,cache=16M",
    "silent,restart=on,workers=inline",
    "silent,restart=on,reserved_pages=64,nohipri",
    "silent,restart=off,io_uring=on",
    "silent,restart=off,cache=0",
];
const RESTARTED: usize = 5;

/// The directory of the images; removed at the end.
pub struct Directory {
    pub path: PathBuf,
}

impl Directory {
    pub fn new() -> Self {
        let name = format!("erofs-mount-soak-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Self { path }
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// The state that the readers of a slot share.
struct Shared {
    files: Files,
    root: PathBuf,
    ended: AtomicBool,
    /// Whether errors are expected, because the image is truncated or its server died for good.
    forgiving: AtomicBool,
    reads: AtomicU64,
    failure: Mutex<Option<String>>,
}

pub struct Slot {
    place: Place,
    image: PathBuf,
    contents: Vec<Content>,
    /// Index of the image's content.
    content: usize,
    /// Whether its server can be replaced.
    stays: bool,
    mounted: bool,
    shared: Arc<Shared>,
    readers: Vec<JoinHandle<()>>,
    deaths: VecDeque<Instant>,
    groups: Vec<MemoryGroup>,
    reads: u64,
    seed: u64,
}

impl Slot {
    pub fn new(
        number: usize,
        directory: &Directory,
        contents: &[Content],
        stays: bool,
        random: &mut Random,
    ) -> Self {
        let place = Place {
            path: directory.path.join(format!("mount{number}")),
        };
        fs::create_dir(&place.path).unwrap();
        let mut slot = Self {
            image: directory.path.join(format!("image{number}")),
            contents: contents.to_vec(),
            content: 0,
            stays,
            mounted: false,
            shared: Shared::new(&place, &contents[0]),
            place,
            readers: Vec::new(),
            deaths: VecDeque::new(),
            groups: Vec::new(),
            reads: 0,
            seed: random.next(),
        };
        slot.replace_image(random);
        slot
    }

    /// Mounts an image with random options, and starts readers.
    pub fn mount(&mut self, random: &mut Random) {
        let some = match self.stays {
            true => &OPTIONS[..RESTARTED],
            false => OPTIONS,
        };
        let options = some[random.below(some.len())];
        let mut outcome = mount(&request(&self.image, &self.place, options));
        if outcome.is_err() && options.contains("io_uring=on") {
            outcome = mount(&request(&self.image, &self.place, "restart=off,silent"));
        }
        outcome.unwrap_or_else(|error| panic!("{options}: {error}"));
        self.mounted = true;
        self.shared = Shared::new(&self.place, &self.contents[self.content]);
        self.readers = (0..READERS).map(|reader| self.reader(reader)).collect();
    }

    fn reader(&mut self, reader: u64) -> JoinHandle<()> {
        self.seed += 1;
        let random = Random::new(self.seed * READERS + reader);
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || shared.read_until_the_end(random))
    }

    /// Ends the readers, then the mount.
    pub fn unmount(&mut self) {
        self.end_readers();
        if !std::mem::take(&mut self.mounted) {
            return;
        }
        let alive = stat(&self.place.path);
        umount(&self.place.path, false).unwrap();
        if let Ok(counters) = alive {
            let pid = Pid::from_raw(counters["pid"].as_i64().unwrap() as i32).unwrap();
            soon("the end of the server", || place::is_gone(pid));
        }
        self.groups.clear();
        self.deaths.clear();
    }

    fn end_readers(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        for reader in self.readers.drain(..) {
            let _ = reader.join();
        }
        self.reads += self.shared.reads.swap(0, Ordering::Relaxed);
        self.check_readers();
    }

    /// Fails if a reader saw an error or a wrong byte.
    pub fn check_readers(&self) {
        let failure = self.shared.failure.lock().unwrap().clone();
        assert_eq!(failure, None);
    }

    pub fn reads(&self) -> u64 {
        self.reads
    }

    pub fn server(&self) -> Pid {
        pid_of(&self.place)
    }

    pub fn helper(&self) -> Pid {
        helper(&self.place)
    }

    /// Reads all files from beginning to end.
    pub fn read_all(&self) {
        for (path, bytes) in self.shared.files.iter() {
            let path = self.place.path.join(path);
            let read = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            assert!(read == *bytes, "{}: wrong bytes", path.display());
        }
    }

    /// Whether the mount survives one more death.
    pub fn survives_a_death(&mut self) -> bool {
        self.deaths.retain(|death| death.elapsed() < WITHIN);
        self.deaths.len() < DEATHS
    }

    pub fn die(&mut self, death: Death) {
        self.deaths.push_back(Instant::now());
        if stat(&self.place.path).unwrap()["restart"]["on"] == true {
            return die_and_be_replaced(death, &self.place);
        }
        self.shared.forgiving.store(true, Ordering::Relaxed);
        let pid = self.server();
        let group = death.prepare(pid);
        death.bring(pid);
        soon("the death of the server", || place::is_gone(pid));
        self.groups.extend(group);
        self.unmount();
        self.mount_again();
    }

    fn mount_again(&mut self) {
        self.seed += 1;
        let mut random = Random::new(self.seed);
        self.mount(&mut random);
    }

    pub fn upgrade(&self) {
        let old = self.server();
        let restart = stat(&self.place.path).unwrap()["restart"].clone();
        match crate::upgrade(&self.place) {
            Ok(()) => soon("the end of the old server", || place::is_gone(old)),
            Err(error) => assert!(restart["on"] == false, "{restart}: {error}"),
        }
    }

    /// Makes the server, with little memory, read all files; the kernel may kill it for lack of
    /// memory.
    pub fn press(&mut self, group: impl FnOnce(Pid) -> Option<MemoryGroup>) {
        if stat(&self.place.path).unwrap()["restart"]["on"] != true {
            return;
        }
        self.deaths.push_back(Instant::now());
        let before = restarts(&self.place);
        let group = group(self.server());
        self.read_all();
        group.iter().for_each(MemoryGroup::release);
        self.groups.extend(group);
        let deaths = restarts(&self.place) - before;
        assert!(deaths <= 1, "{deaths} servers died for lack of memory");
    }

    /// Truncates the image file while it is served. No reader gets wrong bytes.
    pub fn cut(&mut self, random: &mut Random) {
        self.shared.forgiving.store(true, Ordering::Relaxed);
        let file = File::options().write(true).open(&self.image).unwrap();
        let length = file.metadata().unwrap().len() as usize;
        file.set_len(random.below(length) as u64).unwrap();
        thread::sleep(Duration::from_millis(random.below(100) as u64));
        self.unmount();
        self.replace_image(random);
        self.mount(random);
    }

    /// Replaces the image file of this mount with another image. The mount continues with its open
    /// file.
    pub fn replace_image(&mut self, random: &mut Random) {
        let content = random.below(self.contents.len());
        let new = self.image.with_extension("new");
        fs::write(&new, &**self.contents[content].image).unwrap();
        fs::rename(&new, &self.image).unwrap();
        self.content = content;
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        // Readers are left only after a failure.
        self.shared.ended.store(true, Ordering::Relaxed);
        self.readers
            .drain(..)
            .for_each(|reader| drop(reader.join()));
    }
}

impl Shared {
    fn new(place: &Place, content: &Content) -> Arc<Self> {
        Arc::new(Self {
            files: Arc::clone(&content.files),
            root: place.path.clone(),
            ended: AtomicBool::new(false),
            forgiving: AtomicBool::new(false),
            reads: AtomicU64::new(0),
            failure: Mutex::default(),
        })
    }

    fn read_until_the_end(&self, mut random: Random) {
        while !self.ended.load(Ordering::Relaxed) {
            let Err(failure) = self.read_some(&mut random) else {
                continue;
            };
            *self.failure.lock().unwrap() = Some(failure);
            return;
        }
    }

    /// Reads some pages of a file, from the server rather than the page cache.
    fn read_some(&self, random: &mut Random) -> Result<(), String> {
        let (path, bytes) = &self.files[random.below(self.files.len())];
        let path = self.root.join(path);
        let outcome = File::open(&path).and_then(|file| {
            let _ = fadvise(&file, 0, None, Advice::Random);
            let mut page = vec![0; 1 + random.below(20_000)];
            for _ in 0..4 {
                let at = random.below(bytes.len());
                let expected = &bytes[at..bytes.len().min(at + page.len())];
                let length = file.read_at(&mut page, at as u64)?;
                if length == 0 || page[..length] != expected[..length.min(expected.len())] {
                    return Ok(Err(format!("{}: wrong bytes at {at}", path.display())));
                }
                self.reads.fetch_add(1, Ordering::Relaxed);
            }
            let _ = fadvise(&file, 0, None, Advice::DontNeed);
            Ok(Ok(()))
        });
        outcome.unwrap_or_else(|error| match self.forgiving.load(Ordering::Relaxed) {
            true => {
                thread::sleep(Duration::from_millis(5));
                Ok(())
            }
            false => Err(format!("{}: {error}", path.display())),
        })
    }
}
