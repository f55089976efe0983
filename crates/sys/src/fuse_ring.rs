//! FUSE over io_uring: the memory that the kernel writes requests into and takes replies from, and
//! the commands that pass it back and forth.
//!
//! The kernel holds an entry from its submission (REGISTER, COMMIT_AND_FETCH) to its completion;
//! only outside of that time does [`FuseRing::message`] allow access to the entry's memory.
//!
//! Facts from `include/uapi/linux/fuse.h`, protocol 7.42: an entry is registered by a command in a
//! 128-byte submission entry, whose address leads to two iovecs, header and payload.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;

use io_uring::{IoUring, cqueue, opcode, squeue, types};

/// Bytes of a header: 128 for FUSE headers, 128 for a request's fixed part, 32 for sizes.
pub const HEADER_BYTES: usize = 288;

const REGISTER: u32 = 1;
const COMMIT_AND_FETCH: u32 = 2;

/// Marks completions of the waker's poll.
const WAKER: u64 = u64::MAX;

const PAGE: usize = 4096;

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event {
    /// The waker became readable. Clear it and call [`FuseRing::watch_waker`].
    Woken,
    /// The entry with this number holds a request.
    Request(usize),
    /// The entry with this number is lost; with the error (ENOTCONN: unmounted).
    Lost(usize, i32),
}

/// The owner of an entry's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Owner {
    Kernel,
    Ours,
    Lost,
}

struct Entry {
    queue: u16,
    owner: Owner,
    /// What REGISTER points to. Only read while that is submitted; kept as long as the entry.
    iovecs: Box<[libc::iovec; 2]>,
}

/// Entries of one or more queues, served by the thread that made it: the kernel refuses the
/// submissions of any other.
pub struct FuseRing {
    // Fields are dropped in this order: the ring first, which ends all commands, then the memory.
    ring: IoUring<squeue::Entry128, cqueue::Entry>,
    entries: Vec<Entry>,
    /// Taken from the ring and not returned to the caller yet.
    events: VecDeque<Event>,
    memory: Memory,
    payload_bytes: usize,
    device: OwnedFd,
    waker: OwnedFd,
}

/// Whether this process may use io_uring in the way that a [`FuseRing`] does.
///
/// # Errors
/// The kernel's refusal: too old (EINVAL), switched off or forbidden (EPERM), not there (ENOSYS).
pub fn probe() -> io::Result<()> {
    build(2).map(drop)
}

/// DEFER_TASKRUN: the kernel touches an entry's memory only while the thread that made the ring is
/// inside of io_uring_enter on it, and not at all once the ring is closed.
fn build(slots: u32) -> io::Result<IoUring<squeue::Entry128, cqueue::Entry>> {
    IoUring::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .setup_submit_all()
        .build(slots)
}

impl FuseRing {
    /// Registers entries: `queues` has the number for each queue, `payload_bytes` is the size of
    /// each payload. `waker` is an eventfd; `device` is tied to a mount whose INIT took
    /// `FUSE_OVER_IO_URING`.
    ///
    /// # Errors
    /// Also the kernel's refusal of an entry. The mount then goes on over the device, unless all
    /// queues were registered before.
    pub fn new(
        device: OwnedFd,
        waker: OwnedFd,
        queues: &[(u16, usize)],
        payload_bytes: usize,
    ) -> io::Result<Self> {
        let count: usize = queues.iter().map(|(_, count)| count).sum();
        let slots = (count + 1).next_power_of_two() as u32;
        let ring = build(slots)?;
        let payload_bytes = payload_bytes.next_multiple_of(PAGE);
        let memory = Memory::new(count * (PAGE + payload_bytes))?;
        let (entries, events) = (Vec::new(), VecDeque::new());
        let mut this = Self {
            ring,
            entries,
            events,
            memory,
            payload_bytes,
            device,
            waker,
        };
        for &(queue, count) in queues {
            for _ in 0..count {
                this.register(queue);
            }
        }
        this.watch_waker();
        this.ring.submit()?;
        match this.refusal() {
            Some(errno) => Err(io::Error::from_raw_os_error(errno)),
            None => Ok(this),
        }
    }

