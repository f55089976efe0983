//! A small filesystem in memory, and the daemon that serves it.

use std::ffi::CString;
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fuse_transport::{
    Attr, Caller, Channel, Config, DeferredChannel, DirectoryReply, Entry, Errno, Failure,
    Filesystem, Found, ReadReply, Rings, Seek, Session, Statfs,
};
use rustix::fs::{Mode, OFlags};
use rustix::mount::MountFlags;
use rustix::thread::{CpuSet, sched_setaffinity};

pub const BIG: u64 = 8 << 20;
pub const MANY: u64 = 500;

/// Content of the file "big".
pub fn big_byte(offset: u64) -> u8 {
    (offset.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

const HELLO: u64 = 2;
const BIG_NODE: u64 = 3;
const LINK: u64 = 4;
const DIRECTORY: u64 = 5;
const STUCK: u64 = 7;
/// A file whose reads take a few milliseconds.
const LEISURELY: u64 = 9;
/// A file whose reads wait until "hello" has been read.
const DEFERRED: u64 = 11;
const FIRST_OF_MANY: u64 = 100;

const ROOT: [(&str, u64); 7] = [
    ("hello", HELLO),
    ("big", BIG_NODE),
    ("link", LINK),
    ("directory", DIRECTORY),
    ("stuck", STUCK),
    ("leisurely", LEISURELY),
    ("deferred", DEFERRED),
];

struct Memory {
    big: Arc<Vec<u8>>,
    /// Number of reads of "hello".
    greetings: Arc<(Mutex<u64>, Condvar)>,
}

impl Memory {
    fn attr(node: u64) -> Result<Attr, Errno> {
        let (mode, size) = match node {
            1 | DIRECTORY => (0o040_755, 0),
            HELLO => (0o100_644, 12),
            BIG_NODE | STUCK | LEISURELY | DEFERRED => (0o100_644, BIG),
            LINK => (0o120_777, 5),
            FIRST_OF_MANY.. if node < FIRST_OF_MANY + MANY => (0o100_600, 0),
            _ => return Err(Errno::NOENT),
        };
        Ok(Attr {
            ino: node,
            size,
            mode,
            nlink: 1,
            mtime: 1_700_000_000,
            ..Attr::default()
        })
    }

    fn entries(node: u64) -> Vec<(String, u64)> {
        let dots = [".", ".."].map(|name| (name.to_owned(), 1));
        let rest: Vec<_> = match node {
            1 => ROOT
                .iter()
                .map(|(name, node)| (name.to_string(), *node))
                .collect(),
            _ => (0..MANY)
                .map(|n| (format!("entry-{n:03}"), FIRST_OF_MANY + n))
                .collect(),
        };
        dots.into_iter().chain(rest).collect()
    }
}

impl Filesystem for Memory {
    fn lookup(&self, _: Caller, parent: u64, name: &[u8]) -> Result<Option<Found>, Failure> {
        let wanted = String::from_utf8_lossy(name);
        let found = Self::entries(parent)
            .into_iter()
            .find(|(name, _)| *name == wanted);
        found
            .map(|(_, node)| {
                Ok(Found {
                    node,
                    attr: Self::attr(node)?,
                })
            })
            .transpose()
    }

    fn attributes(&self, _: Caller, node: u64) -> Result<Attr, Failure> {
        Ok(Self::attr(node)?)
    }

    fn read_link(&self, _: Caller, _: u64) -> Result<Vec<u8>, Failure> {
        Ok(b"hello".to_vec())
    }

    fn read(
        &self,
        _: Caller,
        node: u64,
        offset: u64,
        reply: &mut ReadReply<'_>,
    ) -> Result<(), Failure> {
        if node == STUCK {
            thread::sleep(Duration::from_secs(3600));
        }
        if node == LEISURELY {
            thread::sleep(Duration::from_millis(3));
        }
        let (greetings, changed) = &*self.greetings;
        if node == DEFERRED && *greetings.lock().unwrap() == 0 {
            let greetings = Arc::clone(&self.greetings);
            return Err(Failure::Deferred(Box::new(move |_| {
                say("waits");
                let (greetings, changed) = &*greetings;
                let none = |greetings: &mut u64| *greetings == 0;
                drop(changed.wait_while(greetings.lock().unwrap(), none));
                Ok(())
            })));
        }
        if node == HELLO {
            *greetings.lock().unwrap() += 1;
            changed.notify_all();
        }
        let content: &[u8] = if node == HELLO {
            b"hello, file\n"
        } else {
            &self.big
        };
        let begin = (offset as usize).min(content.len());
        let end = (begin + reply.room()).min(content.len());
        reply.spare()[..end - begin].copy_from_slice(&content[begin..end]);
        reply.advance(end - begin);
        Ok(())
    }

    fn read_directory(
        &self,
        _: Caller,
        node: u64,
        position: u64,
        reply: &mut DirectoryReply<'_, '_>,
    ) -> Result<(), Failure> {
        for (place, (name, node)) in Self::entries(node)
            .iter()
            .enumerate()
            .skip(position as usize)
        {
            let attr = Self::attr(*node)?;
            let entry = Entry {
                name: name.as_bytes(),
                ino: *node,
                kind: (attr.mode >> 12) as u8,
                next: place as u64 + 1,
            };
            if !reply.add(&entry, Some(&Found { node: *node, attr })) {
                break;
            }
        }
        Ok(())
    }

    fn xattr(&self, _: Caller, node: u64, name: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        Ok((node == HELLO && name == b"user.color").then(|| b"green".to_vec()))
    }

    fn xattr_names(&self, _: Caller, node: u64) -> Result<Vec<Vec<u8>>, Failure> {
        Ok(if node == HELLO {
            vec![b"user.color".to_vec()]
        } else {
            vec![]
        })
    }

    fn statfs(&self) -> Result<Statfs, Failure> {
        Ok(Statfs {
            blocks: 1234,
            frsize: 4096,
            bsize: 4096,
            files: 99,
            namelen: 255,
            ..Statfs::default()
        })
    }

    fn seek(&self, _: Caller, _: u64, offset: u64, what: Seek) -> Result<u64, Failure> {
        // The first megabyte of every file is a hole.
        Ok(if what == Seek::Data {
            offset.max(1 << 20)
        } else {
            offset
        })
    }
}

/// The rings that a daemon may create: correct ones,
pub const WHOLE: &str = "whole";
/// ones with an entry in the queue of only one CPU,
pub const HALF: &str = "half";
/// and ones that are complete only after a while.
pub const LATE: &str = "late";

/// Mounts on `mountpoint`, reports when it serves, and serves until the mount ends; then prints the
/// counters. Uses io_uring if a `ring` is named.
pub fn daemon(mountpoint: &Path, ring: Option<&str>) {
    let device =
        rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).unwrap();
    let data = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        device.as_raw_fd()
    );
    let data = CString::new(data).unwrap();
    rustix::mount::mount(
        "memory",
        mountpoint,
        "fuse.memory",
        MountFlags::RDONLY,
        data.as_c_str(),
    )
    .unwrap();
    let big = Arc::new((0..BIG).map(big_byte).collect());
    let config = Config::default();
    let cpus = cpu_workers::plugged_in_cpus().unwrap();
    let rings = ring.map(|_| Rings::new(&cpus, true, 1).unwrap());
    let memory = Memory {
        big,
        greetings: Default::default(),
    };
    let session = Session::start(device, Arc::new(memory), &config, rings).unwrap();
    if ring == Some(HALF) {
        let only = start_server(&session, 0);
        say("ready");
        return only.join().unwrap();
    }
    if ring == Some(LATE) {
        say("ready");
        thread::sleep(Duration::from_millis(500));
    }
    let others_too = start_others(&session);
    if let Some(channel) = ring.is_none().then(|| session.deferred_channel().unwrap()) {
        serve_deferred(&session, channel);
    }
    let others = (0..2).map(|cpu| start_server(&session, cpu));
    let threads: Vec<_> = others_too.into_iter().chain(others).collect();
    say(if ring == Some(LATE) { WHOLE } else { "ready" });
    for thread in threads {
        thread.join().unwrap();
    }
    println!("{}", serde_json::to_value(session.statistics()).unwrap());
}

