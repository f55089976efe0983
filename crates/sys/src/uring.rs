//! A small io_uring with submissions of 128 bytes, for the thread that enables it.
//!
//! Its queues lie in memory of this process (IORING_SETUP_NO_MMAP). Queues that are mapped from the
//! ring's descriptor, as is usual, keep the ring open as long as any thread of the process lives,
//! and after a kill one may live on, unkillable. This way the ring ends with its last descriptor.
//!
//! Facts from `include/uapi/linux/io_uring.h`.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::anonymous::Memory;

const R_DISABLED: u32 = 1 << 6;
const SUBMIT_ALL: u32 = 1 << 7;
const SQE128: u32 = 1 << 10;
const SINGLE_ISSUER: u32 = 1 << 12;
/// The kernel acts for a ring only while the thread that enabled it is inside of io_uring_enter on
/// it, and not at all once the ring is closed.
const DEFER_TASKRUN: u32 = 1 << 13;
const NO_MMAP: u32 = 1 << 14;
const NO_SQARRAY: u32 = 1 << 16;

const GET_EVENTS: u32 = 1;

const POLL_ADD: u8 = 6;
const URING_CMD: u8 = 46;

/// IOSQE_FIXED_FILE: the descriptor is the place of a registered file.
const REGISTERED: u8 = 1;

/// Operations of io_uring_register(2).
const REGISTER_FILES: u32 = 2;
const REGISTER_RESTRICTIONS: u32 = 11;
const REGISTER_ENABLE_RINGS: u32 = 12;

/// Kinds of restrictions.
const ALLOW_SUBMISSION: u16 = 1;
const REQUIRE_FLAGS: u16 = 3;

const PAGE: usize = 4096;

/// More than the heads, tails and counters in front of the completions.
const CONTROL_BYTES: usize = 1024;

#[repr(C)]
#[derive(Default)]
struct Params {
    sq_entries: u32,
    cq_entries: u32,
    flags: u32,
    sq_thread: [u32; 2],
    features: u32,
    wq_fd: u32,
    reserved: [u32; 3],
    sq: SubmissionOffsets,
    cq: CompletionOffsets,
}

#[repr(C)]
#[derive(Default)]
struct SubmissionOffsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    flags: u32,
    dropped: u32,
    array: u32,
    reserved: u32,
    /// Where the submissions are.
    user_addr: u64,
}

#[repr(C)]
#[derive(Default)]
struct CompletionOffsets {
    head: u32,
    tail: u32,
    mask: u32,
    entries: u32,
    overflow: u32,
    entries_at: u32,
    flags: u32,
    reserved: u32,
    /// Where everything else is.
    user_addr: u64,
}

/// Something that an enabled ring may do, or has to.
#[repr(C)]
struct Restriction {
    kind: u16,
    value: u8,
    reserved: [u8; 13],
}

const _: () = assert!(size_of::<Restriction>() == 16);

impl Restriction {
    fn new(kind: u16, value: u8) -> Self {
        Self {
            kind,
            value,
            reserved: [0; 13],
        }
    }
}

/// The place of a file that was registered with a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RegisteredFile(pub(crate) i32);

/// What the kernel shall do.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Submission {
    opcode: u8,
    flags: u8,
    priority: u16,
    fd: i32,
    operation: [u32; 2],
    address: u64,
    length: u32,
    events: u32,
    user_data: u64,
    unused: [u32; 2],
    command: [u8; 80],
}

/// What the kernel did.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Completion {
    /// Of the submission.
    pub(crate) user_data: u64,
    /// Negative: an error.
    pub(crate) result: i32,
    flags: u32,
}

const _: () = assert!(size_of::<Params>() == 120);
const _: () = assert!(size_of::<Submission>() == 128);
const _: () = assert!(size_of::<Completion>() == 16);