    /// Submits what is to be submitted; if nothing has happened yet, sleeps until something does.
    pub fn wait(&mut self) -> io::Result<()> {
        let wanted = usize::from(self.events.is_empty() && self.ring.completion().is_empty());
        match self.ring.submit_and_wait(wanted) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(()),
            other => other.map(drop),
        }
    }

    /// Submits pending entries and polls for completions, without sleeping.
    pub fn poll(&mut self) -> io::Result<()> {
        self.ring
            .submitter()
            .submit_with_args(0, &types::SubmitArgs::new())
            .map(drop)
    }

    /// What happened, one by one; `None` when nothing more did.
    pub fn next_event(&mut self) -> Option<Event> {
        self.take_completions();
        self.events.pop_front()
    }

    fn take_completions(&mut self) {
        for completion in self.ring.completion() {
            let (number, result) = (completion.user_data(), completion.result());
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

    /// Header and payload of an entry that holds a request.
    ///
    /// # Panics
    /// When the entry is not ours at present.
    pub fn message(&mut self, number: usize) -> (&mut [u8; HEADER_BYTES], &mut [u8]) {
        assert_eq!(
            self.entries[number].owner,
            Owner::Ours,
            "entry {number} belongs to the kernel"
        );
        let (header, payload) = self.place(number);
        // SAFETY: `place` lies inside of `memory`, which lives as long as `self`, is initialised
        // (anonymous pages are zero) and aligned for bytes. The kernel does not touch an entry that
        // is ours, and `&mut self` keeps everyone else away.
        let header = unsafe { &mut *header.cast::<[u8; HEADER_BYTES]>().as_ptr() };
        // SAFETY: as above; header and payload do not overlap.
        let payload =
            unsafe { std::slice::from_raw_parts_mut(payload.as_ptr(), self.payload_bytes) };
        (header, payload)
    }

    /// Returns the entry to the kernel with its reply, to fetch the next request
    /// (COMMIT_AND_FETCH). Takes effect at the next [`wait`](Self::wait).
    ///
    /// # Panics
    /// When the entry is not ours at present.
    pub fn commit(&mut self, number: usize, commit_id: u64) {
        assert_eq!(
            self.entries[number].owner,
            Owner::Ours,
            "entry {number} belongs to the kernel"
        );
        self.entries[number].owner = Owner::Kernel;
        let entry = self.command(COMMIT_AND_FETCH, number, commit_id);
        self.push(entry);
    }

    /// Asks for one [`Event::Woken`].
    pub fn watch_waker(&mut self) {
        let fd = types::Fd(self.waker.as_raw_fd());
        let poll = opcode::PollAdd::new(fd, libc::POLLIN as u32)
            .build()
            .user_data(WAKER);
        self.push(poll.into());
    }

    /// Whether any entry may still bring requests.
    pub fn is_alive(&self) -> bool {
        self.entries.iter().any(|entry| entry.owner != Owner::Lost)
    }

    fn register(&mut self, queue: u16) {
        let number = self.entries.len();
        let (header, payload) = self.place(number);
        let iovec = |base: NonNull<u8>, length| libc::iovec {
            iov_base: base.as_ptr().cast(),
            iov_len: length,
        };
        let iovecs = Box::new([
            iovec(header, HEADER_BYTES),
            iovec(payload, self.payload_bytes),
        ]);
        self.entries.push(Entry {
            queue,
            owner: Owner::Kernel,
            iovecs,
        });
        let entry = self.command(REGISTER, number, 0);
        self.push(entry);
    }

    /// The kernel refuses at once, before any request can come; and if it refuses one entry of a
    /// ring, it refuses all.
    fn refusal(&mut self) -> Option<i32> {
        self.take_completions();
        self.events.iter().find_map(|event| match event {
            Event::Lost(_, errno) => Some(*errno),
            _ => None,
        })
    }

    /// Where an entry's header and payload are.
    fn place(&self, number: usize) -> (NonNull<u8>, NonNull<u8>) {
        let header = self.memory.at(number * (PAGE + self.payload_bytes));
        let payload = self.memory.at(number * (PAGE + self.payload_bytes) + PAGE);
        (header, payload)
    }

    fn command(&self, operation: u32, number: usize, commit_id: u64) -> squeue::Entry128 {
        let entry = &self.entries[number];
        // struct fuse_uring_cmd_req: flags, commit id, queue.
        let mut command = [0; 80];
        command[8..16].copy_from_slice(&commit_id.to_ne_bytes());
        command[16..18].copy_from_slice(&entry.queue.to_ne_bytes());
        let mut submission = opcode::UringCmd80::new(types::Fd(self.device.as_raw_fd()), operation)
            .cmd(command)
            .addr(Some(entry.iovecs.as_ptr() as u64))
            .build()
            .user_data(number as u64);
        set_length(&mut submission, entry.iovecs.len() as u32);
        submission
    }

    fn push(&mut self, entry: squeue::Entry128) {
        // SAFETY: a command names memory of `self`: the iovecs and what they lead to live until
        // the ring is closed, and the accounts in `entries` keep us from it meanwhile. The poll
        // names no memory. The descriptors live as long as the ring.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        // One place for each entry and one for the waker: each has at most one submission.
        assert!(
            pushed.is_ok(),
            "the submission queue has a place for every entry"
        );
    }
}

impl AsFd for FuseRing {
    /// Readable when there are completions that were not taken yet.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the descriptor is the ring's, which is open as long as it is borrowed.
        unsafe { BorrowedFd::borrow_raw(self.ring.as_raw_fd()) }
    }
}

impl fmt::Debug for FuseRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FuseRing")
            .field("entries", &self.entries.len())
            .finish_non_exhaustive()
    }
}

/// Sets `len` of a submission entry, for which the library has no way in commands.
fn set_length(submission: &mut squeue::Entry128, length: u32) {
    /// `struct io_uring_sqe`: opcode, flags, ioprio, fd, off, addr, then len.
    const LENGTH_AT: usize = 24;
    const _: () = assert!(size_of::<squeue::Entry128>() == 128);
    let base = (&raw mut *submission).cast::<u8>();
    // SAFETY: the entry has 128 bytes, as was asserted above.
    let place = unsafe { base.add(LENGTH_AT) }.cast::<u32>();
    // SAFETY: the type is the kernel's entry (`repr(C)`), in which bytes 24 to 27 are `len`; any
    // value is valid there. Alignment is not relied on.
    unsafe { place.write_unaligned(length) };
}

/// Anonymous memory, mapped when it is first touched.
struct Memory {
    base: NonNull<u8>,
    length: usize,
}

// SAFETY: it is memory owned by one value, not tied to a thread.
unsafe impl Send for Memory {}

// SAFETY: the iovecs point into the `Memory` beside them, which moves between threads with them.
unsafe impl Send for Entry {}

impl Memory {
    fn new(length: usize) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a fresh mapping anywhere; nothing that exists is touched.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), length, protection, flags, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, length })
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(
            offset < self.length,
            "offset {offset} is outside of {} bytes",
            self.length
        );
        // SAFETY: inside of the mapping, as was just asserted.
        unsafe { self.base.add(offset) }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by `new` with this length. The ring is closed before (order
        // of fields), after which the kernel no longer writes to it (DEFER_TASKRUN).
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.length) };
    }
}