fn say(word: &str) {
    println!("{word}");
    io::stdout().flush().unwrap();
}

/// Serves deferred requests on a separate thread, which starts others as needed.
fn serve_deferred(session: &Arc<Session>, channel: DeferredChannel) {
    let session = Arc::clone(session);
    thread::spawn(move || {
        channel.run(|| serve_deferred(&session, session.deferred_channel().unwrap()));
    });
}

type Opened = mpsc::Receiver<()>;

/// With io_uring, starts the threads that serve the overflow queue, the turns, and the requests
/// that still arrive on the device.
fn start_others(session: &Arc<Session>) -> Vec<JoinHandle<()>> {
    if !session.protocol().io_uring {
        return Vec::new();
    }
    vec![
        start(session, Session::overflow_channel),
        start(session, Session::turn_channel),
        start(session, Session::device_channel),
    ]
}

/// Starts one pinned thread.
fn start_server(session: &Arc<Session>, cpu: usize) -> JoinHandle<()> {
    start(session, move |session| {
        let mut only = CpuSet::new();
        only.set(cpu);
        // A machine with one CPU can still serve.
        let _ = sched_setaffinity(None, &only);
        if session.protocol().io_uring {
            session.cpu_channel(cpu)
        } else {
            session.device_channel()
        }
    })
}

/// Starts a thread; returns once its channel is open.
fn start(
    session: &Arc<Session>,
    open: impl FnOnce(&Arc<Session>) -> io::Result<Box<dyn Channel>> + Send + 'static,
) -> JoinHandle<()> {
    let (sender, opened): (_, Opened) = mpsc::channel();
    let session = Arc::clone(session);
    let thread = thread::spawn(move || {
        let channel = open(&session).unwrap();
        sender.send(()).unwrap();
        channel.run();
    });
    opened.recv().unwrap();
    thread
}