impl Submission {
    fn new(opcode: u8, RegisteredFile(fd): RegisteredFile, user_data: u64) -> Self {
        Self {
            opcode,
            flags: REGISTERED,
            priority: 0,
            fd,
            operation: [0; 2],
            address: 0,
            length: 0,
            events: 0,
            user_data,
            unused: [0; 2],
            command: [0; 80],
        }
    }

    /// One completion when the file is readable.
    pub(crate) fn poll(file: RegisteredFile, user_data: u64) -> Self {
        let events = libc::POLLIN as u32;
        // The kernel reads the halves of this word in the order of little-endian machines.
        let big = cfg!(target_endian = "big");
        Self {
            events: if big { events.rotate_left(16) } else { events },
            ..Self::new(POLL_ADD, file, user_data)
        }
    }

    /// A command of the file's own.
    pub(crate) fn command(
        file: RegisteredFile,
        user_data: u64,
        operation: u32,
        command: [u8; 80],
    ) -> Self {
        Self {
            operation: [operation, 0],
            command,
            ..Self::new(URING_CMD, file, user_data)
        }
    }

    /// With what `address` and `length` mean for it.
    pub(crate) fn with_memory(self, address: u64, length: u32) -> Self {
        Self {
            address,
            length,
            ..self
        }
    }
}

/// The ring. The kernel refuses the calls of any other thread than the one that enabled it.
pub(crate) struct Uring {
    // Fields are dropped in this order: after its last descriptor, a ring touches no memory of the
    // process; pages of the queues that it still holds are no longer mapped then.
    fd: OwnedFd,
    queues: Memory,
    submissions: Memory,
    params: Params,
    /// Submissions ever written.
    tail: u32,
}

impl Uring {
    /// A ring with room for `slots` submissions, a power of two. It takes none before it is
    /// [enabled](Self::enable).
    pub(crate) fn disabled(slots: u32) -> io::Result<Self> {
        let count = slots as usize;
        let completions = 2 * count * size_of::<Completion>();
        let queues = Memory::new((CONTROL_BYTES + completions).next_multiple_of(PAGE))?;
        let bytes = count * size_of::<Submission>();
        let submissions = Memory::new(bytes.next_multiple_of(PAGE))?;
        let mut params = Params {
            flags: R_DISABLED
                | SUBMIT_ALL
                | SQE128
                | SINGLE_ISSUER
                | DEFER_TASKRUN
                | NO_MMAP
                | NO_SQARRAY,
            ..Params::default()
        };
        params.sq.user_addr = submissions.at(0).as_ptr() as u64;
        params.cq.user_addr = queues.at(0).as_ptr() as u64;
        // SAFETY: `params` has the kernel's layout and outlives the call. The memory that it names
        // is as large as queues of that many entries need (asserted below before it is used),
        // belongs to the new ring alone, and is unmapped only after the ring's descriptor was
        // closed.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, slots, &raw mut params) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
        let end = params.cq.entries_at as usize + completions;
        assert!(
            end <= queues.length() && params.sq_entries == slots && params.cq_entries == 2 * slots,
            "the kernel's queues are as large as was asked for"
        );
        Ok(Self {
            fd,
            queues,
            submissions,
            params,
            tail: 0,
        })
    }

    /// Submissions that it has room for.
    pub(crate) fn slots(&self) -> usize {
        self.params.sq_entries as usize
    }

    /// Once the ring is enabled it takes commands to registered files and polls of them, nothing
    /// else, and no further call of io_uring_register(2).
    pub(crate) fn restrict(&self) -> io::Result<()> {
        let restrictions = [
            Restriction::new(ALLOW_SUBMISSION, URING_CMD),
            Restriction::new(ALLOW_SUBMISSION, POLL_ADD),
            Restriction::new(REQUIRE_FLAGS, REGISTERED),
        ];
        let count = restrictions.len();
        self.register(REGISTER_RESTRICTIONS, restrictions.as_ptr().cast(), count)
    }

