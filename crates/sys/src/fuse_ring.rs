//! FUSE over io_uring: the memory that the kernel writes requests to and takes replies from, and
//! the commands that pass this memory back and forth.
//!
//! The kernel owns an entry from its submission (REGISTER, COMMIT_AND_FETCH) to its completion;
//! only outside that time does [`FuseRing::message`] allow access to the entry's memory.
//!
//! Facts from `include/uapi/linux/fuse.h`, protocol 7.42: an entry is registered by a command in a
//! 128-byte submission entry, whose address field points to two iovecs, one for the header and one
//! for the payload.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;

use crate::mapping::Mapping;
use crate::memory::PAGE_SIZE;
use crate::uring::{RegisteredFile, Submission, Uring};

/// Bytes in a header: 128 for FUSE headers, 128 for a request's fixed part, 32 for sizes.
pub const HEADER_BYTES: usize = 288;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Marks completions of the waker's poll.
const WAKER: u64 = u64::MAX;

/// An event that the ring reports.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The waker became readable. Clear it and call [`FuseRing::watch_waker`].
    Woken,
    /// The entry with this number holds a request.
    Request(usize),
    /// The entry with this number is lost because of this error (ENOTCONN: unmounted).
    Lost(usize, i32),
}

/// An entry that holds a request.
#[derive(Debug)]
pub struct Message<'r> {
    /// The entry's number, for [`FuseRing::commit`].
    pub number: usize,
    /// The queue that the request came from.
    pub queue: u16,
    /// The request, later the header of the reply.
    pub header: &'r mut [u8; HEADER_BYTES],
    /// Names and values of the request, later the reply.
    pub payload: &'r mut [u8],
}

/// The owner of an entry's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Kernel,
    Ours,
    Lost,
}

#[derive(Debug)]
struct Entry {
    queue: u16,
    owner: Owner,
    /// REGISTER points to this: two `struct iovec` with the addresses and lengths of header and
    /// payload. The kernel reads this only during submission; it is kept as long as the entry.
    iovecs: Box<[[usize; 2]; 2]>,
}

/// Indices of the registered files.
const DEVICE: RegisteredFile = RegisteredFile(0);
const WAKER_FILE: RegisteredFile = RegisteredFile(1);

/// A ring that accepts no submissions yet, created before a sandbox forbids creating one. The ring
/// is permanently restricted: once it is [started](PreparedRing::start), it accepts only commands
/// to registered files and polls of them, and the set of registered files cannot be changed.
#[derive(Debug)]
pub struct DisabledRing(Uring);

impl DisabledRing {
    /// Creates a ring with room for this many entries and a waker.
    ///
    /// # Errors
    /// The kernel is too old (EINVAL), io_uring is disabled or forbidden (EPERM) or missing
    /// (ENOSYS), or no memory or descriptor is left (ENOMEM, EMFILE).
    pub fn new(entries: usize) -> io::Result<Self> {
        let slots = u32::try_from((entries + 1).next_power_of_two());
        let slots = slots.map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let ring = Uring::disabled(slots)?;
        ring.restrict()?;
        Ok(Self(ring))
    }
}

impl AsFd for DisabledRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A ring with its memory and files, to be used by the thread that starts it.
#[derive(Debug)]
pub struct PreparedRing {
    ring: FuseRing,
    queues: Vec<(u16, usize)>,
}

/// A ring with entries of one or more queues, served by the thread that started it: the kernel
/// rejects submissions from any other thread.
#[derive(Debug)]
pub struct FuseRing {
    // Fields are dropped in this order: the ring first, which ends all commands, then the memory.
    ring: Uring,
    entries: Vec<Entry>,
    /// Events taken from the ring but not yet returned to the caller.
    events: VecDeque<Event>,
    memory: Mapping,
    payload_bytes: usize,
    /// Whether any submissions have not been passed to the kernel yet.
    pending: bool,
}