    /// Gives files the places 0, 1 and so on. The ring keeps them open.
    pub(crate) fn register_files(&self, files: &[BorrowedFd<'_>]) -> io::Result<()> {
        let numbers: Vec<i32> = files.iter().map(AsRawFd::as_raw_fd).collect();
        self.register(REGISTER_FILES, numbers.as_ptr().cast(), numbers.len())
    }

    /// From now on the calling thread, and no other, may use the ring.
    pub(crate) fn enable(&self) -> io::Result<()> {
        self.register(REGISTER_ENABLE_RINGS, std::ptr::null(), 0)
    }

    /// `argument` leads to `count` values of the kind that the operation takes.
    fn register(
        &self,
        operation: u32,
        argument: *const libc::c_void,
        count: usize,
    ) -> io::Result<()> {
        let fd = self.fd.as_raw_fd();
        // SAFETY: the three callers above pass what the kernel reads during this call.
        let outcome =
            unsafe { libc::syscall(libc::SYS_io_uring_register, fd, operation, argument, count) };
        if outcome < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Writes a submission, which [`enter`](Self::enter) will submit; false when there is no room.
    ///
    /// # Safety
    /// The memory that it names lives until it is complete or the ring is
    /// closed.
    pub(crate) unsafe fn push(&mut self, submission: &Submission) -> bool {
        let slots = self.params.sq_entries;
        let head = self.counter(self.params.sq.head).load(Ordering::Acquire);
        if self.tail.wrapping_sub(head) >= slots {
            return false;
        }
        let slot = (self.tail % slots) as usize;
        let place = self.submissions.at(slot * size_of::<Submission>());
        // SAFETY: inside of the memory, whose base is on a page; the kernel does not read this slot
        // before the tail says that it is filled, and was done with it when it moved the head.
        unsafe { place.cast::<Submission>().write(*submission) };
        self.tail = self.tail.wrapping_add(1);
        self.counter(self.params.sq.tail)
            .store(self.tail, Ordering::Release);
        true
    }

    /// Submits what was written, then sleeps until there are `wanted` completions; with `events`
    /// the kernel also delivers those that are due.
    pub(crate) fn enter(&mut self, wanted: u32, events: bool) -> io::Result<()> {
        let head = self.counter(self.params.sq.head).load(Ordering::Acquire);
        let count = self.tail.wrapping_sub(head);
        let flags = if events { GET_EVENTS } else { 0 };
        let fd = self.fd.as_raw_fd();
        // SAFETY: no signal mask is passed; what the submissions name lives long enough, as their
        // writer promised.
        let outcome = unsafe {
            let none = std::ptr::null::<libc::c_void>();
            libc::syscall(libc::SYS_io_uring_enter, fd, count, wanted, flags, none, 0)
        };
        if outcome < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Whether [`next`](Self::next) has something.
    pub(crate) fn has_completions(&self) -> bool {
        let head = self.counter(self.params.cq.head).load(Ordering::Relaxed);
        head != self.counter(self.params.cq.tail).load(Ordering::Acquire)
    }

    /// Takes a completion.
    pub(crate) fn next(&mut self) -> Option<Completion> {
        if !self.has_completions() {
            return None;
        }
        let head = self.counter(self.params.cq.head).load(Ordering::Relaxed);
        let slot = (head % self.params.cq_entries) as usize;
        let at = self.params.cq.entries_at as usize + slot * size_of::<Completion>();
        // SAFETY: inside of the memory, as was asserted in `new`, and aligned by the kernel; it was
        // filled before the tail moved and is not written again before the head moves.
        let completion = unsafe { self.queues.at(at).cast::<Completion>().read() };
        self.counter(self.params.cq.head)
            .store(head.wrapping_add(1), Ordering::Release);
        Some(completion)
    }

    /// A head or a tail, which the kernel changes too.
    fn counter(&self, offset: u32) -> &AtomicU32 {
        let place = self.queues.at(offset as usize).cast::<u32>();
        // SAFETY: inside of memory that lives as long as `self`; the kernel aligns its counters and
        // both sides access them atomically.
        unsafe { AtomicU32::from_ptr(place.as_ptr()) }
    }
}

impl AsFd for Uring {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eventfd::EventFd;

    /// A ring with these files, or a line that says why there is none.
    fn enabled(files: &[EventFd]) -> Option<Uring> {
        let ring = match Uring::disabled(4) {
            Ok(ring) => ring,
            Err(error) => {
                println!("skipped: io_uring: {error}");
                return None;
            }
        };
        let files: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        ring.restrict().unwrap();
        ring.register_files(&files).unwrap();
        ring.enable().unwrap();
        Some(ring)
    }

    #[test]
    fn an_enabled_ring_takes_polls_of_its_files_and_nothing_else() {
        let event = [EventFd::new().unwrap()];
        let Some(mut ring) = enabled(&event) else {
            return;
        };
        let poll = Submission::poll(RegisteredFile(0), 1);
        // By their numbers in `enum io_uring_op`: NOP, FSYNC, ACCEPT, OPENAT, CLOSE, CONNECT,
        // SOCKET.
        let others = [0, 3, 13, 18, 19, 16, 45].map(|opcode| Submission { opcode, ..poll });
        let plain = Submission {
            flags: 0,
            fd: event[0].as_fd().as_raw_fd(),
            ..poll
        };
        for submission in others.into_iter().chain([plain]) {
            // SAFETY: no memory is named.
            assert!(unsafe { ring.push(&submission) });
            ring.enter(1, true).unwrap();
            let refused = ring.next().unwrap();
            assert_eq!(refused.result, -libc::EACCES, "{submission:?}");
        }
        let again = ring.register_files(&[event[0].as_fd()]);
        assert_eq!(again.unwrap_err().raw_os_error(), Some(libc::EACCES));
        event[0].wake();
        // SAFETY: no memory is named.
        assert!(unsafe { ring.push(&poll) });
        ring.enter(1, true).unwrap();
        assert_eq!(ring.next().unwrap().result, i32::from(libc::POLLIN));
    }

    #[test]
    fn a_ring_that_is_not_enabled_takes_nothing() {
        let Ok(mut ring) = Uring::disabled(4) else {
            return println!("skipped: io_uring");
        };
        assert_eq!(
            ring.enter(0, true).unwrap_err().raw_os_error(),
            Some(libc::EBADFD)
        );
    }

    #[test]
    fn completions_come_in_the_order_of_what_happened_however_often_the_queues_turn() {
        let events: Vec<_> = (0..4).map(|_| EventFd::new().unwrap()).collect();
        let Some(mut ring) = enabled(&events) else {
            return;
        };
        for round in 0..50 {
            for number in 0..4 {
                let poll = Submission::poll(RegisteredFile(number), round * 4 + number as u64);
                // SAFETY: no memory is named.
                assert!(unsafe { ring.push(&poll) });
            }
            let fifth = Submission::poll(RegisteredFile(0), 9);
            // SAFETY: as above.
            assert!(!unsafe { ring.push(&fifth) }, "there is no room");
            ring.enter(0, true).unwrap();
            assert!(!ring.has_completions());
            for number in [2, 0, 3, 1] {
                events[number].wake();
                ring.enter(1, true).unwrap();
                let completion = ring.next().unwrap();
                assert_eq!(completion.user_data, round * 4 + number as u64);
                assert_eq!(completion.result, i32::from(libc::POLLIN));
                events[number].clear();
            }
            assert!(ring.next().is_none());
        }
    }

    #[test]
    fn the_queues_are_no_mapping_of_the_ring() {
        let Ok(ring) = Uring::disabled(4) else {
            return println!("skipped: io_uring");
        };
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        assert!(!maps.contains("io_uring"), "{maps}");
        drop(ring);
    }
}