/// Whether this process may use io_uring in the way that a [`FuseRing`] does.
///
/// # Errors
/// As for [`DisabledRing::new`].
pub fn probe() -> io::Result<()> {
    let DisabledRing(mut ring) = DisabledRing::new(1)?;
    // A filter may allow creating a ring, but neither starting nor entering it.
    ring.enable()?;
    ring.enter(0, true)
}

impl AsFd for PreparedRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}

impl PreparedRing {
    /// Provides memory and files for entries. `queues` has the queue number of each entry, and
    /// `payload_bytes` is the size of each payload. `waker` is an eventfd; `device` is bound to a
    /// mount.
    ///
    /// # Errors
    /// There is not enough memory, or the ring was created for fewer entries.
    pub fn new(
        DisabledRing(ring): DisabledRing,
        device: BorrowedFd<'_>,
        waker: BorrowedFd<'_>,
        queues: &[(u16, usize)],
        payload_bytes: usize,
    ) -> io::Result<Self> {
        let count: usize = queues.iter().map(|(_, count)| count).sum();
        if count >= ring.slots() {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let payload_bytes = payload_bytes.next_multiple_of(PAGE_SIZE);
        let memory = Mapping::anonymous(count * (PAGE_SIZE + payload_bytes))?;
        ring.register_files(&[device, waker])?;
        let ring = FuseRing {
            ring,
            entries: Vec::new(),
            events: VecDeque::new(),
            memory,
            payload_bytes,
            pending: false,
        };
        let queues = queues.to_vec();
        Ok(Self { ring, queues })
    }

    /// Registers the entries, for the calling thread. INIT must have accepted `FUSE_OVER_IO_URING`.
    ///
    /// # Errors
    /// The error with which the kernel refuses an entry. In that case the mount continues over the
    /// device, unless all queues had already been registered.
    pub fn start(self) -> io::Result<FuseRing> {
        let Self { mut ring, queues } = self;
        ring.ring.enable()?;
        for (queue, count) in queues {
            for _ in 0..count {
                ring.register(queue);
            }
        }
        ring.watch_waker();
        ring.flush()?;
        match ring.refusal() {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(ring),
        }
    }
}

impl FuseRing {
    /// Submits pending submissions.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.pending {
            self.ring.enter(0, false)?;
            self.pending = false;
        }
        Ok(())
    }

    /// Submits pending submissions; if nothing has happened yet, sleeps until something does.
    pub fn wait(&mut self) -> io::Result<()> {
        let sleep = self.events.is_empty() && !self.ring.has_completions();
        match self.ring.enter(sleep.into(), sleep) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => {
                self.pending = other.is_err();
                other
            }
        }
    }

    /// Submits pending entries and polls for completions, without sleeping.
    pub fn poll(&mut self) -> io::Result<()> {
        self.ring.enter(0, true)
    }

    /// The next event; `None` if there are no more.
    pub fn next_event(&mut self) -> Option<Event> {
        self.take_completions();
        self.events.pop_front()
    }

    fn take_completions(&mut self) {
        while let Some(completion) = self.ring.next() {
            let (number, result) = (completion.user_data.u64_(), completion.res);
            if number == WAKER {
                self.events.push_back(Event::Woken);
                continue;
            }
            let number = number as usize;
            let (owner, event) = match result {
                0.. => (Owner::Ours, Event::Request(number)),
                error => (Owner::Lost, Event::Lost(number, -error)),
            };
            self.entries[number].owner = owner;
            self.events.push_back(event);
        }
    }

    /// The queue of an entry.
    pub fn queue(&self, number: usize) -> u16 {
        self.entries[number].queue
    }

    /// An entry that holds a request.
    ///
    /// # Panics
    /// If this process does not own the entry at present.
    pub fn message(&mut self, number: usize) -> Message<'_> {
        let queue = self.ours(number).queue;
        let (header, payload) = self.place(number);
        // SAFETY: `place` is inside `memory`, which lives as long as `self`, is initialised
        // (anonymous pages are zero) and aligned for bytes. The kernel does not touch an entry that
        // is ours, and as long as the message exists, `&mut self` excludes all other users.
        let header = unsafe { &mut *header.cast::<[u8; HEADER_BYTES]>().as_ptr() };
        // SAFETY: as above; header and payload do not overlap.
        let payload =
            unsafe { std::slice::from_raw_parts_mut(payload.as_ptr(), self.payload_bytes) };
        Message {
            number,
            queue,
            header,
            payload,
        }
    }

    fn ours(&mut self, number: usize) -> &mut Entry {
        let entry = &mut self.entries[number];
        let is_ours = entry.owner == Owner::Ours;
        assert!(is_ours, "entry {number} belongs to the kernel");
        entry
    }

    /// Returns the entry to the kernel with its reply, to fetch the next request
    /// (COMMIT_AND_FETCH). Takes effect at the next [`wait`](Self::wait).
    ///
    /// # Panics
    /// If this process does not own the entry at present.
    pub fn commit(&mut self, number: usize, commit_id: u64) {
        self.ours(number).owner = Owner::Kernel;
        let entry = self.command(COMMIT_AND_FETCH, number, commit_id);
        self.push(&entry);
    }

    /// Makes the ring report one [`Event::Woken`], as soon as the waker is readable.
    pub fn watch_waker(&mut self) {
        let poll = Submission::poll(WAKER_FILE, WAKER);
        self.push(&poll);
    }

    /// Whether any entry may still receive requests.
    pub fn is_alive(&self) -> bool {
        self.entries.iter().any(|entry| entry.owner != Owner::Lost)
    }

    fn register(&mut self, queue: u16) {
        let number = self.entries.len();
        let (header, payload) = self.place(number);
        let iovecs = Box::new([
            [header.as_ptr() as usize, HEADER_BYTES],
            [payload.as_ptr() as usize, self.payload_bytes],
        ]);
        self.entries.push(Entry {
            queue,
            owner: Owner::Kernel,
            iovecs,
        });
        let entry = self.command(REGISTER, number, 0);
        self.push(&entry);
    }

    /// The error with which the kernel refused the entries, if it did. A refusal arrives before any
    /// request can, and if the kernel refuses one entry of a ring, it refuses all.
    fn refusal(&mut self) -> Option<i32> {
        self.take_completions();
        self.events.iter().find_map(|event| match event {
            Event::Lost(_, errno) => Some(*errno),
            _ => None,
        })
    }

    /// The positions of an entry's header and payload.
    fn place(&self, number: usize) -> (NonNull<u8>, NonNull<u8>) {
        let at = number * (PAGE_SIZE + self.payload_bytes);
        (self.memory.at(at), self.memory.at(at + PAGE_SIZE))
    }

    fn command(&self, operation: u32, number: usize, commit_id: u64) -> Submission {
        let entry = &self.entries[number];
        // struct fuse_uring_cmd_req: flags, commit ID, queue.
        let mut command = [0; 80];
        command[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        command[16..18].copy_from_slice(&entry.queue.to_ne_bytes());
        let iovecs = &*entry.iovecs;
        Submission::command(DEVICE, number as u64, operation, command, iovecs)
    }

    fn push(&mut self, submission: &Submission) {
        self.pending = true;
        // SAFETY: a command names memory of `self`: the iovecs and the memory they point to live
        // until the ring is closed, and the state in `entries` keeps us from accessing it while the
        // kernel owns it. The poll names no memory. The ring holds its files.
        let pushed = unsafe { self.ring.push(submission) };
        // There is a slot for each entry and one for the waker, and each has at most one
        // submission.
        assert!(pushed, "the submission queue has a place for every entry");
    }
}

impl AsFd for FuseRing {
    /// Readable if there are completions that have not been taken yet.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.ring.as_fd()
    }
}
